package engine

import (
	"math"
	"time"

	"blast/backend"
	"blast/pace"
	"blast/stats"
)

const (
	// followRate is the number of sampled packets a second that memory is laid out for where the plan has no rate.
	followRate = 20000
	// maxMarks and maxTraced bound that memory per worker; beyond it samples are incomplete.
	maxMarks, maxTraced = 1 << 16, 1 << 16
	// followSettle is how long the last stamps are waited for, ns.
	followSettle = int64(20 * time.Millisecond)
	// fitMost is the number of gaps kept for the test against the plan's distribution.
	fitMost = 1 << 14
	// clockSlack is what both ends' readings of one clock may differ by, ns.
	clockSlack = 250
)

// traced is a sampled packet as far as it is known; times as in mark.
type traced struct {
	id                         uint32
	have                       uint8 // bit by markKind
	parted                     uint8 // its gap to the one before is recorded; bit by StampKind
	planned, sent              int64
	stamps                     [backend.NumStampKinds]int64
	serverReceived, serverSent int64
	kernel, asked, at          int64
}

func (t *traced) has(kind markKind) bool { return t.have>>kind&1 != 0 }

// trace joins what both threads of one worker saw of sampled packets: a table by id, in which a newer packet takes an older one's place.
type trace struct {
	table []traced
	send  *follower
	reply *follower // nil where replies are not followed
}

// tracing is the part of a run that follows sampled packets, on Run's goroutine.
type tracing struct {
	followed         int                // workers
	kinds            backend.StampKinds // that packets on their way out have
	hardwareArrivals bool               // replies have the device's time

	came                [backend.NumStampKinds]uint64
	replies, unreceived uint64 // unreceived: without the time at which our kernel took them in
	planned             bool   // there is a plan to hold gaps against

	tallies []tally // one, or without the device's stamps and with them: at the end it is known whether enough came. None where nobody is followed
}

// tally is what some kinds of stamps tell.
type tally struct {
	kinds backend.StampKinds
	left  backend.StampKind // the one that says when a packet left
	need  uint8             // traced.have of a complete packet

	parts        [numParts]stats.Hist
	latency      stats.Hist
	complete     uint64
	residual     int64 // largest, with up and down told apart
	residualWire int64 // largest, with the wire as one
	served       bool  // the target stamps
	low, high    int64 // bounds of its clock's lead over ours
	early        int64 // by how much at most the device stamped a packet before its driver did, which none can

	gap, gapError stats.Hist
	gaps          []float64 // of a Poisson plan
}

// part is a segment.
type part int

// The parts in the order of stats.
const (
	partLag part = iota
	partSendCall
	partKernel
	partUp
	partServer
	partDown
	partWire
	partQueue
	partUser
	numParts
)

var partNames = [numParts]string{stats.SegmentLag, stats.SegmentSendCall, stats.SegmentKernel, stats.SegmentUp, stats.SegmentServer,
	stats.SegmentDown, stats.SegmentWire, stats.SegmentQueue, stats.SegmentUser}

// follow sets worker i up to be followed, where the backend grants it. It is called when the worker's share has been opened, on its thread.
func (r *run) follow(i int) {
	w, l := r.workers[i], &r.lanes[i]
	stamper, _ := w.snd.(backend.Stamper)
	if l.limits.Stamps == 0 && !l.limits.Arrivals || l.limits.Stamps != 0 && stamper == nil || r.StampEvery == 0 {
		return
	}
	perSecond := r.sampledRate()
	room := func(seconds float64, most int) int {
		n := 1 << 10
		for n < most && float64(n) < seconds*perSecond {
			n <<= 1
		}
		return n
	}
	picks := newSampler(r.StampEvery, r.StampSeed+scatter(uint64(i)), l.warmed)
	w.follow = &follower{sampler: picks, stamper: stamper, marks: marks{items: make([]mark, room(2, maxMarks))}}
	for kind := range backend.NumStampKinds {
		if l.limits.Stamps.Has(kind) {
			w.follow.each++
		}
	}
	l.trace = trace{table: make([]traced, room(2*r.Timeout.Seconds()+2, maxTraced)), send: w.follow}
	if r.Echo {
		rc := r.receivers[i]
		rc.follow = &follower{sampler: picks, marks: marks{items: make([]mark, room(2, maxMarks))}}
		l.trace.reply = rc.follow
	}
}

