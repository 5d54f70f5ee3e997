package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A time of CLOCK_REALTIME, read between two readings of CLOCK_MONOTONIC, converts to a time between them.
func TestRealtime(t *testing.T) {
	clk := NewReal()
	var r Realtime
	best := int64(time.Hour)
	for range 1000 {
		before := clk.Now()
		var wall unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
			t.Fatal(err)
		}
		after := clk.Now()
		r.Renew(after, clk.Now)
		if width := after - before; width < best {
			best = width
			if at := r.Monotonic(wall.Nano()); at < before-r.width || at > after+r.width {
				t.Errorf("converted to %d, read between %d and %d, with an offset known within %d ns", at, before, after, r.width)
			}
		}
	}
}

// The offset is measured anew after a second, and not before: the wall clock may have been set meanwhile.
func TestRealtimeRenewed(t *testing.T) {
	clk := NewReal()
	var r Realtime
	r.Renew(clk.Now(), clk.Now)
	r.ahead += 1000 * int64(time.Second) // as if the wall clock had been set back
	stale := r.ahead
	r.Renew(r.until-1, clk.Now)
	if r.ahead != stale {
		t.Error("measured anew within a second")
	}
	r.Renew(r.until, clk.Now)
	if off := stale - r.ahead - 1000*int64(time.Second); off > int64(time.Second) || off < -int64(time.Second) {
		t.Errorf("after a second the offset is %d, %d ns from the true one", r.ahead, off)
	}
}
