package engine

import (
	"runtime"
	"slices"

	"blast/internal/sys"
)

// aside keeps the calling goroutine, which collects what the threads hand over, off the workers' CPUs, as long as there are others: there its
// work would be a stall of the plan. undo ends that. An error of the kernel leaves it where it is; that costs evenness and nothing else.
func (c *Config) aside() (undo func()) {
	runtime.LockOSThread()
	undo = runtime.UnlockOSThread
	if c.CPUs == nil {
		return undo
	}
	cpus, err := sys.Affinity()
	if err != nil {
		return undo
	}
	others := slices.DeleteFunc(cpus, func(cpu int) bool { return slices.Contains(c.CPUs, cpu) })
	if len(others) == 0 {
		return undo
	}
	restore, err := sys.Pin(others...)
	if err != nil {
		return undo
	}
	return func() {
		restore()
		runtime.UnlockOSThread()
	}
}
