package calib

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/stats"
)

// costs of the machine of these tests, ns a packet.
var costs = map[string]float64{"sendmmsg": 2250, "net": 3300, "sendmmsg gso 32": 680}

func candidatesOfTest() []Candidate {
	return []Candidate{
		{Entry: entry("sendmmsg", nil)}, {Entry: entry("net", nil)}, {Entry: entry("sendmmsg", nil), GSO: 32},
		{Entry: entry("af_xdp", fmt.Errorf("af_xdp: no BPF here: %w", errors.ErrUnsupported))},
		{Entry: entry("io_uring", errors.New("could not tell"))},
	}
}

// TestRunTable: every row that can be measured is there, the others are listed with their reason, and the time is kept.
func TestRunTable(t *testing.T) {
	for _, quick := range []bool{false, true} {
		m := newMachine(0)
		c := m.calibrator(Config{Candidates: candidatesOfTest(), Quick: quick, Fingerprint: "0123456789abcdef"}, costs)
		var clock *machine
		open := c.open
		c.open = func(ctx context.Context, k cell) (rig, error) {
			r, err := open(ctx, k)
			if err == nil {
				clock = r.(*machine)
			}
			return r, err
		}
		begun := m.t
		c.now = func() time.Time {
			if clock == nil {
				return begun
			}
			return clock.t
		}
		lines := 0
		c.Progress = func(p Progress) {
			if p.Stage == "done" {
				lines++
			}
		}
		p, err := c.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		cells := 3 * 4 * 2
		if quick {
			cells = 3 * 2
		}
		if len(p.Rows) != cells {
			t.Errorf("quick %v: %d rows, want %d; failed: %+v", quick, len(p.Rows), cells, p.Failed)
		}
		if took := clock.t.Sub(begun); took > c.Budget {
			t.Errorf("quick %v: took %v of %v", quick, took, c.Budget)
		}
		if want := cells + cells/3; lines != want {
			t.Errorf("quick %v: %d rows told, want %d", quick, lines, want)
		}
		for _, r := range p.Rows {
			want := dutyLimit * 1e9 / costs[pathName(r.Backend, r.GSO, 1)] * float64(r.Workers)
			if r.CeilingPPS > want || r.CeilingPPS < 0.85*want || r.StayBelowPPS != r.CeilingPPS/3 {
				t.Errorf("%s, %d bytes, %d workers: ceiling %g pps, want 85 to 100 %% of %g", pathName(r.Backend, r.GSO, 1), r.PayloadBytes, r.Workers, r.CeilingPPS, want)
			}
		}
		if p.Recommended.Backend != "sendmmsg" || !strings.Contains(p.Recommended.Because, "times net") {
			t.Errorf("recommended %+v, want sendmmsg, which is faster than net", p.Recommended)
		}
		var xdp, uring int
		for _, f := range p.Failed {
			switch {
			case f.Backend == "af_xdp" && strings.Contains(f.Reason, "no BPF here"):
				xdp++
			case f.Backend == "io_uring" && f.Reason == "no such device" && f.Workers > 0:
				uring++
			}
		}
		if xdp != 1 || uring != cells/3 {
			t.Errorf("quick %v: af_xdp is listed %d times, io_uring %d; want 1 and %d", quick, xdp, uring, cells/3)
		}
	}
}

// TestRunShortBudget: rows that the time does not reach are listed, and the first rows are those of one worker.
func TestRunShortBudget(t *testing.T) {
	m := newMachine(2000)
	c := m.calibrator(Config{Candidates: candidatesOfTest()[:3], Budget: 3 * time.Second}, costs)
	c.now, c.open = m.now, func(context.Context, cell) (rig, error) { return m, nil }
	begun := m.t
	p, err := c.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rows) == 0 || len(p.Rows)+len(p.Failed) != 24 {
		t.Errorf("%d rows and %d failed, want some and 24 in all", len(p.Rows), len(p.Failed))
	}
	for _, r := range p.Rows {
		if r.Workers != 1 {
			t.Errorf("row %+v before those of one worker are done", r)
		}
	}
	if took := m.t.Sub(begun); took > c.Budget*5/4 {
		t.Errorf("took %v of %v", took, c.Budget)
	}
	if f := p.Failed[len(p.Failed)-1]; !strings.Contains(f.Reason, "3s did not reach") {
		t.Errorf("reason %q, want that the time did not reach", f.Reason)
	}
}

// TestRunStopped: what was measured until the context ended is returned with its error.
func TestRunStopped(t *testing.T) {
	m := newMachine(2000)
	ctx, cancel := context.WithCancel(context.Background())
	c := m.calibrator(Config{Candidates: candidatesOfTest()[:1]}, costs)
	c.now, c.open = m.now, func(_ context.Context, k cell) (rig, error) {
		if k.payload == 512 {
			cancel()
		}
		return m, nil
	}
	p, err := c.run(ctx)
	if !errors.Is(err, context.Canceled) || p == nil || len(p.Rows) != 2 {
		t.Errorf("profile %+v and error %v, want 2 rows and that it was cancelled", p, err)
	}
}

// TestRunNothing: no row at all is an error, with the reasons beside it.
func TestRunNothing(t *testing.T) {
	c := newMachine(0).calibrator(Config{Candidates: candidatesOfTest()}, nil)
	p, err := c.run(context.Background())
	if !errors.Is(err, ErrNothingMeasured) || p == nil || len(p.Failed) == 0 {
		t.Errorf("profile %+v and error %v, want the failures and ErrNothingMeasured", p, err)
	}
}