// settleStamps waits a little for the stamps of what was sent last.
func (w *worker) settleStamps() {
	f := w.follow
	if f == nil {
		return
	}
	for give := w.clk.Now() + followSettle; f.waiting() && w.clk.Now() < give; {
		w.clk.Sleep(w.clk.Now() + followSettle/100)
		w.reap()
	}
}

// sampledRate is the number of sampled packets a second of one worker, as far as the plan tells.
func (r *run) sampledRate() float64 {
	if _, unpaced := r.Schedule.(pace.Unpaced); unpaced {
		return followRate
	}
	return r.Schedule.MeanPPS() / float64(r.Workers) / float64(r.StampEvery)
}

// trace takes what the threads have seen.
func (r *run) trace() {
	t := &r.tracing
	for i := range r.lanes {
		l := &r.lanes[i]
		if l.trace.send == nil {
			continue
		}
		l.trace.send.marks.take(func(m *mark) { t.add(&l.trace, m) })
		if l.trace.reply != nil {
			l.trace.reply.marks.take(func(m *mark) { t.add(&l.trace, m) })
		}
	}
}

// beginTrace settles what a complete packet has: what all workers have that are followed. The workers are open and wait: once they run, what
// they were granted is theirs.
func (r *run) beginTrace() {
	t := &r.tracing
	t.planned = !r.workers[0].planless
	for i := range r.lanes {
		l := &r.lanes[i]
		if l.trace.send == nil {
			continue
		}
		if t.followed++; t.followed == 1 {
			t.kinds, t.hardwareArrivals = l.limits.Stamps, l.limits.HardwareArrivals
		}
		t.kinds &= l.limits.Stamps
		t.hardwareArrivals = t.hardwareArrivals && l.limits.HardwareArrivals
	}
	if t.followed == 0 {
		return
	}
	_, random := r.Schedule.(*pace.Process)
	if t.kinds.Has(backend.StampSoftware) && t.kinds.Has(backend.StampHardware) {
		t.tallies = append(t.tallies, newTally(t.kinds.Without(backend.StampHardware), random))
	}
	t.tallies = append(t.tallies, newTally(t.kinds, random))
}

func newTally(kinds backend.StampKinds, random bool) tally {
	t := tally{kinds: kinds, low: math.MinInt64, high: math.MaxInt64, need: 1<<markSent | 1<<markReply}
	for kind := range backend.NumStampKinds {
		if kinds.Has(kind) {
			t.need |= 1 << kind
			t.left = kind
		}
	}
	if random {
		t.gaps = make([]float64, 0, fitMost)
	}
	return t
}

// best is the tally, of at least one, that the figures are of: the device's stamps where at least half of the packets have them.
func (t *tracing) best() *tally {
	if 2*t.came[backend.StampHardware] >= t.came[backend.StampSoftware] {
		return &t.tallies[len(t.tallies)-1]
	}
	return &t.tallies[0]
}

