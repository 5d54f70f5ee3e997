package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"blast/stats"
)

// plan is a schedule computed here, from its definition and not by package pace: at(i) is the exact time of slot i in ns, which a
// schedule in whole ns, never early, rounds up.
type plan struct {
	name  string
	args  []string
	slots uint64
	at    func(i uint64) float64 // nil: no formula (poisson)
	bytes func(i uint64) int     // nil: all of 64
	flows int
	gso   int // slots of a train, which share the time of the first; 0 = 1
}

// trains sends a plan in trains of n.
func (p plan) trains(n int) plan {
	p.name += "-trains"
	p.args = append(p.args, "--gso", strconv.Itoa(n))
	p.gso = n
	each := p.at
	p.at = func(i uint64) float64 { return each(i - i%uint64(n)) }
	return p
}

// slot is the place in the whole plan of what a worker sent as its seq: trains are dealt out in turn.
func (p plan) slot(a *arrival, workers int) uint64 {
	n := uint64(max(p.gso, 1))
	return (a.seq/n*uint64(workers)+uint64(a.worker))*n + a.seq%n
}

func constant(pps float64, length time.Duration) plan {
	return plan{
		name:  fmt.Sprintf("const-%g-pps", pps),
		args:  []string{"--rate", strconv.FormatFloat(pps, 'f', -1, 64), "--duration", length.String()},
		slots: uint64(math.Ceil(pps * length.Seconds())), at: func(i uint64) float64 { return float64(i) * 1e9 / pps },
	}
}

// ramp follows N(t) = a t + (b-a) t^2 / 2D up to D.
func ramp(a, b float64, length time.Duration) plan {
	d := length.Seconds()
	return plan{
		name: "ramp", args: []string{"--profile", fmt.Sprintf("ramp:%g..%g/%v", a, b, length), "--duration", length.String()},
		slots: uint64(math.Ceil((a + b) / 2 * d)),
		at:    func(i uint64) float64 { return (math.Sqrt(a*a+2*(b-a)/d*float64(i)) - a) / (b - a) * d * 1e9 },
	}
}

// step goes from a up to the end, by a, in four levels of a whole number of packets.
func step(a float64, each time.Duration) plan {
	perLevel := a * each.Seconds()
	return plan{
		name: "step", args: []string{"--profile", fmt.Sprintf("step:%g+%g/%v..%g", a, a, each, 4*a), "--duration", (4 * each).String()},
		slots: uint64(10 * perLevel),
		at: func(i uint64) float64 {
			level, begun := 1.0, 0.0
			for float64(i) >= begun+level*perLevel {
				begun += level * perLevel
				level++
			}
			return (level-1)*float64(each) + (float64(i)-begun)*1e9/(level*a)
		},
	}
}

func burst(n uint64, gap, length time.Duration) plan {
	return plan{
		name: "burst", args: []string{"--profile", fmt.Sprintf("burst:%d@%v", n, gap), "--duration", length.String()},
		slots: n * uint64(length/gap), at: func(i uint64) float64 { return float64(i/n) * float64(gap) },
	}
}

func tick(hz uint64, sessions int, length time.Duration) plan {
	return plan{
		name: "tick", args: []string{"--profile", fmt.Sprintf("tick:%d", hz), "--flows", strconv.Itoa(sessions), "--duration", length.String()},
		slots: uint64(sessions) * uint64(length.Seconds()*float64(hz)), flows: sessions,
		at: func(i uint64) float64 { return float64(i/uint64(sessions)) * 1e9 / float64(hz) },
	}
}

// recording writes a file of uneven times and sizes.
func recording(t *testing.T, n uint64) plan {
	t.Helper()
	gap := func(i uint64) uint64 { return (i*i*7919 + i*104729) % 500_000 } // ns, up to half a millisecond
	times, sizes := make([]uint64, n), make([]int, n)
	text := "# time,size\n"
	for i := range n {
		if i > 0 {
			times[i] = times[i-1] + gap(i)
		}
		sizes[i] = 48 + int(i*977%1000)
		text += fmt.Sprintf("%d.%09d,%d\n", times[i]/1e9, times[i]%1e9, sizes[i])
	}
	path := filepath.Join(t.TempDir(), "plan.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return plan{
		name: "file", args: []string{"--profile", "file:" + path, "--duration", "10s"}, slots: n,
		at: func(i uint64) float64 { return float64(times[i]) }, bytes: func(i uint64) int { return sizes[i] },
	}
}

