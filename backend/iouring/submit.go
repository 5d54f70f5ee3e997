//blast:hot

package iouring

import (
	"errors"
	"math/bits"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"blast/uring"
)

const (
	// sendFlags: a full socket buffer is EAGAIN, and never a wait in the background that lets later packets pass.
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	// headroom is for headers, what devices want in front of them, and skb_shared_info; bookkeeping is for the sk_buff and what the
	// kernel's caches round up. With kmalloc's rounding they bound SKB_TRUESIZE (include/linux/skbuff.h), which a send buffer is charged.
	headroom, bookkeeping = 480, 384
	// chainWait bounds the wait for a chain. Nothing in it blocks: only a kernel that stopped working lets it pass.
	chainWait = time.Second
)

// launch is one submission being built.
type launch struct {
	number  uint32
	queued  int
	flow    int        // of the message queued last, -1 = none
	sqe     *uring.SQE // of that message
	tried   bool       // that message met an error before
	chained bool       // there is a chain in the submission
}

// begin starts a submission.
func (s *Sender) begin() { s.launch = launch{number: s.launch.number + 1, flow: -1} }

// offer queues messages made of the slots from the given one on, and returns the first slot that it did not get to.
func (s *Sender) offer(from, end int) int {
	s.begin()
	for from < end {
		slot := &s.slots[from]
		if s.flows[slot.Flow].held > 0 {
			break
		}
		_ = slot.Payload[:slot.Len] // a length beyond the slot is a bug of the caller: panic, send nothing foreign
		segments, bytes := 1, slot.Len
		if s.headers != nil {
			segments, bytes = s.trains.Length(s.slots[from:end], slot.Flow)
		}
		m := &s.messages[from]
		*m = message{segment: m.segment, segments: int32(segments), bytes: int32(bytes), weight: weight(bytes)}
		if !s.queue(from, m) {
			break
		}
		s.used += segments
		from += segments
	}
	return from
}

// weight is the most that the kernel charges to the send buffer for a message.
func weight(bytes int) int { return 1<<bits.Len(uint(bytes+headroom-1)) + bookkeeping }

// queue prepares a message for the next submission. It answers false where order within the flow would be at risk, or the queue is full.
//
// The kernel does not stop at a send that fails. Behind other messages of its flow, one is safe when nothing can fail: the socket has no
// error pending and room for all, and so has the flow's twin where one of them leaves by it. Otherwise it is chained to the one before (IOSQE_IO_LINK), which costs more.
func (s *Sender) queue(id int, m *message) bool {
	l, index := &s.launch, s.slots[id].Flow
	f := &s.flows[index]
	link := false
	asks := s.stamps.Wants(&s.slots[id])
	known := f.checked == l.number && f.clean && f.unsent+m.weight <= s.roomy // the usual case, in line
	if f.unsent > 0 && (f.chained || (asks || f.asking) && !s.roomAtTwin(f, index, m) || !known && !s.safe(f, index, m)) {
		if l.flow != index || s.sqpoll && f.clean && !f.chained {
			return false // with a kernel thread, waiting for room costs less than a chain
		}
		link = true
	}
	sqe := s.ring.SQE()
	if sqe == nil {
		return false
	}
	if link {
		l.sqe.Flags |= uring.Link
		l.chained, f.chained = true, true
	}
	if s.special {
		s.prepare(sqe, id, m)
	} else {
		slot := &s.slots[id]
		sqe.PrepSend(index, slot.Payload[:slot.Len], sendFlags)
	}
	sqe.Flags |= uring.FixedFile
	sqe.UserData = uint64(id)
	m.state = flying
	f.launch = l.number
	f.asking = f.asking || asks
	f.unsent += m.weight
	s.results++
	l.queued, l.flow, l.sqe, l.tried = l.queued+1, index, sqe, m.tries > 0
	return true
}

// safe tells whether a message can follow others of its flow without a chain: a writable socket (poll(2)) has half its buffer free.
func (s *Sender) safe(f *flow, index int, m *message) bool {
	if f.checked != s.launch.number {
		f.checked, f.clean = s.launch.number, false
		s.poll[0] = unix.PollFd{Fd: int32(s.socks.FDs[index]), Events: unix.POLLOUT}
		_, err := unix.Poll(s.poll[:], 0)
		switch {
		case err != nil:
		case s.poll[0].Revents&unix.POLLERR != 0:
			s.events.Drain(s.socks.FDs[index])
			f.suspect = trusting
		case f.suspect > 0:
			f.suspect--
		default:
			f.clean = s.poll[0].Revents&unix.POLLOUT != 0
		}
	}
	return f.clean && f.unsent+m.weight <= s.roomy
}

