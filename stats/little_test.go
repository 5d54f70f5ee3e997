package stats

import (
	"math"
	"strings"
	"testing"
)

// Which of the three is called suspect, by what else the run knows.
func TestLittleSuspects(t *testing.T) {
	latency := Histogram{Count: 1000}
	whole := Ledger{Sent: 1000}
	paced := Config{Paced: true}
	rate := Rate{TargetPPS: 1000, AchievedPPS: 1000}
	for _, c := range []struct {
		why     string
		l       Little
		r       Result
		suspect string
	}{
		{"exact", Little{InFlight: 10, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7}, Result{}, ""},
		{"4 % off", Little{InFlight: 10.4, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7}, Result{}, ""},
		{"half of the plan was sent", Little{InFlight: 20, Samples: 1000, RatePPS: 500, LatencyNS: 1e7},
			Result{Config: paced, Ledger: whole, Latency: latency, Rate: Rate{TargetPPS: 1000, AchievedPPS: 500}}, "the rate: 50.00 %"},
		{"replies lost by the generator", Little{InFlight: 20, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7},
			Result{Config: paced, Ledger: Ledger{Sent: 1000, SelfLost: 7}, Latency: latency, Rate: rate}, "the latency: 0 packets"},
		{"samples missing", Little{InFlight: 20, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7},
			Result{Config: paced, Ledger: Ledger{Sent: 1100}, Latency: latency, Rate: rate}, "the latency: 100 packets"},
		{"nothing else is wrong", Little{InFlight: 20, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7},
			Result{Config: paced, Ledger: whole, Latency: latency, Rate: rate}, "the count in flight"},
	} {
		c.l.Judge(&c.r)
		if c.suspect == "" && c.l.Suspect != "" || !strings.HasPrefix(c.l.Suspect, c.suspect) || c.l.Unchecked != "" {
			t.Errorf("%s: suspect %q, unchecked %q; want %q", c.why, c.l.Suspect, c.l.Unchecked, c.suspect)
		}
	}
	for why, l := range map[string]Little{
		"far off, but within the error of the samples": {InFlight: 11, InFlightError: 0.3, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7},
		"far off, but by less than the skew of a look": {InFlight: 60, Samples: 1000, RatePPS: 1e6, LatencyNS: 50_000},
	} {
		if l.Judge(&Result{}); l.Suspect != "" || l.Unchecked == "" {
			t.Errorf("%s: %+v, want no judgement", why, l)
		}
	}
	few := Little{InFlight: 0.001, Samples: 1000, RatePPS: 10, LatencyNS: 1e5}
	if few.Judge(&Result{}); few.Unchecked == "" {
		t.Error("one packet seen in flight was taken for a measurement")
	}
}

// Shards add up: packets in flight and rates add, latency weighs by rate.
func TestLittleMerges(t *testing.T) {
	a := &Result{Little: &Little{InFlight: 10, InFlightError: 3, Samples: 500, RatePPS: 1000, LatencyNS: 1e7}}
	b := &Result{Little: &Little{InFlight: 100, InFlightError: 4, Samples: 500, RatePPS: 2000, LatencyNS: 5e7}}
	l := mergeLittles(&Result{}, []*Result{a, b})
	if l.InFlight != 110 || l.InFlightError != 5 || l.RatePPS != 3000 || math.Abs(l.Product()-110) > 1e-3 || l.Suspect != "" {
		t.Errorf("%+v: want 110 in flight on both sides", l)
	}
	if mergeLittles(&Result{}, []*Result{a, {}}) != nil {
		t.Error("a shard without it was merged")
	}
}

// The example of the articles: 1000 ms at an interval of 10 ms brings back the 99 samples 990, 980 ... 10 ms, and nothing else.
func TestRecordCorrected(t *testing.T) {
	const ms = int64(1e6)
	var got, want Hist
	got.RecordCorrected(1000*ms, 10*ms)
	for v := 10 * ms; v <= 1000*ms; v += 10 * ms {
		want.Record(v)
	}
	if g, w := got.Summary(), want.Summary(); g != w || g.Count != 100 {
		t.Errorf("%+v\nwant %+v", g, w)
	}
	var plain Hist
	plain.RecordCorrected(5*ms, 10*ms) // shorter than the interval: nothing was missed
	plain.RecordCorrected(15*ms, 10*ms)
	plain.RecordCorrected(7*ms, 0)
	if plain.Count() != 3 {
		t.Errorf("%d samples: want 3", plain.Count())
	}
}
