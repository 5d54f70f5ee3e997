package clock

import "time"

const (
	// realtimeEvery is how often the offset is measured anew, ns: CLOCK_REALTIME may be stepped.
	realtimeEvery = int64(time.Second)
	// realtimeTries is the number of bracketed readings, of which the tightest counts.
	realtimeTries = 8
)

// Realtime converts ns of CLOCK_REALTIME, by which the kernel stamps packets, to ns of CLOCK_MONOTONIC. Both are the same counter of the kernel
// plus an offset that changes only when somebody sets the clock, so the error is that of one reading: within the tightest bracket,
// some 50 ns. For one thread; the zero value is ready.
type Realtime struct {
	ahead int64 // of CLOCK_REALTIME before CLOCK_MONOTONIC
	width int64 // of the bracket
	until int64 // CLOCK_MONOTONIC; when to measure anew
}

// Renew measures the offset if the last time is more than a second ago. now reads CLOCK_MONOTONIC; at is its value of a moment ago.
func (r *Realtime) Renew(at int64, now func() int64) {
	if at < r.until {
		return
	}
	r.width = 1 << 62
	for range realtimeTries {
		before := now()
		wall := time.Now().UnixNano()
		after := now()
		if width := after - before; width < r.width {
			r.width, r.ahead = width, wall-(before+width/3) // time.Now reads the wall clock, then the monotonic one
		}
	}
	r.until = at + realtimeEvery
}

// Monotonic converts a time of CLOCK_REALTIME by the last offset measured.
func (r *Realtime) Monotonic(stamp int64) int64 { return stamp - r.ahead }