// add enters one mark.
func (t *tracing) add(tr *trace, m *mark) {
	e := &tr.table[m.id&uint32(len(tr.table)-1)]
	if e.id != m.id {
		if e.have != 0 && int32(m.id-e.id) < 0 {
			return // a straggler, whose place is taken
		}
		*e = traced{id: m.id}
	}
	switch {
	case e.has(m.kind):
		return
	case m.kind == markSent:
		e.planned, e.sent = m.planned, m.sent
	case m.kind == markReply:
		e.serverReceived, e.serverSent, e.kernel, e.asked, e.at = m.serverReceived, m.serverSent, m.kernel, m.asked, m.at
		if t.replies++; m.kernel == 0 {
			t.unreceived++
		}
	default:
		e.stamps[m.kind] = m.at
		t.came[m.kind]++
	}
	e.have |= 1 << m.kind
	before, next := &tr.table[(m.id-1)&uint32(len(tr.table)-1)], &tr.table[(m.id+1)&uint32(len(tr.table)-1)]
	for i := range t.tallies {
		y := &t.tallies[i]
		if y.need>>m.kind&1 != 0 && e.have&y.need == y.need {
			y.finish(e)
		}
		if m.kind != markSent && backend.StampKind(m.kind) != y.left {
			continue
		}
		if !startsRun(m.id) {
			y.part(before, e, t.planned)
		}
		if !startsRun(m.id + 1) {
			y.part(e, next, t.planned)
		}
	}
}

// part records the gap between two slots of a run, once both have left.
func (t *tally) part(first, second *traced, planned bool) {
	left := uint8(1<<markSent | 1<<t.left)
	if second.id != first.id+1 || first.have&second.have&left != left || second.parted>>t.left&1 != 0 {
		return
	}
	second.parted |= 1 << t.left
	gap := second.stamps[t.left] - first.stamps[t.left]
	t.gap.Record(max(gap, 0)) // stamps of two CPUs may change places
	if !planned {
		return
	}
	off := gap - (second.planned - first.planned)
	t.gapError.Record(max(off, -off))
	if len(t.gaps) < cap(t.gaps) {
		t.gaps = append(t.gaps, float64(gap))
	}
}

// finish records the parts of a packet that has everything.
func (t *tally) finish(e *traced) {
	served := e.serverReceived != 0 && e.serverSent != 0
	if t.complete == 0 {
		t.served = served
	}
	if e.kernel == 0 || served != t.served {
		return
	}
	t.complete++
	latency := e.at - e.planned
	t.latency.Record(latency)
	if t.left == backend.StampHardware && t.kinds.Has(backend.StampSoftware) {
		t.early = max(t.early, e.stamps[backend.StampSoftware]-e.stamps[t.left])
	}
	p, out := t.split(e, served)
	for i, d := range p {
		t.parts[i].Record(d)
	}
	both := p[partLag] + p[partSendCall] + p[partKernel] + p[partServer] + p[partQueue] + p[partUser]
	t.residual = max(t.residual, abs(both+p[partUp]+p[partDown]-latency))
	t.residualWire = max(t.residualWire, abs(both+p[partWire]-latency))
	if served {
		t.low, t.high = max(t.low, e.serverSent-e.kernel), min(t.high, e.serverReceived-out)
	}
}

// split is the length of every part of a packet, and when it left. Parts that a clock conversion would make negative are 0.
func (t *tally) split(e *traced, served bool) (p [numParts]int64, out int64) {
	at := e.planned
	step := func(i part, until int64) { p[i], at = max(until-at, 0), until }
	step(partLag, e.sent)
	if t.kinds.Has(backend.StampSched) {
		step(partSendCall, e.stamps[backend.StampSched])
		step(partKernel, e.stamps[t.left])
	} else if t.kinds != 0 {
		step(partSendCall, e.stamps[t.left])
	}
	out = at
	step(partWire, e.kernel)
	step(partQueue, min(max(e.asked, e.kernel), e.at))
	step(partUser, e.at)
	if !served {
		return p, out
	}
	p[partServer] = max(e.serverSent-e.serverReceived, 0)
	p[partWire] = max(p[partWire]-p[partServer], 0)
	p[partUp], p[partDown] = max(e.serverReceived-out, 0), max(e.kernel-e.serverSent, 0)
	return p, out
}

func abs(v int64) int64 { return max(v, -v) }
