//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// facts is what decides why io_uring does not work: read once, judged by pure functions.
type facts struct {
	release  string
	disabled int  // sysctl kernel.io_uring_disabled (6.6), -1 when the kernel has none
	inGroup  bool // the process is in kernel.io_uring_group
	seccomp  int  // Seccomp of /proc/thread-self/status: 0 none, 2 filter
	sysAdmin bool
	ipcLock  bool   // CAP_IPC_LOCK that counts: effective, and in the initial user namespace, where the kernel asks for it
	memlock  uint64 // soft limit in bytes
	memHard  uint64
	nofile   uint64
	nofHard  uint64
}

// readFacts never fails: what cannot be read stays at the value that accuses nobody.
func readFacts() facts {
	f := facts{disabled: -1, memlock: math.MaxUint64, memHard: math.MaxUint64}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		f.release = unix.ByteSliceToString(uts.Release[:])
	}
	f.disabled = readInt("/proc/sys/kernel/io_uring_disabled", -1)
	if gid := readInt("/proc/sys/kernel/io_uring_group", -1); gid >= 0 {
		groups, _ := os.Getgroups()
		f.inGroup = os.Getegid() == gid || slices.Contains(groups, gid)
	}
	if b, err := os.ReadFile("/proc/thread-self/status"); err == nil {
		f.seccomp = atoi(statusField(b, "Seccomp"), 0)
		caps, _ := strconv.ParseUint(statusField(b, "CapEff"), 16, 64)
		f.sysAdmin = caps>>unix.CAP_SYS_ADMIN&1 != 0
		f.ipcLock = caps>>unix.CAP_IPC_LOCK&1 != 0 && initialUserNS()
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil {
		f.memlock, f.memHard = lim.Cur, lim.Max
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		f.nofile, f.nofHard = lim.Cur, lim.Max
	}
	return f
}

// initialUserNS tells whether the process lives in the first user namespace, whose map is the identity over all ids. io_uring asks
// capable(CAP_IPC_LOCK), which a container's own user namespace cannot grant.
func initialUserNS() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

func statusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func readInt(path string, otherwise int) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return otherwise
	}
	return atoi(string(bytes.TrimSpace(b)), otherwise)
}

func atoi(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return otherwise
}

// explainSetup says what is in the way when io_uring_setup(2) failed with err.
func explainSetup(err error, cfg Config, f facts) error {
	const seccompFix = "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile (docker run --security-opt seccomp=PROFILE.json)"
	sysErr := os.NewSyscallError("io_uring_setup", err)
	no := func(why, fix string) error {
		return &UnsupportedError{What: "io_uring", Why: why, Fix: fix, Err: sysErr}
	}
	switch {
	case errors.Is(err, syscall.ENOSYS):
		if f.seccomp == 2 {
			return no("a seccomp filter hides the system call, or Linux "+f.release+" was built without CONFIG_IO_URING", seccompFix)
		}
		return no("Linux "+f.release+" has no io_uring (before 5.1, or built without CONFIG_IO_URING)", "run Linux 5.11 or newer")
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		switch {
		case f.disabled == 2:
			return no("sysctl kernel.io_uring_disabled is 2: switched off for everybody", "sysctl -w kernel.io_uring_disabled=0")
		case f.disabled == 1 && !f.sysAdmin && !f.inGroup:
			return no("sysctl kernel.io_uring_disabled is 1: only CAP_SYS_ADMIN and the group in kernel.io_uring_group may use it",
				"sysctl -w kernel.io_uring_disabled=0, or join that group")
		case f.seccomp == 2:
			return no("a seccomp filter forbids the system call", seccompFix)
		case cfg.SQPoll:
			return no("SQPOLL needs a privilege on Linux "+f.release+" (CAP_SYS_ADMIN on 5.11, CAP_SYS_NICE on 5.12, none from 5.13)",
				"run without SQPoll, or setcap cap_sys_nice,cap_sys_admin+ep on the program")
		default:
			return no("forbidden, but neither by the sysctl nor by seccomp: a security module (SELinux, AppArmor) is left", "look into the audit log")
		}
	case errors.Is(err, syscall.ENOMEM):
		// Up to 5.11 the queues themselves count as locked memory, and again on newer kernels (seen on 6.18; io_create_region).
		need := uint64(cfg.Entries)*64 + uint64(cfg.CQEntries)*16
		return f.memlockError("queues", need, sysErr)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("uring: the limit of open files (%d, hard limit %d) is used up; fix: ulimit -n %d: %w", f.nofile, f.nofHard, 2*f.nofile, sysErr)
	case errors.Is(err, syscall.EINVAL) && cfg.SQPollPin:
		return fmt.Errorf("uring: is CPU %d online and allowed for this process? %w", cfg.SQPollCPU, sysErr)
	default:
		return fmt.Errorf("uring: %w", sysErr)
	}
}

