package udpsock

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// drainMost bounds how many entries one Drain takes from one socket, so that a flood of ICMP errors cannot hold up a sender.
const drainMost = 64

// Events drains the error queues of sockets into counters. Used by one thread; the zero value is ready.
type Events struct {
	// Counts are the events since Take.
	Counts [backend.NumEvents]uint64
	queue  sys.ErrorQueue
}

// Drain empties the error queue of one socket and returns how many ICMP errors were in it. Entries that the kernel made itself
// (SO_EE_ORIGIN_LOCAL, a payload above the path MTU) are the fate of a packet that the send call has told already: not counted.
func (e *Events) Drain(fd int) int {
	found := 0
	for range drainMost {
		entry, errno := e.queue.Next(fd)
		if errno != 0 {
			break
		}
		if entry.Origin != unix.SO_EE_ORIGIN_ICMP && entry.Origin != unix.SO_EE_ORIGIN_ICMP6 {
			continue
		}
		found++
		e.Note(syscall.Errno(entry.Errno))
	}
	return found
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