// TestKernelRateConformance sends every kind of plan with every backend and with one and two workers to an independent receiver:
// the count is exact, every slot has its exact planned time, none arrives before it, and none later than the run's own lag says.
func TestKernelRateConformance(t *testing.T) {
	for _, b := range backends() {
		at := placeOf(t, b.Name)
		ceiling := maxRate(t, at, b.Name)
		t.Logf("%s accepts about %s flat out", b.Name, stats.FormatPPS(ceiling))
		plans := []plan{
			constant(1, 3*time.Second), constant(100, time.Second), constant(10_000, time.Second),
			constant(math.Floor(0.35*ceiling/1000)*1000, time.Second), // half of what a duty of 0.70 allows
			{name: "poisson", args: []string{"--profile", "poisson", "--rate", "5k", "--duration", "1s", "--seed", "7"}},
			ramp(1000, 9000, time.Second), step(2000, 250*time.Millisecond), burst(50, 10*time.Millisecond, time.Second),
			tick(50, 40, time.Second), recording(t, 3000), constant(10_000, time.Second).trains(8),
		}
		for _, p := range plans {
			if p.gso > 1 && b.Name != "sendmmsg" {
				continue // trains are of this backend only
			}
			for workers := 1; workers <= min(2, len(allowedCPUs(t))); workers++ {
				t.Run(fmt.Sprintf("%s/%s/%d-workers", b.Name, p.name, workers), func(t *testing.T) { p.conforms(t, at, b.Name, workers) })
			}
		}
	}
}

// maxRate is the rate without a plan, packets per second.
func maxRate(t *testing.T, at place, backend string) float64 {
	t.Helper()
	r := at.receive(t, 1<<20)
	res := at.measure(t, r.addr, "--mode", "oneway", "--rate", "max", "--duration", "500ms", "--backend", backend)
	at.end(t, r)
	return res.Rate.AchievedPPS
}

// conforms runs the plan and holds what arrived against it. A run that a stall of the machine made give slots up (they are in its
// ledger) is repeated, at most twice; all else must hold in every attempt.
func (p plan) conforms(t *testing.T, at place, backend string, workers int) {
	for attempt := 1; ; attempt++ {
		r := at.receive(t, 512<<20)
		before, width := clockOffset(t)
		res := at.measure(t, append([]string{r.addr, "--mode", "oneway", "--backend", backend, "--workers", strconv.Itoa(workers)}, p.args...)...)
		after, width2 := clockOffset(t)
		got, dropped := at.end(t, r)
		if step := after - before; step > width+width2 || -step > width+width2 {
			if attempt == 3 {
				t.Fatalf("CLOCK_REALTIME was stepped by %v, the third time: receive times say nothing", time.Duration(step))
			}
			t.Logf("CLOCK_REALTIME was stepped by %v meanwhile: again", time.Duration(step))
			continue
		}
		for i := range got {
			got[i].received += before
		}
		if n := uint64(len(got)) + dropped; n != res.Ledger.Sent {
			t.Errorf("sent %d, but %d arrived and the receiver dropped %d", res.Ledger.Sent, len(got), dropped)
		}
		if p.slots != 0 && res.Ledger.Planned != p.slots {
			t.Errorf("planned %d, want %d", res.Ledger.Planned, p.slots)
		}
		p.planKept(t, got, workers)
		neverEarly(t, got, res, width+width2)
		if t.Failed() || res.Ledger.Sent == res.Ledger.Planned && dropped == 0 {
			return
		}
		t.Logf("attempt %d: sent %d of %d planned, the receiver dropped %d; lag max %s", attempt, res.Ledger.Sent, res.Ledger.Planned, dropped, stats.FormatNS(res.Lag.Max))
		if attempt == 3 {
			t.Fatal("no attempt sent and received the whole plan")
		}
	}
}

