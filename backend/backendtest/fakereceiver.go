package backendtest

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"blast/backend"
)

type fakeReply struct {
	at      int64
	flow    int
	payload []byte
}

// FakeReceiver is a Receiver of a Fake.
type FakeReceiver struct {
	fake *Fake
	cfg  backend.Config
	now  func() int64

	mu      sync.Mutex // between the Sender's thread and the Receiver's
	waiting []fakeReply
	arrived uint64
	drops   uint64
	polls   int
	packet  backend.Packet
	closed  bool
}

var _ backend.Receiver = (*FakeReceiver)(nil)

// add puts a reply in its place: after those that arrive at the same time.
func (r *FakeReceiver) add(at int64, flow int, payload []byte) {
	reply := fakeReply{at: at, flow: flow, payload: slices.Clone(payload)}
	if r.fake.Serve != nil {
		r.fake.Serve(reply.payload)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].at > at {
		i--
	}
	r.waiting = slices.Insert(r.waiting, i, reply)
}

// Waiting is the number of replies that have not been polled yet, arrived or not.
func (r *FakeReceiver) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Poll implements backend.Receiver.
func (r *FakeReceiver) Poll(wait time.Duration, fn func(*backend.Packet)) (int, error) {
	if r.closed {
		return 0, fmt.Errorf("fake: %w", os.ErrClosed)
	}
	call := r.polls
	r.polls++
	if r.fake.PollError != nil {
		if err := r.fake.PollError(call); err != nil {
			return 0, err
		}
	}
	if n := r.deliver(fn); n > 0 || wait <= 0 {
		return n, nil
	}
	now := r.now()
	until := now + int64(wait)
	r.mu.Lock()
	if len(r.waiting) > 0 {
		until = min(until, r.waiting[0].at)
	}
	r.mu.Unlock()
	if r.fake.Sleep != nil {
		r.fake.Sleep(until)
	} else {
		time.Sleep(time.Duration(until - now))
	}
	return r.deliver(fn), nil
}

func (r *FakeReceiver) deliver(fn func(*backend.Packet)) (n int) {
	now := r.now()
	for {
		reply, ok := r.take(now)
		if !ok {
			return n
		}
		p := &r.packet
		*p = backend.Packet{Payload: reply.payload, Flow: reply.flow, At: now, Source: r.source(reply.flow)}
		if r.cfg.KernelStamp {
			p.At = reply.at
		}
		if r.cfg.Stamps && r.fake.Stamp != nil {
			p.Kernel, p.Asked = reply.at, now
		}
		fn(p)
		n++
		for i := range reply.payload { // valid only inside the call: whoever keeps it shall notice
			reply.payload[i] = 0xdb
		}
	}
}

// take removes the next reply that arrived by now and was not lost on the way up.
func (r *FakeReceiver) take(now int64) (fakeReply, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) > 0 && r.waiting[0].at <= now {
		reply := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.arrived++
		if r.fake.Overflow != nil && r.fake.Overflow(r.arrived-1) {
			r.drops++
			continue
		}
		return reply, true
	}
	return fakeReply{}, false
}

func (r *FakeReceiver) source(flow int) netip.AddrPort { return r.cfg.Flows[flow].Dst }

// Drops implements backend.Receiver.
func (r *FakeReceiver) Drops() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drops
}

// Close implements backend.Receiver.
func (r *FakeReceiver) Close() error {
	r.closed = true
	return nil
}
