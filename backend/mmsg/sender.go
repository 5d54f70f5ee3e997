//blast:hot

package mmsg

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

// maxTries bounds how often one message is offered again at once because of errors that earlier packets brought back.
const maxTries = 8

// Sender implements backend.Sender. All of its memory is made by Open and lies on the heap, which does not move.
type Sender struct {
	socks    *udpsock.Sockets
	slots    []backend.Slot
	reserved int
	memory   []byte // the payloads, one after the other, so that a train of full ones is one piece
	stride   int

	msgs    [vector]unix.Mmsghdr
	first   [vector + 1]int // first slot of each message, and of what follows them
	iovs    []unix.Iovec    // one per slot
	control [vector][]byte  // one UDP_SEGMENT message each; nil without trains

	trains udpsock.Trains
	stamps *udpsock.Stamps
	asking bool // the present run asks for stamps, and so leaves by the flow's twin
	events udpsock.Events
	look   udpsock.Sweep
	limits backend.Limits
	closed bool
}

var (
	_ backend.Sender  = (*Sender)(nil)
	_ backend.Stamper = (*Sender)(nil)
)

func newSender(cfg *backend.Config, socks *udpsock.Sockets, limits backend.Limits) *Sender {
	s := &Sender{socks: socks, stride: cfg.PayloadBytes, limits: limits, look: udpsock.NewSweep(socks.FDs)}
	s.trains = udpsock.NewTrains(cfg, &s.limits)
	s.stamps = udpsock.OpenStamps(cfg, socks.FDs, &s.limits, vector)
	s.limits.Batch = cfg.Batch
	if cfg.Batch == 0 {
		s.limits.Batch = max(defaultBatch, 4*s.limits.GSO)
	}
	s.memory = make([]byte, max(s.limits.Batch*s.stride, 1))
	s.slots = make([]backend.Slot, s.limits.Batch)
	s.iovs = make([]unix.Iovec, s.limits.Batch)
	for i := range s.slots {
		s.slots[i].Payload = s.memory[i*s.stride : (i+1)*s.stride : (i+1)*s.stride]
	}
	for m := range s.msgs {
		s.msgs[m].Hdr.SetIovlen(1)
		if s.limits.GSO > 1 {
			s.control[m] = make([]byte, sys.ControlSpace(2))
		}
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
		return 0, misuse(n, s.reserved)
	}
	s.reserved = 0
	s.look.Sent = s.look.Sent || n > 0
	done := 0
	for done < n {
		upTo, verdict, err := s.send(done, n)
		done = upTo
		if verdict == stop {
			return done, err
		}
	}
	return done, nil
}

// verdict is what Commit does after one run.
type verdict bool

const (
	carryOn verdict = false
	stop    verdict = true
)

// send offers one run of slots, from the given one on, and returns the first slot that was not taken.
func (s *Sender) send(from, end int) (int, verdict, error) {
	flow := s.slots[from].Flow
	fd := s.socks.FDs[flow]
	if s.asking = s.stamps.Wants(&s.slots[from]); s.asking {
		fd = s.stamps.Twins()[flow]
	}
	count := s.build(from, end, flow)
	done, tries := 0, 0
	for done < count {
		n, errno := sys.Sendmmsg(fd, s.msgs[done:count])
		if errno == 0 && n > 0 {
			// A short count hides an error: of the next message, which the next call tells, or of an earlier packet, which only the error queue tells.
			s.look.Suspect = s.look.Suspect || n < count-done && !s.asking
			if s.asking {
				s.sent(done, done+n)
			}
			done += n
			tries = 0
			continue
		}
		tries++
		if s.asking {
			s.stamps.Refused(&s.slots[s.first[done]])
		}
		if s.pending(flow, errno) && tries <= maxTries/2 {
			continue
		}
		slot := s.first[done]
		if segments := s.first[done+1] - slot; segments > 1 && s.trains.Refuse(flow, errno) {
			return slot, carryOn, nil // without trains from here on
		}
		switch answer, cause := backend.Classify(errno); answer {
		case backend.AnswerRetry:
			if tries <= maxTries {
				continue
			}
			fallthrough
		case backend.AnswerAgain:
			s.events.Counts[backend.EventPushback]++
			return slot, stop, nil
		case backend.AnswerRefused:
			return slot, stop, cause
		default:
			return slot, stop, fatal("sendmmsg", flow, errno)
		}
	}
	return s.first[count], carryOn, nil
}

