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
	bend := &curve{a: num[0], b: num[1], d: uint64(over), unit: mul64(2*uint64(over), per)}
	pieces := []piece{{each: 1, curve: bend}}
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
	a, b uint64 // rate numerators at 0 and at D
	d    uint64 // D, ns
	unit u128
}

// total returns F(t), t <= D.
func (c *curve) total(t uint64) u192 { return c.rise(mul64(2*c.d, c.a), t) }

// rise returns F(t+x) - F(t) for slope = 2 D a + 2 (b-a) t, the derivative of F at t; t+x <= D.
func (c *curve) rise(slope u128, x uint64) u192 {
	if c.b >= c.a {
		return slope.add(mul64(c.b-c.a, x)).mul(x)
	}
	return slope.sub(mul64(c.a-c.b, x)).mul(x)
}

// slope returns the derivative of F at t <= D.
func (c *curve) slope(t uint64) u128 {
	start := mul64(2*c.d, c.a)
	if c.b >= c.a {
		return start.add(mul64(c.b-c.a, 2*t))
	}
	return start.sub(mul64(c.a-c.b, 2*t))
}

// at returns the first t with F(t) >= k unit, at most D.
func (c *curve) at(k uint64) int64 {
	return int64(c.solve(mul64(2*c.d, c.a), c.unit.mul(k), c.d))
}

// due returns how many k have k unit <= F(t): floor(F(t)/unit) + 1. Past D it stays at its value there.
func (c *curve) due(t int64) uint64 {
	f := c.total(min(uint64(t), c.d))
	lo, hi := uint64(0), uint64(maxTerm) // F(D)/unit <= D <= 2^62
	if guess := f.float() / c.unit.float(); guess < maxTerm/2 {
		// The estimate is off by a few parts in 2^53; trust it only after asking.
		slack := uint64(guess*0x1p-48) + 2
		if g := uint64(guess); g > slack && !f.less(c.unit.mul(g-slack)) {
			lo = g - slack
		}
		if g := uint64(guess); f.less(c.unit.mul(g + slack)) {
			hi = g + slack
		}
	}
	for hi-lo > 1 { // lo*unit <= f < hi*unit, or hi is the bound
		mid := lo + (hi-lo)/2
		if f.less(c.unit.mul(mid)) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo + 1
}

// solve returns the smallest x <= limit with rise(slope, x) >= need; limit when there is none. It guesses by the quadratic
// formula in floating point and then moves to the exact answer by integers.
func (c *curve) solve(slope u128, need u192, limit uint64) uint64 {
	if need == (u192{}) {
		return 0
	}
	x := c.guess(slope, need, limit)
	if c.rise(slope, x).less(need) {
		for step := uint64(1); ; step *= 4 {
			if x == limit {
				return limit
			}
			next := x + min(step, limit-x)
			if !c.rise(slope, next).less(need) {
				return c.bisect(slope, need, x, next)
			}
			x = next
		}
	}
	for step := uint64(1); ; step *= 4 {
		if x == 0 {
			return 0
		}
		next := x - min(step, x)
		if c.rise(slope, next).less(need) {
			return c.bisect(slope, need, next, x)
		}
		x = next
	}
}

// bisect narrows rise(lo) < need <= rise(hi) to the smallest such hi.
func (c *curve) bisect(slope u128, need u192, lo, hi uint64) uint64 {
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if c.rise(slope, mid).less(need) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// guess solves x (slope + (b-a) x) = need in floating point: x = 2 need / (slope + sqrt(slope^2 + 4 (b-a) need)), the form that does not
// cancel.
func (c *curve) guess(slope u128, need u192, limit uint64) uint64 {
	s, n := slope.float(), need.float()
	bend := float64(c.b) - float64(c.a)
	x := 2 * n / (s + math.Sqrt(max(s*s+4*bend*n, 0)))
	if x >= float64(limit) || math.IsNaN(x) {
		return limit
	}
	return uint64(x)
}
