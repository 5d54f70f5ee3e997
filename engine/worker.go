//blast:hot

package engine

import (
	"sync/atomic"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// slot is one planned send that is due and not yet accepted.
type slot struct {
	planned int64 // ns
	seq     uint64
	flow    int
	bytes   int // payload, once filled
}

// worker drives one sender through its share of the schedule.
type worker struct {
	id    int
	clk   clock.Clock
	snd   backend.Sender
	src   Source
	stamp packet.Stamp
	rec   *stats.Double[stats.SendInterval]
	told  *stats.Double[books] // nil unless somebody watches the run
	// tellEvery is the number of slices between two books, toldUp the number of books so far.
	tellEvery, toldUp int64
	stop              *atomic.Bool // set by Run: end now
	catchUp           CatchUp
	maxLag            int64
	spin              bool
	async             bool
	unpaced           bool // planned is the time of the send
	planless          bool // there is no schedule: unpaced, or a closed model
	interval          int64
	follow            *follower // of sampled packets; nil without stamps
	idle              func()    // called once a pass in tests that have no second thread; nil otherwise

	cursor  pace.Cursor
	origin  int64 // planned times of the cursor count from here
	nextAt  int64 // planned time of the next train, ns; with nextN 0 the share is exhausted
	nextN   int
	due     []slot // due and not yet accepted, oldest first
	nextSeq uint64 // of the slot after those in due
	flow    int
	flows   int
	ipv6    []bool // by flow
	mixed   bool   // payloads or address families differ from packet to packet

	ended int64 // when the phase was cut short, 0 = its share was exhausted

	guard     int64 // ns before a planned time at which sleeping stops
	start     int64 // of the measured part
	nextFlip  int64
	index     int64
	measuring bool
	passes    uint

	// Results of the measured part.
	waited     int64
	traffic    stats.Traffic
	lastSent   int64
	accepted   uint64
	offered    atomic.Uint64 // accepted, where there is no plan that would tell
	refused    [backend.NumCauses]uint64
	abandoned  uint64
	unsent     unsent
	completed  backend.Completions // everything Reap said, warm-up included
	warmed     uint64              // slots accepted in warm-up
	kernelDuty float64             // share of the time in which a kernel thread worked for the sender
	aborted    int64               // lag in ns of the slot that ended the run under CatchUpAbort, 0 = none
	err        error
}

// maxGuard bounds the guard: beyond it, spinning would cost more than a late packet.
const maxGuard = int64(2 * time.Millisecond)

// waitSlice bounds one sleep, so that a stop is seen and intervals end on time however far off the next slot is.
const waitSlice = int64(20 * time.Millisecond)

// run sends the slots of one phase, planned from origin on, until its share is exhausted or deadline passes.
func (w *worker) run(cursor pace.Cursor, origin, deadline int64) {
	w.cursor, w.origin, w.due = cursor, origin, w.due[:0]
	w.advance()
	now := w.clk.Now()
	for w.err == nil && !w.stop.Load() {
		if now >= w.nextFlip && w.measuring {
			w.flip(now)
		}
		w.collect(now)
		if w.aborted != 0 || now >= deadline {
			break
		}
		if len(w.due) > 0 {
			now = w.send(now)
		} else if w.nextN > 0 {
			now = w.wait(now, min(w.nextAt, deadline))
		} else {
			return
		}
		if w.idle != nil {
			w.idle()
		}
	}
	w.abandonDue(now)
}

// advance fetches the next train of the share.
func (w *worker) advance() {
	_, n, at, ok := w.cursor.Next()
	if !ok {
		n = 0
	}
	w.nextAt, w.nextN = w.origin+at, n
}

// collect moves slots whose planned time has come into due, up to one batch.
func (w *worker) collect(now int64) {
	for len(w.due) < cap(w.due) && w.nextN > 0 && w.nextAt <= now {
		if late := now - w.nextAt; late > w.maxLag && w.catchUp != CatchUpBurst {
			if w.catchUp == CatchUpAbort {
				w.aborted = late
				return
			}
			w.abandonTrain()
			continue
		}
		for w.nextN > 0 && len(w.due) < cap(w.due) {
			w.due = append(w.due, slot{planned: w.nextAt, seq: w.nextSeq, flow: w.flow})
			w.nextSeq++
			w.nextN--
		}
		if w.nextN == 0 {
			w.turn()
			w.advance()
		}
	}
}

// turn goes on to the next flow: trains go round the worker's flows.
func (w *worker) turn() {
	if w.flow++; w.flow == w.flows {
		w.flow = 0
	}
}

// send offers what is due and returns the time after.
func (w *worker) send(now int64) int64 {
	slots := w.snd.Reserve(len(w.due))
	if len(slots) == 0 {
		w.reap()
		return w.clk.Now()
	}
	st := &w.stamp
	st.Sent = now
	for k := range slots {
		d, s := &w.due[k], &slots[k]
		st.Seq, st.Planned = d.seq, d.planned
		if w.unpaced {
			st.Planned = now
		}
		s.Flow = d.flow
		if w.follow != nil {
			s.Stamp = w.follow.sampler.pick(d.seq)
		}
		d.bytes = w.src.Fill(st, d.flow, s.Payload)
		s.Len = d.bytes
	}
	accepted, err := w.snd.Commit(len(slots))
	after := w.clk.Now()
	done := accepted
	if err != nil {
		cause, refused := err.(backend.Cause)
		if !refused {
			w.err = err
			return after
		}
		w.refuse(w.due[accepted].seq, cause)
		done++
	}
	if accepted > 0 {
		if w.follow != nil {
			w.follow.sent(w.due[:accepted], now, w.unpaced)
		}
		w.record(w.due[:accepted], after)
	}
	w.due = w.due[:copy(w.due, w.due[done:])]
	if w.passes++; w.async || done < len(slots) || w.passes%256 == 0 || w.follow != nil && w.follow.full() {
		w.reap()
	}
	return after
}

// record counts accepted slots; equal planned times, those of a train, are recorded at once.
func (w *worker) record(sent []slot, after int64) {
	if !w.measuring {
		w.warmed += uint64(len(sent))
		return
	}
	rec := w.rec.Active()
	if !w.unpaced {
		for k := 0; k < len(sent); {
			planned, n := sent[k].planned, uint64(1)
			for k++; k < len(sent) && sent[k].planned == planned; k++ {
				n++
			}
			rec.Lag.RecordN(after-planned, n)
		}
	} else {
		w.offered.Store(w.accepted + uint64(len(sent)))
	}
	if !w.mixed {
		w.traffic.Add(sent[0].bytes, w.ipv6[0], uint64(len(sent)))
	} else {
		for k := range sent {
			w.traffic.Add(sent[k].bytes, w.ipv6[sent[k].flow], 1)
		}
	}
	rec.Accepted += uint64(len(sent))
	w.accepted += uint64(len(sent))
	w.lastSent = after
}

func (w *worker) refuse(seq uint64, cause backend.Cause) {
	w.unsent.add(seq)
	if w.measuring {
		w.refused[cause]++
	}
}

func (w *worker) abandon(seq uint64) {
	w.unsent.add(seq)
	if w.measuring {
		w.abandoned++
	}
}

// abandonTrain gives up what is left of the next train and goes on to the one after.
func (w *worker) abandonTrain() {
	for ; w.nextN > 0; w.nextN-- {
		w.abandon(w.nextSeq)
		w.nextSeq++
	}
	w.turn()
	w.advance()
}

// abandonDue ends a phase at time end: slots planned until then and not accepted are given up. Without a plan there are none.
func (w *worker) abandonDue(end int64) {
	w.ended = end
	if w.unpaced {
		w.nextSeq -= uint64(len(w.due))
		w.due = w.due[:0]
		return
	}
	for k := range w.due {
		w.abandon(w.due[k].seq)
	}
	w.due = w.due[:0]
	for w.nextN > 0 && w.nextAt <= end {
		w.abandonTrain()
	}
}

// reap takes completions and events from the backend.
func (w *worker) reap() {
	c := w.snd.Reap()
	w.completed.Sent += c.Sent
	w.completed.Dropped += c.Dropped
	for i, n := range c.Refused {
		w.completed.Refused[i] += n
	}
	for i, n := range c.Events {
		w.completed.Events[i] += n
	}
	if w.follow != nil {
		w.follow.collect()
	}
}

// wait passes the time to until: sleep, then spin. It returns the time, which is at or after until unless a stop came.
func (w *worker) wait(now, until int64) int64 {
	begun := now
	for now < until && !w.stop.Load() {
		if now >= w.nextFlip && w.measuring {
			w.flip(now)
		}
		if left := until - now; !w.spin && left > w.guard+w.guard/4 {
			w.reap()
			wake := now + min(left-w.guard, waitSlice)
			w.clk.Sleep(wake)
			now = w.clk.Now()
			if over := now - wake; over > w.guard {
				w.guard = min(over, maxGuard)
			}
		} else {
			now = w.clk.Now()
			if w.async || w.follow != nil && w.follow.look(until-now) {
				w.reap()
			}
		}
		if w.idle != nil {
			w.idle()
		}
	}
	if w.measuring {
		w.waited += max(min(now, until)-max(begun, w.start), 0)
	}
	return now
}

// flip ends the interval: the collector gets it, or it goes on while the collector is behind.
func (w *worker) flip(now int64) {
	w.index = (now - w.start) / w.interval
	w.nextFlip = w.start + (w.index+1)*w.interval
	w.rec.Active().Index = w.index - 1
	w.rec.Flip()
	if w.told != nil && w.index/w.tellEvery > w.toldUp {
		w.toldUp = w.index / w.tellEvery
		w.hand(w.toldUp-1, now)
	}
}

// measureGuard finds how late sleeps end here: the largest of some short ones, in ns.
func measureGuard(clk clock.Clock) int64 {
	const naps, nap = 24, int64(150 * time.Microsecond)
	guard := int64(2 * time.Microsecond)
	for range naps {
		wake := clk.Now() + nap
		clk.Sleep(wake)
		guard = max(guard, clk.Now()-wake)
	}
	return min(guard, maxGuard)
}
