package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// course puts samples evenly into slices of time; level multiplies those of a slice.
func course(next func() float64, slices, samples int, level func(slice int) float64) *Batches {
	b, h := &Batches{}, &Hist{}
	for s := range slices {
		h.Reset()
		for range samples / slices {
			h.Record(int64(next() * 1e6 * level(s)))
		}
		b.Add(int64(s), h)
	}
	return b
}

func TestStationaryTail(t *testing.T) {
	// 3 % of the samples of the second half are slow: the mean hardly moves, the p99 does.
	draw := rand.New(rand.NewPCG(3, 3))
	slice := 0
	tail := func() float64 {
		if slice++; slice > 20_000 && draw.IntN(100) < 3 {
			return 2.2
		}
		return 1 + draw.Float64()/10
	}
	s := course(tail, 40, 40_000, func(int) float64 { return 1 }).Stationary("latency")
	if s.Holds || !strings.Contains(s.Detail, ": p99 changed") {
		t.Errorf("%+v", s)
	}
	if s.First.Samples != 20_000 || s.Second.Samples != 20_000 || s.First.P99NS > 1_101_000 || s.Second.P99NS < 2_200_000 {
		t.Errorf("halves: %+v", s)
	}
}

func TestStationaryWords(t *testing.T) {
	h := &Hist{}
	b := &Batches{}
	for i := range 9 {
		h.Reset()
		h.Record(1000)
		b.Add(int64(i), h)
	}
	if s := b.Stationary("latency"); s != nil {
		t.Errorf("9 batches are too few: %+v", s)
	}
	b.Add(9, h)
	s := b.Stationary("latency")
	if s == nil || !s.Holds || s.First != s.Second || s.First.MeanNS != 1000 || s.First.P50NS != 1000 || s.First.Samples != 5 {
		t.Fatalf("ten equal batches: %+v", s)
	}
	if want := "latency from the first half to the second: mean +0.0 %, p50 +0.0 %, p99 +0.0 %: no change that matters beyond the scatter within the halves, which hides up to 0.0 % of the mean"; s.Detail != want {
		t.Errorf("detail %q, want %q", s.Detail, want)
	}
	// Without any scatter every change is one, but 4 % do not matter.
	for level, holds := range map[int64]bool{1040: true, 1060: false} {
		b := &Batches{}
		for i := range 10 {
			h.Reset()
			h.RecordN([]int64{1000, level}[i/5], 100)
			b.Add(int64(i), h)
		}
		if s := b.Stationary("lag"); s.Holds != holds || !strings.Contains(s.Detail, map[int64]string{1040: "mean +4.0 %", 1060: "mean +6.0 %"}[level]) {
			t.Errorf("1000 and then %d: %+v", level, s)
		}
	}
	for share, want := range map[float64]string{-0.5: "-50.0 %", 0.034: "+3.4 %", 8.9: "+890.0 %", 11.6: "12.6 times"} {
		if got := changeText(share); got != want {
			t.Errorf("%v: %q, want %q", share, got, want)
		}
	}
	// A middle batch belongs to neither half.
	b = &Batches{}
	for i := range 11 {
		b.Add(int64(i), h)
	}
	if s := b.Stationary("lag"); s.First.Samples+s.Second.Samples != 10*h.Count() {
		t.Errorf("11 batches: %+v", s)
	}
	if p, _ := welch([]cluster{{1, 10}, {3, 10}}, []cluster{{1, 10}, {3, 10}}); p != 1 {
		t.Errorf("equal halves: p = %v", p)
	}
	// By hand: means 2 and 4, variances of the means 1 and 1, so t = 2/sqrt(2) with 2 degrees of freedom: p = 0.2929.
	// With 2 degrees the point of p is sqrt(2 (1-p)^2 / (p (2-p))): 17.277 for 0.01/3, of which scatter hides sqrt(2) times as much.
	p, hidden := welch([]cluster{{1, 1}, {3, 1}}, []cluster{{3, 1}, {5, 1}})
	if math.Abs(p-(1-1/math.Sqrt2)) > 1e-9 || math.Abs(hidden-17.277*math.Sqrt2) > 0.001 {
		t.Errorf("Welch by hand: p = %v and %v hidden, want %v and %v", p, hidden, 1-1/math.Sqrt2, 17.277*math.Sqrt2)
	}
}
