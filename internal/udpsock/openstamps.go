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
	named, err := probeStamps(flags, cfg.Now)
	if err != nil {
		return note("asked for but not to be had: %v", err)
	}
	for _, fd := range fds {
		if err := setStamps(fd, cfg.Receive); err != nil {
			return note("asked for but not to be had: %v", err)
		}
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
	}
	return setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags, "SO_TIMESTAMPING")
}

// probeStamps sends a packet over loopback, from a socket of its own, and waits for its stamps; named says that the kernel takes our ids.
func probeStamps(flags uint32, now func() int64) (named bool, err error) {
	p, err := openSocketPair()
	if err != nil {
		return false, err
	}
	defer p.close()
	if err := setStamps(p.from, false); err != nil {
		return false, err
	}
	named = true
	errno := p.ask(flags, probeID, named)
	if errno == unix.EINVAL {
		named = false
		errno = p.ask(flags, probeID, named)
	}
	if errno != 0 {
		return false, fmt.Errorf("SO_TIMESTAMPING as control message: %w", os.NewSyscallError("sendmmsg", errno))
	}
	var found Events
	ring := &StampRing{}
	found.Keep(ring, now)
	for give := time.Now().Add(50 * time.Millisecond); time.Now().Before(give); {
		if found.Drain(p.from, 0); ring.given.Load() > 0 {
			return named, nil
		}
	}
	return false, errors.New("the kernel took a packet that asked for them and made none")
}

// probeID is the id that the probe's packet has where the kernel takes ids.
const probeID = 0x6b1a57

// ask sends an empty packet that asks for stamps.
func (p pair) ask(flags, id uint32, named bool) syscall.Errno {
	control := make([]byte, sys.StampRequestBytes)
	n := sys.PutStampRequest(control, flags, id, named)
	iov := unix.Iovec{}
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: &iov, Control: &control[0]}
	msgs[0].Hdr.SetIovlen(1)
	msgs[0].Hdr.SetControllen(n)
	_, errno := sys.Sendmmsg(p.from, msgs)
	return errno
}
