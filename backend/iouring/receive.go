//blast:hot

package iouring

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/uring"
)

// Poll implements backend.Receiver.
func (r *Receiver) Poll(wait time.Duration, fn func(*backend.Packet)) (int, error) {
	if r.closed {
		return 0, udpsock.ErrClosed
	}
	if r.ring == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	if err := r.arm(); err != nil {
		return 0, err
	}
	if r.kernel {
		r.asked = r.now()
	}
	var err error
	if r.ring.Ready() == 0 && wait > 0 {
		_, err = r.ring.SubmitAndWait(1, wait)
	} else {
		_, err = r.ring.Submit()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, broken(err)
	}
	return r.take(fn)
}

// arm queues a receive for every flow without one.
func (r *Receiver) arm() error {
	for len(r.idle) > 0 {
		sqe := r.ring.SQE()
		if sqe == nil {
			if _, err := r.ring.Submit(); err != nil {
				return broken(err)
			}
			if sqe = r.ring.SQE(); sqe == nil {
				return nil // completions have to be taken first
			}
		}
		flow := r.idle[len(r.idle)-1]
		r.idle = r.idle[:len(r.idle)-1]
		sqe.PrepRecvMsgMultishot(int(flow), r.header, r.buffers.Group(), 0)
		sqe.Flags |= uring.FixedFile
		sqe.UserData = uint64(flow)
	}
	return nil
}

// take shows fn what is there. One time of receipt holds for all of it: that at which the kernel had handed it over.
func (r *Receiver) take(fn func(*backend.Packet)) (packets int, err error) {
	n := r.ring.Ready()
	if n == 0 {
		return 0, nil
	}
	now := r.now()
	if r.stamps || r.kernel {
		r.clock.Renew(now, r.now)
	}
	for i := range n {
		c := r.ring.At(i)
		flow := int(c.UserData)
		if !c.More() {
			r.idle = append(r.idle, int32(flow)) // there is room: a flow is in it once
		}
		data, id, held := r.buffers.Take(c)
		switch {
		case c.Res < 0:
			err = errors.Join(err, r.failed(flow, syscall.Errno(-c.Res)))
		case held:
			packets += r.deliver(flow, data, now, fn)
		}
		if held {
			r.buffers.Recycle(id)
		}
	}
	r.ring.Advance(n)
	r.buffers.Commit()
	return packets, err
}

// deliver shows fn the packets in one buffer: one, or with UDP_GRO several.
func (r *Receiver) deliver(flow int, data []byte, now int64, fn func(*backend.Packet)) (packets int) {
	d, err := r.header.Parse(data)
	if err != nil {
		return 0 // the kernel writes lengths that fit
	}
	p := &r.packet
	p.Flow, p.At, p.Asked, p.Kernel, p.Source = flow, now, r.asked, 0, source(d.Source, r.socks.Peers[flow])
	segment := len(d.Payload)
	if r.control > 0 {
		stamp, hardware, size := udpsock.ParseControl(d.Control)
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
	for payload := d.Payload; ; {
		end := min(segment, len(payload))
		p.Payload = payload[:end:end]
		payload = payload[end:]
		fn(p)
		packets++
		if len(payload) == 0 {
			return packets
		}
	}
}

// source is the sender's address; the flow's own destination as it was given, with its zone's name, in the usual case.
func source(from, peer netip.AddrPort) netip.AddrPort {
	if !from.IsValid() || from.Port() == peer.Port() && from.Addr() == peer.Addr().WithZone("") {
		return peer
	}
	return from
}

// failed looks at what ended a receive. ENOBUFS is no loss: all buffers were in use, and the packet waits in its socket.
func (r *Receiver) failed(flow int, errno syscall.Errno) error {
	switch {
	case errno == unix.ENOBUFS, errno == unix.EINTR, errno == unix.EAGAIN:
		return nil
	case udpsock.MaybePending(errno):
		if r.events.Drain(r.socks.FDs[flow]) > 0 {
			r.socks.Hand.Give(&r.events)
		}
		return nil
	}
	return fatal("recvmsg", flow, errno)
}
