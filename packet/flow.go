package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Sizes in bytes.
const (
	EthernetBytes = 14 // destination, source, type
	VLANBytes     = 4  // one 802.1Q tag
	IPv4Bytes     = 20 // without options
	IPv6Bytes     = 40 // without extension headers
	UDPBytes      = 8

	// MaxHeaderBytes is the longest header that a Flow writes: Ethernet, one tag, IPv6, UDP.
	MaxHeaderBytes = EthernetBytes + VLANBytes + IPv6Bytes + UDPBytes
	// MinFrameBytes is the shortest Ethernet frame without its check sequence (IEEE 802.3). Shorter packets are padded.
	MinFrameBytes = 60
)

const (
	etherIPv4 = 0x0800
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	etherIPv6 = 0x86dd
	protoUDP  = 17

	// udpCheck is the offset of the checksum in the UDP header.
	udpCheck = 6
)

// MAC is an Ethernet address.
type MAC [6]byte

// String is the usual form, such as 02:b1:a5:70:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// UDPSum says what goes into the UDP checksum field.
type UDPSum uint8

// The ways to fill the UDP checksum field.
const (
	// SumFull is the complete checksum. The default.
	SumFull UDPSum = iota
	// SumPartial is the sum of the pseudo-header alone, not complemented: what a network card that computes the rest expects
	// (Linux CHECKSUM_PARTIAL, AF_XDP XDP_TXMD_FLAGS_CHECKSUM with csum_start = Layout.UDP, csum_offset = 6).
	SumPartial
	// SumNone is zero, "no checksum". IPv4 only (RFC 8200 8.1 forbids it for IPv6).
	SumNone
)

// Headers is what the packets of one flow have in common. Src and Dst must be of one family, with their zones removed.
type Headers struct {
	SrcMAC, DstMAC MAC
	// VLAN is the tag control information of an 802.1Q tag (priority<<13 | id); it is written when Tagged is set.
	VLAN   uint16
	Tagged bool
	Src    netip.AddrPort
	Dst    netip.AddrPort
	// TTL is the time to live or hop limit; zero means 64.
	TTL uint8
	// TOS is the IPv4 type of service or IPv6 traffic class: DSCP<<2 | ECN.
	TOS uint8
	// FlowLabel is the 20-bit IPv6 flow label.
	FlowLabel uint32
	Sum       UDPSum
}

// Flow is a header ready to be written: everything that does not depend on the payload is computed once. A Flow does not
// change and may be used by any number of threads. Fragmentation is forbidden (DF), so the IPv4 id is zero (RFC 6864).
type Flow struct {
	header [MaxHeaderBytes]byte
	layout Layout
	sum    UDPSum
	// Sums, folded to 16 bits.
	ipSum   uint64 // IPv4 header, length and checksum as zero
	udpSum  uint64 // pseudo-header and ports, both lengths as zero
	pseudo  uint64 // pseudo-header alone, length as zero
	headers Headers
}

// Layout is where the parts of a frame start, in bytes from its first.
type Layout struct {
	IP, UDP, Payload int
	V6               bool
}

// NewFlow checks the headers and computes what they have in common.
func NewFlow(h Headers) (*Flow, error) {
	src, dst := h.Src.Addr(), h.Dst.Addr()
	switch {
	case !src.IsValid() || !dst.IsValid():
		return nil, errors.New("packet: source or destination address missing")
	case src.Is4In6() || dst.Is4In6():
		return nil, fmt.Errorf("packet: %s to %s: mapped address; unmap it", src, dst)
	case src.Is4() != dst.Is4():
		return nil, fmt.Errorf("packet: %s and %s are of two families", src, dst)
	case src.Zone() != "" || dst.Zone() != "":
		return nil, fmt.Errorf("packet: %s to %s: a zone has no place in a packet", src, dst)
	case h.FlowLabel >= 1<<20:
		return nil, fmt.Errorf("packet: flow label %#x has more than 20 bits", h.FlowLabel)
	case h.Sum > SumNone:
		return nil, fmt.Errorf("packet: unknown checksum way %d", h.Sum)
	case h.Sum == SumNone && src.Is6():
		return nil, errors.New("packet: IPv6 needs a UDP checksum")
	case !h.Tagged && h.VLAN != 0:
		return nil, fmt.Errorf("packet: VLAN %d without Tagged", h.VLAN)
	}
	if h.TTL == 0 {
		h.TTL = 64
	}
	f := &Flow{sum: h.Sum, headers: h}
	b := append(f.header[:0], h.DstMAC[:]...)
	b = append(b, h.SrcMAC[:]...)
	if h.Tagged {
		b = binary.BigEndian.AppendUint16(b, etherVLAN)
		b = binary.BigEndian.AppendUint16(b, h.VLAN)
	}
	if src.Is4() {
		b = binary.BigEndian.AppendUint16(b, etherIPv4)
		f.layout.IP = len(b)
		b = append(b, 0x45, h.TOS, 0, 0, 0, 0, 0x40, 0, h.TTL, protoUDP, 0, 0)
	} else {
		b = binary.BigEndian.AppendUint16(b, etherIPv6)
		f.layout.IP, f.layout.V6 = len(b), true
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TOS)<<20|h.FlowLabel)
		b = append(b, 0, 0, protoUDP, h.TTL)
	}
	addresses := len(b)
	b = append(b, src.AsSlice()...)
	b = append(b, dst.AsSlice()...)
	f.layout.UDP = len(b)
	b = binary.BigEndian.AppendUint16(b, h.Src.Port())
	b = binary.BigEndian.AppendUint16(b, h.Dst.Port())
	b = append(b, 0, 0, 0, 0)
	f.layout.Payload = len(b)
	f.ipSum = uint64(Fold(Sum(0, b[f.layout.IP:f.layout.UDP])))
	f.pseudo = uint64(Fold(Sum(protoUDP, b[addresses:f.layout.UDP])))
	f.udpSum = uint64(Fold(Sum(f.pseudo, b[f.layout.UDP:])))
	return f, nil
}