// roomAtTwin is safe for the second socket of the flow, on which no error can be pending.
func (s *Sender) roomAtTwin(f *flow, index int, m *message) bool {
	s.poll[0] = unix.PollFd{Fd: int32(s.stamps.Twins()[index]), Events: unix.POLLOUT}
	_, err := unix.Poll(s.poll[:], 0)
	return err == nil && s.poll[0].Revents&unix.POLLOUT != 0 && f.unsent+m.weight <= s.roomy
}

// prepare writes the entry of a message where there are trains or zero copy.
func (s *Sender) prepare(sqe *uring.SQE, id int, m *message) {
	slot := &s.slots[id]
	m.zero = s.zeroCopy && m.bytes >= zeroCopyLeast
	if s.stamps.Wants(slot) {
		m.zero = false
		sqe.PrepSendMsg(len(s.socks.FDs)+slot.Flow, s.asking(id), sendFlags)
	} else if m.segments > 1 {
		h := s.train(id, m)
		if m.zero {
			sqe.PrepSendMsgZC(slot.Flow, h, sendFlags, s.report)
		} else {
			sqe.PrepSendMsg(slot.Flow, h, sendFlags)
		}
	} else if m.zero {
		sqe.PrepSendZC(slot.Flow, slot.Payload[:slot.Len], sendFlags, s.report)
		sqe.FixedBuffer(0)
	} else {
		sqe.PrepSend(slot.Flow, slot.Payload[:slot.Len], sendFlags)
	}
}

// asking writes the header of a packet that asks for stamps, and leaves by its flow's twin.
func (s *Sender) asking(id int) *uring.Message {
	h, slot := &s.headers[id], &s.slots[id]
	if err := errors.Join(h.To(s.stamps.Peer(slot.Flow)), h.SetControl(s.stamps.Request(0, slot.Stamp))); err != nil {
		s.err = broken(err)
	}
	h.Payload(slot.Payload[:slot.Len])
	return h
}

// train writes the header of a train: one piece of memory where its payloads touch. The control data stays from the train before when
// the size is the same.
func (s *Sender) train(id int, m *message) *uring.Message {
	h, size, end := &s.headers[id], s.slots[id].Len, id+int(m.segments)
	if m.segment != uint16(size) {
		h.ClearControl()
		if err := h.Segment(uint16(size)); err != nil {
			s.err = broken(err)
		}
		m.segment = uint16(size)
	}
	if size == s.stride {
		h.Payload(s.memory[id*s.stride : id*s.stride+int(m.bytes)])
		return h
	}
	for i := id; i < end; i++ {
		s.iovecs[i].Set(s.slots[i].Payload[:s.slots[i].Len])
	}
	h.Vector(s.iovecs[id:end])
	return h
}

// submit gives the kernel what is queued and takes what it has to say, which without a kernel thread is everything about sends that copy.
func (s *Sender) submit() {
	_, err := s.ring.Submit()
	s.collect()
	if s.launch.chained && !s.sqpoll {
		// The links of a chain run one by one in the waiting call.
		for err == nil && s.results > 0 {
			if _, err = s.ring.SubmitAndWait(s.results, chainWait); errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
				s.collect()
				break
			}
			s.collect()
		}
	}
	s.launch.chained = false
	if err != nil {
		s.err = broken(err)
	}
}

// retry offers what is held again, as long as that changes something.
func (s *Sender) retry() {
	for s.err == nil && len(s.held) > 0 {
		s.begin()
		for _, id := range s.held {
			m := &s.messages[id]
			f := &s.flows[s.slots[id].Flow]
			if f.blocked == s.launch.number {
				continue
			}
			// One that met an error goes alone: what stands behind it would only come back with it.
			alone := f.launch == s.launch.number && (m.tries > 0 || s.launch.tried)
			if m.state != held || alone || !s.queue(id, m) {
				f.blocked = s.launch.number
			}
		}
		before := s.news
		if s.launch.queued > 0 {
			s.submit()
		}
		if s.sqpoll || s.news == before {
			return
		}
	}
}

// collect takes the completions that are there.
func (s *Sender) collect() {
	for {
		n := s.ring.Completions(s.cqes[:])
		for i := range s.cqes[:n] {
			s.complete(&s.cqes[i])
		}
		if n < len(s.cqes) {
			break
		}
	}
	if len(s.held) > 0 {
		s.compact()
	}
}
