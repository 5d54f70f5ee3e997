package engine

import (
	"math"
	"time"

	"blast/backend"
	"blast/stats"
)

// books are what a sending thread had counted when it handed an interval over. They go the same way, so that nobody reads what the
// thread writes.
type books struct {
	index, at, waited   int64
	accepted, abandoned uint64
	taken, dropped      uint64 // as completed; taken without the warm-up
	refused             [backend.NumCauses]uint64
}

// hand gives the books of the interval index over. Where the collector still has older ones, it gets newer ones the next time.
func (w *worker) hand(index, now int64) {
	b := w.told.Active()
	*b = books{index: index, at: now, waited: w.waited, accepted: w.accepted, abandoned: w.abandoned, dropped: w.completed.Dropped}
	b.taken = w.accepted
	if w.async {
		b.taken = w.completed.Sent - min(w.warmed, w.completed.Sent)
	}
	for c, n := range w.refused {
		b.refused[c] = n + w.completed.Refused[c]
	}
	w.told.Flip()
}

// telling is what Run's goroutine keeps of a run for Config.Live.
type telling struct {
	books  []books // by worker
	up     int64   // the last interval that all threads have handed over, -1 = none
	told   int64   // the last one that was told
	before stats.Live
	kernel []expiring // by worker
}

func newTelling(workers int) telling {
	t := telling{books: make([]books, workers), up: -1, told: -1, kernel: make([]expiring, workers)}
	for i := range t.books {
		t.books[i].index = -1
	}
	return t
}

// gather takes the books. What belongs to them is in the intervals that collect takes after it.
func (r *run) gather() {
	if r.Live == nil {
		return
	}
	t := &r.telling
	up := int64(math.MaxInt64)
	for i, w := range r.workers {
		w.told.Take(func(b *books) { t.books[i] = *b })
		up = min(up, t.books[i].index)
	}
	for _, rc := range r.receivers {
		up = min(up, rc.flipped.Load()/r.slices()-1)
	}
	t.up = min(up, r.lastInterval())
}

// tell calls Config.Live once for every interval that all threads have handed over.
func (r *run) tell() {
	t := &r.telling
	if r.Live == nil || t.up <= t.told {
		return
	}
	t.told = t.up
	elapsed := min((t.up+1)*int64(r.Interval), r.length)
	l := &stats.Live{Lag: &r.total.lag, Latency: &r.total.latency, Service: &r.total.service}
	res := &l.Result
	res.Ledger = r.ledgerSoFar(elapsed)
	var accepted uint64
	for i := range t.books {
		b, worker := &t.books[i], stats.Worker{CPU: -1, Queue: -1, Flows: len(r.lanes[i].flows), Sent: t.books[i].accepted}
		if r.CPUs != nil {
			worker.CPU = r.CPUs[i]
		}
		worker.Duty = dutyOf(b.waited, b.at-r.start)
		accepted += b.accepted
		res.Workers = append(res.Workers, worker)
	}
	res.Timeline = r.timeline
	var target float64
	if !r.workers[0].planless {
		target = float64(res.Ledger.Planned) / time.Duration(elapsed).Seconds()
	}
	res.Rate = stats.RateOf(target, stats.Traffic{Packets: accepted}, res.Ledger.Replied+res.Ledger.Late, time.Duration(elapsed))
	r.telling.finish(l, r.building.index == t.up, r.second(), r.Live)
}

// finish fills in what follows from the rest and from the time before, and hands l to fn. second is the interval being built, whole
// says that it is the one told.
func (t *telling) finish(l *stats.Live, whole bool, second stats.Second, fn func(*stats.Live)) {
	res, was := &l.Result, &t.before.Result
	res.Lag, res.Latency, res.Service = l.Lag.Figures(), l.Latency.Figures(), l.Service.Figures()
	if n := len(res.Timeline); !whole && n > 0 {
		second = res.Timeline[n-1]
	}
	l.Last = second
	l.Last.T = time.Duration(res.Rate.ElapsedNS).Seconds()
	l.Last.Planned = res.Ledger.Planned - min(was.Ledger.Planned, res.Ledger.Planned)
	l.Last.Sent = res.Ledger.Sent - min(was.Ledger.Sent, res.Ledger.Sent)
	answered, before := res.Ledger.Replied+res.Ledger.Late, was.Ledger.Replied+was.Ledger.Late
	l.Last.Replied = answered - min(before, answered)
	l.LastNS = res.Rate.ElapsedNS - was.Rate.ElapsedNS
	t.before.Result.Ledger, t.before.Result.Rate = res.Ledger, res.Rate
	fn(l)
}

