//blast:hot

package iouring

import (
	"errors"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
	"blast/uring"
)

// idleReaps is the number of Reaps without anything under way between two looks at error queues: a worker that spins reaps all the time.
const idleReaps = 256

// Sender implements backend.Sender. What the kernel reads lies in the ring's arena.
type Sender struct {
	ring  *uring.Ring
	socks *udpsock.Sockets

	// The pool: slots head, head+1, ... of it, used in number and wrapping at the end, are under way.
	slots    []backend.Slot
	memory   []byte // the payloads, one after the other, so that a train of full ones is one piece
	stride   int
	messages []message // by their first slot
	done     []bool    // by slot: no longer under way, though an older one is
	head     int
	used     int
	base     int  // first slot of the reservation
	placed   bool // base is fixed
	reserved int

	headers []uring.Message // by first slot; nil without trains and stamps
	iovecs  []uring.Iovec   // by slot

	flows  []flow
	roomy  int   // half of a send buffer, in bytes as the kernel counts them
	held   []int // messages that came back and are to be offered again, oldest first
	heldAt int64 // when there was something to hold or a Commit last, in ns of CLOCK_MONOTONIC
	launch launch
	poll   [1]unix.PollFd

	results int    // messages that the kernel has
	notices int    // zero-copy notifications to come
	news    uint64 // counts what is a reason to offer held messages again

	special bool // there are trains, zero copy or stamps
	stamps  *udpsock.Stamps

	sqpoll bool // a kernel thread submits
	short  bool // the last Commit took fewer than offered

	zeroCopy             bool  // for messages of at least zeroCopyLeast bytes
	report               bool  // ask whether the kernel copied after all
	why                  error // zero copy was given up
	zeroSent, zeroCopied uint64

	cqes   [64]uring.CQE
	trains udpsock.Trains
	events udpsock.Events
	look   udpsock.Sweep
	idle   int
	sum    backend.Completions // since the last Reap
	limits backend.Limits
	err    error // ends the run
	closed bool
}

var (
	_ backend.Sender  = (*Sender)(nil)
	_ backend.Stamper = (*Sender)(nil)
)

// message is one datagram or train.
type message struct {
	state    state
	tries    uint8  // times that the error of an earlier packet came back instead
	notices  uint8  // zero-copy notifications to come
	zero     bool   // the last attempt was a zero-copy one
	full     bool   // it met a full socket buffer
	listed   bool   // it is in Sender.held
	segment  uint16 // UDP_SEGMENT size that the header holds
	segments int32  // slots
	bytes    int32
	weight   int // memory that the kernel charges to the socket, at most
}

// state is where a message stands.
type state uint8

const (
	settled state = iota // or free
	flying               // the kernel has it
	held                 // it came back and waits to be offered again
)

// flow is what order within a flow needs to know. While messages are held, no new ones of the flow are accepted.
type flow struct {
	launch  uint32 // last launch with a message of the flow
	checked uint32 // last launch that looked at the socket
	blocked uint32 // last launch that had to leave a held message of the flow behind
	clean   bool   // what it saw
	chained bool   // a chain is under way: nothing may follow it but its own links
	asking  bool   // a message that asks for stamps, and so leaves by the twin, is under way
	suspect uint8  // looks to go before the socket is trusted again
	unsent  int    // weight of messages without a result
	held    int32  // messages in Sender.held
}

// Reserve implements backend.Sender.
func (s *Sender) Reserve(n int) []backend.Slot {
	if s.closed {
		s.reserved = 0
		return nil
	}
	if !s.placed {
		s.place()
	}
	s.reserved = max(min(n, s.limits.Batch, s.contiguous()), 0)
	return s.slots[s.base : s.base+s.reserved]
}

// place chooses where the next reservation begins: at the start of the pool when nothing is under way or the end is too near.
func (s *Sender) place() {
	s.placed = true
	pool := len(s.slots)
	if s.used == 0 {
		s.head = 0
	}
	s.base = s.head + s.used
	if s.base >= pool {
		s.base -= pool
		return
	}
	if left := pool - s.base; s.used > 0 && left < s.limits.Batch && s.head > left {
		for i := s.base; i < pool; i++ {
			s.done[i] = true
		}
		s.used += left
		s.base = 0
	}
}

