package stats

import (
	"math/rand/v2"
	"testing"
)

func TestPrecisionOfARun(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	record := func(b *Batches) *Hist {
		whole, h := &Hist{}, &Hist{}
		for s := range int64(20) {
			h.Reset()
			for range 1000 {
				h.Record(int64(draw.ExpFloat64() * 1e6))
			}
			whole.Add(h)
			b.Add(s, h)
		}
		return whole
	}
	var c Course
	lag := record(&c.Lag)
	p := c.Precision(&Hist{}, lag, true) // oneway
	if len(p.Intervals) != 4 || p.Intervals[0].Of != "lag" || p.Stationary == nil || p.Stationary.Of != "lag" {
		t.Errorf("oneway: %+v", p)
	}
	latency := record(&c.Latency)
	p = c.Precision(latency, lag, false)
	if len(p.Intervals) != 5 || p.Stationary != nil {
		t.Fatalf("echo on a ramp: %+v", p)
	}
	for i, want := range []struct {
		of string
		q  float64
	}{{"latency", 0.5}, {"latency", 0.9}, {"latency", 0.99}, {"latency", 0.999}, {"lag", 0.999}} {
		v := p.Interval(want.of, want.q)
		if v != &p.Intervals[i] || v.LowNS > v.ValueNS || v.HighNS < v.ValueNS || v.Samples != 20_000 || v.Effective > 20_000 {
			t.Errorf("%s %v: %+v", want.of, want.q, v)
		}
		if whole := map[string]*Hist{"latency": latency, "lag": lag}[want.of]; v.ValueNS != whole.Quantile(want.q) {
			t.Errorf("%s %v: value %d, want %d", want.of, want.q, v.ValueNS, whole.Quantile(want.q))
		}
	}
	if p.Interval("lag", 0.5) != nil || (*Precision)(nil).Interval("lag", 0.5) != nil {
		t.Error("an interval that nobody computed")
	}
	if p = (&Course{}).Precision(&Hist{}, &Hist{}, true); p.Intervals == nil || len(p.Intervals) > 0 || p.Stationary != nil {
		t.Errorf("of nothing: %+v", p)
	}
}
