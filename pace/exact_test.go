package pace

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ratio returns the rate as packets per ns, exactly.
func ratio(r Rate) *big.Rat {
	if r.Packets == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Packets), big.NewInt(int64(r.Per)))
}

func whole(t int64) *big.Rat { return new(big.Rat).SetInt64(t) }

func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// constantN, rampN and stepN are N(t) of the package comment in rational numbers.
func constantN(r Rate) func(t int64) *big.Rat {
	return func(t int64) *big.Rat { return times(ratio(r), whole(t)) }
}

func rampN(from, to Rate, over time.Duration) func(t int64) *big.Rat {
	r0, r1, d := ratio(from), ratio(to), int64(over)
	return func(t int64) *big.Rat {
		bend := min(t, d)
		n := times(r0, whole(bend))
		square := times(times(whole(bend), whole(bend)), big.NewRat(1, 2))
		square.Quo(square, whole(d))
		n.Add(n, times(new(big.Rat).Sub(r1, r0), square))
		return n.Add(n, times(r1, whole(t-bend)))
	}
}

func stepN(from, by Rate, every time.Duration, to Rate) func(t int64) *big.Rat {
	return func(t int64) *big.Rat {
		n, level, top := new(big.Rat), ratio(from), ratio(to)
		for t > int64(every) && level.Cmp(top) < 0 {
			n.Add(n, times(level, whole(int64(every))))
			t -= int64(every)
			if level = new(big.Rat).Add(level, ratio(by)); level.Cmp(top) > 0 {
				level = top
			}
		}
		return n.Add(n, times(level, whole(t)))
	}
}

// checkExact holds slot i of s against the definition: the first t with N(t) >= i.
func checkExact(t rapid.TB, s Schedule, n func(t int64) *big.Rat, i uint64) {
	at := int64(s.At(i))
	want := new(big.Rat).SetInt(new(big.Int).SetUint64(i))
	if n(at).Cmp(want) < 0 {
		t.Fatalf("%v: slot %d at %d ns is early: N = %s", s, i, at, n(at).FloatString(12))
	}
	if at > 0 && n(at-1).Cmp(want) >= 0 {
		t.Fatalf("%v: slot %d at %d ns is late: N one ns before = %s", s, i, at, n(at-1).FloatString(12))
	}
}

// checkCount holds the number of slots of s against floor(N(L-1)) + 1.
func checkCount(t rapid.TB, s Schedule, n func(t int64) *big.Rat) {
	last := n(int64(s.Length()) - 1)
	want := new(big.Int).Quo(last.Num(), last.Denom())
	if want.Add(want, big.NewInt(1)).Cmp(new(big.Int).SetUint64(s.Slots())) != 0 {
		t.Fatalf("%v for %v: %d slots, want %v", s, s.Length(), s.Slots(), want)
	}
}

// Constant, step and ramp plans agree with their definition in rational arithmetic, at any slot of plans up to ten days long.
func TestAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := drawRate(t, "rate")
		length := time.Duration(rapid.Int64Range(1, int64(240*time.Hour)).Draw(t, "length"))
		other := Rate{Packets: rapid.Uint64Range(0, rate.Packets).Draw(t, "other"), Per: rate.Per}
		over := time.Duration(rapid.Int64Range(max(int64(length)/30, 1), 2*int64(length)).Draw(t, "over"))
		var (
			s   Schedule
			n   func(t int64) *big.Rat
			err error
		)
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			s, err = Constant(rate, length)
			n = constantN(rate)
		case 1:
			s, err = Ramp(other, rate, over, length)
			n = rampN(other, rate, over)
		case 2:
			s, err = Ramp(rate, other, over, length)
			n = rampN(rate, other, over)
		case 3:
			other.Packets = max(other.Packets, 1)
			by := Rate{Packets: max((rate.Packets-other.Packets)/7, 1), Per: rate.Per}
			s, err = Step(other, by, over, rate, length)
			n = stepN(other, by, over, rate)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkCount(t, s, n)
		if s.Slots() == 0 {
			return
		}
		last := s.Slots() - 1
		for _, i := range []uint64{0, min(1, last), last / 2, max(last, 1) - 1, last,
			rapid.Uint64Range(0, last).Draw(t, "slot"), rapid.Uint64Range(0, last).Draw(t, "slot")} {
			checkExact(t, s, n, i)
			if at := s.At(i); s.Due(at) <= i || s.Due(at-1) > i {
				t.Fatalf("%v: Due around slot %d: %d then %d", s, i, s.Due(at-1), s.Due(at))
			}
		}
	})
}

