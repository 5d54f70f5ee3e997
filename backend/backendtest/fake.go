package backendtest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
)

// Fake is a backend in memory, for tests of what drives backends. The zero value accepts everything at once and never replies.
//
// The function fields inject faults. They are called on the thread of the call they are about, with no lock held, so they may
// call Close or move a fake clock. call counts a Sender's calls from 0; seq counts, from 0, the slots whose fate a Sender settled:
// a slot that was not accepted comes again under the same seq, a refused one uses its seq up. A nil function injects nothing.
type Fake struct {
	// Batch and PayloadBytes are the limits granted; 0 grants what Config asks for (64 slots where it asks for nothing).
	Batch, PayloadBytes int
	// Async makes Commit only queue. Slots complete in Reap, Latency after their Commit, and until then take room: Depth slots
	// in all (0 means four batches).
	Async   bool
	Depth   int
	Latency time.Duration
	// Now is the clock in ns; nil takes Config.Now, and where that is nil too, time stands still at 0.
	Now func() int64
	// Sleep waits until about t on that clock; nil really sleeps. It serves Receiver.Poll.
	Sleep func(t int64)
	// Spend is called at the end of every Commit with the slots accepted: it stands for the cost of the call.
	Spend func(accepted int)
	// Keep records every Commit and a copy of every accepted payload in FakeSender.
	Keep bool
	// OneThread records a violation when a Sender's methods are called by another thread than the one that opened it.
	OneThread bool

	// OpenError fails the given Open, counted from 0.
	OpenError func(open int) error
	// Room cuts down how many of n slots Reserve hands out: 0 is "full".
	Room func(call, n int) int
	// Accept cuts down how many of n offered slots a Commit takes: fewer is a partial accept, 0 again and again an EAGAIN storm.
	Accept func(call, n int) int
	// Fatal makes a Commit fail for good before it takes anything.
	Fatal func(call int) error
	// Refuse makes Commit refuse a slot for a Cause.
	Refuse func(seq uint64) (backend.Cause, bool)
	// RefuseLate makes an accepted slot come back from Reap as refused. Only for Async.
	RefuseLate func(seq uint64) (backend.Cause, bool)
	// Drop makes an accepted slot come back from Reap as dropped by the kernel.
	Drop func(seq uint64) bool
	// Stamp grants transmit stamps: it returns when a slot that was offered at a time passed a place, StampSched or StampSoftware; 0 is a stamp that
	// was lost. Replies then have kernel times too.
	Stamp func(seq uint64, kind backend.StampKind, at int64) int64
	// Hardware adds StampHardware to what Stamp grants; ClockError is Limits.ClockErrorNS then.
	Hardware   bool
	ClockError int64
	// Events are added to what Reap tells.
	Events func(call int) [backend.NumEvents]uint64
	// CloseError is what the first Close returns.
	CloseError error

	// Reply turns the loopback on: it returns how long after its Commit each reply to a slot arrives. None is a loss, two are a
	// duplicate, unequal times a reordering. Dropped slots are not asked about.
	Reply func(seq uint64, flow int, payload []byte) []time.Duration
	// Serve may change the payload of a reply, which has its own memory: it plays the server.
	Serve func(payload []byte)
	// Overflow loses a reply in the receiver's own path, where Drops counts it. Replies are counted from 0 in order of arrival.
	Overflow func(reply uint64) bool
	// PollError fails a Poll, counted from 0.
	PollError func(call int) error

	mu      sync.Mutex
	opens   int
	senders []*FakeSender
}

// Open implements backend.Open.
func (f *Fake) Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	f.mu.Lock()
	open := f.opens
	f.opens++
	f.mu.Unlock()
	if f.OpenError != nil {
		if err := f.OpenError(open); err != nil {
			return nil, nil, err
		}
	}
	if len(cfg.Flows) == 0 {
		return nil, nil, errors.New("fake: no flows")
	}
	s := newFakeSender(f, cfg)
	f.mu.Lock()
	f.senders = append(f.senders, s)
	f.mu.Unlock()
	if !cfg.Receive {
		return s, nil, nil
	}
	s.receiver = &FakeReceiver{fake: f, cfg: cfg, now: s.now}
	return s, s.receiver, nil
}

// Senders are all Senders opened so far, in order.
func (f *Fake) Senders() []*FakeSender {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.senders)
}

// Check returns what the user of the Fake did against the contract, and what it left open, joined; nil when there is nothing.
// It is for the end of a test, when no method runs any more.
func (f *Fake) Check() error {
	var errs []error
	for i, s := range f.Senders() {
		for _, v := range s.violations {
			errs = append(errs, fmt.Errorf("fake: sender %d: %s", i, v))
		}
		if !s.closed {
			errs = append(errs, fmt.Errorf("fake: sender %d: not closed", i))
		}
		if r := s.receiver; r != nil && !r.closed {
			errs = append(errs, fmt.Errorf("fake: receiver %d: not closed", i))
		}
	}
	return errors.Join(errs...)
}