// TestRunExplains: the wall behind a row that could not be measured stands behind its reason.
func TestRunExplains(t *testing.T) {
	full := errors.New("socket: too many open files")
	c := newMachine(0).calibrator(Config{Candidates: candidatesOfTest()[:2], Explain: func(err error) string {
		if errors.Is(err, full) {
			return "wall: open files"
		}
		return ""
	}}, nil)
	c.open = func(_ context.Context, k cell) (rig, error) {
		if k.Entry.Name == "net" {
			return nil, errors.New("something else")
		}
		return nil, full
	}
	p, _ := c.run(context.Background())
	for _, f := range p.Failed {
		if want := map[string]string{"sendmmsg": full.Error() + "; wall: open files", "net": "something else"}[f.Backend]; !strings.HasSuffix(f.Reason, want) {
			t.Errorf("%s: reason %q, want %q", f.Backend, f.Reason, want)
		}
	}
	if len(p.Failed) < 2 {
		t.Errorf("%d rows failed", len(p.Failed))
	}
}

func TestConfigRefused(t *testing.T) {
	good := Config{Candidates: candidatesOfTest(), CPUs: []int{0, 1}}
	for name, change := range map[string]func(*Config){
		"backends: none":   func(c *Config) { c.Candidates = nil },
		"cpus: none":       func(c *Config) { c.CPUs = nil },
		"payload 70000":    func(c *Config) { c.Payloads = []int{70000} },
		"payloads and":     func(c *Config) { c.Payloads = []int{} },
		"workers 3: want":  func(c *Config) { c.Workers = []int{3} },
		"budget 1ms: a":    func(c *Config) { c.Budget = time.Millisecond },
		"rounds -1: want":  func(c *Config) { c.Rounds = -1 },
		"workers 0: want ": func(c *Config) { c.Workers = []int{0} },
	} {
		cfg := good
		change(&cfg)
		if p, err := Run(context.Background(), cfg); p != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: profile %v, error %v", name, p, err)
		}
	}
}

// TestRunEngine drives the real engine against a fake backend whose packets cost a known time, in an idle machine's terms: on a busy
// one trials fail for other reasons, so only what holds there too is asserted. The figures are asserted in TestSearchFindsCeiling.
func TestRunEngine(t *testing.T) {
	const cost = 20 * time.Microsecond
	fake := &backendtest.Fake{OneThread: true, Spend: func(accepted int) {
		for begun := time.Now(); time.Since(begun) < time.Duration(accepted)*cost; {
		}
	}}
	procs, percent := runtime.GOMAXPROCS(0), debug.SetGCPercent(100)
	defer debug.SetGCPercent(percent)
	p, err := Run(context.Background(), Config{
		Candidates: []Candidate{{Entry: backend.Entry{Name: "fake", Open: fake.Open, Probe: func() error { return nil }}}},
		CPUs:       cpusOfTest(t), Payloads: []int{64}, Workers: []int{1}, Budget: 3 * time.Second, Fingerprint: "0123456789abcdef",
		Host: stats.Host{Hostname: "test"}, Steal: func([]int) (func() float64, func()) { return func() float64 { return 0 }, func() {} },
	})
	if p == nil || err != nil && !errors.Is(err, ErrNothingMeasured) {
		t.Fatalf("profile %v, error %v", p, err)
	}
	if err := fake.Check(); err != nil {
		t.Error(err)
	}
	if got := debug.SetGCPercent(100); got != 100 || runtime.GOMAXPROCS(0) != procs {
		t.Errorf("garbage collection at %d %% and %d processors afterwards, want 100 and %d", got, runtime.GOMAXPROCS(0), procs)
	}
	for _, r := range p.Rows {
		capacity := float64(time.Second / cost)
		if r.FlatPPS > capacity || r.CeilingPPS > dutyLimit*capacity || r.CeilingPPS <= 0 || r.PacketNS < int64(cost) {
			t.Errorf("row %+v, want less than %g pps flat out and %g as a ceiling", r, capacity, dutyLimit*capacity)
		}
		if r.Mode != "fake" || r.Sink == nil || r.Sink.Sent == 0 || r.Sink.Received != 0 {
			t.Errorf("row %+v, want mode fake, and a sink that got nothing of what was sent", r)
		}
		t.Logf("flat out %s, ceiling %s, wall %s", stats.FormatPPS(r.FlatPPS), stats.FormatPPS(r.CeilingPPS), r.Wall)
	}
	for _, f := range p.Failed {
		t.Logf("not measured on this busy machine: %s", f.Reason)
	}
}

// A candidate of many flows has one row, with 64 bytes and the fewest workers, and is no part of the recommendation.
func TestManyFlowsRow(t *testing.T) {
	candidates := candidatesOfTest()
	candidates = append(candidates, Candidate{Entry: candidates[0].Entry, Flows: 1000})
	c := newMachine(0).calibrator(Config{Candidates: candidates}, costs)
	c.Config = c.Config.withDefaults()
	many := 0
	for _, k := range c.cells(newProfile(&c.Config, time.Now())) {
		if k.flows() > k.workers {
			many++
			if k.payload != 64 || k.workers != 1 || k.flows() != 1000 {
				t.Errorf("row of %d flows with %d bytes and %d workers: want 1000, 64, 1", k.flows(), k.payload, k.workers)
			}
		}
	}
	if many != 1 {
		t.Errorf("%d rows of many flows: want 1", many)
	}
}
