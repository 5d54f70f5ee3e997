package sys

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Monotonic reads CLOCK_MONOTONIC in ns.
func Monotonic() int64 {
	var ts unix.Timespec
	// clock_gettime(2) cannot fail for CLOCK_MONOTONIC and a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// SleepUntil sleeps to the absolute time t in ns of CLOCK_MONOTONIC. It returns early on a signal such as the runtime's own
// SIGURG: the caller looks at the clock anyway. It is a blocking call, so the scheduler is told (Syscall, not RawSyscall).
func SleepUntil(t int64) {
	ts := unix.NsecToTimespec(t)
	unix.Syscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// TimerSlack sets the calling thread's timer slack in ns; the default of 50 us delays every sleep (prctl(2) PR_SET_TIMERSLACK).
func TimerSlack(ns int) error {
	return os.NewSyscallError("prctl PR_SET_TIMERSLACK", unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0))
}

// Pin restricts the calling thread, which must be locked, to the given CPUs. restore gives it back the mask it had: Go does not end
// the first thread of the process with the goroutine that was locked to it, and /proc/self speaks for that thread.
func Pin(cpus ...int) (restore func(), err error) {
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_setaffinity", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}

// Affinity returns the CPUs the calling thread may run on.
func Affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Usage is what the kernel charged to one thread.
type Usage struct {
	// User and System are CPU times.
	User, System time.Duration
	// Voluntary and Involuntary are context switches.
	Voluntary, Involuntary int64
}

// ThreadUsage returns the calling thread's own usage (getrusage(2) RUSAGE_THREAD).
func ThreadUsage() Usage {
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &ru)
	return Usage{
		User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()),
		Voluntary: ru.Nvcsw, Involuntary: ru.Nivcsw,
	}
}
