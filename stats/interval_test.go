package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// queueAt gives the sojourn times of customers one after the other in an M/M/1 queue of service rate 1 in equilibrium (Lindley's
// recursion): P(T > t) = exp(-(1-load) t), so that every quantile is known.
func queueAt(load float64) func(*rand.Rand) func() float64 {
	return func(draw *rand.Rand) func() float64 {
		wait := 0.0
		if draw.Float64() < load {
			wait = draw.ExpFloat64() / (1 - load)
		}
		return func() float64 {
			sojourn := wait + draw.ExpFloat64()
			wait = max(sojourn-draw.ExpFloat64()/load, 0)
			return sojourn
		}
	}
}

// resembling gives a stationary autoregressive series, 0.95 of each value being the one before, turned into exponential values of mean 1.
func resembling(draw *rand.Rand) func() float64 {
	const phi = 0.95
	x := draw.NormFloat64()
	return func() float64 {
		x = phi*x + math.Sqrt(1-phi*phi)*draw.NormFloat64()
		return -math.Log(math.Erfc(x/math.Sqrt2) / 2)
	}
}

// iid gives independent exponential values of mean 1.
func iid(draw *rand.Rand) func() float64 { return draw.ExpFloat64 }

// covered are the shares of runs whose interval holds the true quantile, by batches and by order statistics alone, as if samples were
// independent. The values of series are exponential of a mean and come evenly in 40 slices of time.
func covered(runs, samples int, q, mean float64, series func(*rand.Rand) func() float64) (batched, alone float64) {
	truth := -math.Log(1-q) * mean * 1e6
	holds := func(low, high int64, open bool) float64 {
		if truth >= float64(low) && (open || truth <= float64(high)+1) {
			return 1 / float64(runs)
		}
		return 0
	}
	whole := &Hist{}
	for r := range runs {
		next := series(rand.New(rand.NewPCG(uint64(r), 5)))
		whole.Reset()
		b := course(func() float64 { v := next(); whole.Record(int64(v * 1e6)); return v }, 40, samples, func(int) float64 { return 1 })
		v, ok := b.Interval("latency", whole, q)
		if !ok {
			return 0, 0
		}
		batched += holds(v.LowNS, v.HighNS, v.Open)
		n := float64(whole.Count())
		low, high := quantileShares(n, q)
		alone += holds(BucketLow(BucketIndex(whole.valueAt(uint64(max(low*n, 1))))), whole.valueAt(uint64(min(math.Ceil(high*n), n))), high >= 1)
	}
	return batched, alone
}

// TestIntervalCoverage holds the 95 % intervals against true quantiles. The figures of more and longer runs are in docs/truth-lab.md:
// independent samples 0.974 to 0.984; M/M/1 at 70 % load 0.93 to 0.97, where order statistics alone cover 0.27 to 0.46; at 90 % load
// 0.90 to 0.96 against 0.09 to 0.15.
func TestIntervalCoverage(t *testing.T) {
	for _, c := range []struct {
		name        string
		q, mean     float64
		runs        int
		samples     int
		series      func(*rand.Rand) func() float64
		least, most float64
		alone       float64 // order statistics alone cover at most this
	}{
		{"independent p50", 0.5, 1, 400, 4000, iid, 0.90, 0.99, 1},
		{"independent p90", 0.9, 1, 400, 4000, iid, 0.90, 0.99, 1},
		{"independent p99", 0.99, 1, 400, 4000, iid, 0.90, 0.99, 1},
		{"independent p99.9", 0.999, 1, 400, 20_000, iid, 0.90, 0.995, 1},
		{"resembling p50", 0.5, 1, 150, 10_000, resembling, 0.90, 0.99, 0.5},
		{"resembling p99", 0.99, 1, 150, 10_000, resembling, 0.88, 0.99, 0.6},
		{"queue at 70 % p50", 0.5, 1 / 0.3, 150, 40_000, queueAt(0.7), 0.88, 0.99, 0.6},
		{"queue at 70 % p99", 0.99, 1 / 0.3, 150, 40_000, queueAt(0.7), 0.88, 1, 0.4},
		{"queue at 90 % p90", 0.9, 10, 150, 40_000, queueAt(0.9), 0.85, 1, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			batched, alone := covered(c.runs, c.samples, c.q, c.mean, c.series)
			if batched < c.least || batched > c.most || alone > c.alone {
				t.Errorf("%.3f of the intervals hold the truth, want %v to %v; of order statistics alone %.3f, want at most %v", batched, c.least, c.most, alone, c.alone)
			}
		})
	}
}

