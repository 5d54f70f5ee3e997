package pace

import (
	"testing"
	"time"
)

// kinds builds one schedule of every kind, long enough that no benchmark reaches its end.
func kinds(t testing.TB) map[string]Schedule {
	t.Helper()
	pps := func(n uint64) Rate { return Rate{Packets: n, Per: time.Second} }
	const total = 240 * time.Hour
	build := func(s Schedule, err error) Schedule {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	times := make([]time.Duration, 1<<16)
	for i := range times {
		times[i] = time.Duration(i * i)
	}
	return map[string]Schedule{
		"const":   build(planned(Constant(pps(14_880_952), total))),
		"step":    build(planned(Step(pps(1_000_003), pps(1009), time.Second, pps(10_000_000), total))),
		"ramp":    build(planned(Ramp(pps(1000), pps(14_880_952), total, total))),
		"descent": build(planned(Ramp(pps(14_880_952), Rate{}, total, total))),
		"burst":   build(planned(Burst(64, 7*time.Microsecond, total))),
		"tick":    build(planned(Tick(pps(60), 10_000, total))),
		"poisson": build(planned(Poisson(pps(14_880_952), 1, total))),
		"file":    build(planned(Record("file:squares", times, make([]int, len(times)), 0))),
		"max":     build(planned(Max(total))),
	}
}

// Next never allocates, whatever the kind.
func TestNextDoesNotAllocate(t *testing.T) {
	for name, s := range kinds(t) {
		c := NewCursor(s, 1, 3, 2)
		if n := testing.AllocsPerRun(2000, func() { c.Next() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A copy of a cursor walks on by itself, and asking does not disturb the walk.
func TestCursorIsAValue(t *testing.T) {
	for name, s := range kinds(t) {
		c := NewCursor(s, 1, 3, 2)
		for range 100 {
			c.Next()
		}
		other := c
		for range 50 {
			other.Next()
		}
		again := NewCursor(s, 1, 3, 2)
		for range 100 {
			again.Next()
		}
		for range 100 {
			c.Slots()
			c.DueBy(1 << 40)
			slot, n, at, ok := c.Next()
			slot2, n2, at2, ok2 := again.Next()
			if slot != slot2 || n != n2 || at != at2 || ok != ok2 {
				t.Fatalf("%s: slot %d at %d, undisturbed slot %d at %d", name, slot, at, slot2, at2)
			}
		}
	}
}

// Shares that no slot falls to are empty, and numbers near the top of 64 bits do not wrap.
func TestCursorEdges(t *testing.T) {
	three, err := Constant(Rate{Packets: 3, Per: time.Second}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		why                  string
		first, stride, group uint64
		slots                uint64
	}{
		{"more workers than slots", 3, 4, 1, 0},
		{"a train longer than the plan", 0, 1, 64, 3},
		{"the second worker of long trains", 1, 2, 64, 0},
		{"the largest stride", 0, 1<<64 - 1, 1, 1},
		{"the largest train", 0, 1<<64 - 1, 1<<64 - 1, 3},
		{"a share far beyond the plan", 1<<64 - 1, 1, 2, 0},
	} {
		c := NewCursor(three, test.first, test.stride, test.group)
		var walked uint64
		for {
			_, n, _, ok := c.Next()
			if !ok {
				break
			}
			walked += uint64(n)
		}
		if walked != test.slots || c.Slots() != test.slots {
			t.Errorf("%s: walked %d, Slots %d, want %d", test.why, walked, c.Slots(), test.slots)
		}
	}
	for name, bad := range map[string][2]uint64{"stride": {0, 1}, "group": {1, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s 0 did not panic", name)
				}
			}()
			NewCursor(three, 0, bad[0], bad[1])
		}()
	}
	// Only slot 5 is in the share, and what comes after it is not slot 4 of a later piece.
	stairs, err := Step(Rate{Packets: 3, Per: time.Second}, Rate{Packets: 1, Per: time.Second}, time.Second, Rate{Packets: 9, Per: time.Second}, 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	far := NewCursor(stairs, 5, 1<<64-1, 1)
	if slot, _, _, ok := far.Next(); slot != 5 || !ok {
		t.Errorf("the largest stride from slot 5 starts at %d, %v", slot, ok)
	}
	if slot, _, _, ok := far.Next(); ok {
		t.Errorf("the largest stride from slot 5 goes on to %d", slot)
	}
	unpaced, err := Max(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCursor(unpaced, 1, 4, 8)
	for k := range uint64(5) {
		if slot, n, at, ok := c.Next(); slot != 8+32*k || n != 8 || at != 0 || !ok {
			t.Errorf("max: train %d is slot %d, %d slots at %d, %v", k, slot, n, at, ok)
		}
	}
	if due := c.DueBy(0); due != c.Slots() || due < 1<<60 {
		t.Errorf("max: %d due of %d", due, c.Slots())
	}
}

// fake is a schedule of another package: cursors ask it for every train.
type fake struct{ Unpaced }

func (fake) At(i uint64) time.Duration        { return time.Duration(i * 10) }
func (fake) Due(elapsed time.Duration) uint64 { return min(uint64(max(elapsed+10, 0))/10, 100) }
func (fake) Slots() uint64                    { return 100 }
func (fake) Length() time.Duration            { return 1000 }

func TestCursorOverForeignSchedule(t *testing.T) {
	checkCursors(t, fake{}, 3, 4)
}

func BenchmarkNext(b *testing.B) {
	for name, s := range kinds(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			c := NewCursor(s, 1, 4, 1)
			for b.Loop() {
				if _, _, _, ok := c.Next(); !ok {
					c = NewCursor(s, 1, 4, 1)
				}
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	for name, s := range kinds(b) {
		b.Run(name, func(b *testing.B) {
			i := s.Slots() / 3
			for b.Loop() {
				s.At(i)
			}
		})
	}
}

func BenchmarkDue(b *testing.B) {
	for name, s := range kinds(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Due(time.Hour + 12345)
			}
		})
	}
}
