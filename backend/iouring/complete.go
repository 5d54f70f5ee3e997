//blast:hot

package iouring

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
	"blast/uring"
)

const (
	// trusting is the number of times that a socket must look clean after an error of an earlier packet until it is trusted again.
	trusting = 64
	// refusedTries is how often a message is offered again although its errno may be its own, because it may be an earlier packet's.
	refusedTries = 3
	// maxTries bounds how often it is offered again within one call because of errors that are certainly an earlier packet's.
	maxTries = 8
	// holdMost bounds how long messages are held after the last Commit, in ns: the engine waits a second for the fate of the last ones.
	holdMost = int64(800 * time.Millisecond)
	// zeroCopyLeast is the size in bytes from which zero copy is used (kernel-facts: 1000 bytes -4 to +1 %, 1500 bytes +2 to +4 %).
	zeroCopyLeast = 1500
)

// complete takes one completion.
func (s *Sender) complete(c *uring.CQE) {
	id := int(c.UserData)
	m := &s.messages[id]
	if c.Notification() {
		s.notices--
		m.notices--
		if c.Copied() {
			s.sum.Events[backend.EventCopied]++
			s.zeroCopied++
		}
		s.free(id, m)
		return
	}
	f := &s.flows[s.slots[id].Flow]
	f.unsent -= m.weight
	f.chained, f.asking = f.chained && f.unsent > 0, f.asking && f.unsent > 0
	s.results--
	if c.More() {
		m.notices++
		s.notices++
	}
	switch {
	case c.Res == m.bytes:
		s.sum.Sent += uint64(m.segments)
		if slot := &s.slots[id]; s.stamps.Wants(slot) {
			s.stamps.Sent(slot)
		}
		s.settle(id, m)
	case c.Res >= 0: // no datagram socket does that
		s.sum.Dropped += uint64(m.segments)
		s.settle(id, m)
	default:
		s.failed(id, m, f, syscall.Errno(-c.Res))
	}
	if m.zero && m.state == settled {
		s.zeroSent++
	}
}

// settle ends a message: its fate is told.
func (s *Sender) settle(id int, m *message) {
	m.state = settled
	s.news++
	s.free(id, m)
}

// failed decides about a message that was not sent.
func (s *Sender) failed(id int, m *message, f *flow, errno syscall.Errno) {
	if errno == unix.ECANCELED { // the one before it in the chain failed
		s.hold(id, m, f)
		return
	}
	index := s.slots[id].Flow
	if slot := &s.slots[id]; s.stamps.Wants(slot) {
		s.stamps.Refused(slot)
	}
	answer, cause := backend.Classify(errno)
	again := answer == backend.AnswerRetry
	if udpsock.MaybePending(errno) {
		f.suspect = trusting
		if s.events.Drain(s.socks.FDs[index]) == 0 && again && !s.sqpoll {
			s.events.Note(errno) // the error queue had no room for it; with a kernel thread, it may have been drained meanwhile
		}
		again = again || m.tries < refusedTries
	}
	switch {
	case answer == backend.AnswerAgain:
		if !m.full {
			m.full = true
			s.sum.Events[backend.EventPushback]++
		}
		s.hold(id, m, f)
	case again:
		if m.tries < maxTries {
			m.tries++
			s.news++
		}
		s.hold(id, m, f)
	case m.zero && s.copyInstead(errno):
		s.news++
		s.hold(id, m, f)
	case m.segments > 1 && s.trains.Refuse(index, errno):
		s.news++
		s.split(id, m, f)
	case answer == backend.AnswerRefused:
		s.sum.Refused[cause] += uint64(m.segments)
		s.settle(id, m)
	default:
		s.err = fatal("send", index, errno)
		s.settle(id, m)
	}
}

// hold keeps a message to offer it again. Its flow takes no new ones until it is settled.
func (s *Sender) hold(id int, m *message, f *flow) {
	m.state = held
	if len(s.held) == 0 {
		s.heldAt = sys.Monotonic() // it is rare that anything is held
	}
	if !m.listed {
		m.listed = true
		f.held++
		s.held = append(s.held, id)
	}
}

// giveUp refuses what is held when the caller has offered nothing for so long that it must be waiting for the end.
func (s *Sender) giveUp() {
	if sys.Monotonic()-s.heldAt < holdMost {
		return
	}
	for _, id := range s.held {
		if m := &s.messages[id]; m.state == held {
			s.sum.Refused[backend.CauseFull] += uint64(m.segments)
			s.settle(id, m)
		}
	}
	s.compact()
}

// compact takes settled messages off the list of held ones.
func (s *Sender) compact() {
	keep := s.held[:0]
	for _, id := range s.held {
		if m := &s.messages[id]; m.state == settled {
			s.flows[s.slots[id].Flow].held--
			m.listed = false
			s.free(id, m)
		} else {
			keep = append(keep, id)
		}
	}
	s.held = keep
}

// split makes single packets of a train that the kernel will not cut.
func (s *Sender) split(id int, m *message, f *flow) {
	s.hold(id, m, f)
	at := slices.Index(s.held, id) + 1
	end := id + int(m.segments)
	m.segments, m.bytes, m.weight = 1, int32(s.slots[id].Len), weight(s.slots[id].Len)
	for i := id + 1; i < end; i++ {
		bytes := s.slots[i].Len
		s.messages[i] = message{segment: s.messages[i].segment, segments: 1, bytes: int32(bytes), weight: weight(bytes), state: held, listed: true}
		s.held = slices.Insert(s.held, at, i)
		at++
		f.held++
	}
}

// copyInstead gives up on zero copy, or on its reports, when errno may be their fault.
func (s *Sender) copyInstead(errno syscall.Errno) bool {
	switch {
	case errno == unix.ENOMEM && s.zeroCopy:
		s.why = s.ring.ExplainENOMEM(len(s.memory))
	case errno == unix.EOPNOTSUPP && s.zeroCopy:
		s.why = errno
	case errno == unix.EINVAL && s.report:
		s.report = false // before 6.2
		return true
	default:
		return false
	}
	s.zeroCopy = false
	return true
}
