package xdplive

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"blast/internal/testnet"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// TestKernelDepartures: packets arrive as planned, by the clock of another program on the other end: none of the sender's own times is used. What
// leaves in one batch arrives as one, so a gap may be off by a batch to either side; and a virtual CPU may be stopped for a while, so the bound is for
// most gaps, not for all. The device's own view of the gaps agrees with the arrivals.
func TestKernelDepartures(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	const length = 500 * time.Millisecond
	poisson := func(pps uint64, length time.Duration) pace.Schedule {
		s, err := pace.ParseProfile("poisson", pace.Rate{Packets: pps, Per: time.Second}, length, pace.Options{Seed: 5, Sessions: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name   string // what the case is for
		plan   plan
		random bool
	}{
		{"a steady rate", plan{schedule: constant(t, 5000, length), length: length}, false},
		{"a period of no whole number of ns", plan{schedule: constant(t, 30_303, length), length: length}, false},
		{"a random plan", plan{schedule: poisson(4000, length), length: length}, true},
		{"two workers, each its share", plan{schedule: constant(t, 10_000, length), length: length, workers: 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plan.ahead = c.plan.workers == 0
			for attempt := range attempts {
				if departed(t, pair, c.plan, c.random, attempt == attempts-1) {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
}

// attempts is how often a run is tried on a busy machine.
const attempts = 8

// departed runs a plan once and reports whether it was kept. Counts and places are asserted each time; times only in the last attempt, as others
// may use the machine.
func departed(t *testing.T, pair *testnet.Pair, p plan, random, last bool) bool {
	t.Helper()
	seen := openCapture(t, pair.Right, ebpf.AttachNone)
	o := execute(t, pair, p)
	workers := uint64(max(p.workers, 1))
	if n := p.schedule.Slots(); o.err != nil || o.sent+o.dropped != n || last && o.dropped > 0 {
		t.Fatalf("%v; sent %d, dropped %d of %d", o.err, o.sent, o.dropped, n)
	}
	if o.dropped > 0 {
		return false
	}
	if workers > 1 { // they leave no CPU to anybody else, so counts must do
		checkDevice(t, o, workers, false)
		return true
	}
	list := seen.arrivals(t, o.sent)
	var off []int64
	var gaps []float64
	for i := range list {
		a := &list[i]
		var st packet.Stamp
		if a.Count != 1 || !packet.ParseStamp(a.Stamp[:], a.Came, &st) || st.Planned != o.start+plannedAt(p.schedule, uint64(i)) {
			t.Fatalf("slot %d: captured %d times, %+v", i, a.Count, st)
		}
		if a.Came < st.Sent {
			t.Fatalf("slot %d: arrived %d ns before it was sent", i, st.Sent-a.Came)
		}
		if i == 0 {
			continue
		}
		gap := a.Came - list[i-1].Came
		d := gap - (plannedAt(p.schedule, uint64(i)) - plannedAt(p.schedule, uint64(i-1)))
		off, gaps = append(off, max(d, -d)), append(gaps, float64(gap))
	}
	slices.Sort(off)
	p50, p99 := off[len(off)/2], off[len(off)*99/100]
	kept := p50 < 5000 && p99 < 100_000
	text := ""
	if random {
		fit, ok := stats.FitErlang(gaps, 1, p.schedule.MeanPPS()/1e9)
		if !ok {
			t.Fatal("no fit")
		}
		kept = kept && fit.P > 0.001
		text = fit.Name
		t.Logf("%s: A2 %.3g of %d gaps, p %.3g", text, fit.Statistic, fit.Samples, fit.P)
	}
	t.Logf("arrival gaps are off the plan by %d ns (p50), %d ns (p99)", p50, p99)
	if !kept && last {
		t.Errorf("off by %d ns at p50 and %d at p99, or not the plan's distribution", p50, p99)
	}
	return checkDevice(t, o, workers, last) && kept
}

// checkDevice holds the gaps as the device saw them against the plan.
func checkDevice(t *testing.T, o *outcome, workers uint64, last bool) bool {
	t.Helper()
	var gap, off stats.Hist
	for i := range o.books {
		addTo(t, &gap, &o.books[i].Gap)
		addTo(t, &off, &o.books[i].GapError)
	}
	if n := o.sent - workers; gap.Count() != n || off.Count() != n {
		t.Fatalf("%d gaps and %d errors for %d packets of %d workers", gap.Count(), off.Count(), o.sent, workers)
	}
	t.Logf("at the device off by %d ns (p50), %d ns (p99)", off.Quantile(0.5), off.Quantile(0.99))
	kept := off.Quantile(0.5) < 5000 && off.Quantile(0.99) < 100_000
	if !kept && last {
		t.Errorf("at the device gaps are off by %d ns at p50", off.Quantile(0.5))
	}
	return kept
}