// contiguous is the number of free slots from base on.
func (s *Sender) contiguous() int {
	switch {
	case s.used == len(s.slots):
		return 0
	case s.used > 0 && s.base < s.head:
		return s.head - s.base
	}
	return len(s.slots) - s.base
}

// Commit implements backend.Sender.
func (s *Sender) Commit(n int) (int, error) {
	if s.closed {
		return 0, udpsock.ErrClosed
	}
	if n < 0 || n > s.reserved {
		return 0, misuse(n, s.reserved)
	}
	s.reserved, s.placed = 0, false
	if s.sqpoll {
		s.collect()
	}
	if s.err == nil && len(s.held) > 0 {
		s.retry()
	}
	from, end, told := s.base, s.base+n, s.sum.Events[backend.EventPushback]
	for s.err == nil && from < end {
		next := s.offer(from, end)
		if next == from {
			break
		}
		from = next
		s.submit()
		if len(s.held) > 0 {
			s.retry()
		}
	}
	if n > 0 {
		s.look.Sent = true
	}
	if s.err != nil {
		return 0, s.err
	}
	from = s.takeBack(from)
	if n > 0 && len(s.held) > 0 {
		s.heldAt = sys.Monotonic()
	}
	short := from < end
	if short && !(s.sqpoll && s.short) && s.sum.Events[backend.EventPushback] == told {
		s.sum.Events[backend.EventPushback]++
	}
	s.short = short
	return from - s.base, nil
}

// takeBack gives the slots at the end of the Commit that are still held back to the caller, who offers them again and sees their lag.
func (s *Sender) takeBack(end int) int {
	for len(s.held) > 0 {
		id := s.held[len(s.held)-1]
		m := &s.messages[id]
		if id < s.base || m.state != held || id+int(m.segments) != end {
			break
		}
		s.held = s.held[:len(s.held)-1]
		s.flows[s.slots[id].Flow].held--
		m.state, m.listed = settled, false
		s.used -= int(m.segments)
		end = id
	}
	return end
}

// free gives a message's slots back once nobody needs them: settled, off the list of held ones, and its memory no longer read.
func (s *Sender) free(id int, m *message) {
	if m.state != settled || m.listed || m.notices > 0 {
		return
	}
	if id == s.head && m.segments == 1 { // as a rule they come back in order
		s.used--
		if s.head++; s.head == len(s.slots) {
			s.head = 0
		}
		if s.used == 0 || !s.done[s.head] {
			return
		}
	} else {
		for i := id; i < id+int(m.segments); i++ {
			s.done[i] = true
		}
	}
	for s.used > 0 && s.done[s.head] {
		s.done[s.head] = false
		s.used--
		if s.head++; s.head == len(s.slots) {
			s.head = 0
		}
	}
}

// Reap implements backend.Sender.
func (s *Sender) Reap() backend.Completions {
	if !s.closed && s.err == nil {
		if s.results+s.notices > 0 {
			s.submit()
		}
		if len(s.held) > 0 {
			s.retry()
			s.giveUp()
		}
		if s.look.Sent || s.look.Suspect {
			s.look.Round(&s.events)
		} else if s.idle++; s.idle%idleReaps == 0 {
			s.look.Round(&s.events)
		}
	}
	if !s.closed {
		s.stamps.Round()
	}
	s.socks.Hand.Collect(&s.events)
	sum := s.sum
	s.sum = backend.Completions{}
	for i, n := range s.events.Take() {
		sum.Events[i] += n
	}
	return sum
}

// TakeStamps implements backend.Stamper.
func (s *Sender) TakeStamps(into []backend.Stamp) int { return s.stamps.Take(into) }

// Limits implements backend.Sender.
func (s *Sender) Limits() backend.Limits {
	l := s.limits
	l.ClockErrorNS = s.stamps.ClockError()
	l.Notes = append(l.Notes[:len(l.Notes):len(l.Notes)], s.trains.Notes()...)
	l.Notes = append(l.Notes, s.zeroCopyNotes()...)
	return l
}

// Close implements backend.Sender. It waits a little for what is under way.
func (s *Sender) Close() error {
	if s.closed {
		return nil
	}
	if err := s.ring.Close(); err != nil {
		return broken(err)
	}
	s.closed, s.reserved = true, 0
	return errors.Join(s.stamps.Close(), s.socks.Release())
}
