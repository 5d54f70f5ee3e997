package engine

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"blast/pace"
	"blast/stats"
)

// correctMost bounds the estimated samples of one reply, so that the receiver keeps up.
const correctMost = 1 << 20

// validateModel refuses models that cannot be, and combinations that mean nothing.
func (c *Config) validateModel(check func(bad bool, format string, args ...any)) {
	check(c.Model > ModelBlocking, "model %d: unknown", c.Model)
	check(c.Think < 0 || c.MaxInFlight < 0 || c.Correct < 0, "think time, cap and correction want 0 or more")
	check(c.Think > 0 && c.Model != ModelClosed, "think time: only clients of the closed model think")
	check(c.Correct > 0 && c.Model != ModelClosed, "correction: latencies from a plan need none; correcting them would count the same wait twice")
	check(c.Correct > 0 && c.Timeout/max(c.Correct, 1) > correctMost, "correction: an interval of %v is too short for replies of up to %v: want at least %v",
		c.Correct, c.Timeout, c.Timeout/correctMost)
	check(c.MaxInFlight > 0 && c.Model != ModelOpen, "cap: the %v model has its own", c.Model)
	if c.Model == ModelOpen && c.MaxInFlight == 0 {
		return
	}
	_, unpaced := c.Schedule.(pace.Unpaced)
	check(!c.Echo, "model: sending depends on replies, so there have to be some")
	check(c.Workers > 1, "model: %d workers; one thread has to see every reply", c.Workers)
	check(c.Warmup != nil, "model: a warm-up would hand its waiting requests over to the measured part")
	check(c.Backend.GSO > 1, "model: a train leaves as one, whatever its requests wait for")
	check(c.Model == ModelClosed && !unpaced, "model: clients of the closed model follow no plan")
	check(c.Model != ModelClosed && unpaced, "model: without a plan nothing can be held back from it")
}

// prepareReceiver sets up what only some runs ask of a receiver.
func (r *run) prepareReceiver(rc *receiver, cursor pace.Cursor, warmed uint64) {
	rc.expiry = expiry{cursor: cursor, from: warmed, to: warmed}
	if _, unpaced := r.Schedule.(pace.Unpaced); unpaced {
		rc.expiry.next = 1<<63 - 1
	}
	if r.Names != nil {
		rc.names = &names{}
	}
	if r.Correct > 0 {
		rc.expected, rc.estimate = int64(r.Correct), &stats.Hist{}
	}
}

// crowdThread is sendThread for a crowd: the thread that sends also receives, and so lives until the drain has ended. It returns when
// sending has.
func (r *run) crowdThread(ready chan<- error, replies *sync.WaitGroup) {
	sent := make(chan struct{})
	replies.Go(func() {
		runtime.LockOSThread() // never unlocked, as in sendThread
		w, rc := r.workers[0], r.receivers[0]
		restore, err := r.settle(0)
		if err == nil {
			defer restore()
			err = r.open(0)
		}
		if err != nil {
			ready <- err
			close(sent)
			return
		}
		w.guard = measureGuard(w.clk)
		ready <- nil
		<-r.begun
		r.sendAll(0)
		close(sent)
		if rc.err == nil && !r.failed {
			rc.run()
		}
		rc.drops = rc.rcv.Drops()
		if err := rc.rcv.Close(); err != nil && rc.err == nil {
			rc.err = fmt.Errorf("receiver 0: close: %w", err)
		}
	})
	<-sent
}

// fillModel adds to a result what the models and the checks of this file know.
func (r *run) fillModel(res *stats.Result) {
	if r.Names != nil {
		for i, rc := range r.receivers {
			r.Names.take(uint16(i), rc.names)
		}
	}
	if r.Correct > 0 {
		estimate := r.receivers[0].estimate.Summary()
		res.Corrected = &estimate
	}
	if r.Echo {
		res.Little = r.little(res)
		res.Little.Judge(res)
	}
}

// flying is the number of clients of a closed model whose request is younger than its timeout when the drain has ended: that many of
// those without a reply are in flight, and not lost.
func (c *crowd) flying(drained int64) (n uint64) {
	for k := range c.users {
		if u := &c.users[k]; u.inFlight && u.expires > drained {
			n++
		}
	}
	return n
}

// youngest is the least time that such a request had been waiting.
func (c *crowd) youngest(drained int64) time.Duration {
	least := c.timeout
	for k := range c.users {
		if u := &c.users[k]; u.inFlight && u.expires > drained {
			least = min(least, drained-(u.expires-c.timeout))
		}
	}
	return time.Duration(least)
}
