package engine

import (
	"time"

	"blast/backend"
	"blast/pace"
	"blast/stats"
)

// The threads hand over slices of time, one or several to an interval of the timeline: the batches that confidence intervals and the
// comparison of halves are made of must be many also where the run is short.
const (
	// slicesWanted is the number of slices below which intervals are divided.
	slicesWanted = 32
	// sliceLeast is the shortest slice: a receiver that gets nothing looks at the time every pollWait.
	sliceLeast = 50 * time.Millisecond
	// sliceOffload is the shortest slice of what is recorded elsewhere: what a late collector can no longer tell apart is one slice.
	sliceOffload = 250 * time.Millisecond
)

// sliceOf is the length of a slice: Interval or a whole part of it, at least least.
func (c *Config) sliceOf(least time.Duration) time.Duration {
	slice, interval, length := c.Interval, c.Interval, c.Schedule.Length()
	if c.Undivided {
		return slice
	}
	for _, parts := range []time.Duration{2, 4, 5, 8, 10, 16, 20} {
		if length/slice >= slicesWanted {
			break
		}
		if interval%parts == 0 && interval/parts >= least {
			slice = interval / parts
		}
	}
	return slice
}

// slices is the number of slices in an interval.
func (c *Config) slices() int64 { return int64(c.Interval / c.slice) }

// lastSlice is the number of the last slice of the plan. Replies that come while the run drains belong to it.
func (c *Config) lastSlice() int64 { return max((int64(c.Schedule.Length())-1)/int64(c.slice), 0) }

// lastInterval is the number of the last interval of the plan, whose last slice is the plan's.
func (c *Config) lastInterval() int64 { return c.lastSlice() / c.slices() }

// addSlice adds what was recorded elsewhere in a slice to b and all of into. What comes behind the plan's end belongs to the last slice.
func (c *Config) addSlice(b *stats.Batches, slice int64, v backend.Buckets, into ...*stats.Hist) error {
	h := new(stats.Hist)
	if err := merge(v, h); err != nil {
		return err
	}
	b.Add(min(slice, c.lastSlice()), h)
	for _, sum := range into {
		sum.Add(h)
	}
	return nil
}

// precision says how far latency and lag can be trusted; a run that was stopped is as steady as its plan.
func (c *Config) precision(course *stats.Course, latency, lag *stats.Hist) *stats.Precision {
	return course.Precision(latency, lag, pace.Steady(c.Schedule))
}