// FakeCommit is one recorded Commit.
type FakeCommit struct {
	// At is when it began.
	At int64
	// Offered and Accepted are the argument and the result; Err is the error.
	Offered, Accepted int
	Err               error
}

// FakePacket is one accepted slot.
type FakePacket struct {
	Seq     uint64
	Flow    int
	At      int64
	Payload []byte
}

type fakeInFlight struct {
	seq     uint64
	done    int64
	slot    *backend.Slot
	payload []byte // copy, to see whether the caller wrote to a slot it had given away
}

// FakeSender is a Sender of a Fake. Its exported fields are filled when Fake.Keep is set.
type FakeSender struct {
	// Commits and Packets are the record.
	Commits []FakeCommit
	Packets []FakePacket
	// Closes counts the calls of Close.
	Closes int

	fake       *Fake
	cfg        backend.Config
	now        func() int64
	limits     backend.Limits
	receiver   *FakeReceiver
	slots      []backend.Slot // a ring in asynchronous mode
	next       int
	reserved   []backend.Slot
	inFlight   []fakeInFlight  // oldest first
	stamps     []backend.Stamp // not taken yet
	seq        uint64
	reserves   int
	commits    int
	reaps      int
	done       backend.Completions
	thread     int
	closed     bool
	violations []string
}

var _ backend.Sender = (*FakeSender)(nil)

func newFakeSender(f *Fake, cfg backend.Config) *FakeSender {
	s := &FakeSender{fake: f, cfg: cfg, thread: unix.Gettid()}
	s.now = f.Now
	if s.now == nil {
		s.now = cfg.Now
	}
	if s.now == nil {
		s.now = func() int64 { return 0 }
	}
	l := &s.limits
	l.Mode, l.Async, l.GSO = "fake", f.Async, max(cfg.GSO, 1)
	l.Batch = cfg.Batch
	if l.Batch == 0 {
		l.Batch = 64
	}
	if f.Batch > 0 {
		l.Batch = f.Batch
	}
	if l.PayloadBytes = f.PayloadBytes; l.PayloadBytes == 0 {
		l.PayloadBytes = 65507
	}
	if cfg.Stamps && f.Stamp != nil {
		l.Stamps = backend.StampKinds(0).With(backend.StampSched).With(backend.StampSoftware)
		if f.Hardware {
			l.Stamps, l.ClockErrorNS = l.Stamps.With(backend.StampHardware), f.ClockError
		}
	}
	for _, flow := range cfg.Flows {
		l.Sources = append(l.Sources, flow.Src)
	}
	depth := l.Batch
	if f.Async {
		if depth = f.Depth; depth == 0 {
			depth = 4 * l.Batch
		}
		s.inFlight = make([]fakeInFlight, 0, depth)
	}
	memory := make([]byte, depth*cfg.PayloadBytes)
	// Doubled, so that a reservation that wraps is still one slice: slot i and slot i+depth share their memory.
	s.slots = make([]backend.Slot, depth+l.Batch)
	for i := range s.slots {
		at := i % depth * cfg.PayloadBytes
		s.slots[i].Payload = memory[at : at+cfg.PayloadBytes : at+cfg.PayloadBytes]
	}
	return s
}

func (s *FakeSender) depth() int { return len(s.slots) - s.limits.Batch }

func (s *FakeSender) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

func (s *FakeSender) enter(method string) {
	if s.fake.OneThread && unix.Gettid() != s.thread {
		s.violate("%s called by another thread", method)
	}
	if s.closed && method != "Close" && method != "Reap" && method != "Limits" {
		s.violate("%s after Close", method)
	}
}

// Reserve implements backend.Sender.
func (s *FakeSender) Reserve(n int) []backend.Slot {
	s.enter("Reserve")
	call := s.reserves
	s.reserves++
	if n < 0 {
		s.violate("reserve of %d slots", n)
	}
	n = min(n, s.limits.Batch, s.depth()-len(s.inFlight))
	if s.fake.Room != nil {
		n = min(n, s.fake.Room(call, n))
	}
	if s.closed {
		n = 0
	}
	s.reserved = s.slots[s.next : s.next+max(n, 0)]
	return s.reserved
}

// Commit implements backend.Sender.
func (s *FakeSender) Commit(n int) (int, error) {
	s.enter("Commit")
	call, at := s.commits, s.now()
	s.commits++
	accepted, err := s.commit(call, n, at)
	if s.fake.Keep {
		s.Commits = append(s.Commits, FakeCommit{At: at, Offered: n, Accepted: accepted, Err: err})
	}
	if s.fake.Spend != nil {
		s.fake.Spend(accepted)
	}
	return accepted, err
}

