package packet

import (
	"encoding/binary"
	"math/bits"
)

// The Internet checksum (RFC 1071) is the one's complement of the one's complement sum of 16-bit big-endian words.
//
// Sums are carried here as 64-bit accumulators. Words of 64 bits may be added in place of 16-bit ones, because
// 2^64, 2^32 and 2^16 all are 1 modulo 65535, as long as every carry is added back in (RFC 1071, 2 (B)). An
// accumulator of data that is not all zero is never zero, so the two one's complement zeros stay apart: only all-zero
// data sums to 0, everything else that is 0 modulo 65535 folds to 0xFFFF.

// Sum adds b to the accumulator. b starts at an even offset of the data that is summed; a last odd byte counts as the
// high half of a word, so only the last piece may have an odd length.
func Sum(acc uint64, b []byte) uint64 {
	var carry uint64
	for len(b) >= 32 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), 0)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[8:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[16:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[24:]), carry)
		acc = addBack(acc, carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), 0)
		acc = addBack(acc, carry)
		b = b[8:]
	}
	if len(b) >= 4 {
		acc, carry = bits.Add64(acc, uint64(binary.BigEndian.Uint32(b)), 0)
		acc = addBack(acc, carry)
		b = b[4:]
	}
	var tail uint64
	switch len(b) {
	case 3:
		tail = uint64(binary.BigEndian.Uint16(b)) + uint64(b[2])<<8
	case 2:
		tail = uint64(binary.BigEndian.Uint16(b))
	case 1:
		tail = uint64(b[0]) << 8
	}
	acc, carry = bits.Add64(acc, tail, 0)
	return addBack(acc, carry)
}

// addBack adds an end-around carry. After a carry the low part is at most 2^64-2, so this cannot carry again, except
// behind a chain of additions, where the second carry lands on 0.
func addBack(acc, carry uint64) uint64 {
	acc, carry = bits.Add64(acc, carry, 0)
	return acc + carry
}

// Fold reduces an accumulator to the 16-bit one's complement sum.
func Fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return uint16(acc)
}

// Checksum is the value of a checksum field that covers b, which holds zero in that field's place.
func Checksum(b []byte) uint16 { return ^Fold(Sum(0, b)) }

// UpdateWord returns a checksum after one 16-bit word that it covers changed: RFC 1624, equation 3, HC' = ~(~HC + ~m + m').
func UpdateWord(check, before, after uint16) uint16 {
	return ^Fold(uint64(^check) + uint64(^before) + uint64(after))
}

// Update returns a checksum after bytes that it covers changed from before to after, two slices of the same length. odd says
// that they start at an odd offset of the covered data. It is equation 3 of RFC 1624 over many words.
func Update(check uint16, odd bool, before, after []byte) uint16 {
	// Subtracting is adding the one's complement, and that of a whole sum is the sum of the complements.
	gone, come := Fold(Sum(0, before)), Fold(Sum(0, after))
	if odd { // words are straddled: the byte-swapped sum is the sum of the straddling words (RFC 1071, 2 (B))
		gone, come = bits.ReverseBytes16(gone), bits.ReverseBytes16(come)
	}
	return ^Fold(uint64(^check) + uint64(^gone) + uint64(come))
}

// udpField is a computed checksum as it goes into a UDP header: zero would mean "none" (RFC 768), so its other form goes out.
func udpField(check uint16) uint16 {
	if check == 0 {
		return 0xffff
	}
	return check
}
