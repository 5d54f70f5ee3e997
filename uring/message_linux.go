//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
	"blast/internal/sys"
)

// Sockaddr is an IPv4 or IPv6 socket address as the kernel reads it. It lives in the arena.
type Sockaddr struct {
	raw [unix.SizeofSockaddrInet6]byte
	n   uint32 // bytes of raw in use
}

// Set stores an address; IPv4 in IPv6 form becomes IPv4 only when it was plain IPv4. A zone may be an interface name or index.
func (s *Sockaddr) Set(a netip.AddrPort) error {
	s.n = 0
	scope, err := sys.ZoneIndex(a.Addr().Zone())
	if err != nil {
		return fmt.Errorf("uring: socket address: %w", err)
	}
	if s.n = uint32(sys.PutSockaddr(s.raw[:], a, scope)); s.n == 0 {
		return errors.New("uring: socket address: no IP address")
	}
	return nil
}

// parseSockaddr reads an address the kernel wrote; the zero AddrPort when it is of another family. An IPv6 zone is dropped,
// because naming it would allocate.
func parseSockaddr(b []byte) netip.AddrPort {
	if len(b) < 2 {
		return netip.AddrPort{}
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET && len(b) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
	case family == unix.AF_INET6 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:]))
	default:
		return netip.AddrPort{}
	}
}

// msghdr is struct msghdr with addresses as numbers, because they point into the arena.
type msghdr struct {
	name       uint64
	namelen    uint32
	_          uint32
	iov        uint64
	iovlen     uint64
	control    uint64
	controllen uint64
	flags      int32
	_          uint32
}

// MessageControl is the room for control data in a Message, in bytes: segment size, packet info and transmit time together.
const MessageControl = 88

// Message is everything one SENDMSG or RECVMSG needs besides the payload: msghdr, one iovec, socket address and control data
// in one piece of three cache lines. It is made by Arena.Messages and refers to itself, so it must not be copied.
type Message struct {
	_       noCopy
	hdr     msghdr
	iov     sys.URingIovec
	name    Sockaddr
	control [MessageControl]byte
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Payload makes the message send or receive b, which lies in the arena.
func (m *Message) Payload(b []byte) {
	m.iov = sys.URingIovec{Base: ring.Addr(b), Len: uint64(len(b))}
	m.hdr.iov, m.hdr.iovlen = ring.AddrOf(&m.iov), 1
}

// Vector makes the message gather or scatter the pieces of v, which was made by Arena.Iovecs.
func (m *Message) Vector(v []Iovec) {
	m.hdr.iov, m.hdr.iovlen = 0, uint64(len(v))
	if len(v) > 0 {
		m.hdr.iov = ring.AddrOf(&v[0])
	}
}

// To sets the destination; the zero AddrPort means that the socket is connected.
func (m *Message) To(a netip.AddrPort) error {
	if a == (netip.AddrPort{}) {
		m.hdr.name, m.hdr.namelen = 0, 0
		return nil
	}
	if err := m.name.Set(a); err != nil {
		return err
	}
	m.hdr.name, m.hdr.namelen = ring.AddrOf(&m.name), m.name.n
	return nil
}

// ClearControl drops all control data.
func (m *Message) ClearControl() { m.hdr.control, m.hdr.controllen = 0, 0 }

// AddControl appends one control message (cmsg(3)). It refuses what does not fit MessageControl.
func (m *Message) AddControl(level, kind int32, data []byte) error {
	at, space := int(m.hdr.controllen), unix.CmsgSpace(len(data))
	if at+space > MessageControl {
		return fmt.Errorf("uring: control data of %d bytes, room for %d", at+space, MessageControl)
	}
	c := m.control[at : at+space]
	clear(c)
	binary.NativeEndian.PutUint64(c[0:], uint64(unix.CmsgLen(len(data))))
	binary.NativeEndian.PutUint32(c[8:], uint32(level))
	binary.NativeEndian.PutUint32(c[12:], uint32(kind))
	copy(c[unix.CmsgLen(0):], data)
	m.hdr.control, m.hdr.controllen = ring.AddrOf(&m.control), uint64(at+space)
	return nil
}

// SetControl replaces all control data by whole control messages as they lie in b. It refuses what does not fit MessageControl.
func (m *Message) SetControl(b []byte) error {
	if len(b) > MessageControl {
		return fmt.Errorf("uring: control data of %d bytes, room for %d", len(b), MessageControl)
	}
	copy(m.control[:], b)
	m.hdr.control, m.hdr.controllen = ring.AddrOf(&m.control), uint64(len(b))
	return nil
}

// Segment asks for UDP segmentation (GSO): the kernel cuts the payload into datagrams of size bytes, the last may be shorter
// (cmsg UDP_SEGMENT, 4.18; at most 64 segments are portable).
func (m *Message) Segment(size uint16) error {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], size)
	return m.AddControl(unix.SOL_UDP, unix.UDP_SEGMENT, b[:])
}

