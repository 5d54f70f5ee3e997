package udpsock

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
)

// drainMost bounds how many ICMP errors, and stampRoom how many stamps, one Drain takes from one socket, so that a flood of them cannot
// hold up a sender.
const drainMost = 64

// Events drains the error queues of sockets into counters, and stamps into a StampRing where there is one. Used by one thread; the zero
// value is ready.
type Events struct {
	// Counts are the events since Take.
	Counts [backend.NumEvents]uint64
	queue  sys.ErrorQueue
	stamps *StampRing // nil without stamps
	clock  clock.Realtime
	now    func() int64
}

// Drain empties the error queue of the socket of a flow and returns how many ICMP errors were in it. Entries that the kernel made itself
// (SO_EE_ORIGIN_LOCAL, a payload above the path MTU) are the fate of a packet that the send call has told already: not counted. Stamps
// (SO_EE_ORIGIN_TIMESTAMPING) are no events.
func (e *Events) Drain(fd, flow int) int {
	found := 0
	for taken := 0; taken < drainMost+stampRoom && found < drainMost; taken++ {
		entry, errno := e.queue.Next(fd)
		if errno != 0 {
			break
		}
		switch entry.Origin {
		case unix.SO_EE_ORIGIN_TIMESTAMPING:
			e.stamp(&entry, flow)
		case unix.SO_EE_ORIGIN_ICMP, unix.SO_EE_ORIGIN_ICMP6:
			found++
			e.Note(syscall.Errno(entry.Errno))
		}
	}
	return found
}

// Keep makes Drain put stamps into ring, in ns of CLOCK_MONOTONIC, which now reads.
func (e *Events) Keep(ring *StampRing, now func() int64) { e.stamps, e.now = ring, now }

// stamp keeps one transmit stamp.
func (e *Events) stamp(entry *sys.SocketError, flow int) {
	software, _ := e.queue.Stamps()
	if e.stamps == nil || software == 0 {
		return
	}
	s := foundStamp{flow: int32(flow), id: entry.Data}
	switch entry.Info {
	case sys.StampSent:
		s.kind = backend.StampSoftware
	case sys.StampScheduled:
		s.kind = backend.StampSched
	default:
		return
	}
	e.clock.Renew(e.now(), e.now)
	s.at = e.clock.Monotonic(software)
	e.stamps.put(s)
}

// Note counts one ICMP error by the errno the kernel made of it.
func (e *Events) Note(errno syscall.Errno) {
	switch errno {
	case unix.ECONNREFUSED:
		e.Counts[backend.EventConnRefused]++
	case unix.EMSGSIZE:
		e.Counts[backend.EventTooBig]++
	default:
		e.Counts[backend.EventUnreachable]++
	}
}

// Take returns the counts and starts anew.
func (e *Events) Take() [backend.NumEvents]uint64 {
	counts := e.Counts
	e.Counts = [backend.NumEvents]uint64{}
	return counts
}

// Handoff carries the events that a Receiver came upon to the Sender on the same sockets, which reports them. The zero value is
// ready; one thread may give while another takes.
type Handoff struct {
	// Stamps is where the Receiver's Events keep stamps; nil without.
	Stamps  *StampRing
	waiting atomic.Bool
	counts  [backend.NumEvents]atomic.Uint64
}

// Give moves the counts of e over.
func (h *Handoff) Give(e *Events) {
	for i, n := range e.Take() {
		if n > 0 {
			h.counts[i].Add(n)
			h.waiting.Store(true)
		}
	}
}

// Collect adds what was given to e.
func (h *Handoff) Collect(e *Events) {
	if !h.waiting.Load() {
		return
	}
	h.waiting.Store(false) // before reading: a later gift sets it again
	for i := range h.counts {
		e.Counts[i] += h.counts[i].Swap(0)
	}
}

// MaybePending tells whether a send or receive errno may be the ICMP error of an earlier packet, which the kernel hands to
// whatever call comes next (sock_error): then the error queue is to be drained and the packet offered again.
func MaybePending(e syscall.Errno) bool {
	switch e {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMSGSIZE, unix.EACCES, unix.EOPNOTSUPP,
		unix.EPROTO, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET:
		return true
	}
	return false
}
