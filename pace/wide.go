package pace

import (
	"math"
	"math/bits"
)

// mulAddDivCeil returns ceil((a*b + c) / d), or math.MaxUint64 when that does not fit.
func mulAddDivCeil(a, b, c, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c, 0)
	hi += carry
	if hi >= d {
		return math.MaxUint64
	}
	q, r := bits.Div64(hi, lo, d)
	if r != 0 && q != math.MaxUint64 {
		q++
	}
	return q
}

// divMod returns quotient and remainder of a*b / d; the quotient is math.MaxInt64 when it would not fit a time.
func divMod(a, b, d uint64) (quot, rem uint64) {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return math.MaxInt64, 0
	}
	quot, rem = bits.Div64(hi, lo, d)
	return min(quot, math.MaxInt64), rem
}

// saturatingMul returns a*b, or math.MaxUint64 when that does not fit.
func saturatingMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// u128 and u192 are unsigned integers, most significant word first.
type (
	u128 struct{ hi, lo uint64 }
	u192 struct{ hi, mid, lo uint64 }
)

func mul64(a, b uint64) u128 {
	hi, lo := bits.Mul64(a, b)
	return u128{hi, lo}
}

func (a u128) add(b u128) u128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return u128{hi, lo}
}

func (a u128) sub(b u128) u128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return u128{hi, lo}
}

// mul returns a*b, which always fits.
func (a u128) mul(b uint64) u192 {
	h1, l1 := bits.Mul64(a.lo, b)
	h2, l2 := bits.Mul64(a.hi, b)
	mid, carry := bits.Add64(h1, l2, 0)
	return u192{h2 + carry, mid, l1}
}

// float returns a rounded to a float64.
func (a u128) float() float64 { return float64(a.hi)*0x1p64 + float64(a.lo) }

func (a u192) less(b u192) bool {
	_, borrow := bits.Sub64(a.lo, b.lo, 0)
	_, borrow = bits.Sub64(a.mid, b.mid, borrow)
	_, borrow = bits.Sub64(a.hi, b.hi, borrow)
	return borrow != 0
}

// float returns a rounded to a float64.
func (a u192) float() float64 {
	return float64(a.hi)*0x1p128 + float64(a.mid)*0x1p64 + float64(a.lo)
}

// divFloor returns floor(a / d), or math.MaxUint64-1 when that does not fit (so that one may be added).
func divFloor(a u128, d uint64) uint64 {
	if a.hi >= d {
		return math.MaxUint64 - 1
	}
	q, _ := bits.Div64(a.hi, a.lo, d)
	return min(q, math.MaxUint64-1)
}

// divMod returns quotient and remainder of a/d; the quotient is math.MaxUint64 when it does not fit.
func (a u128) divMod(d uint64) (quot, rem uint64) {
	if a.hi >= d {
		return math.MaxUint64, 0
	}
	return bits.Div64(a.hi, a.lo, d)
}