func TestQuantileShares(t *testing.T) {
	// Exact binomial bounds. Median of 100: P(Bin(100, 1/2) <= 39) = 0.0176, P(<= 40) = 0.0284, so 39 samples lie above the upper end and as
	// many below the lower. p99.9 of 20,000: 20 are expected beyond, P(Poisson(20) <= 11) = 0.0214, P(<= 12) = 0.0390, P(<= 29) = 0.9782.
	// p99 of 368: P(none) = 0.99^368 = 0.0248; of 367 0.0250+.
	for _, c := range []struct{ n, q, low, high float64 }{
		{100, 0.5, 0.40, 0.61},
		{20_000, 0.999, 1 - 29.0/20_000, 1 - 11.0/20_000},
		{368, 0.99, 1 - 8.0/368, math.Nextafter(1, 0)},
		{366, 0.99, 1 - 8.0/366, 1},
		{1, 0.5, 0, 1},
	} {
		if low, high := quantileShares(c.n, c.q); math.Abs(low-c.low) > 1e-12 || high != c.high && math.Abs(high-c.high) > 1e-12 {
			t.Errorf("n %v, q %v: %v to %v, want %v to %v", c.n, c.q, low, high, c.low, c.high)
		}
	}
	// The sum and the normal distribution meet.
	for _, q := range []float64{0.5, 0.9, 0.999} {
		n := binomialMost / (1 - q)
		l, h := quantileShares(n*0.9999, q)
		k, j := quantileShares(n*1.0001, q)
		if d := (h - l) / (j - k); d < 0.98 || d > 1.03 {
			t.Errorf("q %v: the sum's interval is %v of the normal one", q, d)
		}
	}
}

func TestIntervalEdges(t *testing.T) {
	h, whole := &Hist{}, &Hist{}
	if _, ok := (&Batches{}).Interval("latency", whole, 0.5); ok {
		t.Error("an interval of nothing")
	}
	fill := func(batches int, value func(batch int) int64) *Batches {
		b := &Batches{}
		whole.Reset()
		for i := range batches {
			h.Reset()
			h.RecordN(value(i), 100)
			b.Add(int64(i), h)
			whole.Add(h)
		}
		return b
	}
	if _, ok := fill(intervalBatches-1, func(int) int64 { return 7 }).Interval("latency", whole, 0.5); ok {
		t.Error("an interval from too few batches")
	}
	// All samples equal: nothing scatters, and the interval is the value, as narrow as for independent samples.
	v, ok := fill(20, func(int) int64 { return 777 }).Interval("latency", whole, 0.5)
	if !ok || v.LowNS != 777 || v.ValueNS != 777 || v.HighNS != 777 || v.Open || v.Effective != 2000 || v.Samples != 2000 || v.Level != 0.95 {
		t.Errorf("equal samples: %+v", v)
	}
	// Each batch is of one value: 2000 samples that are worth 20.
	v, _ = fill(20, func(i int) int64 { return int64(i*7919%20) * 100 }).Interval("latency", whole, 0.5)
	if v.Effective < 10 || v.Effective > 40 || v.LowNS > 700 || v.HighNS < 1200 {
		t.Errorf("twenty clumps: %+v", v)
	}
	// One slow stretch holds the whole tail: nothing bounds p99.
	v, _ = fill(20, func(i int) int64 { return map[bool]int64{true: 1e9, false: 1000}[i == 7] }).Interval("latency", whole, 0.99)
	if !v.Open || v.HighNS != 1e9 || v.LowNS > 1000 {
		t.Errorf("one stall: %+v", v)
	}
}
