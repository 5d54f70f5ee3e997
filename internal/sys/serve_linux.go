package sys

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Mailbox is a batch of datagrams received by one recvmmsg(2) that can be sent back, each to its own peer and from the
// address it was sent to, by one sendmmsg(2). It is for one thread. Its memory is Go heap, which does not move, and is
// referenced by typed pointers from the headers, so the kernel may use it during a call.
type Mailbox struct {
	in, out   []unix.Mmsghdr
	iov, oiov []unix.Iovec
	names     []unix.RawSockaddrInet6 // large enough for both families
	ctl, octl []byte                  // controlBytes per datagram
	memory    []byte
	stride    int
	payload   int
	used      int   // headers that the kernel wrote to in the last Receive
	segment   []int // of reply k: size of its segments
	queued    int   // replies
}

// controlBytes holds one IPV6_PKTINFO and one UDP_GRO or UDP_SEGMENT message.
const controlBytes = 64

// Sizes of control messages on 64-bit Linux: cmsghdr is 16 bytes, everything is aligned to 8.
const (
	cmsgHeader = unix.SizeofCmsghdr
	cmsgAlign  = unix.SizeofPtr
)

// NewMailbox makes room for n datagrams of up to payload bytes. With payload 0 nothing is copied out of the kernel, and Len
// still tells the length (MSG_TRUNC). control asks for room for control messages, which costs the kernel a copy per datagram.
func NewMailbox(n, payload int, control bool) *Mailbox {
	// Buffers whose distance is a power of two share cache sets; an odd number of lines between them spreads them.
	stride := 0
	if payload > 0 {
		stride = (payload+63)/64*64 | 64
	}
	m := &Mailbox{
		in: make([]unix.Mmsghdr, n), out: make([]unix.Mmsghdr, n),
		iov: make([]unix.Iovec, n), oiov: make([]unix.Iovec, n),
		names: make([]unix.RawSockaddrInet6, n), memory: make([]byte, n*stride), stride: stride, payload: payload,
		segment: make([]int, n),
	}
	if control {
		m.ctl, m.octl = make([]byte, n*controlBytes), make([]byte, n*controlBytes)
	}
	for i := range m.in {
		h, o := &m.in[i].Hdr, &m.out[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&m.names[i]))
		if payload > 0 {
			m.iov[i].Base = &m.memory[i*stride]
			m.iov[i].SetLen(payload)
		}
		h.Iov, o.Iov = &m.iov[i], &m.oiov[i]
		h.SetIovlen(1)
		o.SetIovlen(1)
		if control {
			h.Control = &m.ctl[i*controlBytes]
		}
	}
	m.used = n
	m.reset()
	return m
}

// reset undoes what the kernel wrote into the headers.
func (m *Mailbox) reset() {
	for i := range m.used {
		h := &m.in[i].Hdr
		h.Namelen, h.Flags = unix.SizeofSockaddrInet6, 0
		if m.ctl != nil {
			h.SetControllen(controlBytes)
		}
	}
	m.used, m.queued = 0, 0
}

// Receive waits for the first datagram as the socket is told to (SO_RCVTIMEO) and takes what else is there, up to the
// mailbox's size. With wait false it does not wait. It forgets the datagrams and replies of the last call.
func (m *Mailbox) Receive(fd int, wait bool) (int, syscall.Errno) {
	m.reset()
	flags := unix.MSG_DONTWAIT
	if wait {
		flags = unix.MSG_WAITFORONE
	}
	if m.payload == 0 {
		flags |= unix.MSG_TRUNC
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(m.in))),
		uintptr(len(m.in)), uintptr(flags), 0, 0)
	if errno != 0 {
		m.used = 1 // a failing first message may have been written to
		return 0, errno
	}
	// The message after the last one may have been written to and then found nothing.
	m.used = min(int(n)+1, len(m.in))
	return int(n), 0
}

// Len is the length of datagram i in bytes, of all its segments together when it is a train.
func (m *Mailbox) Len(i int) int { return int(m.in[i].Len) }

// Payload is datagram i, cut to the mailbox's payload size. It is valid until the next Receive.
func (m *Mailbox) Payload(i int) []byte {
	at := i * m.stride
	return m.memory[at : at+min(int(m.in[i].Len), m.payload)]
}

// Truncated says that datagram i did not fit.
func (m *Mailbox) Truncated(i int) bool { return m.in[i].Hdr.Flags&unix.MSG_TRUNC != 0 }

// Peer is where datagram i came from, without zone; the zero value when the kernel gave no address, as a socket that
// was shut down does.
func (m *Mailbox) Peer(i int) netip.AddrPort {
	name := &m.names[i]
	if m.in[i].Hdr.Namelen == 0 {
		return netip.AddrPort{}
	}
	port := (*[2]byte)(unsafe.Pointer(&name.Port))
	number := binary.BigEndian.Uint16(port[:])
	if name.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), number)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), number)
}

