package stats

import (
	"math"
	"testing"
)

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
