//blast:hot

package afxdp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/packet"
	"blast/xdp"
)

const (
	// idleReaps is the number of Reaps without a Commit between two looks at error queues: a worker that spins reaps all the time.
	idleReaps = 256
	// lateCompletions is how long completions may still come in after the interface is gone.
	lateCompletions = 50 * time.Millisecond
)

// Sender implements backend.Sender. A pass:
//
//  1. Reserve: frames of the socket; the payload slots lie behind the place of their headers.
//  2. Commit: the flow's header, where the frame has not got it yet, and the checksum around each payload; then the socket's Commit,
//     which kicks.
//  3. Reap: completions; next hops that moved; ICMP errors that came to the flows' ordinary sockets.
type Sender struct {
	link     *link
	sock     *xdp.Socket
	flows    []*packet.Flow
	slots    []backend.Slot
	frames   []*xdp.Frame // reserved
	reserved int
	at, end  int // of the payload in a frame
	changes  uint32
	written  []written // by frame

	down bool // the last kick met an interface that is down
	full bool // the last Reserve found no room
	// err ends the run. It is told by the next Commit, for which Reserve hands out scratch memory.
	err     error
	scratch []byte
	gone    time.Time // when err was met
	settled bool      // what the kernel did not complete by then has been told as refused
	stall   error     // the last time that nothing completed for long

	sum    backend.Completions // since the last Reap
	events udpsock.Events
	look   udpsock.Sweep
	idle   int
	limits backend.Limits
	closed bool
}

var _ backend.Sender = (*Sender)(nil)

// written is the flow and the payload length that the headers in a frame were written for last. Frames keep them.
type written struct {
	flow *packet.Flow
	n    int
}

func newSender(cfg *backend.Config, l *link, limits backend.Limits) *Sender {
	s := &Sender{link: l, sock: l.sock, flows: l.flows, limits: limits, look: udpsock.NewSweep(l.socks.FDs), changes: l.host.changes.Load(),
		slots: make([]backend.Slot, limits.Batch), scratch: make([]byte, cfg.PayloadBytes), written: make([]written, len(l.sock.Frames()))}
	for _, f := range l.flows {
		s.at = max(s.at, f.HeaderBytes())
	}
	s.end = s.at + cfg.PayloadBytes
	return s
}

// Reserve implements backend.Sender.
func (s *Sender) Reserve(n int) []backend.Slot {
	s.reserved = 0
	n = min(n, len(s.slots))
	if s.closed || n <= 0 {
		return nil
	}
	if s.err != nil {
		for i := range n {
			s.slots[i].Payload = s.scratch
		}
		s.reserved = n
		return s.slots[:n]
	}
	s.frames = s.sock.Reserve(n)
	if len(s.frames) == 0 {
		if !s.full {
			s.full = true
			s.sum.Events[backend.EventPushback]++
		}
		return nil
	}
	s.full = false
	for i, f := range s.frames {
		s.slots[i].Payload = f.Data[s.at:s.end:s.end]
	}
	s.reserved = len(s.frames)
	return s.slots[:s.reserved]
}

// Commit implements backend.Sender. The socket takes all that it reserved.
func (s *Sender) Commit(n int) (int, error) {
	if s.closed {
		return 0, udpsock.ErrClosed
	}
	if n < 0 || n > s.reserved {
		return 0, misuse(n, s.reserved)
	}
	s.reserved = 0
	if s.down {
		s.collect()
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case n == 0:
		return 0, nil
	case s.down:
		return 0, backend.CauseDown
	}
	for i, f := range s.frames[:n] {
		slot := &s.slots[i]
		flow := s.flows[slot.Flow]
		payload := slot.Payload[:slot.Len]
		if at := flow.HeaderBytes(); at != s.at { // headers of several lengths in one worker: both address families
			copy(f.Data[at:], payload)
		}
		if now := (written{flow, len(payload)}); s.written[f.Index] == now {
			flow.Resum(f.Data, now.n) // f.Len is what it was
		} else {
			f.Len = flow.Write(f.Data, now.n)
			s.written[f.Index] = now
		}
	}
	accepted, err := s.sock.Commit(n)
	s.look.Sent = true
	if err != nil {
		return accepted, s.failed(err)
	}
	return accepted, nil
}

// failed sorts an error of the socket. What was accepted stays accepted: what became of it Reap tells, and a fatal error the next Commit.
func (s *Sender) failed(err error) error {
	switch {
	case errors.Is(err, xdp.ErrFrameLength):
		return backend.CauseMessageSize
	case errors.Is(err, unix.ENETDOWN):
		s.down = true
	case errors.Is(err, xdp.ErrStalled):
		s.stall = err
	case s.err == nil:
		s.err, s.gone = broken(err), time.Now()
	}
	return nil
}

// collect takes completions.
func (s *Sender) collect() {
	c, err := s.sock.Reap()
	if s.settled {
		return
	}
	s.sum.Sent += c.Sent
	s.sum.Dropped += c.Dropped
	if err == nil {
		s.down = false
		return
	}
	_ = s.failed(err)
	if s.err != nil && time.Since(s.gone) > lateCompletions {
		s.settled = true
		s.sum.Refused[backend.CauseDown] += uint64(s.sock.Outstanding())
	}
}

// Reap implements backend.Sender.
func (s *Sender) Reap() backend.Completions {
	if !s.closed {
		s.collect()
		if now := s.link.host.changes.Load(); now != s.changes && s.link.rebuild() {
			s.changes = now
		}
		if s.look.Sent || s.look.Suspect {
			s.look.Round(&s.events)
		} else if s.idle++; s.idle%idleReaps == 0 {
			s.look.Round(&s.events)
		}
	}
	s.link.socks.Hand.Collect(&s.events)
	sum := s.sum
	s.sum = backend.Completions{}
	for i, n := range s.events.Take() {
		sum.Events[i] += n
	}
	return sum
}

// Limits implements backend.Sender.
func (s *Sender) Limits() backend.Limits {
	l := s.limits
	l.Notes = append(l.Notes[:len(l.Notes):len(l.Notes)], s.notes()...)
	return l
}

// Close implements backend.Sender.
func (s *Sender) Close() error {
	if s.closed {
		return nil
	}
	s.closed, s.reserved = true, 0
	return s.link.release()
}
