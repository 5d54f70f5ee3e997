package sys

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// URingSetup is io_uring_setup(2): it returns the ring's descriptor (close-on-exec) and fills p. The error is a bare errno,
// because the caller's ladder looks at it.
func URingSetup(entries uint32, p *URingParams) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// URingEnterRaw is io_uring_enter(2) with min_complete 0, made without telling the Go scheduler: the thread keeps its P, so
// the call must be bounded to tens of microseconds. It returns the number of submission entries consumed.
func URingEnterRaw(fd int, submit, flags uint32) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), 0, uintptr(flags), 0, 0)
	return int(n), errno
}

// URingEnter is io_uring_enter(2) for calls that may take long or sleep: the scheduler can hand the P to another thread.
// arg may be nil; otherwise it lies in mapped memory and flags contains IORING_ENTER_EXT_ARG.
func URingEnter(fd int, submit, minComplete, flags uint32, arg *URingGetEventsArg) (int, syscall.Errno) {
	var size uintptr
	if arg != nil {
		size = unsafe.Sizeof(*arg)
	}
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(minComplete), uintptr(flags),
		uintptr(unsafe.Pointer(arg)), size)
	return int(n), errno
}

func uringRegister(fd int, op uint32, arg unsafe.Pointer, n int) (int, error) {
	r, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("io_uring_register", errno)
	}
	return int(r), nil
}

// URingProbeOps asks which opcodes the kernel knows (IORING_REGISTER_PROBE, 5.6).
func URingProbeOps(fd int, p *URingProbe) error {
	_, err := uringRegister(fd, IORING_REGISTER_PROBE, unsafe.Pointer(p), len(p.Ops))
	return err
}

// URingRegisterFiles makes the table of fixed files; -1 leaves a slot empty. fds is copied.
func URingRegisterFiles(fd int, fds []int32) error {
	_, err := uringRegister(fd, IORING_REGISTER_FILES, unsafe.Pointer(unsafe.SliceData(fds)), len(fds))
	return err
}

// URingUpdateFiles replaces slots from offset on, -1 empties one. It returns how many were replaced.
func URingUpdateFiles(fd int, offset uint32, fds []int32) (int, error) {
	var pin runtime.Pinner // the kernel follows up.Data, a plain number to the runtime, during the call
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(fds))
	up := URingRsrcUpdate{Offset: offset, Data: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(fds))))}
	return uringRegister(fd, IORING_REGISTER_FILES_UPDATE, unsafe.Pointer(&up), len(fds))
}

// URingUnregisterFiles drops the table of fixed files.
func URingUnregisterFiles(fd int) error {
	_, err := uringRegister(fd, IORING_UNREGISTER_FILES, nil, 0)
	return err
}

// URingRegisterBuffers pins the memory the iovecs point at, which must be mapped memory. The iovecs themselves are copied.
func URingRegisterBuffers(fd int, iov []URingIovec) error {
	_, err := uringRegister(fd, IORING_REGISTER_BUFFERS, unsafe.Pointer(unsafe.SliceData(iov)), len(iov))
	return err
}

// URingUnregisterBuffers releases the registered buffers.
func URingUnregisterBuffers(fd int) error {
	_, err := uringRegister(fd, IORING_UNREGISTER_BUFFERS, nil, 0)
	return err
}

// URingRegisterRing gives the ring an index in the calling thread's table of ring descriptors (5.18), which spares the
// look-up and reference counting of the descriptor in every enter. The index is valid on this thread only.
func URingRegisterRing(fd int) (int, error) {
	up := URingRsrcUpdate{Offset: ^uint32(0), Data: uint64(fd)}
	if _, err := uringRegister(fd, IORING_REGISTER_RING_FDS, unsafe.Pointer(&up), 1); err != nil {
		return -1, err
	}
	return int(up.Offset), nil
}

// URingUnregisterRing gives the index back; until then it keeps the ring alive.
func URingUnregisterRing(fd, index int) error {
	up := URingRsrcUpdate{Offset: uint32(index)}
	_, err := uringRegister(fd, IORING_UNREGISTER_RING_FDS, unsafe.Pointer(&up), 1)
	return err
}

// URingRegisterBufRing registers a ring of provided buffers (5.19).
func URingRegisterBufRing(fd int, reg *URingBufReg) error {
	_, err := uringRegister(fd, IORING_REGISTER_PBUF_RING, unsafe.Pointer(reg), 1)
	return err
}

// URingRegisterNAPI turns busy polling of the NAPI instances behind the ring's sockets on (6.9); n is overwritten with the
// setting before.
func URingRegisterNAPI(fd int, n *URingNAPI) error {
	_, err := uringRegister(fd, IORING_REGISTER_NAPI, unsafe.Pointer(n), 1)
	return err
}

// URingUnregisterNAPI turns it off.
func URingUnregisterNAPI(fd int) error {
	_, err := uringRegister(fd, IORING_UNREGISTER_NAPI, unsafe.Pointer(&URingNAPI{}), 1)
	return err
}

// URingSyncCancelAll cancels every request in flight and waits for it, at most as long as c.Timeout says (6.0).
func URingSyncCancelAll(fd int, c *URingSyncCancel) error {
	_, err := uringRegister(fd, IORING_REGISTER_SYNC_CANCEL, unsafe.Pointer(c), 1)
	return err
}

// ThreadCPUTime reads the CPU time of any thread of this process in ns: clock_gettime(2) on the per-thread CPU clock, whose
// id the kernel derives from the thread id (CPUCLOCK_PERTHREAD|CPUCLOCK_SCHED, include/linux/posix-timers_types.h).
func ThreadCPUTime(tid int) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^tid<<3|6), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return ts.Nano(), nil
}
