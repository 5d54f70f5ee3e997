package mmsg

import (
	"golang.org/x/sys/unix"

	"blast/internal/udpsock"
)

// sweep decides when Reap looks at error queues. Sends point to most of them; the sweep finds what came back after a flow's last
// packet. It uses poll(2): sockets that sit in an epoll set pay for it with every packet that leaves (sock_def_write_space).
type sweep struct {
	// suspect asks for a look at all sockets: a short sendmmsg may have eaten an error.
	suspect bool
	// sent says that there was a Commit since the last Reap.
	sent  bool
	reaps int
	next  int
	polls []unix.PollFd
}

func newSweep(fds []int) sweep {
	w := sweep{polls: make([]unix.PollFd, len(fds))}
	for i, fd := range fds {
		w.polls[i].Fd = int32(fd) // no events asked for: POLLERR is always told
	}
	return w
}

// round is called once per Reap: it drains the flagged sockets of the next few, or of all, when it is time to.
func (w *sweep) round(fds []int, events *udpsock.Events) {
	idle := !w.sent
	w.sent = false
	w.reaps++
	if !w.suspect && !idle && w.reaps%sweepEvery != 0 {
		return
	}
	from, to := w.next, min(w.next+sweepSockets, len(fds))
	if w.suspect {
		from, to = 0, len(fds)
	}
	w.suspect = false
	w.next = to % len(fds)
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
