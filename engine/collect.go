package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"blast/backend"
	"blast/stats"
)

// totals is everything the intervals add up to.
type totals struct {
	lag                           stats.Hist
	latency, service, server      stats.Hist
	accepted                      uint64
	replied, late, dup, reordered uint64
	stray                         uint64
	workerLag                     []stats.Hist
}

// building is the interval of the timeline that is being put together from the workers' halves.
type building struct {
	index        int64
	lag, latency stats.Hist
	sent         uint64
	replied      uint64
}

// collect takes the intervals that the threads have handed over. An interval of the timeline is complete when a later one is
// handed over, or at the end.
func (r *run) collect() {
	r.gather()
	r.take(r.Clock.Now())
	r.tell()
}

// take adds what has been handed over, of replies in the kernel the intervals that are over at now.
func (r *run) take(now int64) {
	for i := range r.lanes {
		l := &r.lanes[i]
		l.send.Take(func(s *stats.SendInterval) { r.addSend(i, s) })
		if l.recv != nil {
			l.recv.Take(r.addReceive)
		}
	}
	r.takeReplies(now)
	r.trace()
}

// finish takes what is left once all threads have ended.
func (r *run) finish() {
	r.take(math.MaxInt64)
	for i := range r.lanes {
		l := &r.lanes[i]
		last := l.send.Active()
		last.Index = max(r.building.index*r.slices(), r.endSlice())
		r.addSend(i, last)
		if l.recv != nil {
			last := l.recv.Active()
			last.Index = max(r.building.index*r.slices(), r.endSlice())
			r.addReceive(last)
		}
	}
	r.complete()
}

// endSlice is the slice in which the plan, or the run that was stopped, ended.
func (r *run) endSlice() int64 {
	return max((r.end()-r.start-1)/int64(r.slice), 0)
}

// end is when the measured part ended: the plan's end, or the stop.
func (r *run) end() int64 {
	end := r.start + r.length
	for _, w := range r.workers {
		if w.ended != 0 && w.ended < end {
			end = w.ended
		}
	}
	return end
}

func (r *run) addSend(worker int, s *stats.SendInterval) {
	r.enter(s.Index)
	r.course.Lag.Add(min(s.Index, r.lastSlice()), &s.Lag)
	r.total.lag.Add(&s.Lag)
	if r.total.workerLag == nil {
		r.total.workerLag = make([]stats.Hist, len(r.workers))
	}
	r.total.workerLag[worker].Add(&s.Lag)
	r.total.accepted += s.Accepted
	r.building.lag.Add(&s.Lag)
	r.building.sent += s.Accepted
	s.Reset()
}

func (r *run) addReceive(v *stats.ReceiveInterval) {
	r.enter(v.Index)
	r.course.Latency.Add(min(v.Index, r.lastSlice()), &v.Latency)
	t := &r.total
	t.latency.Add(&v.Latency)
	t.service.Add(&v.Service)
	t.server.Add(&v.Server)
	t.replied += v.Replied
	t.late += v.Late
	t.dup += v.Duplicate
	t.reordered += v.Reordered
	t.stray += v.Stray
	r.building.latency.Add(&v.Latency)
	r.building.replied += v.Replied + v.Late
	v.Reset()
}

// enter makes the interval of slice the one being built, completing the one before. Replies that come while the run drains belong to the last.
func (r *run) enter(slice int64) {
	if index := min(slice/r.slices(), r.lastInterval()); index > r.building.index {
		r.complete()
		r.building.index = index
	}
}

// complete appends the interval being built to the timeline.
func (r *run) complete() {
	b := &r.building
	s := r.second()
	if r.Steal != nil {
		s.Steal = r.Steal()
	}
	r.timeline = append(r.timeline, s)
	b.lag.Reset()
	b.latency.Reset()
	b.sent, b.replied = 0, 0
}

// second is the interval being built as it stands, but for its Steal.
func (r *run) second() stats.Second {
	b := &r.building
	from, to := time.Duration(len(r.timeline))*r.Interval, time.Duration(b.index+1)*r.Interval
	if n := len(r.timeline); n > 0 {
		from = time.Duration(r.timeline[n-1].T * float64(time.Second))
	}
	to = min(to, time.Duration(r.length))
	s := stats.Second{
		T: to.Seconds(), Sent: b.sent, Replied: b.replied,
		LagP50NS: b.lag.Quantile(0.5), LagP99NS: b.lag.Quantile(0.99), LatencyP99NS: b.latency.Quantile(0.99),
	}
	if !r.workers[0].planless {
		s.Planned = r.Schedule.Due(to-1) - r.Schedule.Due(from-1)
	}
	return s
}