// planKept checks that every slot arrived at most once, with the planned time and size that the definition of the plan says.
func (p plan) planKept(t *testing.T, got []arrival, workers int) {
	t.Helper()
	if len(got) == 0 {
		return // counted already
	}
	slot := func(a *arrival) uint64 { return p.slot(a, workers) }
	slices.SortFunc(got, func(a, b arrival) int { return int(int64(slot(&a)) - int64(slot(&b))) })
	first := slot(&got[0])
	ticks := map[[2]uint64]bool{}
	for k := range got {
		a := &got[k]
		i := slot(a)
		if k > 0 && i == slot(&got[k-1]) {
			t.Fatalf("slot %d arrived twice", i)
		}
		size := 64
		if p.bytes != nil {
			size = p.bytes(i)
		}
		if a.bytes != size {
			t.Fatalf("slot %d has %d bytes, want %d", i, a.bytes, size)
		}
		if p.flows > 0 {
			session := [2]uint64{i / uint64(p.flows), uint64(a.port)}
			if ticks[session] {
				t.Fatalf("port %d was used twice in tick %d", a.port, session[0])
			}
			ticks[session] = true
		}
		if p.at == nil {
			continue
		}
		// Both ends are rounded up from exact times, to whole ns.
		if off := float64(a.planned-got[0].planned) - (p.at(i) - p.at(first)); off <= -1.01 || off >= 1.01 {
			t.Fatalf("slot %d is planned %.2f ns off", i, off)
		}
	}
	if p.at == nil {
		exponential(t, got)
	}
}

// exponential checks the gaps of a Poisson process: the mean of 200 us, a coefficient of variation of 1, and a share of exp(-1)
// above the mean; for about 5,000 gaps 5 % is more than three standard deviations of each.
func exponential(t *testing.T, got []arrival) {
	t.Helper()
	var sum, squares, above float64
	n := float64(len(got) - 1)
	for k := 1; k < len(got); k++ {
		gap := float64(got[k].planned - got[k-1].planned)
		sum += gap
		squares += gap * gap
		if gap > 200_000 {
			above++
		}
	}
	mean := sum / n
	cv := math.Sqrt(squares/n-mean*mean) / mean
	if math.Abs(mean-200_000) > 10_000 || math.Abs(cv-1) > 0.07 || math.Abs(above/n-math.Exp(-1)) > 0.03 {
		t.Errorf("%.0f gaps: mean %.0f ns, coefficient of variation %.3f, share above the mean %.3f; want 200000, 1, %.3f", n, mean, cv, above/n, math.Exp(-1))
	}
}

// neverEarly holds the kernel's receive times against the planned ones. The packet is received within the send call, and the lag runs
// to the end of that call: so delay = receive - planned lies between 0 and the packet's lag, and each quantile of it between 0 and
// that of the lag. slack is the error of the clock comparison.
func neverEarly(t *testing.T, got []arrival, res *stats.Result, slack int64) {
	t.Helper()
	if len(got) == 0 {
		return
	}
	delays := make([]int64, len(got))
	for k := range got {
		a := &got[k]
		delays[k] = a.received - a.planned
		if delays[k] < -slack || a.sent < a.planned {
			t.Fatalf("worker %d seq %d, planned at %d, left at %+d ns and arrived at %+d ns", a.worker, a.seq, a.planned, a.sent-a.planned, delays[k])
		}
	}
	slices.Sort(delays)
	var text strings.Builder
	for _, q := range []struct {
		name string
		at   float64
		lag  int64
	}{{"p50", 0.5, res.Lag.P50}, {"p99", 0.99, res.Lag.P99}, {"p99.9", 0.999, res.Lag.P999}, {"max", 1, res.Lag.Max}} {
		delay := delays[max(int(math.Ceil(q.at*float64(len(delays))))-1, 0)]
		fmt.Fprintf(&text, " %s %s (lag %s)", q.name, stats.FormatNS(delay), stats.FormatNS(q.lag))
		// A bucket of the histogram is a thousandth wide.
		if uint64(len(got)) == res.Ledger.Sent && delay > q.lag+q.lag/500+slack {
			t.Errorf("%s of receive - planned is %d ns, but the run says that its lag was %d ns", q.name, delay, q.lag)
		}
	}
	t.Logf("%d packets, receive - planned:%s", len(got), text.String())
}