// ForReceive readies the message for RECVMSG into b with source address and room for control bytes of control data, at
// most MessageControl. Repeat it before every receive, because the kernel overwrites the lengths.
func (m *Message) ForReceive(b []byte, control int) error {
	if control < 0 || control > MessageControl {
		return fmt.Errorf("uring: control data of %d bytes, room for %d", control, MessageControl)
	}
	m.Payload(b)
	m.hdr.name, m.hdr.namelen, m.hdr.flags = ring.AddrOf(&m.name), uint32(len(m.name.raw)), 0
	m.ClearControl()
	if control > 0 {
		m.hdr.control, m.hdr.controllen = ring.AddrOf(&m.control), uint64(control)
	}
	return nil
}

// Source is the address a completed RECVMSG wrote.
func (m *Message) Source() netip.AddrPort {
	return parseSockaddr(m.name.raw[:min(int(m.hdr.namelen), len(m.name.raw))])
}

// Control is the control data a completed RECVMSG wrote.
func (m *Message) Control() []byte { return m.control[:min(m.hdr.controllen, MessageControl)] }

// Truncated tells that the payload of a completed RECVMSG did not fit.
func (m *Message) Truncated() bool { return m.hdr.flags&unix.MSG_TRUNC != 0 }

// ForMultishot readies the message as the template of a multishot RECVMSG: room for the source address and control bytes of
// control data, which the kernel puts in front of the payload in each provided buffer (MultishotHeader bytes together).
func (m *Message) ForMultishot(control int) error {
	if control < 0 || control > 4096 {
		return fmt.Errorf("uring: control data of %d bytes in a provided buffer", control)
	}
	m.hdr = msghdr{namelen: uint32(len(m.name.raw)), controllen: uint64(control)}
	return nil
}

// recvmsgOutBytes is the size of struct io_uring_recvmsg_out: namelen, controllen, payloadlen, flags.
const recvmsgOutBytes = 16

// MultishotHeader is the number of bytes of a provided buffer that a multishot RECVMSG with control bytes of control data
// uses in front of the payload.
func MultishotHeader(control int) int {
	return recvmsgOutBytes + unix.SizeofSockaddrInet6 + control
}

// Datagram is one received datagram. Its slices are views into a buffer: valid until the buffer is given back.
type Datagram struct {
	Payload   []byte
	Control   []byte         // raw control messages; empty for plain RECV
	Source    netip.AddrPort // zero for plain RECV
	Truncated bool           // the datagram was longer than the buffer (RECVMSG only)
	buffer    uint16
	held      bool
}

// Parse cuts what a multishot RECVMSG, armed with m as template, wrote into buf. It fails only on lengths that contradict
// each other.
func (m *Message) Parse(buf []byte) (Datagram, error) {
	nameRoom, controlRoom := int(m.hdr.namelen), int(m.hdr.controllen)
	head := recvmsgOutBytes + nameRoom + controlRoom
	if len(buf) < head {
		return Datagram{}, fmt.Errorf("uring: received buffer of %d bytes, header alone has %d", len(buf), head)
	}
	nameLen := int(binary.NativeEndian.Uint32(buf[0:]))
	controlLen := int(binary.NativeEndian.Uint32(buf[4:]))
	payloadLen := int(binary.NativeEndian.Uint32(buf[8:]))
	flags := binary.NativeEndian.Uint32(buf[12:])
	d := Datagram{
		Payload:   buf[head:min(len(buf), head+payloadLen)],
		Control:   buf[recvmsgOutBytes+nameRoom : recvmsgOutBytes+nameRoom+min(controlLen, controlRoom)],
		Source:    parseSockaddr(buf[recvmsgOutBytes : recvmsgOutBytes+min(nameLen, nameRoom)]),
		Truncated: flags&unix.MSG_TRUNC != 0,
	}
	return d, nil
}
