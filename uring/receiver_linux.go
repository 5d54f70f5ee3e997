//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"syscall"
)

// ReceiverConfig says what a Receiver receives.
type ReceiverConfig struct {
	FD       int      // socket, or slot of the registered files when Fixed
	Fixed    bool     // FD is a slot
	UserData uint64   // of every completion; the caller sends those to Take
	Buffers  *BufRing // where datagrams go; may be shared by receivers of one ring
	// Source asks for the source address and Control for so many bytes of control data (kernel stamps, overflow counts). With
	// either, each buffer starts with MultishotHeader(Control) bytes of header. Zero: payload only.
	Source  bool
	Control int
}

// Receiver keeps one multishot receive armed (6.0). The kernel ends it when it runs out of buffers or on an error; Arm starts
// it again. It belongs to the ring's thread.
//
//	for {
//		rx.Arm()                        // commits recycled buffers, arms when needed
//		ring.SubmitAndWait(1, timeout)
//		for completions with rx's UserData {
//			d, ok, err := rx.Take(c)  // use d.Payload
//			rx.Recycle(d)
//		}
//	}
type Receiver struct {
	ring  *Ring
	cfg   ReceiverConfig
	msg   *Message
	armed bool
	// Starved counts how often the receive ended for want of buffers: datagrams waited in the socket or were dropped there.
	Starved uint64
	// Armed counts how often it was armed.
	Armed uint64
}

// NewReceiver makes a receiver; it takes one Message from the arena when source or control data are wanted.
func (r *Ring) NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	if !r.granted.Ops.HasMultishot() {
		return nil, &UnsupportedError{What: "multishot receive", Why: "unknown to Linux " + r.facts.release, Fix: "run Linux 6.0 or newer"}
	}
	if cfg.Buffers == nil {
		return nil, errors.New("uring: receiver: Buffers missing")
	}
	x := &Receiver{ring: r, cfg: cfg}
	if cfg.Source || cfg.Control > 0 {
		ms, err := r.arena.Messages(1)
		if err != nil {
			return nil, fmt.Errorf("uring: receiver: %w", err)
		}
		x.msg = &ms[0]
		if err := x.msg.ForMultishot(cfg.Control); err != nil {
			return nil, err
		}
		if head := MultishotHeader(cfg.Control); cfg.Buffers.size <= head {
			return nil, fmt.Errorf("uring: receiver: buffers of %d bytes, the header alone takes %d", cfg.Buffers.size, head)
		}
	}
	return x, nil
}

// Arm commits recycled buffers and, when the receive is not running, queues it again; the next Submit starts it. It answers
// false when that has to wait: no free entry, or every buffer is with the caller and the receive would end at once.
func (x *Receiver) Arm() bool {
	x.cfg.Buffers.Commit()
	if x.armed {
		return true
	}
	if x.cfg.Buffers.Free() == 0 {
		return false
	}
	s := x.ring.SQE()
	if s == nil {
		return false
	}
	if x.msg != nil {
		s.PrepRecvMsgMultishot(x.cfg.FD, x.msg, x.cfg.Buffers.group, 0)
	} else {
		s.PrepRecvMultishot(x.cfg.FD, x.cfg.Buffers.group, 0)
	}
	if x.cfg.Fixed {
		s.Flags |= FixedFile
	}
	s.UserData = x.cfg.UserData
	x.armed = true
	x.Armed++
	return true
}

// Take turns one of the receiver's completions into a datagram. ok is false when the completion carries none: the receive
// ended for want of buffers (Arm starts it again) or was cancelled. An error is that of the socket, such as ECONNREFUSED
// from an ICMP message; the receive has ended then, too.
func (x *Receiver) Take(c CQE) (d Datagram, ok bool, err error) {
	if !c.More() {
		x.armed = false
	}
	data, id, have := x.cfg.Buffers.Take(c)
	if c.Res < 0 {
		if have { // never seen, but a buffer must not be lost
			x.cfg.Buffers.Recycle(id)
		}
		switch syscall.Errno(-c.Res) {
		case syscall.ENOBUFS:
			x.Starved++
			return Datagram{}, false, nil
		case syscall.ECANCELED:
			return Datagram{}, false, nil
		default:
			return Datagram{}, false, c.Err()
		}
	}
	if !have {
		return Datagram{}, c.Res == 0 && x.msg == nil, nil // a datagram without payload may come without a buffer
	}
	if x.msg == nil {
		return Datagram{Payload: data, buffer: id, held: true}, true, nil
	}
	d, err = x.msg.Parse(data)
	if err != nil {
		x.cfg.Buffers.Recycle(id)
		return Datagram{}, false, err
	}
	d.buffer, d.held = id, true
	return d, true, nil
}

// Recycle gives the datagram's buffer back, once; its slices are invalid from then on.
func (x *Receiver) Recycle(d Datagram) {
	if d.held {
		x.cfg.Buffers.Recycle(d.buffer)
	}
}