// Segment is the size of the segments of datagram i when it is a train (UDP_GRO, udp(7)), 0 when it is one packet.
func (m *Mailbox) Segment(i int) int {
	data := m.find(i, unix.SOL_UDP, unix.UDP_GRO)
	if len(data) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(data))
}

// find returns the data of a control message of datagram i, nil without one.
func (m *Mailbox) find(i int, level, kind int32) []byte {
	if m.ctl == nil {
		return nil
	}
	b := m.ctl[i*controlBytes:][:min(int(m.in[i].Hdr.Controllen), controlBytes)]
	for len(b) >= cmsgHeader {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(h.Len)
		if size < cmsgHeader || size > len(b) {
			return nil
		}
		if h.Level == level && h.Type == kind {
			return b[cmsgHeader:size]
		}
		b = b[min((size+cmsgAlign-1)&^(cmsgAlign-1), len(b)):]
	}
	return nil
}

// Answer queues datagram i, as Payload now reads, to be sent back to its peer. Where the socket has IP_PKTINFO or
// IPV6_RECVPKTINFO the reply leaves from the address that was asked; a train is sent as a train.
func (m *Mailbox) Answer(i int) {
	k := m.queued
	size := min(int(m.in[i].Len), m.payload)
	h := &m.out[k].Hdr
	h.Name, h.Namelen = m.in[i].Hdr.Name, m.in[i].Hdr.Namelen
	m.oiov[k].Base = m.iov[i].Base
	m.oiov[k].SetLen(size)
	m.segment[k] = max(size, 1)
	h.Control = nil
	h.SetControllen(0)
	if m.ctl != nil {
		if segment := m.Segment(i); segment > 0 && segment < size {
			m.segment[k] = segment
		}
		if n := m.control(m.octl[k*controlBytes:][:controlBytes], i, k); n > 0 {
			h.Control = &m.octl[k*controlBytes]
			h.SetControllen(n)
		}
	}
	m.queued++
}

// Queued is the number of replies since the last Receive.
func (m *Mailbox) Queued() int { return m.queued }

// Reply is the payload of reply k and the size of its segments, at least 1; one packet is one segment.
func (m *Mailbox) Reply(k int) (payload []byte, segment int) {
	return unsafe.Slice(m.oiov[k].Base, int(m.oiov[k].Len)), m.segment[k]
}

// Send offers the replies from the k-th on to the kernel by one sendmmsg(2). It returns how many were taken; with an errno it is
// none, and the errno is the k-th one's.
func (m *Mailbox) Send(fd, k int) (int, syscall.Errno) {
	if k >= m.queued {
		return 0, 0
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.out[k])), uintptr(m.queued-k), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// control writes the control messages of reply k, to datagram i, into b and returns their length.
func (m *Mailbox) control(b []byte, i, k int) int {
	n := 0
	if info := m.find(i, unix.SOL_IP, unix.IP_PKTINFO); len(info) >= unix.SizeofInet4Pktinfo {
		// The interface is left to the route: only the address is kept (ip(7), ipi_spec_dst).
		data := put(b[n:], unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		clear(data)
		copy(data[4:8], info[4:8])
		n += align(cmsgHeader + unix.SizeofInet4Pktinfo)
	}
	if info := m.find(i, unix.SOL_IPV6, unix.IPV6_PKTINFO); len(info) >= unix.SizeofInet6Pktinfo && info[0] != 0xff {
		// A multicast address (ff00::/8) is no source. A link-local one needs its interface.
		data := put(b[n:], unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		clear(data)
		copy(data[:16], info[:16])
		if info[0] == 0xfe && info[1]&0xc0 == 0x80 {
			copy(data[16:20], info[16:20])
		}
		n += align(cmsgHeader + unix.SizeofInet6Pktinfo)
	}
	if size := m.segment[k]; size < int(m.oiov[k].Len) {
		data := put(b[n:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(data, uint16(size))
		n += align(cmsgHeader + 2)
	}
	return n
}

func align(n int) int { return (n + cmsgAlign - 1) &^ (cmsgAlign - 1) }

// put writes a control message header and returns the room for its data.
func put(b []byte, level, kind int32, size int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(cmsgHeader + size)
	return b[cmsgHeader : cmsgHeader+size]
}

// Shut wakes a thread that is blocked in Receive on the socket, now and whenever it blocks again. shutdown(2) of an unconnected
// socket answers ENOTCONN, but wakes sleepers all the same (net/ipv4/af_inet.c inet_shutdown).
func Shut(fd int) error {
	if err := unix.Shutdown(fd, unix.SHUT_RD); err != nil && err != unix.ENOTCONN {
		return os.NewSyscallError("shutdown", err)
	}
	return nil
}

// SocketDrops is the number of packets the kernel dropped for this socket since it was made, most often because its receive
// buffer was full; it wraps at 2^32 (SO_MEMINFO, SK_MEMINFO_DROPS of linux/sock_diag.h, kernel 4.12).
func SocketDrops(fd int) (uint32, error) {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return info[8], nil
}
