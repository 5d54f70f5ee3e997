package netudp

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

// maxTries bounds how often one packet is offered again at once because of errors that earlier packets brought back.
const maxTries = 8

// Sender implements backend.Sender.
type Sender struct {
	conns    *conns
	slots    []backend.Slot
	reserved int

	write   func(fd uintptr) bool // made once: a closure per packet would be garbage
	payload []byte                // its argument
	errno   syscall.Errno         // its result
	message [1]unix.Mmsghdr       // of a packet that asks for stamps
	iov     unix.Iovec
	stamps  *udpsock.Stamps
	events  udpsock.Events
	look    udpsock.Sweep
	limits  backend.Limits
	closed  bool
}

var (
	_ backend.Sender  = (*Sender)(nil)
	_ backend.Stamper = (*Sender)(nil)
)

func newSender(cfg *backend.Config, c *conns, limits backend.Limits) *Sender {
	s := &Sender{conns: c, limits: limits, slots: make([]backend.Slot, limits.Batch), look: udpsock.NewSweep(c.fds)}
	s.stamps = udpsock.OpenStamps(cfg, c.fds, &s.limits, 1)
	memory := make([]byte, limits.Batch*cfg.PayloadBytes)
	for i := range s.slots {
		from, to := i*cfg.PayloadBytes, (i+1)*cfg.PayloadBytes
		s.slots[i].Payload = memory[from:to:to]
	}
	s.write = func(fd uintptr) bool {
		s.errno = 0
		if _, err := unix.Write(int(fd), s.payload); err != nil {
			s.errno, _ = err.(syscall.Errno) // what unix returns, without the cost of errors.As
		}
		return true // done, whatever came of it: false would wait
	}
	return s
}

// Reserve implements backend.Sender.
func (s *Sender) Reserve(n int) []backend.Slot {
	if s.closed {
		n = 0
	}
	s.reserved = min(max(n, 0), len(s.slots))
	return s.slots[:s.reserved]
}

// Commit implements backend.Sender.
func (s *Sender) Commit(n int) (int, error) {
	if s.closed {
		return 0, udpsock.ErrClosed
	}
	if n < 0 || n > s.reserved {
		return 0, fmt.Errorf("net: commit of %d slots, %d reserved", n, s.reserved)
	}
	s.reserved = 0
	s.look.Sent = s.look.Sent || n > 0
	for i := range n {
		if sent, err := s.send(&s.slots[i]); !sent {
			return i, err
		}
	}
	return n, nil
}

// send offers one packet. Not sent and no error is back-pressure.
func (s *Sender) send(slot *backend.Slot) (bool, error) {
	s.payload = slot.Payload[:slot.Len]
	raw := s.conns.raws[slot.Flow]
	wants := s.stamps.Wants(slot)
	for tries := 1; ; tries++ {
		if wants {
			s.errno = s.ask(slot)
		} else if err := raw.Write(s.write); err != nil {
			return false, fmt.Errorf("net: flow %d: %w", slot.Flow, err)
		}
		if s.errno == 0 {
			if wants {
				s.stamps.Sent(slot)
			}
			return true, nil
		}
		if wants {
			s.stamps.Refused(slot)
		}
		if s.pending(slot.Flow) && tries <= maxTries/2 {
			continue
		}
		switch answer, cause := backend.Classify(s.errno); answer {
		case backend.AnswerRetry:
			if tries <= maxTries {
				continue
			}
			fallthrough
		case backend.AnswerAgain:
			s.events.Counts[backend.EventPushback]++
			return false, nil
		case backend.AnswerRefused:
			return false, cause
		default:
			return false, fmt.Errorf("net: flow %d: %w", slot.Flow, os.NewSyscallError("write", s.errno))
		}
	}
}

// ask sends a packet that asks for stamps, by the flow's twin: that takes an address and a control message, which write(2) has no place for.
func (s *Sender) ask(slot *backend.Slot) syscall.Errno {
	s.iov = unix.Iovec{}
	if len(s.payload) > 0 {
		s.iov.Base = &s.payload[0]
		s.iov.SetLen(len(s.payload))
	}
	h := &s.message[0].Hdr
	*h = unix.Msghdr{Iov: &s.iov}
	h.SetIovlen(1)
	s.stamps.Address(h, 0, slot)
	_, errno := sys.Sendmmsg(s.stamps.Twins()[slot.Flow], s.message[:])
	return errno
}

// TakeStamps implements backend.Stamper.
func (s *Sender) TakeStamps(into []backend.Stamp) int { return s.stamps.Take(into) }

// pending tells whether the last errno may belong to an earlier packet. If so the error queue, which says for sure, is emptied
// into the events; where it had no room for the error, errno itself counts when nothing but ICMP makes it.
func (s *Sender) pending(flow int) bool {
	if !udpsock.MaybePending(s.errno) {
		return false
	}
	if s.events.Drain(s.conns.fds[flow]) == 0 {
		if answer, _ := backend.Classify(s.errno); answer == backend.AnswerRetry {
			s.events.Note(s.errno)
		}
	}
	return true
}

// Reap implements backend.Sender. Accepted means sent here, so there are only events to tell.
func (s *Sender) Reap() backend.Completions {
	if !s.closed {
		s.look.Round(&s.events)
		s.stamps.Round()
	}
	s.conns.hand.Collect(&s.events)
	return backend.Completions{Events: s.events.Take()}
}

// Limits implements backend.Sender.
func (s *Sender) Limits() backend.Limits {
	l := s.limits
	l.ClockErrorNS = s.stamps.ClockError()
	return l
}

// Close implements backend.Sender.
func (s *Sender) Close() error {
	if s.closed {
		return nil
	}
	s.closed, s.reserved = true, 0
	if err := errors.Join(s.stamps.Close(), s.conns.release()); err != nil {
		return fmt.Errorf("net: %w", err)
	}
	return nil
}
