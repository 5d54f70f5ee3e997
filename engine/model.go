//blast:hot

package engine

import (
	"time"

	"blast/pace"
)

// Model says what, beside the plan, decides when a packet is sent.
type Model uint8

// The load models.
const (
	// ModelOpen sends every slot when it is due, replies or not. The default, and the only one in which the target cannot slow the load down.
	ModelOpen Model = iota
	// ModelClosed has no plan: each flow is a client that sends, waits for the reply or Timeout, thinks for Think, and sends again. Its planned
	// time is that of the reply and Think, so latency from planned and from actual differ by what the generator itself needs. Schedule is
	// a pace.Unpaced, of which only the length counts.
	ModelClosed
	// ModelBlocking keeps the plan, but deals it to the flows, each a sender that is blocked until the reply to its last slot, or Timeout after
	// its send: slot i belongs to sender i % flows. Latency counts from planned, so what waits for a sender is counted.
	ModelBlocking
)

// String is the model's name on the command line.
func (m Model) String() string { return [...]string{"open", "closed", "blocking"}[m] }

// crowd drives one worker of a run whose sending depends on replies: a closed or blocking model, or an open one with MaxInFlight. One
// thread sends and receives in turns, so that a reply is acted on at once:
//
//  1. give up requests that have had their timeout
//  2. send what is due and allowed: users by planned time, or slots of the plan while fewer than limit are in flight
//  3. poll for replies until the next of both, sleeping in the poll but for the guard
//
// It costs the open model without a cap nothing: that never gets here.
type crowd struct {
	*worker
	rc      *receiver
	users   []user
	ready   []int32 // heap of users without a request in flight, by planned time
	oldest  int32   // list of users with one, in order of sending; -1 = none
	latest  int32
	closed  bool
	think   int64
	timeout int64

	limit   uint64 // of slots in flight; 0 = users instead
	sentAt  []int64
	tail    uint64 // slots before it have their reply, or had their timeout
	expired uint64
}

// user is a client of the closed model or a sender of the blocking one.
type user struct {
	planned    int64 // of its next request, ns
	seq        uint64
	share      pace.Cursor // of the blocking model
	expires    int64       // of the request in flight
	prev, next int32
	inFlight   bool
	done       bool // its share is exhausted
}

// capSlots bounds the memory of a cap: 32 MiB. A cap holds back what would be further ahead of its oldest slot without a reply.
const capSlots = 1 << 22

// newCrowd prepares worker w for its model; the receiver is then the crowd's.
func newCrowd(cfg *Config, w *worker, rc *receiver, cursor pace.Cursor) *crowd {
	c := &crowd{worker: w, rc: rc, oldest: -1, latest: -1, closed: cfg.Model == ModelClosed, think: int64(cfg.Think), timeout: int64(cfg.Timeout)}
	rc.answer = c.answered
	if cfg.MaxInFlight > 0 {
		size := uint64(64)
		for size < capSlots && size < cursor.Slots() {
			size <<= 1
		}
		c.limit, c.sentAt = uint64(cfg.MaxInFlight), make([]int64, size)
		return c
	}
	c.users = make([]user, w.flows)
	c.ready = make([]int32, 0, w.flows)
	for k := range c.users {
		if !c.closed {
			c.users[k].share = pace.NewCursor(cfg.Schedule, uint64(k), uint64(w.flows), 1)
		}
	}
	return c
}