// ledger adds the workers' books up.
func (r *run) ledger() stats.Ledger {
	l := stats.Ledger{Refused: map[string]uint64{}}
	for i, w := range r.workers {
		l.Planned += r.plannedBy(i)
		l.Abandoned += w.abandoned
		l.KernelDropped += w.completed.Dropped
		for c, n := range w.refused {
			if n += w.completed.Refused[c]; n > 0 {
				l.Refused[backend.Cause(c).String()] += n
			}
		}
		if w.async {
			l.Sent += w.completed.Sent - min(w.warmed, w.completed.Sent)
		} else {
			l.Sent += w.accepted
		}
	}
	if r.kernel != nil {
		r.kernelLedger(&l)
	}
	if !r.Echo {
		return l
	}
	l.Replied, l.Late, l.Duplicate, l.Reordered, l.Stray = r.total.replied, r.total.late, r.total.dup, r.total.reordered, r.total.stray
	for i := range r.receivers {
		r.unreplied(i, &l)
	}
	return l
}

// plannedBy is the number of slots of worker i's share that were planned until its end. Without a plan it is what was offered.
func (r *run) plannedBy(i int) uint64 {
	w, cursor := r.workers[i], r.lanes[i].cursor
	if w.planless {
		n := w.accepted
		for _, c := range w.refused {
			n += c
		}
		return n
	}
	if w.ended != 0 {
		return cursor.DueBy(w.ended - r.start)
	}
	return cursor.Slots()
}

// unreplied adds worker i's slots without a reply: lost if their timeout had passed when the drain ended, else in flight.
func (r *run) unreplied(i int, l *stats.Ledger) {
	w, rc, lane := r.workers[i], r.receivers[i], &r.lanes[i]
	end := w.nextSeq
	cut := end
	if !w.planless {
		cut = min(lane.warmed+lane.cursor.DueBy(r.drained-rc.timeout-r.start), end)
	}
	all, old := rc.win.unreplied(end, rc.names.unreplied(w, cut)), rc.win.unreplied(cut, nil)
	unsentOld := w.unsent.before(cut)
	unsentNew := w.unsent.before(end) - unsentOld
	given := w.givenUp()
	lost := old.unseen - min(unsentOld, old.unseen)
	flying := all.unseen - old.unseen
	flying -= min(unsentNew, flying)
	fromLost := min(given, lost)
	lost, flying = lost-fromLost, flying-min(given-fromLost, flying)
	if r.Model == ModelClosed {
		if flying = min(r.crowd.flying(r.drained), lost); flying > 0 {
			lost -= flying
			l.InFlightAtLeastNS = int64(r.crowd.youngest(r.drained))
		}
	}
	l.Lost += lost
	l.InFlight += flying
	if flying > 0 && !w.planless {
		if wait := r.drained - r.end(); l.InFlightAtLeastNS == 0 || wait < l.InFlightAtLeastNS {
			l.InFlightAtLeastNS = max(wait, 0)
		}
	}
	up := min(old.up, lost)
	down := min(old.unseen-min(old.up+old.dark, old.unseen), lost-up)
	l.LostUp += up
	l.LostDown += down
	l.LostUnknown += lost - up - down
	l.SelfLost += rc.drops
}

