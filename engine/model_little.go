package engine

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"blast/pace"
	"blast/stats"
)

const (
	// expiryEvery is how often a receiver looks for slots that have had their timeout, ns.
	expiryEvery = int64(time.Millisecond)
	// sampleEvery is the mean time between two looks at the packets in flight, ns. Each is drawn anew, so that none keeps step with the plan.
	sampleEvery = int64(5 * time.Millisecond)
)

// expiry counts the slots that had no reply by their timeout: they are no longer in flight.
type expiry struct {
	cursor pace.Cursor
	next   int64  // when to look again, ns
	from   uint64 // first measured slot
	to     uint64 // slots before it have been looked at
	count  int64  // of those, the ones without a reply; the receiver takes off those whose reply comes late
	shown  atomic.Int64
}

// expire brings the count up to date.
func (r *receiver) expire(now int64) {
	e := &r.expiry
	e.next = now + expiryEvery
	if to := e.from + e.cursor.DueBy(now-r.timeout-r.start); to > e.to {
		e.count += int64(r.win.unseen(e.to, to))
		e.to = to
	}
	e.shown.Store(e.count)
}

// unseen counts slots from..to-1 without a reply.
func (w *window) unseen(from, to uint64) uint64 {
	n := 0
	for base := from &^ 63; base < to; base += 64 {
		mask := ^uint64(0)
		if base < from {
			mask <<= from - base
		}
		if base+64 > to {
			mask &= 1<<(to-base) - 1
		}
		n += bits.OnesCount64(mask &^ w.seen.word(base))
	}
	return uint64(n)
}

// littles integrates the packets in flight over time, from samples.
type littles struct {
	area     float64 // packets x ns
	variance float64 // of area, from how much neighbouring samples differ
	samples  uint64
	last     float64
	at       int64
}

// add takes a sample of n packets in flight at t ns.
func (l *littles) add(t int64, n float64) {
	if l.samples > 0 {
		dt, d := float64(t-l.at), n-l.last
		l.area += dt * (n + l.last) / 2
		l.variance += dt * dt * d * d / 2
	}
	l.samples++
	l.last, l.at = n, t
}

// looks are a receiver's samples of the packets in flight of its share. Each moment is drawn before it comes, and told afterwards from what
// the receiver knows: somebody who came to look would keep the CPU from those who receive and answer, and see what he held up.
type looks struct {
	littles
	next    int64          // moment of the next one, ns
	closed  bool           // the packets in flight are those of busy users
	offered *atomic.Uint64 // by the sender, where no plan tells what it has sent; nil otherwise
}

// beginLooks draws the first moment of each receiver.
func (r *run) beginLooks() {
	for i, rc := range r.receivers {
		l, w := &rc.looks, r.workers[i]
		l.closed = r.Model == ModelClosed
		if w.unpaced {
			l.offered = &w.offered
		}
		l.add(r.start, 0)
		l.next = r.start + rand.N(sampleEvery)
	}
}

// aloft is what counts in and out of flight, as far as the receiver has seen: users with a request in flight where there is no plan, or
// the slots that have left flight.
type aloft struct{ busy, left int64 }

func (r *receiver) aloft() aloft { return aloft{r.busy, int64(r.unique) + r.expiry.count} }

// look samples the moments up to now, which fell into a Poll: none of the replies that it brought had been received yet, as their time of
// receipt is that of its end. before is what was known when it began.
func (r *receiver) look(now int64, before aloft) {
	l := &r.looks
	for l.next <= now {
		n := float64(-before.left)
		switch {
		case l.closed:
			n = float64(before.busy)
		case l.offered != nil: // told for now only, and there after the call that it left by: as late as that
			n += float64(l.offered.Load())
		default:
			n += float64(r.expiry.cursor.DueBy(l.next - r.start))
		}
		l.add(l.next, max(n, 0))
		l.next += sampleEvery/2 + rand.N(sampleEvery)
	}
}

// little holds the samples against rate x mean latency. What never got a reply was in flight for its timeout, in both.
func (r *run) little(res *stats.Result) *stats.Little {
	l, out := &res.Ledger, &stats.Little{Samples: math.MaxUint64, RatePPS: res.Rate.AchievedPPS}
	elapsed, area, variance := float64(res.Rate.ElapsedNS), 0.0, 0.0
	for _, rc := range r.receivers {
		s := &rc.looks
		out.Samples = min(out.Samples, s.samples)
		area += s.area
		variance += s.variance
	}
	switch {
	case res.Interrupted != "":
		out.Unchecked = "the run was cut short"
	case out.Samples < 20 || elapsed <= 0:
		out.Unchecked = "the run was too short to sample the packets in flight"
	case r.workers[0].unpaced && l.Lost > 0:
		out.Unchecked = "without a plan, nothing tells when lost packets left flight"
	}
	if elapsed <= 0 || l.Sent == 0 {
		return out
	}
	out.InFlight, out.InFlightError = area/elapsed, math.Sqrt(variance)/elapsed
	timeout := int64(r.Timeout)
	total := r.total.latency.Mean() * float64(r.total.latency.Count())
	if l.Late > 0 {
		total = 0
		r.total.latency.Each(func(low, high int64, n uint64) { total += float64(min((low+high)/2, timeout)) * float64(n) })
	}
	total += float64(l.Lost) * float64(timeout)
	open := float64(l.InFlight) * float64(timeout-min(l.InFlightAtLeastNS, timeout)) / 2
	total += float64(l.InFlight)*float64(min(l.InFlightAtLeastNS, timeout)) + open
	if open > 0.02*total && out.Unchecked == "" {
		out.Unchecked = "too many packets were in flight when the run ended: a longer drain would tell"
	}
	out.LatencyNS = int64(total / float64(l.Sent))
	return out
}
