package pace

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawRate draws a rate of any magnitude from one an hour to one per nanosecond, mostly one that does not divide 10^9.
func drawRate(t *rapid.T, name string) Rate {
	per := rapid.Int64Range(1, int64(time.Hour)).Draw(t, name+" period")
	packets := rapid.Uint64Range(1, uint64(min(per, 1_000_000_000))).Draw(t, name+" packets")
	return Rate{Packets: packets, Per: time.Duration(per)}
}

// drawLength draws a length at which the rate makes no more than about limit slots.
func drawLength(t *rapid.T, r Rate, limit int64) time.Duration {
	longest := min(int64(float64(limit)/r.PPS()*1e9), int64(240*time.Hour))
	return time.Duration(rapid.Int64Range(1, max(longest, 1)).Draw(t, "length"))
}

// drawSchedule draws a small schedule of any kind that has pieces.
func drawSchedule(t *rapid.T) Schedule {
	const limit = 300
	rate := drawRate(t, "rate")
	length := drawLength(t, rate, limit)
	var (
		s   Schedule
		err error
	)
	switch kind := rapid.SampledFrom([]string{"const", "burst", "tick", "step", "ramp", "poisson", "file"}).Draw(t, "kind"); kind {
	case "const":
		s, err = Constant(rate, length)
	case "burst":
		s, err = Burst(rapid.Uint64Range(1, 20).Draw(t, "n"), rate.Per, min(length, rate.Per*50))
	case "tick":
		s, err = Tick(rate, rapid.IntRange(1, 20).Draw(t, "sessions"), length)
	case "step":
		levels := rapid.Uint64Range(1, 8).Draw(t, "levels")
		from := Rate{Packets: rapid.Uint64Range(1, rate.Packets).Draw(t, "from"), Per: rate.Per}
		by := Rate{Packets: max((rate.Packets-from.Packets)/levels, 1), Per: rate.Per}
		every := time.Duration(rapid.Int64Range(max(int64(length)/20, 1), int64(length)).Draw(t, "every"))
		s, err = Step(from, by, every, rate, length)
	case "ramp":
		other := Rate{Packets: rapid.Uint64Range(0, rate.Packets).Draw(t, "other"), Per: rate.Per}
		over := time.Duration(rapid.Int64Range(max(int64(length)/3, 1), int64(length)*2).Draw(t, "over"))
		if rapid.Bool().Draw(t, "down") {
			s, err = Ramp(rate, other, over, length)
		} else {
			s, err = Ramp(other, rate, over, length)
		}
	case "poisson":
		s, err = Poisson(rate, rapid.Uint64().Draw(t, "seed"), length)
	case "file":
		gaps := rapid.SliceOfN(rapid.Int64Range(0, 1e9), 1, 50).Draw(t, "gaps")
		times := make([]time.Duration, len(gaps))
		for i := range gaps[1:] {
			times[i+1] = times[i] + time.Duration(gaps[i])
		}
		s, err = Record("file:drawn", times, make([]int, len(gaps)), rapid.SampledFrom([]time.Duration{0, length}).Draw(t, "total"))
	}
	if err != nil {
		t.Fatalf("rate %v length %v: %v", rate, length, err)
	}
	return s
}

// Every schedule is monotonic, ends before its length, and Due is the exact inverse of At.
func TestScheduleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		checkSchedule(t, s)
	})
}

func checkSchedule(t rapid.TB, s Schedule) {
	var last time.Duration
	for i := range s.Slots() {
		at := s.At(i)
		if at < last {
			t.Fatalf("%v: At(%d) = %d ns before At(%d) = %d ns", s, i, at, i-1, last)
		}
		if at >= s.Length() {
			t.Fatalf("%v: At(%d) = %d ns, length %d ns", s, i, at, s.Length())
		}
		if due := s.Due(at); due < i+1 {
			t.Fatalf("%v: Due(At(%d)) = %d", s, i, due)
		}
		if due := s.Due(at - 1); due > i {
			t.Fatalf("%v: Due(At(%d)-1) = %d: early", s, i, due)
		}
		last = at
	}
	if due := s.Due(s.Length() - 1); due != s.Slots() {
		t.Fatalf("%v: Due(end) = %d of %d", s, due, s.Slots())
	}
	if due := s.Due(1 << 62); due != s.Slots() {
		t.Fatalf("%v: Due(much later) = %d of %d", s, due, s.Slots())
	}
	if due := s.Due(-1); due != 0 {
		t.Fatalf("%v: Due(-1) = %d", s, due)
	}
}

// The shares of all workers together are the schedule: each slot once, at the time of its train; and a share's counts agree with its
// walk.
func TestCursorsAreTheSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		stride := rapid.Uint64Range(1, 9).Draw(t, "stride")
		group := rapid.Uint64Range(1, 9).Draw(t, "group")
		checkCursors(t, s, stride, group)
	})
}

func checkCursors(t rapid.TB, s Schedule, stride, group uint64) {
	seen := make([]int, s.Slots())
	for first := range stride {
		c := NewCursor(s, first, stride, group)
		where := func() string { return fmt.Sprintf("%v stride %d group %d share %d", s, stride, group, first) }
		slots, due := c.Slots(), uint64(0)
		for {
			slot, n, at, ok := c.Next()
			if !ok {
				break
			}
			if slot%group != 0 || slot/group%stride != first || n < 1 || uint64(n) > group {
				t.Fatalf("%s: train at slot %d of %d", where(), slot, n)
			}
			if want := int64(s.At(slot)); at != want {
				t.Fatalf("%s: slot %d at %d, want %d", where(), slot, at, want)
			}
			if early := c.DueBy(at - 1); early > due {
				t.Fatalf("%s: DueBy before slot %d = %d, walked %d", where(), slot, early, due)
			}
			due += uint64(n)
			if by := c.DueBy(at); by < due {
				t.Fatalf("%s: DueBy at slot %d = %d, walked %d", where(), slot, by, due)
			}
			for k := range n {
				seen[slot+uint64(k)]++
			}
		}
		if due != slots || c.Slots() != slots || c.DueBy(int64(s.Length())) != slots {
			t.Fatalf("%s: walked %d, Slots %d, DueBy(end) %d", where(), due, slots, c.DueBy(int64(s.Length())))
		}
		if _, _, _, ok := c.Next(); ok {
			t.Fatalf("%s: Next after the end", where())
		}
	}
	for i, n := range seen {
		if n != 1 {
			t.Fatalf("%v stride %d group %d: slot %d sent %d times", s, stride, group, i, n)
		}
	}
}
