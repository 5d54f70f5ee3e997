package pace

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// replay walks segments by the additions their documentation states and returns slot -> planned ns.
func replay(t rapid.TB, segments []Segment) map[uint64]int64 {
	times := map[uint64]int64{}
	last := int64(-1)
	for _, s := range segments {
		if s.Slots == 0 || s.Den == 0 || s.Rem >= s.Den || s.Acc >= s.Den || s.Group == 0 || s.Trains == 0 {
			t.Fatalf("malformed segment %+v", s)
		}
		next, acc := int64(s.Start), s.Acc
		for k := range s.Slots {
			if k > 0 && k%(s.Group*s.Trains) == 0 {
				next += int64(s.Quot)
				if acc += s.Rem; acc >= s.Den {
					acc -= s.Den
					next++
				}
			}
			if next < last {
				t.Fatalf("segment %+v goes back at its slot %d", s, k)
			}
			last = next
			if at := int64(s.At(k)); at != next {
				t.Fatalf("segment %+v: At(%d) = %d, replay %d", s, k, at, next)
			}
			if _, twice := times[s.Slot(k)]; twice {
				t.Fatalf("slot %d twice", s.Slot(k))
			}
			times[s.Slot(k)] = next
		}
	}
	return times
}

// Replaying the segments of a schedule, or of a share, by additions gives exactly the planned times; or the schedule is refused.
func TestSegmentsReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		whole, err := Segments(s)
		if err != nil {
			if kind := s.String()[:4]; !errors.Is(err, errors.ErrUnsupported) || kind == "cons" || kind == "step" || kind == "burs" || kind == "tick" {
				t.Fatalf("%v: %v", s, err)
			}
			return
		}
		times := replay(t, whole)
		if uint64(len(times)) != s.Slots() {
			t.Fatalf("%v: %d of %d slots", s, len(times), s.Slots())
		}
		for i := range s.Slots() {
			if at, ok := times[i]; !ok || at != int64(s.At(i)) {
				t.Fatalf("%v: slot %d at %d (%v), want %d", s, i, at, ok, s.At(i))
			}
		}
		checkShares(t, s, rapid.Uint64Range(1, 9).Draw(t, "stride"), rapid.Uint64Range(1, 9).Draw(t, "group"))
	})
}

func checkShares(t rapid.TB, s Schedule, stride, group uint64) {
	for first := range stride {
		share, err := SegmentsShare(s, first, stride, group)
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		times := replay(t, share)
		c := NewCursor(s, first, stride, group)
		if uint64(len(times)) != c.Slots() {
			t.Fatalf("%v share %d: %d slots, want %d", s, first, len(times), c.Slots())
		}
		for {
			slot, n, at, ok := c.Next()
			if !ok {
				break
			}
			for k := range uint64(n) {
				if got, ok := times[slot+k]; !ok || got != at {
					t.Fatalf("%v stride %d group %d share %d: slot %d at %d (%v), want %d", s, stride, group, first, slot+k, got, ok, at)
				}
			}
		}
	}
}

func TestSegmentsRefuse(t *testing.T) {
	total := time.Hour
	ramp, _ := Ramp(Rate{}, Rate{Packets: 1000, Per: time.Second}, time.Minute, total)
	poisson, _ := Poisson(Rate{Packets: 1, Per: time.Second}, 1, total)
	recorded, _ := Record("file:x", []time.Duration{0, 1}, []int{1, 1}, 0)
	ticks, _ := Tick(Rate{Packets: 1000, Per: time.Second}, 10, total)
	for _, test := range []struct {
		why           string
		s             Schedule
		stride, group uint64
	}{
		{"a ramp has another period for every packet", ramp, 1, 1},
		{"a Poisson process has no period", poisson, 1, 1},
		{"a recording has no period", recorded, 1, 1},
		{"3 workers share ticks of 10 irregularly, for 3.6 million ticks", ticks, 3, 1},
	} {
		if got, err := SegmentsShare(test.s, 0, test.stride, test.group); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %d segments, error %v", test.why, len(got), err)
		}
	}
	if got, err := SegmentsShare(ticks, 4, 5, 1); err != nil || len(got) != 1 || got[0].Trains != 2 {
		t.Errorf("5 workers share ticks of 10 evenly: got %+v, %v", got, err)
	}
	unpaced, _ := Max(total)
	if got, err := SegmentsShare(unpaced, 1, 2, 4); err != nil || len(got) != 1 || got[0].Quot+got[0].Rem != 0 || got[0].First != 4 {
		t.Errorf("max is one segment without a period: got %+v, %v", got, err)
	}
}