// A cursor that is far into a long ramp has not drifted from the definition: 20 000 trains from a far place, each against At.
func TestCursorFarIntoRamp(t *testing.T) {
	for _, test := range []struct {
		why      string
		from, to Rate
	}{
		{"up from nothing", Rate{}, Rate{Packets: 14_880_952, Per: time.Second}},
		{"down to nothing", Rate{Packets: 14_880_952, Per: time.Second}, Rate{}},
		{"between rates without a common divisor", Rate{Packets: 7, Per: 3 * time.Second}, Rate{Packets: 99_999_989, Per: time.Second}},
		{"hardly at all", Rate{Packets: 1_000_000, Per: time.Second}, Rate{Packets: 1_000_001, Per: time.Second}},
	} {
		s, err := Ramp(test.from, test.to, 240*time.Hour, 240*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		const stride, group, count = 7, 3, 20_000
		for _, place := range []uint64{0, s.Slots() / 3, s.Slots() - count*stride*group} {
			c := NewCursor(s, place/group, stride, group)
			for range count {
				slot, _, at, ok := c.Next()
				if want := int64(s.At(slot)); !ok || at != want {
					t.Fatalf("%s: slot %d at %d (%v), want %d", test.why, slot, at, ok, want)
				}
			}
		}
	}
}

// Ten days at awkward rates: the last slot is where exact arithmetic puts it, and a cursor that starts there agrees.
func TestLongHorizon(t *testing.T) {
	const days = 10 * 24 * time.Hour
	for _, rate := range []Rate{
		{Packets: 14_880_952, Per: time.Second},                     // 10 Gbit/s of 64-byte frames
		{Packets: 14_880_952_380_952_381, Per: 1_000_000_000 * 1e9}, // the same, to nine digits
		{Packets: 1, Per: time.Hour},                                // the slowest promised
		{Packets: 7, Per: 3 * time.Second},                          // thirds
		{Packets: 7, Per: 3},                                        // refused: above one per ns
		{Packets: 999_999_937, Per: time.Second},                    // a prime
		{Packets: 1_000_000_000, Per: time.Second},                  // the fastest
		{Packets: 100_000_000, Per: time.Second},                    // the fastest promised
		{Packets: 1, Per: maxTerm},                                  // one in 146 years
		{Packets: maxTerm - 1, Per: maxTerm},                        // terms as large as they may be
	} {
		for _, length := range []time.Duration{days, maxTerm} {
			s, err := Constant(rate, length)
			if rate.Packets > uint64(rate.Per) {
				if err == nil {
					t.Errorf("%v was not refused", rate)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			n := constantN(rate)
			checkCount(t, s, n)
			last := s.Slots() - 1
			checkExact(t, s, n, last)
			if s.Due(s.At(last)) != s.Slots() || s.Due(s.At(last)-1) > last {
				t.Errorf("%v: Due around the last slot", rate)
			}
			for _, stride := range []uint64{1, 3, 64} {
				back := min(last/stride, 1000)
				c := NewCursor(s, last-back*stride, stride, 1)
				for k := uint64(0); ; k++ {
					slot, _, at, ok := c.Next()
					if !ok {
						if k != back+1 {
							t.Errorf("%v stride %d: %d trains, want %d", rate, stride, k, back+1)
						}
						break
					}
					if want := int64(s.At(slot)); at != want {
						t.Fatalf("%v stride %d: slot %d at %d, want %d", rate, stride, slot, at, want)
					}
				}
			}
		}
	}
}

// A cursor adds up remainders for as long as it runs: after 2^24 steps it must still be exactly on the plan.
func TestNoDriftAfterManySteps(t *testing.T) {
	s, err := Constant(Rate{Packets: 14_880_952, Per: time.Second}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCursor(s, 3, 5, 1)
	for range 1 << 24 {
		c.Next()
	}
	slot, _, at, _ := c.Next()
	if slot != 3+5<<24 || at != int64(s.At(slot)) {
		t.Errorf("slot %d at %d, want slot %d at %d", slot, at, uint64(3+5<<24), s.At(3+5<<24))
	}
	checkExact(t, s, constantN(Rate{Packets: 14_880_952, Per: time.Second}), slot)
}

// Counts and times worked out by hand.
func TestByHand(t *testing.T) {
	pps := func(n uint64) Rate { return Rate{Packets: n, Per: time.Second} }
	build := func(s Schedule, err error) Schedule {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, test := range []struct {
		why   string
		s     Schedule
		slots uint64
		mean  float64
		at    map[uint64]time.Duration
	}{
		{"50 000/s for 30 s", build(planned(Constant(pps(50_000), 30*time.Second))), 1_500_000, 50_000,
			map[uint64]time.Duration{0: 0, 1: 20 * time.Microsecond, 1_499_999: 30*time.Second - 20*time.Microsecond}},
		{"3/s for 1 s: thirds are rounded up", build(planned(Constant(pps(3), time.Second))), 3, 3,
			map[uint64]time.Duration{0: 0, 1: 333_333_334, 2: 666_666_667}},
		{"one an hour for a second: the slot at 0", build(planned(Constant(Rate{Packets: 1, Per: time.Hour}, time.Second))), 1, 1,
			map[uint64]time.Duration{0: 0}},
		{"a length of 1 ns", build(planned(Constant(pps(1e9), 1))), 1, 1e9, nil},
		{"64 every 10 ms for 25 ms: three bursts", build(planned(Burst(64, 10*time.Millisecond, 25*time.Millisecond))), 192, 7680,
			map[uint64]time.Duration{63: 0, 64: 10 * time.Millisecond, 191: 20 * time.Millisecond}},
		{"60 Hz, 10 sessions, 1 s: 60 ticks", build(planned(Tick(pps(60), 10, time.Second))), 600, 600,
			map[uint64]time.Duration{9: 0, 10: 16_666_667, 599: 983_333_334}},
		{"0 to 100/s in 1 s: N = 50 t^2", build(planned(Ramp(Rate{}, pps(100), time.Second, time.Second))), 50, 50,
			map[uint64]time.Duration{0: 0, 2: 200 * time.Millisecond, 8: 400 * time.Millisecond, 32: 800 * time.Millisecond}},
		{"100/s to 0 in 1 s, then nothing: N(1 s) = 50 makes slot 50 due", build(planned(Ramp(pps(100), Rate{}, time.Second, 2*time.Second))), 51, 25.5,
			map[uint64]time.Duration{0: 0, 50: time.Second, 18: 200 * time.Millisecond, 32: 400 * time.Millisecond}},
		{"0 to 100/s in 1 s, then 1 s at 100/s", build(planned(Ramp(Rate{}, pps(100), time.Second, 2*time.Second))), 150, 75,
			map[uint64]time.Duration{50: time.Second, 51: 1010 * time.Millisecond, 149: 1990 * time.Millisecond}},
		{"1, 2, 3, 3 ... per s", build(planned(Step(pps(1), pps(1), time.Second, pps(3), 4*time.Second))), 9, 2.25,
			map[uint64]time.Duration{0: 0, 1: time.Second, 2: 1500 * time.Millisecond, 3: 2 * time.Second, 8: 3_666_666_667}},
		{"a level's fraction is carried: 1.5/s then 2.5/s", build(planned(Step(Rate{Packets: 3, Per: 2 * time.Second}, pps(1),
			time.Second, Rate{Packets: 5, Per: 2 * time.Second}, 2*time.Second))), 4, 2,
			map[uint64]time.Duration{1: 666_666_667, 2: 1200 * time.Millisecond, 3: 1600 * time.Millisecond}},
	} {
		if test.s.Slots() != test.slots || test.s.MeanPPS() != test.mean {
			t.Errorf("%s: %d slots, mean %v; want %d, %v", test.why, test.s.Slots(), test.s.MeanPPS(), test.slots, test.mean)
		}
		for i, want := range test.at {
			if got := test.s.At(i); got != want {
				t.Errorf("%s: At(%d) = %d, want %d", test.why, i, got, want)
			}
		}
	}
}
