package udpsock

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// safeSegments is the number of UDP_SEGMENT segments that every kernel with the feature takes (UDP_MAX_SEGMENTS; 128 since 6.9).
const safeSegments = 64

// Trains knows how many segments each flow's UDP_SEGMENT trains may have. The zero value has none.
type Trains struct {
	most  []int // per flow; 1 = none. nil where no flow may
	off   int   // flows that lost theirs
	why   syscall.Errno
	where int // the first of them
}

// NewTrains settles cfg.GSO with what the kernel can do, and writes the outcome into the limits.
func NewTrains(cfg *backend.Config, limits *backend.Limits) Trains {
	limits.Mode, limits.GSO = "connected sockets", 1
	if cfg.GSO <= 1 {
		return Trains{}
	}
	note := func(format string, args ...any) { limits.Notes = append(limits.Notes, fmt.Sprintf(format, args...)) }
	most := cfg.GSO
	if cfg.PayloadBytes > 0 {
		most = min(most, MaxPayload/cfg.PayloadBytes)
	}
	if most < cfg.GSO {
		note("UDP_SEGMENT: a train of %d payloads of %d bytes is too long for UDP; %d fit", cfg.GSO, cfg.PayloadBytes, max(most, 1))
	}
	if err := probeSegments(min(most, safeSegments)); err != nil {
		note("UDP_SEGMENT: asked for but not to be had, packets leave one by one: %v", err)
		return Trains{}
	}
	if most > safeSegments {
		if err := probeSegments(most); err != nil {
			note("UDP_SEGMENT: %d segments are too many for this kernel, %d it is: %v", most, safeSegments, err)
			most = safeSegments
		}
	}
	if most <= 1 {
		return Trains{}
	}
	limits.GSO = most
	limits.Mode = fmt.Sprintf("connected sockets, trains of up to %d", most)
	note("UDP_SEGMENT: up to %d packets of a flow leave back to back as one train with one planned time", most)
	t := Trains{most: make([]int, len(cfg.Flows))}
	for i := range t.most {
		t.most[i] = most
	}
	return t
}

// Length is the number of segments, and their bytes, of the train that starts with the first slot: as many of the flow as have the
// same length, and one shorter one at the end.
func (t *Trains) Length(slots []backend.Slot, flow int) (segments, bytes int) {
	size := slots[0].Len
	if t.most == nil || size == 0 {
		return 1, size
	}
	most := min(t.most[flow], len(slots))
	bytes = size
	for segments = 1; segments < most; segments++ {
		next := &slots[segments]
		if next.Flow != flow || next.Len == 0 || next.Len > size || bytes+next.Len > MaxPayload {
			break
		}
		bytes += next.Len
		if next.Len < size {
			return segments + 1, bytes
		}
	}
	return segments, bytes
}

// Refuse turns trains off for a flow when errno may be the trains' fault (udp(7), net/ipv4/udp.c udp_send_skb): EINVAL and EMSGSIZE
// for what a device or path cannot carry, EIO without checksum offload before 6.11 or with xfrm.
func (t *Trains) Refuse(flow int, errno syscall.Errno) bool {
	if errno != unix.EINVAL && errno != unix.EIO && errno != unix.EMSGSIZE {
		return false
	}
	if t.off == 0 {
		t.why, t.where = errno, flow
	}
	t.off++
	t.most[flow] = 1
	return true
}

// Notes says, for the report, which flows lost their trains on the way.
func (t *Trains) Notes() []string {
	if t.off == 0 {
		return nil
	}
	return []string{fmt.Sprintf("UDP_SEGMENT: turned off on the way for %d of %d flows, first for flow %d: %v", t.off, len(t.most), t.where, error(t.why))}
}

// probeSegments sends a train of one-byte segments over loopback to a socket of its own.
func probeSegments(segments int) error {
	sink, err := openSocketPair()
	if err != nil {
		return err
	}
	defer sink.close()
	payload, control := make([]byte, segments), make([]byte, sys.ControlSpace(2))
	sys.PutSegment(control, 1)
	iov := unix.Iovec{Base: &payload[0]}
	iov.SetLen(segments)
	if _, errno := sys.Sendmmsg(sink.from, oneMessage(&iov, control)); errno != 0 {
		return os.NewSyscallError("sendmmsg", errno)
	}
	return nil
}

// oneMessage is the argument of a call for one message.
func oneMessage(iov *unix.Iovec, control []byte) []unix.Mmsghdr {
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: iov, Control: &control[0]}
	msgs[0].Hdr.SetIovlen(1)
	msgs[0].Hdr.SetControllen(len(control))
	return msgs
}

// pair is a socket on loopback and one connected to it.
type pair struct{ from, to int }

func openSocketPair() (p pair, err error) {
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	if p.to, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return p, os.NewSyscallError("socket", err)
	}
	sa, err := sys.Sockaddr(loopback)
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(p.to, sa))
	}
	if err == nil {
		sa, err = unix.Getsockname(p.to)
	}
	if bound, ok := sa.(*unix.SockaddrInet4); err == nil && ok {
		p.from, err = Connect(backend.Flow{Dst: netip.AddrPortFrom(loopback.Addr(), uint16(bound.Port))}, func(int) error { return nil })
	}
	if err != nil {
		unix.Close(p.to)
		return p, err
	}
	return p, nil
}

func (p pair) close() {
	unix.Close(p.from)
	unix.Close(p.to)
}