// ledgerSoFar is the ledger after elapsed ns.
func (r *run) ledgerSoFar(elapsed int64) stats.Ledger {
	l := stats.Ledger{Refused: map[string]uint64{}}
	for i := range r.telling.books {
		b := &r.telling.books[i]
		l.Sent += b.taken
		l.Abandoned += b.abandoned
		l.KernelDropped += b.dropped
		for c, n := range b.refused {
			if n > 0 {
				l.Refused[backend.Cause(c).String()] += n
			}
		}
	}
	l.Planned = l.Sent + l.Unsent()
	if !r.workers[0].planless {
		l.Planned = max(r.Schedule.Due(time.Duration(elapsed-1)), l.Planned)
	}
	t := &r.total
	switch {
	case r.kernel != nil:
		r.kernelSoFar(&l)
	case !r.Echo:
		return l
	default:
		l.Replied, l.Late, l.Duplicate, l.Reordered, l.Stray = t.replied, t.late, t.dup, t.reordered, t.stray
		for _, rc := range r.receivers {
			l.Lost += uint64(max(rc.expiry.shown.Load(), 0))
			l.SelfLost += rc.rcv.Drops()
		}
	}
	censor(&l)
	return l
}

// kernelSoFar is ledgerSoFar's view of replies taken in the kernel. What it cannot read it leaves out: the end says why.
func (r *run) kernelSoFar(l *stats.Ledger) {
	all, err := r.kernel.Books()
	if err != nil {
		return
	}
	for i := range all {
		addReplies(l, &all[i])
		if r.workers[i].planless {
			continue
		}
		lane := &r.lanes[i]
		cut := lane.warmed + lane.cursor.DueBy(r.Clock.Now()-int64(r.Timeout)-r.start)
		l.Lost += r.telling.kernel[i].unseen(i, lane.warmed, cut, r.kernel)
	}
}

// addReplies adds what a receiver beside the workers counted for one of them.
func addReplies(l *stats.Ledger, b *backend.ReceiverBooks) {
	l.Replied += b.Replied
	l.Late += b.Late
	l.Duplicate += b.Duplicate
	l.Reordered += b.Reordered
	l.Stray += b.Stray
	l.SelfLost += b.SelfLost
}

// addUnreplied adds sent packets without a reply, of which flying may still get one: they have waited for wait ns at least.
func addUnreplied(l *stats.Ledger, unreplied, flying uint64, wait int64) {
	if wait = max(wait, 0); flying > 0 && (l.InFlight == 0 || wait < l.InFlightAtLeastNS) {
		l.InFlightAtLeastNS = wait
	}
	l.InFlight += flying
	l.Lost += unreplied - flying
	l.LostUnknown += unreplied - flying
}

// censor settles a ledger in progress, whose Lost holds all slots without a reply whose timeout has passed: those that were not sent
// are not lost, and what is left of the sent packets is in flight.
func censor(l *stats.Ledger) {
	l.Sent = max(l.Sent, l.Replied+l.Late) // what was answered was sent, though its thread has not said so yet
	l.Planned = max(l.Planned, l.Sent+l.Unsent())
	l.Lost -= min(l.Lost, max(l.Unsent(), l.Planned-min(l.Sent, l.Planned)))
	answered := min(l.Replied+l.Late, l.Sent)
	l.Lost = min(l.Lost, l.Sent-answered)
	l.LostUnknown = l.Lost
	l.InFlight = l.Sent - answered - l.Lost
}

// expiring counts the slots of one worker that had no reply in the kernel by their timeout. It looks anew at those of the last few
// intervals, whose replies may still come late, and remembers how many are older.
type expiring struct {
	cuts [4]uint64 // oldest first; what lies before cuts[0] is settled
	gone uint64
}

// unseen is the number of slots from first to before cut without a reply.
func (e *expiring) unseen(worker int, first, cut uint64, receiver backend.OffloadReceiver) uint64 {
	from := max(e.cuts[0], first)
	if next := max(e.cuts[1], from); next > from {
		n, err := receiver.Unseen(worker, from, next, nil)
		if err != nil {
			return e.gone
		}
		e.gone += n
		from = next
	}
	copy(e.cuts[:], e.cuts[1:])
	e.cuts[len(e.cuts)-1] = max(cut, from)
	n, err := receiver.Unseen(worker, from, max(cut, from), nil)
	if err != nil {
		return e.gone
	}
	return e.gone + n
}