func (s *FakeSender) commit(call, n int, at int64) (int, error) {
	slots := s.reserved
	s.reserved = nil
	if n < 0 || n > len(slots) {
		s.violate("commit of %d slots, %d reserved", n, len(slots))
		return 0, fmt.Errorf("fake: commit of %d slots, %d reserved", n, len(slots))
	}
	if s.fake.Fatal != nil {
		if err := s.fake.Fatal(call); err != nil {
			return 0, err
		}
	}
	take := n
	if s.fake.Accept != nil {
		take = min(n, max(s.fake.Accept(call, n), 0))
	}
	if s.closed {
		return 0, fmt.Errorf("fake: %w", os.ErrClosed)
	}
	for i := range take {
		if s.fake.Refuse != nil {
			if cause, refused := s.fake.Refuse(s.seq); refused {
				s.seq++
				return i, cause
			}
		}
		s.accept(&slots[i], at)
	}
	if take < n {
		s.done.Events[backend.EventPushback]++
	}
	return take, nil
}

func (s *FakeSender) accept(slot *backend.Slot, at int64) {
	if slot.Len < 0 || slot.Len > len(slot.Payload) || slot.Flow < 0 || slot.Flow >= len(s.cfg.Flows) {
		s.violate("slot %d: length %d of %d, flow %d of %d", s.seq, slot.Len, len(slot.Payload), slot.Flow, len(s.cfg.Flows))
		return
	}
	payload := slot.Payload[:slot.Len]
	if s.fake.Keep {
		s.Packets = append(s.Packets, FakePacket{Seq: s.seq, Flow: slot.Flow, At: at, Payload: slices.Clone(payload)})
	}
	s.stamp(slot, at)
	dropped := s.fake.Drop != nil && s.fake.Drop(s.seq)
	if !dropped && s.receiver != nil && s.fake.Reply != nil {
		for _, delay := range s.fake.Reply(s.seq, slot.Flow, payload) {
			s.receiver.add(at+int64(delay), slot.Flow, payload)
		}
	}
	if s.fake.Async {
		f := fakeInFlight{seq: s.seq, done: at + int64(s.fake.Latency), slot: slot}
		if s.fake.Keep {
			f.payload = s.Packets[len(s.Packets)-1].Payload
		}
		s.inFlight = append(s.inFlight, f)
		s.next = (s.next + 1) % s.depth()
	} else if dropped {
		s.done.Dropped++
	}
	s.seq++
}

// stamp makes the stamps of a slot that asks.
func (s *FakeSender) stamp(slot *backend.Slot, at int64) {
	for kind := range backend.NumStampKinds {
		if slot.Stamp == 0 || !s.limits.Stamps.Has(kind) {
			continue
		}
		if stamp := s.fake.Stamp(s.seq, kind, at); stamp != 0 {
			s.stamps = append(s.stamps, backend.Stamp{ID: slot.Stamp, Kind: kind, At: stamp})
		}
	}
}

// TakeStamps implements backend.Stamper.
func (s *FakeSender) TakeStamps(into []backend.Stamp) int {
	s.enter("TakeStamps")
	n := copy(into, s.stamps)
	s.stamps = s.stamps[:copy(s.stamps, s.stamps[n:])]
	return n
}

// Reap implements backend.Sender.
func (s *FakeSender) Reap() backend.Completions {
	s.enter("Reap")
	call := s.reaps
	s.reaps++
	s.complete()
	if s.fake.Events != nil {
		for i, n := range s.fake.Events(call) {
			s.done.Events[i] += n
		}
	}
	done := s.done
	s.done = backend.Completions{}
	return done
}

func (s *FakeSender) complete() {
	if len(s.inFlight) == 0 {
		return
	}
	now, n := s.now(), 0
	for ; n < len(s.inFlight) && s.inFlight[n].done <= now; n++ {
		f := &s.inFlight[n]
		if f.payload != nil && string(f.payload) != string(f.slot.Payload[:len(f.payload)]) {
			s.violate("slot %d: payload written to between Commit and completion", f.seq)
		}
		cause, refused := backend.Cause(0), false
		if s.fake.RefuseLate != nil {
			cause, refused = s.fake.RefuseLate(f.seq)
		}
		switch {
		case refused:
			s.done.Refused[cause]++
		case s.fake.Drop != nil && s.fake.Drop(f.seq):
			s.done.Dropped++
		default:
			s.done.Sent++
		}
	}
	s.inFlight = s.inFlight[:copy(s.inFlight, s.inFlight[n:])]
}

// Limits implements backend.Sender.
func (s *FakeSender) Limits() backend.Limits { return s.limits }

// Close implements backend.Sender.
func (s *FakeSender) Close() error {
	s.enter("Close")
	s.Closes++
	if s.closed {
		return nil
	}
	s.closed = true
	s.reserved = nil
	return s.fake.CloseError
}
