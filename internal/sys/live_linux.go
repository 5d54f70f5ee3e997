package sys

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// progRun is the part of union bpf_attr that BPF_PROG_TEST_RUN reads (include/uapi/linux/bpf.h), 76 bytes of it and 4 of padding.
type progRun struct {
	prog, answer              uint32
	dataSizeIn, dataSizeOut   uint32
	dataIn, dataOut           unsafe.Pointer
	repeat, duration          uint32
	contextIn, contextSizeOut uint32
	context, contextOut       unsafe.Pointer
	flags, cpu, batch, _      uint32
}

const (
	bpfProgTestRun  = 10
	liveFrames      = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES, kernel 5.18
	progRunSize     = 76     // up to and with batch_size: the kernel wants zeros behind what it knows
	maxLiveBatch    = 256    // TEST_XDP_MAX_BATCH
	minLiveFrame    = 14
	progRunMaxTurns = 1<<32 - 1
)

// RunLive runs an XDP program turns times on copies of frame whose answers are obeyed (BPF_PROG_RUN with live frames,
// net/bpf/test_run.c). The kernel lets what the program redirected go after every batch turns, 1 to 256. The call blocks for as long
// as that takes; a signal to the thread ends it after the batch in hand with EINTR, and nothing says how many turns were done. It goes
// through Syscall, so that the scheduler hands the processor on and sends no preemption signal; RawSyscall would end in EINTR for ever.
func RunLive(prog int, frame []byte, turns uint32, batch int) syscall.Errno {
	if len(frame) < minLiveFrame || batch < 1 || batch > maxLiveBatch {
		return syscall.EINVAL
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(frame))
	attr := &progRun{
		prog: uint32(prog), dataSizeIn: uint32(len(frame)), dataIn: unsafe.Pointer(unsafe.SliceData(frame)),
		repeat: turns, flags: liveFrames, batch: uint32(batch),
	}
	_, _, e := unix.Syscall(unix.SYS_BPF, bpfProgTestRun, uintptr(unsafe.Pointer(attr)), progRunSize)
	return e
}

// MaxLiveTurns is the most turns of one RunLive.
const MaxLiveTurns = uint32(progRunMaxTurns)

// Interrupt sends a thread of this process the signal that the Go runtime uses for its own wake-ups, so that a blocking call there
// answers EINTR and nothing else happens. ESRCH means that the thread has ended.
func Interrupt(tid int) error { return unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) }
