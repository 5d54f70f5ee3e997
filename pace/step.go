package pace

import (
	"fmt"
	"math/big"
	"math/bits"
	"time"
)

// maxLevels bounds the levels of a step profile, each of which is a piece in memory.
const maxLevels = 1 << 16

// Step plans a staircase for total: rate from, raised by `by` every `every` until it would pass `to`, then `to` until the end. The
// fraction of a packet left over at a level's end is carried into the next.
func Step(from, by Rate, every time.Duration, to Rate, total time.Duration) (*Plan, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	if err := checkLength(every); err != nil {
		return nil, fmt.Errorf("step: every: %w", err)
	}
	for _, r := range []*Rate{&from, &by, &to} {
		var err error
		if *r, err = r.finite(); err != nil {
			return nil, fmt.Errorf("step: %w", err)
		}
	}
	per, num, err := common(from, by, to)
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	first, rise, last := num[0], num[1], num[2]
	if first > last {
		return nil, fmt.Errorf("step: from %v to %v: want a rise", from, to)
	}
	var (
		pieces []piece
		begun  u128 // N(start) * per: packets begun by the start of the level, exact
	)
	for level, start := first, int64(0); ; start += int64(every) {
		if len(pieces) == maxLevels {
			return nil, fmt.Errorf("step: more than %d levels", maxLevels)
		}
		slot, phase := ceilMod(begun, per)
		if n := len(pieces); n > 0 {
			pieces[n-1].slots = slot - pieces[n-1].first
		}
		pieces = append(pieces, piece{first: slot, start: start, phase: phase, per: per, num: level, each: 1})
		if level == last || int64(total)-start <= int64(every) {
			break
		}
		begun = begun.add(mul64(level, uint64(every)))
		level = min(level+rise, last)
	}
	text := fmt.Sprintf("step:%v+%v/%v..%v", from, by, every, to)
	return newPlan(pieces, total, text)
}

// ceilMod returns q = ceil(a/d) and q*d - a. The caller knows that q fits.
func ceilMod(a u128, d uint64) (q, over uint64) {
	q, r := bits.Div64(a.hi, a.lo, d)
	if r == 0 {
		return q, 0
	}
	return q + 1, d - r
}

// common returns the rates as numerators over one period, ns: rate j is num[j]/per packets per ns.
func common(rates ...Rate) (per uint64, num []uint64, err error) {
	lcm := big.NewInt(1)
	for _, r := range rates {
		p := big.NewInt(int64(r.Per))
		g := new(big.Int).GCD(nil, nil, lcm, p)
		lcm.Mul(lcm, p.Quo(p, g))
	}
	if !lcm.IsInt64() || lcm.Int64() > maxTerm/2 {
		return 0, nil, fmt.Errorf("%w: %v are too fine to be added exactly: no common period within 73 years", ErrRate, rates)
	}
	per = lcm.Uint64()
	for _, r := range rates {
		num = append(num, per/uint64(r.Per)*r.Packets)
	}
	return per, num, nil
}
