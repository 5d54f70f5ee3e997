package stats

import (
	"math"
	"testing"
)

// What stands at the ends of a run is left out of its pace: the first replies that are still on their way, and those of the drain.
func TestSettled(t *testing.T) {
	timeline := func(replied ...uint64) *Result {
		r := &Result{}
		for i, back := range replied {
			r.Timeline = append(r.Timeline, Second{T: float64(i + 1), Sent: 1000, Replied: back})
			r.Ledger.Sent, r.Ledger.Replied = r.Ledger.Sent+1000, r.Ledger.Replied+back
		}
		r.Rate.ElapsedNS = int64(len(replied)) * 1e9
		return r
	}
	slow := func(r *Result, ns int64) *Result { r.Latency.Min = ns; return r }
	for _, c := range []struct {
		why               string
		r                 *Result
		usual             float64
		throughput, share float64
		keptUp, ok        bool
	}{
		{"all is answered", timeline(900, 1000, 1000, 1000, 1000, 1100), 1, 1000, 1, true, true},
		{"behind all the time, and the drain brings the rest", timeline(900, 900, 900, 900, 900, 1500), 1, 900, 0.9, false, true},
		{"one stall at the end of the window", timeline(1000, 1000, 1000, 1000, 400, 1600), 1, 800, 0.8, true, true},
		{"one stall at its beginning", timeline(1000, 1000, 400, 1000, 1000, 1600), 1, 800, 0.8, true, true},
		{"1 % is no sign", timeline(990, 990, 990, 990, 990, 1050), 1, 990, 0.99, true, true},
		{"more than that is", timeline(989, 989, 989, 989, 989, 1050), 1, 989, 0.989, false, true},
		{"a path that loses as much at any rate", timeline(900, 900, 900, 900, 900, 900), 0.9, 900, 0.9, true, true},
		{"replies take long: what comes before the first could is not looked at", slow(timeline(0, 0, 1000, 1000, 1000, 1000, 1000, 3000), 1.5e9), 1, 1000, 1, true, true},
		{"replies take longer than half of the run: some of it has to be looked at", slow(timeline(0, 0, 0, 0, 500, 500, 500, 3000), 5e9), 1, 500, 0.5, false, true},
		{"few intervals: the ledger must do", timeline(1000, 1000, 700), 1, 900, 0.9, false, false},
		{"nothing was sent", &Result{}, 1, 0, 0, true, false},
	} {
		s, ok := c.r.Settled()
		if math.Abs(s.Throughput()-c.throughput) > 1e-9 || math.Abs(s.Share()-c.share) > 1e-9 || s.KeptUp(c.usual) != c.keptUp || ok != c.ok {
			t.Errorf("%s: throughput %g, share %g, kept up %v, %v; want %g, %g, %v, %v", c.why, s.Throughput(), s.Share(), s.KeptUp(c.usual), ok, c.throughput, c.share, c.keptUp, c.ok)
		}
	}
}