// sent notes accepted messages that asked for stamps.
func (s *Sender) sent(from, to int) {
	for m := from; m < to; m++ {
		s.stamps.Sent(&s.slots[s.first[m]])
	}
}

// TakeStamps implements backend.Stamper.
func (s *Sender) TakeStamps(into []backend.Stamp) int { return s.stamps.Take(into) }

// pending tells whether errno may belong to an earlier packet. If so the error queue, which says for sure, is emptied into the
// events; where it had no room for the error, errno itself counts when nothing but ICMP makes it.
func (s *Sender) pending(flow int, errno syscall.Errno) bool {
	if !udpsock.MaybePending(errno) {
		return false
	}
	if s.events.Drain(s.socks.FDs[flow]) == 0 {
		if answer, _ := backend.Classify(errno); answer == backend.AnswerRetry {
			s.events.Note(errno)
		}
	}
	return true
}

// build lays the slots of one flow, from the given one on, out as messages: at most vector, at most up to end.
func (s *Sender) build(from, end, flow int) (count int) {
	i := from
	for count < vector && i < end && s.slots[i].Flow == flow && s.stamps.Wants(&s.slots[i]) == s.asking {
		segments, bytes := s.trains.Length(s.slots[i:end], flow)
		s.first[count] = i
		h := &s.msgs[count].Hdr
		s.gather(h, i, segments, bytes)
		h.Name, h.Namelen, h.Control, h.Controllen = nil, 0, nil, 0
		if segments > 1 {
			sys.PutSegment(s.control[count], s.slots[i].Len)
			h.Control = &s.control[count][0]
			h.SetControllen(len(s.control[count]))
		} else if s.asking {
			s.stamps.Address(h, count, &s.slots[i])
		}
		i += segments
		count++
	}
	s.first[count] = i
	return count
}

// gather points a message at the payloads of its segments: at one piece of memory where they touch.
func (s *Sender) gather(h *unix.Msghdr, slot, segments, bytes int) {
	h.Iov = &s.iovs[slot]
	_ = s.slots[slot].Payload[:s.slots[slot].Len] // a length beyond the slot is a bug of the caller: panic, send nothing foreign
	if segments == 1 || s.slots[slot].Len == s.stride {
		if bytes > 0 {
			s.iovs[slot].Base = &s.memory[slot*s.stride]
		}
		s.iovs[slot].SetLen(bytes)
		h.SetIovlen(1)
		return
	}
	for k := slot; k < slot+segments; k++ {
		payload := s.slots[k].Payload[:s.slots[k].Len]
		s.iovs[k].Base = &payload[0] // a train has no empty segments
		s.iovs[k].SetLen(len(payload))
	}
	h.SetIovlen(segments)
}

// Reap implements backend.Sender. Accepted means sent here, so there are only events to tell.
func (s *Sender) Reap() backend.Completions {
	if !s.closed {
		s.look.Round(&s.events)
		s.stamps.Round()
	}
	s.socks.Hand.Collect(&s.events)
	return backend.Completions{Events: s.events.Take()}
}

// Limits implements backend.Sender.
func (s *Sender) Limits() backend.Limits {
	l := s.limits
	l.ClockErrorNS = s.stamps.ClockError()
	l.Notes = append(l.Notes[:len(l.Notes):len(l.Notes)], s.trains.Notes()...)
	return l
}

// Close implements backend.Sender.
func (s *Sender) Close() error {
	if s.closed {
		return nil
	}
	s.closed, s.reserved = true, 0
	return errors.Join(s.stamps.Close(), s.socks.Release())
}
