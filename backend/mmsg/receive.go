//blast:hot

package mmsg

import (
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

// Poll implements backend.Receiver.
func (r *Receiver) Poll(wait time.Duration, fn func(*backend.Packet)) (int, error) {
	if r.closed {
		return 0, udpsock.ErrClosed
	}
	n, err := r.take(fn)
	if n > 0 || err != nil || wait <= 0 {
		return n, err
	}
	limit := unix.NsecToTimespec(int64(wait))
	if _, err := unix.Ppoll(r.wait[:], &limit, nil); err != nil && err != unix.EINTR {
		return 0, waiting("ppoll", err)
	}
	if r.epoll < 0 && r.wait[0].Revents&unix.POLLERR != 0 {
		r.errors(r.socks.FDs[0])
	}
	return r.take(fn)
}

// take empties what is ready, one vector per socket, so that none starves another.
func (r *Receiver) take(fn func(*backend.Packet)) (int, error) {
	if r.epoll < 0 {
		return r.receive(0, fn)
	}
	n, err := unix.EpollWait(r.epoll, r.ready[:], 0)
	if err != nil && err != unix.EINTR {
		return 0, waiting("epoll_wait", err)
	}
	total := 0
	for i := range max(n, 0) {
		flow := int(r.ready[i].Fd)
		if r.ready[i].Events&unix.EPOLLERR != 0 {
			r.errors(r.socks.FDs[flow])
		}
		seen, err := r.receive(flow, fn)
		total += seen
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (r *Receiver) receive(flow int, fn func(*backend.Packet)) (int, error) {
	fd := r.socks.FDs[flow]
	for range maxTries {
		if r.kernel {
			r.asked = r.now()
		}
		n, errno := sys.Recvmmsg(fd, r.msgs[:])
		switch {
		case errno == 0:
			return r.deliver(flow, n, fn), nil
		case errno == unix.EAGAIN:
			return 0, nil
		case udpsock.MaybePending(errno):
			r.errors(fd)
		case errno != unix.EINTR:
			return 0, fatal("recvmmsg", flow, errno)
		}
	}
	return 0, nil
}

// errors empties an error queue that the Sender does not get round to, and that would end every wait at once.
func (r *Receiver) errors(fd int) {
	if r.events.Drain(fd) > 0 {
		r.socks.Hand.Give(&r.events)
	}
}

func (r *Receiver) deliver(flow, n int, fn func(*backend.Packet)) (packets int) {
	now := r.now()
	if r.stamps || r.kernel {
		r.clock.Renew(now, r.now)
	}
	peer := r.socks.Peers[flow]
	for i := range n {
		h := &r.msgs[i].Hdr
		payload := r.buffers[i*bufferBytes:][:r.msgs[i].Len]
		p := &r.packet
		p.Flow, p.At, p.Asked, p.Kernel, p.Source = flow, now, r.asked, 0, udpsock.Source(r.names[i][:h.Namelen], peer)
		segment := len(payload)
		if r.control != nil {
			stamp, hardware, size := udpsock.ParseControl(r.control[i*controlBytes:][:h.Controllen])
			if stamp != 0 {
				p.Kernel = r.clock.Monotonic(stamp)
			}
			if stamp != 0 && r.stamps {
				p.At = p.Kernel
			}
			if r.device != nil {
				p.Kernel = r.device.Monotonic(hardware)
			}
			if size > 0 {
				segment = size
			}
		}
		for {
			end := min(segment, len(payload))
			p.Payload = payload[:end:end]
			payload = payload[end:]
			fn(p)
			packets++
			if len(payload) == 0 {
				break
			}
		}
		r.rearm(i)
	}
	return packets
}

// rearm undoes what the kernel wrote into a message header.
func (r *Receiver) rearm(i int) {
	h := &r.msgs[i].Hdr
	h.Namelen = sys.SockaddrBytes
	if r.control != nil {
		h.SetControllen(controlBytes)
	}
}
