//blast:hot

package afxdp

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/packet"
)

const (
	// batch is the number of replies taken from the ring at once.
	batch = 64
	// aside is the number of Polls that found replies in the ring between two looks at the ordinary sockets.
	aside = 16
	// most bounds what one look takes from one socket, so that none starves another.
	most = 64
)

// Poll implements backend.Receiver.
func (r *Receiver) Poll(wait time.Duration, fn func(*backend.Packet)) (int, error) {
	if r.closed {
		return 0, udpsock.ErrClosed
	}
	n := r.fromRing(fn)
	if r.turn++; n == 0 || r.turn%aside == 0 {
		more, err := r.fromSockets(fn)
		if n += more; err != nil {
			return n, err
		}
	}
	if n > 0 || wait <= 0 {
		return n, nil
	}
	if _, err := r.sock.WaitAlso(wait, r.epoll); err != nil && !errors.Is(err, unix.ENETDOWN) { // down may come up again
		return 0, broken(err)
	}
	n = r.fromRing(fn)
	more, err := r.fromSockets(fn)
	return n + more, err
}

// fromRing hands out what the receive ring has.
func (r *Receiver) fromRing(fn func(*backend.Packet)) (packets int) {
	asked := int64(0)
	if r.kernel {
		asked = r.now()
	}
	frames := r.sock.Receive(batch)
	if len(frames) == 0 {
		return 0
	}
	now, p := r.now(), &r.packet
	for i, frame := range frames {
		if packet.Parse(frame, &r.parsed) != 0 {
			r.link.strays.Add(1)
			continue
		}
		flow, peer, ok := r.flows.find(r.parsed.Dst, r.parsed.Src)
		if !ok {
			r.link.strays.Add(1)
			continue
		}
		if r.parsed.SumState() == packet.SumBad {
			r.link.damaged.Add(1)
			continue
		}
		p.Payload, p.Flow, p.At, p.Source = r.parsed.Payload, flow, now, peer
		p.Asked, p.Kernel = asked, r.sock.Arrival(i)
		fn(p)
		packets++
	}
	r.sock.Recycle()
	r.link.redirected.Add(uint64(packets))
	return packets
}

// fromSockets hands out what the kernel was left.
func (r *Receiver) fromSockets(fn func(*backend.Packet)) (packets int, err error) {
	n, err := unix.EpollWait(r.epoll, r.ready[:], 0)
	if err != nil && err != unix.EINTR {
		return 0, waiting("epoll_wait", err)
	}
	for i := range max(n, 0) {
		flow := int(r.ready[i].Fd)
		if r.ready[i].Events&unix.EPOLLERR != 0 {
			r.drainErrors(flow)
		}
		seen, err := r.fromSocket(flow, fn)
		packets += seen
		if err != nil {
			return packets, err
		}
	}
	if packets > 0 {
		r.link.passed.Add(uint64(packets))
	}
	return packets, nil
}

func (r *Receiver) fromSocket(flow int, fn func(*backend.Packet)) (packets int, err error) {
	p := &r.packet
	for range most {
		n, err := unix.Read(r.link.socks.FDs[flow], r.buffer)
		if err != nil {
			errno, _ := err.(syscall.Errno)
			switch {
			case errno == unix.EAGAIN:
				return packets, nil
			case udpsock.MaybePending(errno):
				r.drainErrors(flow)
			case errno != unix.EINTR:
				return packets, waiting("read", err)
			}
			continue
		}
		p.Payload, p.Flow, p.At, p.Source = r.buffer[:n:n], flow, r.now(), r.link.socks.Peers[flow]
		p.Asked, p.Kernel = 0, 0 // no stamp on this way
		fn(p)
		packets++
	}
	return packets, nil
}

// drainErrors empties an error queue that the Sender does not get round to, and that would end every wait at once.
func (r *Receiver) drainErrors(flow int) {
	if r.events.Drain(r.link.socks.FDs[flow]) > 0 {
		r.link.socks.Hand.Give(&r.events)
	}
}
