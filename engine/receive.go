//blast:hot

package engine

import (
	"sync/atomic"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/packet"
	"blast/stats"
)

// receiver takes the replies to one worker's packets.
type receiver struct {
	clk      clock.Clock
	rcv      backend.Receiver
	src      Source
	rec      *stats.Double[stats.ReceiveInterval]
	win      *window
	timeout  int64
	start    int64
	interval int64
	nextFlip int64
	limit    uint64 // slots of the share: a larger seq is not ours
	stop     atomic.Bool
	stamp    packet.Stamp
	answer   func(flow int, seq uint64, at int64) // told of the first reply to a slot; nil but in a crowd
	follow   *follower                            // of sampled packets; nil without stamps
	names    *names                               // nil unless asked for
	expiry   expiry
	busy     int64 // users of a crowd with a request in flight
	looks    looks
	expected int64 // what RecordCorrected wants; 0 = no estimate asked for
	estimate *stats.Hist

	// Read by Run while the thread runs.
	answered atomic.Uint64 // slots that have their first reply
	flipped  atomic.Int64  // slices handed over
	maxRTT   atomic.Int64  // largest service time of a reply, ns, warm-up included
	unique   uint64
	longest  int64
	drops    uint64
	err      error
}

// pollWait bounds one Poll, so that a stop is seen and intervals end on time.
const pollWait = 20 * time.Millisecond

// run polls until told to stop.
func (r *receiver) run() {
	for !r.stop.Load() {
		if !r.poll(pollWait) {
			return
		}
	}
}

// poll takes what is there, waiting at most wait, and reports whether the receiver still works.
func (r *receiver) poll(wait time.Duration) bool {
	before := r.aloft()
	n, err := r.rcv.Poll(wait, r.packet)
	if err != nil {
		r.err = err
		return false
	}
	if n > 0 {
		r.answered.Store(r.unique)
		r.maxRTT.Store(r.longest)
	}
	now := r.clk.Now()
	if now >= r.looks.next {
		r.look(now, before)
	}
	if now >= r.nextFlip {
		r.flip(now)
	}
	if now >= r.expiry.next {
		r.expire(now)
	}
	return true
}

func (r *receiver) flip(now int64) {
	index := (now - r.start) / r.interval
	r.nextFlip = r.start + (index+1)*r.interval
	r.rec.Active().Index = index - 1
	r.rec.Flip()
	r.flipped.Store(index)
}

// packet times one reply. It is the fn of Poll.
func (r *receiver) packet(p *backend.Packet) {
	st, rec := &r.stamp, r.rec.Active()
	if !r.src.Match(p.Payload, p.At, st) || st.Seq >= r.limit {
		rec.Stray++
		return
	}
	r.longest = max(r.longest, p.At-st.Sent)
	if st.HasReport && r.win.stride > 0 && st.ServerWindow != 0 {
		r.win.report(st.Seq, p.Flow, st.ServerCount, st.ServerWindow)
	}
	reordered := r.win.replied(st.Seq, p.Flow)
	if st.Seq < r.win.first {
		return
	}
	first, gone := r.win.mark(st.Seq)
	switch {
	case gone:
		rec.Stray++
		return
	case !first:
		rec.Duplicate++
		if r.names != nil {
			r.names.add(&r.names.Duplicate, st.Seq)
		}
		return
	case reordered:
		rec.Reordered++
		if r.names != nil {
			r.names.add(&r.names.Reordered, st.Seq)
		}
	}
	r.unique++
	if r.follow != nil {
		if id := r.follow.sampler.pick(st.Seq); id != 0 {
			r.follow.replied(id, p, st.ServerReceived, st.ServerSent)
		}
	}
	if st.Seq < r.expiry.to {
		r.expiry.count--
	}
	if r.answer != nil {
		r.answer(p.Flow, st.Seq, p.At)
	}
	latency := p.At - st.Planned
	if r.expected > 0 {
		r.estimate.RecordCorrected(latency, r.expected)
	}
	if latency > r.timeout {
		rec.Late++
		if r.names != nil {
			r.names.add(&r.names.Late, st.Seq)
		}
	} else {
		rec.Replied++
	}
	rec.Latency.Record(latency)
	rec.Service.Record(p.At - st.Sent)
	if st.ServerReceived != 0 {
		rec.Server.Record(st.ServerSent - st.ServerReceived)
	}
}
