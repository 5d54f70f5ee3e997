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
	// sampleEvery is the mean time between two looks at the packets in flight. Each is drawn anew, so that none keeps step with the plan.
	sampleEvery = 5 * time.Millisecond
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

// sample looks at the packets in flight at random moments until the function that it returns is called.
func (r *run) sample() (stop func()) {
	if !r.Echo {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-end:
				return
			case <-timer.C:
			}
			r.look()
			timer.Reset(sampleEvery/2 + rand.N(sampleEvery))
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// look takes one sample, once the measured part has begun.
func (r *run) look() {
	if t := r.Clock.Now(); t >= r.start {
		if r.littles.samples == 0 {
			r.littles.add(r.start, 0)
		}
		r.littles.add(t, r.inFlight(t))
	}
}

// inFlight is the number of packets in flight at t: planned by then, without a reply, and within their timeout.
func (r *run) inFlight(t int64) float64 {
	if r.Model == ModelClosed {
		return float64(r.crowd.busy.Load())
	}
	var n float64
	for _, rc := range r.receivers {
		n -= float64(rc.answered.Load()) + float64(rc.expiry.shown.Load())
	}
	if r.workers[0].unpaced {
		for _, w := range r.workers {
			n += float64(w.offered.Load())
		}
		return max(n, 0)
	}
	return max(n+float64(r.Schedule.Due(time.Duration(t-r.start))), 0)
}

// little holds the samples against rate x mean latency. What never got a reply was in flight for its timeout, in both.
func (r *run) little(res *stats.Result) *stats.Little {
	l, s := &res.Ledger, &r.littles
	out := &stats.Little{Samples: s.samples, RatePPS: res.Rate.AchievedPPS}
	elapsed := float64(res.Rate.ElapsedNS)
	switch {
	case res.Interrupted != "":
		out.Unchecked = "the run was cut short"
	case s.samples < 20 || elapsed <= 0:
		out.Unchecked = "the run was too short to sample the packets in flight"
	case r.workers[0].unpaced && l.Lost > 0:
		out.Unchecked = "without a plan, nothing tells when lost packets left flight"
	}
	if elapsed <= 0 || l.Sent == 0 {
		return out
	}
	out.InFlight, out.InFlightError = s.area/elapsed, math.Sqrt(s.variance)/elapsed
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