// lockable judges whether bytes may be locked. The capability comes first: with it there is no limit.
func (f facts) lockable(what string, bytes uint64, cause error) error {
	if f.ipcLock || bytes <= f.memlock {
		return nil
	}
	return &UnsupportedError{
		What: what,
		Why:  fmt.Sprintf("%d bytes of locked memory wanted, the limit (RLIMIT_MEMLOCK) is %d, hard limit %s, and CAP_IPC_LOCK is missing", bytes, f.memlock, limit(f.memHard)),
		Fix:  fmt.Sprintf("ulimit -l %d, or setcap cap_ipc_lock+ep on the program", (bytes+1023)/1024),
		Err:  cause,
	}
}

// memlockError explains an ENOMEM. All processes of a user share one account, so the limit can be met by less than its size.
func (f facts) memlockError(what string, bytes uint64, cause error) error {
	if err := f.lockable(what, bytes, cause); err != nil {
		return err
	}
	if f.ipcLock || f.memlock == math.MaxUint64 {
		return fmt.Errorf("uring: %s: no memory for %d bytes, and no limit of locked memory is in the way: %w", what, bytes, cause)
	}
	return &UnsupportedError{
		What: what,
		Why: fmt.Sprintf("%d bytes of locked memory wanted; the limit (RLIMIT_MEMLOCK) is %d for all processes of the user together, hard limit %s, and CAP_IPC_LOCK is missing",
			bytes, f.memlock, limit(f.memHard)),
		Fix: "ulimit -l unlimited, or setcap cap_ipc_lock+ep on the program",
		Err: cause,
	}
}

func limit(v uint64) string {
	if v == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// Probe tells whether io_uring works for this process: nil means that it does; an error that matches errors.ErrUnsupported that it
// will not, with the cause and the command that changes it; any other error that it could not tell. It makes a tiny ring
// and drops it. It says nothing about single operations: see Granted.Ops.
func Probe() error { return probe(sys.URingSetup) }

func probe(setup setupFunc) error {
	p := &sys.URingParams{}
	fd, err := setup(2, p)
	if err != nil {
		return explainSetup(err, Config{Entries: 2, CQEntries: 4}, readFacts())
	}
	defer unix.Close(fd)
	if missing := Features(needed &^ p.Features); missing != 0 {
		return &UnsupportedError{What: "io_uring", Why: "the kernel lacks " + missing.String(), Fix: "run Linux 5.11 or newer"}
	}
	// A filter may allow set-up and forbid the rest.
	ops, err := probeOps(fd)
	if err == nil {
		if _, errno := sys.URingEnter(fd, 0, 0, sys.IORING_ENTER_GETEVENTS, nil); errno != 0 {
			err = os.NewSyscallError("io_uring_enter", errno)
		}
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EACCES) {
		return &UnsupportedError{What: "io_uring", Why: "set-up is allowed but not the rest: a seccomp filter or security module is incomplete",
			Fix: "allow io_uring_setup, io_uring_enter and io_uring_register together", Err: err}
	}
	if err != nil {
		return fmt.Errorf("uring: probe: %w", err)
	}
	if !ops.Has(OpSend) || !ops.Has(OpSendMsg) || !ops.Has(OpRecvMsg) {
		return &UnsupportedError{What: "io_uring", Why: "the kernel knows only " + ops.String(), Fix: "run Linux 5.11 or newer"}
	}
	return nil
}
