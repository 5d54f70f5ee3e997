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

// TestStationaryRates counts how often runs are called unsteady. With 400 runs each, alarms are at most 1.3 % everywhere (docs/truth-lab.md),
// also for M/M/1 at 90 % load, where a change of 20 % is within what the queue does by itself and is rightly not told.
func TestStationaryRates(t *testing.T) {
	const slices = 40
	flat := func(int) float64 { return 1 }
	climb := func(s int) float64 { return 1 + 0.4*float64(s)/(slices-1) }
	step := func(s int) float64 { return 1 + 0.2*float64(2*s/slices) }
	for _, c := range []struct {
		name    string
		samples int
		series  func(*rand.Rand) func() float64
		level   func(int) float64
		// least and most are the shares of runs that must be found unsteady.
		least, most float64
	}{
		{"steady, independent", 4000, iid, flat, 0, 0.05},
		{"steady, each sample like the one before", 10_000, resembling, flat, 0, 0.05},
		{"steady queue at 70 % load", 20_000, queueAt(0.7), flat, 0, 0.05},
		{"steady queue at 90 % load", 20_000, queueAt(0.9), flat, 0, 0.05},
		{"20 % between the halves, climbing", 20_000, iid, climb, 0.95, 1},
		{"20 % between the halves, at once", 4000, iid, step, 0.95, 1},
		{"20 % more at once in a queue at 50 % load", 20_000, queueAt(0.5), step, 0.8, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			const runs = 100
			found := 0
			for r := range runs {
				if !course(c.series(rand.New(rand.NewPCG(uint64(r), 9))), slices, c.samples, c.level).Stationary("latency").Holds {
					found++
				}
			}
			if share := float64(found) / runs; share < c.least || share > c.most {
				t.Errorf("%d of %d runs were found unsteady, want %v to %v of them", found, runs, c.least, c.most)
			}
		})
	}
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

// A second half that is slow and wild: its mean scatters so much that no test of means finds it, its shares do not.
func TestStationaryWild(t *testing.T) {
	const runs = 50
	found := 0
	for r := range runs {
		draw := rand.New(rand.NewPCG(uint64(r), 4))
		level := func(s int) float64 {
			if s < 20 {
				return 1
			}
			return math.Exp(3 + 2*draw.NormFloat64())
		}
		if !course(draw.ExpFloat64, 40, 4000, level).Stationary("latency").Holds {
			found++
		}
	}
	if found < runs*9/10 {
		t.Errorf("%d of %d found", found, runs)
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
