//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
	"blast/internal/sys"
)

// Limits of the kernel (io_uring/rsrc.c): slots of registered files, number and size of registered buffers.
const (
	MaxFiles       = 1 << 20
	MaxBuffers     = 1 << 14
	MaxBufferBytes = 1 << 30
)

// RegisterFiles makes a table of registered files, so that entries with FixedFile spare the descriptor's look-up and
// reference counting. fds is copied; -1 leaves a slot empty for UpdateFiles. A ring has one table. The kernel bounds it by the
// soft limit of open files (RLIMIT_NOFILE).
func (r *Ring) RegisterFiles(fds []int32) error {
	if err := r.usable(); err != nil {
		return err
	}
	if len(fds) == 0 || len(fds) > MaxFiles {
		return fmt.Errorf("uring: register %d files: the kernel takes 1 to %d", len(fds), MaxFiles)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil && uint64(len(fds)) > lim.Cur {
		return fmt.Errorf("uring: register %d files: the limit of open files is %d (hard limit %d); fix: ulimit -n %d: %w",
			len(fds), lim.Cur, lim.Max, len(fds), syscall.EMFILE)
	}
	if err := sys.URingRegisterFiles(r.fd, fds); err != nil {
		return fmt.Errorf("uring: register %d files: %w", len(fds), err)
	}
	r.files = len(fds)
	return nil
}

// RegisterSparseFiles makes a table of n empty slots.
func (r *Ring) RegisterSparseFiles(n int) error {
	if n < 0 || n > MaxFiles {
		return fmt.Errorf("uring: register %d files: the kernel takes 1 to %d", n, MaxFiles)
	}
	fds := make([]int32, n)
	for i := range fds {
		fds[i] = -1
	}
	return r.RegisterFiles(fds)
}

// UpdateFiles replaces the slots from offset on; -1 empties one. Requests in flight keep the file they started with.
func (r *Ring) UpdateFiles(offset int, fds []int32) error {
	if err := r.usable(); err != nil {
		return err
	}
	if offset < 0 || len(fds) == 0 || offset+len(fds) > r.files {
		return fmt.Errorf("uring: update files %d to %d: %d slots are registered", offset, offset+len(fds)-1, r.files)
	}
	n, err := sys.URingUpdateFiles(r.fd, uint32(offset), fds)
	if err != nil {
		return fmt.Errorf("uring: update files: %w", err)
	}
	if n != len(fds) {
		return fmt.Errorf("uring: update files: slot %d: bad descriptor %d, the slots before it were replaced", offset+n, fds[n])
	}
	return nil
}

// RegisterBuffers pins pieces of the arena so that a zero-copy send with SQE.FixedBuffer spares pinning pages each time. A ring
// has one set. The pages count against RLIMIT_MEMLOCK unless the process had CAP_IPC_LOCK when it called New.
func (r *Ring) RegisterBuffers(bufs [][]byte) error {
	if err := r.usable(); err != nil {
		return err
	}
	if len(bufs) == 0 || len(bufs) > MaxBuffers {
		return fmt.Errorf("uring: register %d buffers: the kernel takes 1 to %d", len(bufs), MaxBuffers)
	}
	iov := make([]sys.URingIovec, len(bufs))
	var total uint64
	for i, b := range bufs {
		if !r.cfg.ForeignMemory && !r.Owns(b) {
			return fmt.Errorf("uring: register buffer %d: %w", i, ErrForeign)
		}
		if len(b) > MaxBufferBytes {
			return fmt.Errorf("uring: register buffer %d of %d bytes: the kernel takes up to %d", i, len(b), MaxBufferBytes)
		}
		iov[i] = sys.URingIovec{Base: ring.Addr(b), Len: uint64(len(b))}
		total += uint64(len(b))
	}
	if err := r.facts.lockable("registered buffers", total, nil); err != nil {
		return err
	}
	if err := sys.URingRegisterBuffers(r.fd, iov); err != nil {
		if errors.Is(err, syscall.ENOMEM) {
			return r.facts.memlockError("registered buffers", total, err)
		}
		return fmt.Errorf("uring: register %d buffers: %w", len(bufs), err)
	}
	r.buffers = true
	return nil
}

// UnregisterBuffers releases them; it waits for requests that use them.
func (r *Ring) UnregisterBuffers() error {
	if err := r.usable(); err != nil {
		return err
	}
	if err := sys.URingUnregisterBuffers(r.fd); err != nil {
		return fmt.Errorf("uring: unregister buffers: %w", err)
	}
	r.buffers = false
	return nil
}

// CheckZeroCopy tells whether the ring may have bytes of payload in zero-copy flight at once. The pages of each such send are
// charged to the user until its notification. The capability is looked at first: with CAP_IPC_LOCK there is no limit.
func (r *Ring) CheckZeroCopy(bytes int) error {
	if !r.granted.Ops.Has(OpSendZC) {
		return &UnsupportedError{What: "zero-copy send", Why: "the kernel does not know SEND_ZC", Fix: "run Linux 6.0 or newer"}
	}
	return r.facts.lockable("zero-copy sends", uint64(max(bytes, 0)), nil)
}

// ExplainENOMEM gives the reason when a zero-copy send completed with ENOMEM: the locked-memory limit with its numbers, or,
// where that cannot be it, plainly no memory. inFlight is the payload under way, in bytes.
func (r *Ring) ExplainENOMEM(inFlight int) error {
	return r.facts.memlockError("zero-copy sends", uint64(max(inFlight, 0)), syscall.ENOMEM)
}

// RegisterNAPI makes waiting in SubmitAndWait poll the network device of the ring's sockets for up to busyPoll (whole
// microseconds) instead of sleeping at once; prefer asks the device to leave its interrupts off meanwhile
// (SO_PREFER_BUSY_POLL). It needs 6.9 and a kernel with busy polling. It costs CPU time of the calling thread.
func (r *Ring) RegisterNAPI(busyPoll time.Duration, prefer bool) error {
	if err := r.usable(); err != nil {
		return err
	}
	us := busyPoll.Microseconds()
	if us <= 0 || us > int64(time.Minute/time.Microsecond) {
		return fmt.Errorf("uring: NAPI busy polling for %v: from 1us to 1m", busyPoll)
	}
	n := sys.URingNAPI{BusyPollMicros: uint32(us)}
	if prefer {
		n.PreferBusyPoll = 1
	}
	return r.featureError("NAPI busy polling", "6.9, built with CONFIG_NET_RX_BUSY_POLL", sys.URingRegisterNAPI(r.fd, &n))
}

// UnregisterNAPI ends busy polling.
func (r *Ring) UnregisterNAPI() error {
	if err := r.usable(); err != nil {
		return err
	}
	return r.featureError("NAPI busy polling", "6.9, built with CONFIG_NET_RX_BUSY_POLL", sys.URingUnregisterNAPI(r.fd))
}

// featureError names the kernel a feature needs when the running one does not know it.
func (r *Ring) featureError(what, kernel string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EOPNOTSUPP):
		return &UnsupportedError{What: what, Why: "refused by Linux " + r.facts.release, Fix: "run Linux " + kernel, Err: err}
	default:
		return fmt.Errorf("uring: %s: %w", what, err)
	}
}
