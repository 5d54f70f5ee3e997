package udpsock

import "golang.org/x/sys/unix"

const (
	// sweepEvery is the number of rounds between two looks at error queues that no send has pointed to.
	sweepEvery = 16
	// sweepSockets is the number of sockets of one such look.
	sweepSockets = 16
)

// Sweep decides when a Sender's Reap looks at error queues. Sends point to most of them; the sweep finds what came back after a flow's
// last packet. It uses poll(2): sockets that sit in an epoll set pay for it with every packet that leaves (sock_def_write_space).
type Sweep struct {
	// Suspect asks for a look at all sockets: a send call may have eaten an error.
	Suspect bool
	// Sent says that there was a Commit since the last round. A round without looks at once.
	Sent   bool
	rounds int
	next   int
	polls  []unix.PollFd
}

// NewSweep makes a sweep over the sockets.
func NewSweep(fds []int) Sweep {
	w := Sweep{polls: make([]unix.PollFd, len(fds))}
	for i, fd := range fds {
		w.polls[i].Fd = int32(fd) // no events asked for: POLLERR is always told
	}
	return w
}

// Round is called once per Reap: it drains the flagged sockets of the next few, or of all, when it is time to.
func (w *Sweep) Round(events *Events) {
	idle := !w.Sent
	w.Sent = false
	w.rounds++
	if !w.Suspect && !idle && w.rounds%sweepEvery != 0 {
		return
	}
	from, to := w.next, min(w.next+sweepSockets, len(w.polls))
	if w.Suspect {
		from, to = 0, len(w.polls)
	}
	w.Suspect = false
	w.next = to % len(w.polls)
	polls := w.polls[from:to]
	if n, err := unix.Poll(polls, 0); n == 0 || err != nil {
		return
	}
	for i := range polls {
		if polls[i].Revents&unix.POLLERR != 0 {
			events.Drain(int(polls[i].Fd))
		}
	}
}
