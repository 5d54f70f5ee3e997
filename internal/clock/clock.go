// Package clock reads CLOCK_MONOTONIC and waits for moments on it; Fake does both in a test's own time.
package clock

import (
	"time"

	"blast/internal/sys"
)

// Clock is what the engine needs of time. Times are ns of CLOCK_MONOTONIC, the clock that bpf_ktime_get_ns reads too.
type Clock interface {
	// Now reads the clock.
	Now() int64
	// Sleep gives the processor away until about t; it may return early (a signal) or late (the scheduler).
	Sleep(t int64)
}

// Real is the machine's clock. Its value must come from NewReal.
type Real struct {
	start time.Time
	base  int64 // CLOCK_MONOTONIC at start, ns
}

// NewReal ties Go's monotonic reading, which costs half of time.Now, to CLOCK_MONOTONIC. The two run on the same
// kernel clock, so the offset is a constant; the closest of some bracketed readings is within tens of ns.
func NewReal() *Real {
	r := &Real{}
	best := int64(1 << 62)
	for range 16 {
		before := time.Now()
		mono := sys.Monotonic()
		if width := int64(time.Since(before)); width < best {
			best, r.start, r.base = width, before, mono-width/2
		}
	}
	return r
}

// Now reads the clock in about 25 ns.
func (r *Real) Now() int64 { return r.base + int64(time.Since(r.start)) }

// Sleep waits by clock_nanosleep with an absolute time, so a signal costs no drift.
func (r *Real) Sleep(t int64) { sys.SleepUntil(t) }

// Fake is a clock that only moves when told, or by Step on every reading.
type Fake struct {
	// T is the present time, ns.
	T int64
	// Step is added after each reading: it stands for the cost of the code between two readings.
	Step int64
	// Oversleep is added to every Sleep.
	Oversleep int64
}

// Now reads and advances the clock.
func (f *Fake) Now() int64 {
	t := f.T
	f.T += f.Step
	return t
}

// Sleep advances the clock to t and Oversleep beyond.
func (f *Fake) Sleep(t int64) {
	if t > f.T {
		f.T = t
	}
	f.T += f.Oversleep
}
