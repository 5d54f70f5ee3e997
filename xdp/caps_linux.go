package xdp

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// capability is a bit number of capabilities(7) with its name.
type capability struct {
	bit  uint
	name string
	// instead is a capability that serves as well, or -1.
	instead int
}

var (
	capNetRaw   = capability{unix.CAP_NET_RAW, "CAP_NET_RAW", -1}
	capNetAdmin = capability{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", -1}
	capBPF      = capability{unix.CAP_BPF, "CAP_BPF", unix.CAP_SYS_ADMIN}
	capIPCLock  = capability{unix.CAP_IPC_LOCK, "CAP_IPC_LOCK", -1}
)

// effective reads the calling thread's effective capabilities.
func effective() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// missing returns the names of those capabilities that the calling thread has not.
func missing(caps ...capability) ([]string, error) {
	have, err := effective()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range caps {
		if have>>c.bit&1 == 0 && (c.instead < 0 || have>>c.instead&1 == 0) {
			names = append(names, c.name)
		}
	}
	return names, nil
}

// requireCaps returns an error that names every missing capability and how to grant it, wrapping os.ErrPermission.
func requireCaps(what string, caps ...capability) error {
	names, err := missing(caps...)
	if err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("%s: missing %s; run as root, or: setcap %s+ep FILE: %w", what, strings.Join(names, ", "),
		strings.ToLower(strings.Join(names, ",")), unix.EPERM)
}

// memlockRemedy explains ENOBUFS of a memory registration: pinned pages over RLIMIT_MEMLOCK without CAP_IPC_LOCK
// (net/xdp/xdp_umem.c, xdp_umem_account_pages). The capability comes first: with it the limit does not matter.
func memlockRemedy(err error, bytes int) error {
	names, capErr := missing(capIPCLock)
	if capErr != nil || len(names) == 0 || !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return err
	}
	return fmt.Errorf("%w: %d bytes are to be pinned, RLIMIT_MEMLOCK is %d and CAP_IPC_LOCK is missing; raise it (ulimit -l %d) or grant the capability",
		err, bytes, limit.Cur, bytes/1024+1)
}

// raiseMemlock lifts the soft limit to the hard one when the capability that makes it irrelevant is missing. It is an attempt: a
// container may forbid it, and then the registration speaks for itself.
func raiseMemlock(bytes int) {
	if names, err := missing(capIPCLock); err != nil || len(names) == 0 {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur < uint64(bytes) && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
	}
}