// run is worker.run for a crowd: it returns when the plan is exhausted or at deadline.
func (c *crowd) run(cursor pace.Cursor, origin, deadline int64) {
	w := c.worker
	w.cursor, w.origin, w.due = cursor, origin, w.due[:0]
	if c.limit > 0 {
		w.advance()
	}
	for k := range c.users {
		u := &c.users[k]
		u.planned = origin + c.think*int64(k)/int64(len(c.users)) // clients come in evenly over a think time
		if c.closed || c.nextSlot(u) {
			c.await(int32(k))
		}
	}
	now := w.clk.Now()
	for w.err == nil && !w.stop.Load() && w.aborted == 0 {
		if now >= w.nextFlip {
			w.flip(now)
		}
		now = c.giveUp(now)
		if now >= deadline {
			break
		}
		until, more := deadline, false
		if c.limit > 0 {
			now, until, more = c.sendCapped(now, deadline)
		} else {
			now, until, more = c.sendUsers(now, deadline)
		}
		if !more {
			if c.limit == 0 {
				w.nextSeq = cursor.Slots()
			}
			return
		}
		now = c.poll(now, until)
	}
	c.leave(now)
}

// sendUsers sends the requests that are due, of users that have none in flight, and returns when the next is, and whether there is one.
func (c *crowd) sendUsers(now, deadline int64) (after, until int64, more bool) {
	w := c.worker
	for len(w.due) < cap(w.due) && len(c.ready) > 0 && c.users[c.ready[0]].planned <= now {
		k := c.pop()
		u := &c.users[k]
		if c.closed {
			u.seq = w.nextSeq
			w.nextSeq++
		}
		w.due = append(w.due, slot{planned: u.planned, seq: u.seq, flow: int(k)})
		c.join(k, now+c.timeout)
	}
	refused := w.refusals()
	first, n := c.latest, len(w.due) // the users of this batch are the last n of the list
	for len(w.due) > 0 && w.err == nil && now < deadline && !w.stop.Load() {
		now = w.send(now)
	}
	if w.refusals() > refused {
		for range n {
			k := first
			first = c.users[k].prev
			if w.unsent.ring.has(c.users[k].seq) {
				c.free(k, now)
			}
		}
	}
	until = deadline
	if len(c.ready) > 0 {
		until = min(until, c.users[c.ready[0]].planned)
	}
	if c.oldest >= 0 {
		until = min(until, c.users[c.oldest].expires)
	}
	return now, until, len(c.ready) > 0 || c.oldest >= 0
}

// sendCapped sends the slots that are due while fewer than the limit are in flight.
func (c *crowd) sendCapped(now, deadline int64) (after, until int64, more bool) {
	w := c.worker
	w.collect(now)
	room := c.limit - min(c.limit, c.outstanding())
	room = min(room, uint64(len(c.sentAt))-min(uint64(len(c.sentAt)), w.nextSeq-uint64(len(w.due))-c.tail))
	if n := min(uint64(len(w.due)), room); n > 0 {
		all := w.due
		for _, d := range all[:n] {
			c.sentAt[d.seq&uint64(len(c.sentAt)-1)] = now
		}
		w.due = all[:n]
		now = w.send(now)
		kept := len(w.due)
		w.due = all[:kept+copy(all[kept:], all[n:])]
		if kept == 0 && len(w.due) < cap(w.due) || kept > 0 {
			return now, now, true
		}
	}
	until = deadline
	if c.tail < w.nextSeq-uint64(len(w.due)) { // a reply or a timeout makes room
		until = min(until, c.sentAt[c.tail&uint64(len(c.sentAt)-1)]+c.timeout)
	}
	if len(w.due) < cap(w.due) && w.nextN > 0 {
		until = min(until, w.nextAt)
	}
	return now, until, len(w.due) > 0 || w.nextN > 0
}

// outstanding is the number of slots in flight under a cap.
func (c *crowd) outstanding() uint64 {
	return c.accepted - min(c.accepted, c.rc.unique+c.expired)
}

// poll takes replies until about until, and returns the time. Only this counts as waiting.
func (c *crowd) poll(now, until int64) int64 {
	w := c.worker
	if w.async {
		w.reap()
	}
	wait := time.Duration(0)
	if left := min(until, w.nextFlip) - now; !w.spin && left > w.guard+w.guard/4 {
		wait = time.Duration(min(left-w.guard, waitSlice))
		w.reap()
	}
	if !c.rc.poll(wait) {
		w.err = c.rc.err
	}
	after := w.clk.Now()
	w.waited += max(min(after, until)-max(now, w.start), 0)
	return after
}

