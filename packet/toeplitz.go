package packet

import (
	"encoding/binary"
	"net/netip"
)

// ToeplitzKey returns the key that Microsoft published with the hash and that many drivers default to (40 bytes).
func ToeplitzKey() []byte {
	return []byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
}

// toeplitzInput is the longest input: two IPv6 addresses and two ports.
const toeplitzInput = 16 + 16 + 2 + 2

// Toeplitz is the hash by which network cards spread packets over receive queues: for each bit of the input that is set, from the
// first on, the 32 bits of the key that start at that bit are added without carry. A key shorter than the input plus 4 bytes counts
// as followed by zeros. (Microsoft, "RSS hashing functions"; Intel 82599 data sheet, 7.1.2.8.)
func Toeplitz(key, input []byte) uint32 {
	at := func(i int) byte {
		if i < len(key) {
			return key[i]
		}
		return 0
	}
	var hash uint32
	window := uint64(at(0))<<32 | uint64(at(1))<<24 | uint64(at(2))<<16 | uint64(at(3))<<8 | uint64(at(4))
	for i, b := range input {
		for bit := range 8 {
			if b&(0x80>>bit) != 0 {
				hash ^= uint32(window >> (8 - bit))
			}
		}
		window = window<<8&(1<<40-1) | uint64(at(i+5))
	}
	return hash
}

// ToeplitzFlow hashes a packet from src to dst, addresses and ports, as the card that receives it does. Both must be of one family.
func ToeplitzFlow(key []byte, src, dst netip.AddrPort) uint32 {
	var buf [toeplitzInput]byte
	in := addresses(buf[:0], src.Addr(), dst.Addr())
	in = binary.BigEndian.AppendUint16(in, src.Port())
	in = binary.BigEndian.AppendUint16(in, dst.Port())
	return Toeplitz(key, in)
}

// ToeplitzAddrs is ToeplitzFlow over the addresses alone, as for fragments and cards that do not look at UDP ports.
func ToeplitzAddrs(key []byte, src, dst netip.Addr) uint32 {
	var buf [toeplitzInput]byte
	return Toeplitz(key, addresses(buf[:0], src, dst))
}

// addresses appends both addresses in network order, mapped ones as the IPv4 addresses that go over the wire.
func addresses(in []byte, src, dst netip.Addr) []byte {
	for _, a := range []netip.Addr{src.Unmap(), dst.Unmap()} {
		if a.Is4() {
			b := a.As4()
			in = append(in, b[:]...)
			continue
		}
		b := a.As16()
		in = append(in, b[:]...)
	}
	return in
}
