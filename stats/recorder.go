//blast:hot

package stats

import "sync/atomic"

// Double is the hand-over of intervals from one recording thread to one collecting thread: two halves, of which the recorder
// writes the active one while the collector reads and clears the other. Neither ever waits.
type Double[T any] struct {
	halves  [2]T
	active  int
	pending atomic.Int32 // 1 + index of the half handed over, 0 = none
}

// Active is the half that the recorder writes. Recorder only.
func (d *Double[T]) Active() *T { return &d.halves[d.active] }

// Flip hands the active half over and goes on with the other. It reports false, and changes nothing, while the collector still
// has that one: the interval just grows longer. Recorder only.
func (d *Double[T]) Flip() bool {
	if d.pending.Load() != 0 {
		return false
	}
	d.pending.Store(int32(d.active) + 1)
	d.active ^= 1
	return true
}

// Take calls fn with the half handed over, if any; fn must leave it empty for its next use. Collector only.
func (d *Double[T]) Take(fn func(*T)) bool {
	p := d.pending.Load()
	if p == 0 {
		return false
	}
	fn(&d.halves[p-1])
	d.pending.Store(0)
	return true
}

// SendInterval is what a sending thread records in one interval of the timeline.
type SendInterval struct {
	// Index numbers the interval from 0.
	Index int64
	Lag   Hist
	// Accepted is the number of slots that Commit accepted.
	Accepted uint64
}

// Reset empties the interval.
func (s *SendInterval) Reset() {
	s.Lag.Reset()
	s.Index, s.Accepted = 0, 0
}

// ReceiveInterval is what a receiving thread records in one interval of the timeline.
type ReceiveInterval struct {
	// Index numbers the interval from 0.
	Index int64
	// Latency is from planned, Service from sent, both to received; Server is our server's own share.
	Latency, Service, Server Hist
	// Replied counts first replies within the timeout, Late those after it, both in Latency and Service.
	Replied, Late, Duplicate, Reordered, Stray uint64
}

// Reset empties the interval.
func (r *ReceiveInterval) Reset() {
	r.Latency.Reset()
	r.Service.Reset()
	r.Server.Reset()
	r.Index, r.Replied, r.Late, r.Duplicate, r.Reordered, r.Stray = 0, 0, 0, 0, 0, 0
}
