package pace

import (
	"fmt"
	"math"
	"time"
)

// Ramp plans a rate that moves evenly from `from` to `to` during over and then stays at `to`, for total. Either rate, not both, may be
// 0 (Packets 0). With D = over: N(t) = from t + (to-from) t^2 / (2 D).
func Ramp(from, to Rate, over, total time.Duration) (*Plan, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("ramp: %w", err)
	}
	if err := checkLength(over); err != nil {
		return nil, fmt.Errorf("ramp: over: %w", err)
	}
	text := fmt.Sprintf("ramp:%v..%v/%v", from, to, over)
	for _, r := range []*Rate{&from, &to} {
		if *r == (Rate{Per: r.Per}) && r.Per >= 0 { // 0 packets
			*r = Rate{Per: 1}
			continue
		}
		var err error
		if *r, err = r.finite(); err != nil {
			return nil, fmt.Errorf("ramp: %w", err)
		}
	}
	if from.Packets == 0 && to.Packets == 0 {
		return nil, fmt.Errorf("ramp: %w: both ends are 0", ErrRate)
	}
	per, num, err := common(from, to)
	if err != nil {
		return nil, fmt.Errorf("ramp: %w", err)
	}
	if from == to {
		return newPlan([]piece{{per: per, num: num[0], each: 1}}, total, text)
	}
	pieces := []piece{{each: 1, curve: newCurve(num[0], num[1], per, uint64(over))}}
	if total <= over || to.Packets == 0 {
		return newPlan(pieces, total, text)
	}
	// After D: N(t) = ((a+b) D + 2 b (t-D)) / (2 per).
	slot, phase := ceilMod(mul64(num[0]+num[1], uint64(over)), 2*per)
	pieces[0].slots = slot
	pieces = append(pieces, piece{first: slot, start: int64(over), phase: phase, per: 2 * per, num: 2 * num[1], each: 1})
	return newPlan(pieces, total, text)
}

// curve is the bend of a ramp. With rates a/per and b/per packets per ns, all integers:
//
//	F(t) = t (2 D a + (b-a) t) = 2 D per N(t)
//
// so slot i is due at the first t with F(t) >= i unit, unit = 2 D per. All terms are at most 2^62, so F and i unit fit 192 bits.
type curve struct {
	down   bool   // the rate falls
	bend   uint64 // |b-a|
	d      uint64 // D, ns
	start  u128   // 2 D a, the derivative of F at 0
	unit   u128
	unitF  float64 // unit, start, start^2 and 4 (b-a), rounded, for the guess
	startF float64
	start2 float64
	bendF4 float64
}

func newCurve(a, b, per, d uint64) *curve {
	c := &curve{down: b < a, bend: max(a, b) - min(a, b), d: d, start: mul64(2*d, a), unit: mul64(2*d, per)}
	c.unitF, c.startF = c.unit.float(), c.start.float()
	c.start2 = c.startF * c.startF
	c.bendF4 = 4 * (float64(b) - float64(a))
	return c
}

// total returns F(t), t <= D.
func (c *curve) total(t uint64) u192 {
	if c.down {
		return c.start.sub(mul64(c.bend, t)).mul(t)
	}
	return c.start.add(mul64(c.bend, t)).mul(t)
}

// at returns the first t with F(t) >= k unit, at most D. It guesses in floating point, which is right to a few ns except where a ramp
// comes to rest, and moves to the exact answer by integers.
func (c *curve) at(k uint64) int64 {
	need := c.unit.mul(k)
	t := c.guess(k)
	if c.total(t).less(need) {
		for step := uint64(1); t < c.d; step *= 4 {
			next := t + min(step, c.d-t)
			if !c.total(next).less(need) {
				return c.bisect(need, t, next)
			}
			t = next
		}
		return int64(c.d)
	}
	for step := uint64(1); t > 0; step *= 4 {
		next := t - min(step, t)
		if c.total(next).less(need) {
			return c.bisect(need, next, t)
		}
		t = next
	}
	return 0
}

// bisect narrows F(lo) < need <= F(hi) to the smallest such hi.
func (c *curve) bisect(need u192, lo, hi uint64) int64 {
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if c.total(mid).less(need) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return int64(hi)
}

// guess solves t (2 D a + (b-a) t) = k unit in floating point, by the form of the quadratic formula that does not cancel:
// t = 2 k unit / (2 D a + sqrt((2 D a)^2 + 4 (b-a) k unit)).
func (c *curve) guess(k uint64) uint64 {
	n := float64(k) * c.unitF
	t := 2 * n / (c.startF + math.Sqrt(max(c.start2+c.bendF4*n, 0)))
	if !(t < float64(c.d)) { // also not a number: slot 0 of a ramp from 0 is 0/0
		return c.d
	}
	return uint64(t)
}

// due returns how many k have k unit <= F(t): floor(F(t)/unit) + 1. Past D it stays at its value there.
func (c *curve) due(t int64) uint64 {
	f := c.total(min(uint64(t), c.d))
	lo, hi := uint64(0), uint64(maxTerm)+1 // F/unit = N <= D <= 2^62
	// The estimate is off by a few parts in 2^53, but the exact comparison has the last word.
	g := uint64(min(f.float()/c.unitF, maxTerm))
	slack := g>>48 + 2
	if g > slack && !f.less(c.unit.mul(g-slack)) {
		lo = g - slack
	}
	if f.less(c.unit.mul(g + slack)) {
		hi = g + slack
	}
	for hi-lo > 1 { // lo unit <= F < hi unit
		mid := lo + (hi-lo)/2
		if f.less(c.unit.mul(mid)) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo + 1
}