// Layout is where the parts of this flow's frames start.
func (f *Flow) Layout() Layout { return f.layout }

// HeaderBytes is the number of bytes before the payload.
func (f *Flow) HeaderBytes() int { return f.layout.Payload }

// Headers is what the flow was made from, defaults filled in.
func (f *Flow) Headers() Headers { return f.headers }

// MaxPayload is the largest payload that fits the interface's MTU (which counts from the IP header on) and a frame buffer
// of the given size; negative when not even the headers fit.
func (f *Flow) MaxPayload(mtu, frameBytes int) int {
	room := min(mtu, 65535)
	if f.layout.V6 {
		room = min(mtu, 65535+IPv6Bytes) // the IPv6 length does not count its own header
	}
	return min(room-(f.layout.Payload-f.layout.IP), frameBytes-f.layout.Payload)
}

// Payload is the place in a frame buffer where this flow's payload goes, its capacity cut at the end of the buffer.
func (f *Flow) Payload(frame []byte) []byte {
	return frame[f.layout.Payload:len(frame):len(frame)]
}

// Write puts the headers around a payload of n bytes that is already in its place, and returns the length of the frame: at
// least MinFrameBytes, the padding zeroed. frame must have room for that, and the payload must not exceed MaxPayload. It
// allocates nothing; its cost is that of the headers, plus summing the payload under SumFull.
func (f *Flow) Write(frame []byte, n int) int {
	l := &f.layout
	end := l.Payload + n
	_ = frame[end-1]
	copy(frame, f.header[:l.Payload])
	udp := frame[l.UDP:l.Payload]
	udpLen := uint64(UDPBytes + n)
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen))
	ip := frame[l.IP:l.UDP]
	if l.V6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(udpLen))
	} else {
		total := IPv4Bytes + udpLen
		binary.BigEndian.PutUint16(ip[2:], uint16(total))
		binary.BigEndian.PutUint16(ip[10:], ^Fold(f.ipSum+total))
	}
	switch f.sum {
	case SumFull:
		// The length counts twice: in the pseudo-header and in the UDP header.
		acc := f.udpSum + 2*udpLen
		binary.BigEndian.PutUint16(udp[udpCheck:], udpField(^Fold(Sum(acc, frame[l.Payload:end]))))
	case SumPartial:
		binary.BigEndian.PutUint16(udp[udpCheck:], Fold(f.pseudo+udpLen))
	}
	if end < MinFrameBytes {
		clear(frame[end:MinFrameBytes])
		end = MinFrameBytes
	}
	return end
}

// Resum finishes a frame again that Write finished for this flow and a payload of n bytes, after its payload, and nothing else, has been
// written anew. It costs what summing the payload costs, which for small packets is half of Write.
func (f *Flow) Resum(frame []byte, n int) {
	l := &f.layout
	end := l.Payload + n
	if f.sum == SumFull {
		acc := f.udpSum + 2*uint64(UDPBytes+n)
		binary.BigEndian.PutUint16(frame[l.UDP+udpCheck:], udpField(^Fold(Sum(acc, frame[l.Payload:end]))))
	}
	if end < MinFrameBytes {
		clear(frame[end:MinFrameBytes])
	}
}

// Patch overwrites bytes of the payload of a finished frame of this flow, from payload offset off on, and mends the checksum
// by what changed alone: a stamp in a large packet costs the stamp. The bytes must lie inside the payload.
func (f *Flow) Patch(frame []byte, off int, b []byte) {
	at := f.layout.Payload + off
	old := frame[at : at+len(b)]
	if f.sum == SumFull {
		field := frame[f.layout.UDP+udpCheck:]
		check := binary.BigEndian.Uint16(field)
		binary.BigEndian.PutUint16(field, udpField(Update(check, off&1 != 0, old, b)))
	}
	copy(old, b)
}

// PatchPorts overwrites the ports of a finished frame of this flow and mends the checksum.
func (f *Flow) PatchPorts(frame []byte, src, dst uint16) {
	udp := frame[f.layout.UDP:f.layout.Payload]
	if f.sum == SumFull {
		check := binary.BigEndian.Uint16(udp[udpCheck:])
		check = UpdateWord(check, binary.BigEndian.Uint16(udp), src)
		check = UpdateWord(check, binary.BigEndian.Uint16(udp[2:]), dst)
		binary.BigEndian.PutUint16(udp[udpCheck:], udpField(check))
	}
	binary.BigEndian.PutUint16(udp, src)
	binary.BigEndian.PutUint16(udp[2:], dst)
}
