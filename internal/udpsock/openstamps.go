package udpsock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// OpenStamps settles cfg.Stamps: it sets the sockets up, makes events keep what they find, and writes the outcome into the limits. messages is
// the most that one call sends. It returns nil where there are no stamps to be had; Limits.Notes then says why.
func OpenStamps(cfg *backend.Config, fds []int, hand *Handoff, events *Events, limits *backend.Limits, messages int) *Stamps {
	if !cfg.Stamps {
		return nil
	}
	note := func(format string, args ...any) *Stamps {
		limits.Notes = append(limits.Notes, fmt.Sprintf("stamps: "+format, args...))
		return nil
	}
	if cfg.GSO > 1 {
		return note("none with trains, because a train has one stamp for all its packets")
	}
	kinds := backend.StampKinds(0).With(backend.StampSched).With(backend.StampSoftware)
	flags, each := stampFlags(kinds)
	for _, fd := range fds {
		if err := setStamps(fd, cfg.Receive); err != nil {
			return note("asked for but not to be had: %v", err)
		}
	}
	named, err := probeStamps(flags, cfg)
	if err != nil {
		return note("asked for but not to be had: %v", err)
	}
	limits.Stamps = kinds
	s := &Stamps{flags: flags, each: each, named: named, control: make([]byte, messages*sys.StampRequestBytes), own: &StampRing{}, other: &StampRing{}}
	if !named {
		s.counts, s.lost = make([]uint32, len(fds)), make([]bool, len(fds))
	}
	hand.Stamps = s.other
	events.Keep(s.own, cfg.Now)
	return s
}

// setStamps makes a socket report stamps (SO_TIMESTAMPING): of packets out only where a packet asks, without a copy of it; of all packets
// in where there is a receiver.
func setStamps(fd int, receive bool) error {
	flags := unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	if receive {
		flags |= unix.SOF_TIMESTAMPING_RX_SOFTWARE
	} else if err := deaf(fd); err != nil {
		return err
	}
	return setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags, "SO_TIMESTAMPING")
}

// deaf makes a socket that nobody reads throw away what comes: unread replies would fill the receive buffer, and stamps need room in it
// (net/core/skbuff.c sock_queue_err_skb). It is a socket filter of one instruction (socket(7) SO_ATTACH_FILTER): take 0 bytes.
func deaf(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing}))
}

// probeStamps sends packets over loopback, between sockets of its own, and waits for their stamps; named says that the kernel takes our ids.
// Receive stamps begin some time after the first socket has asked for them (net_enable_timestamp leaves that to a kernel thread), so that
// a run that began at once would miss some.
func probeStamps(flags uint32, cfg *backend.Config) (named bool, err error) {
	p, err := openSocketPair()
	if err != nil {
		return false, err
	}
	defer p.close()
	if err := errors.Join(setStamps(p.from, false), setStamps(p.to, cfg.Receive)); err != nil {
		return false, err
	}
	named = true
	errno := p.ask(flags, named)
	if errno == unix.EINVAL {
		named = false
		errno = p.ask(flags, named)
	}
	if errno != 0 {
		return false, fmt.Errorf("SO_TIMESTAMPING as control message: %w", os.NewSyscallError("sendmmsg", errno))
	}
	var found Events
	ring := &StampRing{}
	found.Keep(ring, cfg.Now)
	out, in := false, !cfg.Receive
	for give := time.Now().Add(probePatience); !out || !in; time.Sleep(100 * time.Microsecond) {
		found.Drain(p.from, 0)
		out = out || ring.given.Load() > 0
		if in = in || p.stamped(); !in {
			p.ask(flags, named)
		}
		if time.Now().After(give) {
			return false, errors.New("the kernel takes packets that ask for them and makes none")
		}
	}
	return named, nil
}

// probePatience is how long the probe waits for stamps.
const probePatience = time.Second

// probeID is the id that the probe's packet has where the kernel takes ids.
const probeID = 0x6b1a57

// ask sends an empty packet that asks for stamps.
func (p pair) ask(flags uint32, named bool) syscall.Errno {
	control := make([]byte, sys.StampRequestBytes)
	n := sys.PutStampRequest(control, flags, probeID, named)
	iov := unix.Iovec{}
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: &iov, Control: &control[0]}
	msgs[0].Hdr.SetIovlen(1)
	msgs[0].Hdr.SetControllen(n)
	_, errno := sys.Sendmmsg(p.from, msgs)
	return errno
}

// stamped reports whether the oldest packet that has come has a receive time.
func (p pair) stamped() bool {
	control := make([]byte, 128)
	iov := unix.Iovec{}
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: &iov, Control: &control[0]}
	msgs[0].Hdr.SetIovlen(1)
	msgs[0].Hdr.SetControllen(len(control))
	n, _ := sys.Recvmmsg(p.to, msgs)
	if n != 1 {
		return false
	}
	stamp, _ := ParseControl(control[:msgs[0].Hdr.Controllen])
	return stamp != 0
}
