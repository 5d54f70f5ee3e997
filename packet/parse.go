package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Reject says why a frame is no whole UDP packet. It is an error that costs no allocation.
type Reject uint8

// The reasons, in the order in which a frame is looked at.
const (
	// RejectShort: the frame ends before a header does.
	RejectShort Reject = iota + 1
	// RejectNotIP: another protocol than IPv4 or IPv6, behind at most two VLAN tags.
	RejectNotIP
	// RejectHeader: an IP header that contradicts itself (version, header length, total length).
	RejectHeader
	// RejectHeaderSum: a wrong IPv4 header checksum.
	RejectHeaderSum
	// RejectFragment: a piece of a packet.
	RejectFragment
	// RejectNotUDP: another protocol than UDP.
	RejectNotUDP
	// RejectLength: a UDP length below 8, or beyond the IP packet's end.
	RejectLength
)

var rejectNames = [...]string{"none", "frame too short", "not IP", "bad IP header", "bad IPv4 header checksum", "fragment",
	"not UDP", "bad UDP length"}

// Error implements error.
func (r Reject) Error() string {
	if int(r) < len(rejectNames) {
		return rejectNames[r]
	}
	return fmt.Sprintf("reject %d", uint8(r))
}

// Parsed is a UDP packet found in a frame. Payload points into the frame.
type Parsed struct {
	SrcMAC, DstMAC MAC
	// VLAN is the tag control information of the outermost tag in the frame; a tag that the network card took out is not seen.
	VLAN    uint16
	Tagged  bool
	Src     netip.AddrPort
	Dst     netip.AddrPort
	TTL     uint8
	TOS     uint8
	Payload []byte
	Layout  Layout

	datagram []byte // UDP header and payload
}

// maxExtensions bounds the walk through IPv6 extension headers.
const maxExtensions = 8

// Parse finds the UDP packet in a frame, or says why there is none (zero means found). It checks lengths and the IPv4 header
// checksum, not the UDP checksum: see SumState. It allocates nothing, and never reads beyond the frame.
func Parse(frame []byte, p *Parsed) Reject {
	if len(frame) < EthernetBytes {
		return RejectShort
	}
	p.DstMAC, p.SrcMAC = MAC(frame[0:6]), MAC(frame[6:12])
	p.Tagged, p.VLAN, p.Payload, p.datagram = false, 0, nil, nil
	kind, at := binary.BigEndian.Uint16(frame[12:]), EthernetBytes
	for tags := 0; (kind == etherVLAN || kind == etherQinQ) && tags < 2; tags++ {
		if len(frame) < at+VLANBytes {
			return RejectShort
		}
		if tags == 0 {
			p.Tagged, p.VLAN = true, binary.BigEndian.Uint16(frame[at:])
		}
		kind = binary.BigEndian.Uint16(frame[at+2:])
		at += VLANBytes
	}
	p.Layout = Layout{IP: at}
	switch kind {
	case etherIPv4:
		return p.parse4(frame)
	case etherIPv6:
		return p.parse6(frame)
	}
	return RejectNotIP
}

func (p *Parsed) parse4(frame []byte) Reject {
	ip := frame[p.Layout.IP:]
	if len(ip) < IPv4Bytes {
		return RejectShort
	}
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0]>>4 != 4 || header < IPv4Bytes || total < header:
		return RejectHeader
	case len(ip) < total:
		return RejectShort
	case Fold(Sum(0, ip[:header])) != 0xffff:
		return RejectHeaderSum
	case binary.BigEndian.Uint16(ip[6:])&0x3fff != 0: // more fragments, or an offset
		return RejectFragment
	case ip[9] != protoUDP:
		return RejectNotUDP
	}
	p.TOS, p.TTL = ip[1], ip[8]
	src, dst := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	return p.parseUDP(ip, header, total, src, dst)
}

func (p *Parsed) parse6(frame []byte) Reject {
	ip := frame[p.Layout.IP:]
	if len(ip) < IPv6Bytes {
		return RejectShort
	}
	total := IPv6Bytes + int(binary.BigEndian.Uint16(ip[4:]))
	switch {
	case ip[0]>>4 != 6:
		return RejectHeader
	case len(ip) < total:
		return RejectShort
	}
	p.Layout.V6 = true
	p.TOS, p.TTL = uint8(binary.BigEndian.Uint16(ip)>>4), ip[7]
	next, at := ip[6], IPv6Bytes
	for range maxExtensions {
		if next == protoUDP {
			src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
			return p.parseUDP(ip, at, total, src, dst)
		}
		size := 8
		switch next {
		case 0, 43, 60: // hop-by-hop, routing and destination options (RFC 8200 4.3, 4.4, 4.6)
			if total < at+8 {
				return RejectLength
			}
			size = 8 + 8*int(ip[at+1])
		case 44: // fragment header (4.5); a fragment that is the whole packet is fine (RFC 6946)
			if total < at+8 {
				return RejectLength
			}
			if binary.BigEndian.Uint16(ip[at+2:])&0xfff9 != 0 {
				return RejectFragment
			}
		default:
			return RejectNotUDP
		}
		next = ip[at]
		at += size
	}
	return RejectNotUDP
}

// parseUDP reads the UDP header at ip[at:] of a packet that ends at ip[total].
func (p *Parsed) parseUDP(ip []byte, at, total int, src, dst netip.Addr) Reject {
	if total < at+UDPBytes {
		return RejectLength
	}
	udp := ip[at:total]
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if n < UDPBytes || n > len(udp) {
		return RejectLength
	}
	p.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(udp))
	p.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(udp[2:]))
	p.Layout.UDP = p.Layout.IP + at
	p.Layout.Payload = p.Layout.UDP + UDPBytes
	p.datagram = udp[:n]
	p.Payload = udp[UDPBytes:n:n]
	return 0
}

// SumState is what the UDP checksum of a received packet says.
type SumState uint8

// The states.
const (
	// SumBad: the packet was damaged.
	SumBad SumState = iota
	// SumGood: the checksum covers the packet.
	SumGood
	// SumAbsent: IPv4 without a checksum.
	SumAbsent
	// SumUnfinished: the field holds the pseudo-header's sum alone. Packets of a local socket arrive so over a veth pair, because
	// no network card finished them (CHECKSUM_PARTIAL); they are intact.
	SumUnfinished
)

// SumState checks the UDP checksum of the packet that Parse found; after a Reject it is SumBad. Its cost is that of reading
// the whole packet.
func (p *Parsed) SumState() SumState {
	if len(p.datagram) < UDPBytes {
		return SumBad
	}
	field := binary.BigEndian.Uint16(p.datagram[udpCheck:])
	if field == 0 {
		if p.Layout.V6 {
			return SumBad
		}
		return SumAbsent
	}
	acc := protoUDP + uint64(len(p.datagram))
	if p.Layout.V6 {
		src, dst := p.Src.Addr().As16(), p.Dst.Addr().As16()
		acc = Sum(Sum(acc, src[:]), dst[:])
	} else {
		src, dst := p.Src.Addr().As4(), p.Dst.Addr().As4()
		acc = Sum(Sum(acc, src[:]), dst[:])
	}
	switch {
	case Fold(Sum(acc, p.datagram)) == 0xffff:
		return SumGood
	case Fold(acc) == field:
		return SumUnfinished
	}
	return SumBad
}