// answered is called by the receiver for the first reply to a slot.
func (c *crowd) answered(flow int, seq uint64, at int64) {
	if c.limit > 0 {
		if seq < c.tail { // it had been given up
			c.expired--
		}
		return
	}
	if u := &c.users[flow]; u.inFlight && u.seq == seq {
		c.free(int32(flow), at)
	}
}

// giveUp lets go of requests that have had their timeout.
func (c *crowd) giveUp(now int64) int64 {
	for c.oldest >= 0 && c.users[c.oldest].expires <= now {
		c.free(c.oldest, now)
	}
	if c.limit == 0 {
		return now
	}
	w := c.worker
	sent := w.nextSeq - uint64(len(w.due))
	for ; c.tail < sent; c.tail++ {
		if c.rc.win.seen.has(c.tail) || w.unsent.ring.has(c.tail) {
			continue
		}
		if c.sentAt[c.tail&uint64(len(c.sentAt)-1)]+c.timeout > now {
			break
		}
		c.expired++
	}
	return now
}

// free ends a user's request at time at: its next one is planned.
func (c *crowd) free(k int32, at int64) {
	u := &c.users[k]
	if u.prev >= 0 {
		c.users[u.prev].next = u.next
	} else {
		c.oldest = u.next
	}
	if u.next >= 0 {
		c.users[u.next].prev = u.prev
	} else {
		c.latest = u.prev
	}
	u.inFlight = false
	c.rc.busy--
	if c.closed {
		u.planned = at + c.think
	} else if !c.nextSlot(u) {
		return
	}
	c.await(k)
}

// join puts a user behind those whose requests are in flight.
func (c *crowd) join(k int32, expires int64) {
	u := &c.users[k]
	u.inFlight, u.expires, u.prev, u.next = true, expires, c.latest, -1
	if c.latest >= 0 {
		c.users[c.latest].next = k
	} else {
		c.oldest = k
	}
	c.latest = k
	c.rc.busy++
}

// nextSlot takes the next slot of a sender's share.
func (c *crowd) nextSlot(u *user) bool {
	seq, _, at, ok := u.share.Next()
	u.seq, u.planned, u.done = seq, c.origin+at, !ok
	return ok
}

// refusals is the number of slots that the kernel refused so far.
func (w *worker) refusals() (n uint64) {
	for _, c := range w.refused {
		n += c
	}
	return n
}

// leave ends the run at end: slots planned until then and not sent are abandoned.
func (c *crowd) leave(end int64) {
	w := c.worker
	if c.limit > 0 {
		w.abandonDue(end)
		return
	}
	w.ended = end
	if c.closed {
		w.nextSeq -= uint64(len(w.due))
		w.due = w.due[:0]
		return
	}
	for k := range w.due {
		w.abandon(w.due[k].seq)
	}
	w.due = w.due[:0]
	for k := range c.users {
		u := &c.users[k]
		for ok := !u.done && (!u.inFlight || c.nextSlot(u)); ok && u.planned <= end; ok = c.nextSlot(u) {
			w.abandon(u.seq)
		}
	}
	w.nextSeq = w.cursor.DueBy(end - w.origin)
}

// await puts a user among those that are ready to send at their planned time.
func (c *crowd) await(k int32) {
	c.ready = append(c.ready, k)
	h := c.ready
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !c.before(h[i], h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// pop takes the user with the earliest planned time.
func (c *crowd) pop() int32 {
	h := c.ready
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	c.ready = h
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if c.before(h[k], h[least]) {
				least = k
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// before orders users by planned time, and by number where that is equal, as the plan does.
func (c *crowd) before(a, b int32) bool {
	x, y := c.users[a].planned, c.users[b].planned
	return x < y || x == y && a < b
}