// result puts everything together.
func (r *run) result(started time.Time) (*stats.Result, error) {
	r.finish()
	res := &stats.Result{Schema: stats.ResultSchema, Started: started, Ledger: r.ledger(), Timeline: r.timeline, Shards: 1}
	var err error
	last := r.start
	res.Events = stats.Events{}
	for i, w := range r.workers {
		l := &r.lanes[i]
		last = max(last, w.lastSent)
		for e, n := range w.completed.Events {
			if n > 0 {
				res.Events[backend.Event(e).String()] += n
			}
		}
		l.result.Flows, l.result.Sent, l.result.GuardNS = len(l.flows), w.accepted, w.guard
		l.result.LagP99NS = r.total.workerLag[i].Quantile(0.99)
		l.result.Duty = min(dutyAtEnd(r.start, r.end(), w.lastSent, w.waited, r.crowd == nil && w.ended == 0)+w.kernelDuty, 1)
		res.Workers = append(res.Workers, l.result)
		if err == nil && w.err != nil {
			err = fmt.Errorf("worker %d: %w", i, w.err)
		}
		if w.aborted != 0 {
			res.Interrupted = fmt.Sprintf("catch-up abort: worker %d was %v late", i, time.Duration(w.aborted))
		}
	}
	for i, rc := range r.receivers {
		if err == nil && rc.err != nil {
			err = fmt.Errorf("receiver %d: %w", i, rc.err)
		}
	}
	switch {
	case err != nil:
		res.Interrupted = err.Error()
	case r.stopped != 0:
		res.Interrupted = "interrupt"
	}
	res.Backend = r.granted()
	elapsed := max(last, r.end()) - r.start
	res.Rate = stats.RateOf(r.target(), r.traffic(), res.Ledger.Replied+res.Ledger.Late, time.Duration(elapsed))
	res.Lag, res.Latency = r.total.lag.Summary(), r.total.latency.Summary()
	res.Service, res.Server = r.total.service.Summary(), r.total.server.Summary()
	r.fillTrace(res)
	res.Precision = r.precision(&r.course, &r.total.latency, &r.total.lag)
	r.fillModel(res)
	err = errors.Join(err, r.closeReplies(res))
	if res.Ledger.Sent == 0 && err == nil {
		err = ErrNothingSent
	}
	return res, err
}

// dutyOf is the share of ran ns in which a worker did not wait; 0 before it has begun.
func dutyOf(waited, ran int64) float64 {
	if ran <= 0 {
		return 0
	}
	return min(max(1-float64(waited)/float64(ran), 0), 1)
}

// dutyAtEnd is dutyOf until the plan's end, or a worker's last packet behind that. whole says that the worker went through its share: nothing is due
// after the last slot then, and the rest of the plan's time is a wait too.
func dutyAtEnd(start, end, lastSent, waited int64, whole bool) float64 {
	if whole && lastSent > 0 {
		waited += max(end-lastSent, 0)
	}
	return dutyOf(waited, max(lastSent, end)-start)
}

// target is the mean planned rate over the measured part, in packets per second; 0 without a plan.
func (r *run) target() float64 {
	if r.workers[0].planless {
		return 0
	}
	if end := r.end(); end < r.start+r.length && end > r.start {
		return float64(r.Schedule.Due(time.Duration(end-r.start))) / time.Duration(end-r.start).Seconds()
	}
	return r.Schedule.MeanPPS()
}

// traffic is what was sent in bytes; slots that an asynchronous backend took and did not send are taken off in proportion.
func (r *run) traffic() stats.Traffic {
	var t stats.Traffic
	for _, w := range r.workers {
		sent := w.traffic
		if w.async && sent.Packets > 0 {
			settled := w.completed.Sent - min(w.warmed, w.completed.Sent)
			scale := func(n uint64) uint64 { return uint64(float64(n) * float64(settled) / float64(sent.Packets)) }
			sent = stats.Traffic{Packets: settled, Payload: scale(sent.Payload), IP: scale(sent.IP), L2: scale(sent.L2), L1: scale(sent.L1)}
		}
		t.Packets += sent.Packets
		t.Payload += sent.Payload
		t.IP += sent.IP
		t.L2 += sent.L2
		t.L1 += sent.L1
	}
	return t
}

// granted is the backend as all workers got it.
func (r *run) granted() stats.Backend {
	l := r.lanes[0].limits
	b := stats.Backend{
		Mode: l.Mode, GSO: l.GSO, GRO: r.Backend.GRO, ZeroCopy: l.ZeroCopy, Batch: cap(r.workers[0].due),
		SendBuffer: l.SendBuffer, ReceiveBuffer: l.ReceiveBuffer, Notes: []string{},
	}
	seen := map[string]bool{}
	for i := range r.lanes {
		for _, note := range r.lanes[i].limits.Notes {
			if !seen[note] {
				seen[note] = true
				b.Notes = append(b.Notes, note)
			}
		}
	}
	return b
}
