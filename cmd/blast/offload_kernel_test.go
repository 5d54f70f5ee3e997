package main

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/xdplive"
	"blast/engine"
	"blast/internal/testnet"
	"blast/pace"
	"blast/serve"
	"blast/stats"
	"blast/verdict"
)

// offloadRun is a run of the in-kernel engine between two namespaces, one flow and one worker where not said otherwise.
func offloadRun(t *testing.T, pair *testnet.Pair, schedule pace.Schedule, change func(*engine.Config)) (*stats.Result, error) {
	t.Helper()
	cfg := engine.Config{
		Schedule: schedule, Workers: 1, Echo: true, Timeout: time.Second, Grace: time.Second, Interval: 100 * time.Millisecond, Epoch: 5,
		Flows:   []backend.Flow{{Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 4702)}},
		Backend: backend.Config{PayloadBytes: 64},
		Source:  func(w int) engine.Source { return &engine.Stamped{PayloadBytes: 64, Worker: uint16(w), Epoch: 5} },
		CPUs:    []int{runtime.NumCPU() - 1},
	}
	if change != nil {
		change(&cfg)
	}
	var res *stats.Result
	var err error
	pair.Left.Do(func() { res, err = engine.RunOffload(context.Background(), cfg, xdplive.Open) })
	return res, err
}

func serveXDP(t *testing.T, pair *testnet.Pair) *serve.XDPServer {
	t.Helper()
	var s *serve.XDPServer
	pair.Right.Do(func() {
		var err error
		s, err = serve.ListenXDP(serve.XDPConfig{Mode: serve.Echo, Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), 4702)}})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestKernelOffload: a whole run through the engine gives a whole result, whatever the schedule is made of.
func TestKernelOffload(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	target := serveXDP(t, pair)
	const length = 500 * time.Millisecond
	must := func(s pace.Schedule, err error) pace.Schedule {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pps := func(n uint64) pace.Rate { return pace.Rate{Packets: n, Per: time.Second} }
	constant, err := pace.Constant(pps(200_000), length)
	warm := must(constant, err)
	profile := func(text string) pace.Schedule {
		return must(pace.ParseProfile(text, pps(100_000), length, pace.Options{Sessions: 50, Seed: 3}))
	}
	for _, c := range []struct {
		name     string // what the case is for
		schedule pace.Schedule
		change   func(*engine.Config)
	}{
		{"a constant rate, in one segment", warm, nil},
		{"a warm-up that counts for nothing", warm, func(c *engine.Config) { c.Warmup = warm }},
		{"a ramp, whose times are handed over one by one", profile("ramp:1k..200k/500ms"), nil},
		{"a ramp after a warm-up", profile("ramp:1k..200k/500ms"), func(c *engine.Config) { c.Warmup = warm }},
		{"steps, in several segments", profile("step:50k+50k/100ms..200k"), nil},
		{"bursts", profile("burst:64@1ms"), nil},
		{"ticks over the flows", profile("tick:100"), func(c *engine.Config) {
			for range 49 {
				c.Flows = append(c.Flows, c.Flows[0])
			}
		}},
		{"a Poisson process", profile("poisson"), nil},
		{"no plan", must(pace.Max(length)), nil},
		{"no plan after a warm-up", must(pace.Max(length)), func(c *engine.Config) { c.Warmup = must(pace.Max(length)) }},
		{"two workers", warm, func(c *engine.Config) { c.Workers, c.Flows, c.CPUs = 2, append(c.Flows, c.Flows[0]), nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := offloadRun(t, pair, c.schedule, c.change)
			if err != nil {
				t.Fatal(err)
			}
			l := res.Ledger
			if err := l.Check(stats.ModeEcho); err != nil {
				t.Error(err)
			}
			if _, unpaced := c.schedule.(pace.Unpaced); !unpaced && l.Planned != c.schedule.Slots() {
				t.Errorf("planned %d of %d slots", l.Planned, c.schedule.Slots())
			}
			if l.Lost+l.InFlight != 0 || l.Sent == 0 || l.Replied+l.Late != l.Sent || l.Duplicate+l.Reordered+l.Stray != 0 {
				t.Errorf("ledger %+v: want every packet replied to, once and in order", l)
			}
			var sent, replied uint64
			for _, s := range res.Timeline {
				sent += s.Sent
				replied += s.Replied
			}
			if sent != l.Sent+l.KernelDropped || replied != l.Sent || res.Latency.Count != l.Sent || res.Server.Count != l.Sent {
				t.Errorf("sent %d, timeline %d and %d replied, latencies %d, server times %d", l.Sent, sent, replied, res.Latency.Count, res.Server.Count)
			}
			t.Logf("sent %d, lag p50 %d p99 %d, latency p50 %d p99 %d, duty %.2f, rate %.0f of %.0f; %q", l.Sent, res.Lag.P50, res.Lag.P99, res.Latency.P50, res.Latency.P99,
				res.Workers[0].Duty, res.Rate.AchievedPPS, res.Rate.TargetPPS, res.Backend.Notes)
		})
	}
	c, err := target.Counts()
	if err != nil || c.Received != c.Replied || c.Denied != 0 {
		t.Errorf("target counted %v, %v", c, err)
	}
}

// TestKernelOffloadRefuses: what needs code per packet is named with the way out.
func TestKernelOffloadRefuses(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	s, err := pace.Constant(pace.Rate{Packets: 1000, Per: time.Second}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, err = offloadRun(t, pair, s, func(c *engine.Config) {
		c.Source = func(int) engine.Source { return &engine.Stamped{Size: func(uint64) int { return 1 }} }
	})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a source with sizes: %v", err)
	}
	_, err = offloadRun(t, pair, s, nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a veth peer with neither GRO nor a program: %v", err)
	}
	t.Log(err)
}

// TestKernelOffloadPreempted: a worker that has to share its CPU is late, its lag shows it, and the run is INVALID for it.
func TestKernelOffloadPreempted(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	target := serveXDP(t, pair)
	s, err := pace.Constant(pace.Rate{Packets: 50_000, Per: time.Second}, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var busy sync.WaitGroup
	busy.Go(func() {
		_ = onCPU(runtime.NumCPU()-1, func() error {
			for !stop.Load() {
			}
			return nil
		})
	})
	res, err := offloadRun(t, pair, s, nil)
	stop.Store(true)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	res.Config = stats.Config{Mode: stats.ModeEcho, Model: stats.ModelOpen, Paced: true, DurationNS: int64(s.Length()), MaxLagNS: int64(time.Millisecond), Workers: 1}
	v := verdict.Judge(res, verdict.Limits{})
	lag := slices.ContainsFunc(v.Reasons, func(r stats.Reason) bool { return r.Code == "lag" })
	if v.Valid || !lag || res.Lag.P999 < int64(time.Millisecond) {
		t.Errorf("lag p99.9 %v, verdict %+v: want INVALID for lag", time.Duration(res.Lag.P999), v)
	}
	if c, err := target.Counts(); err != nil || c.Received != res.Ledger.Sent {
		t.Errorf("sent %d, the target counted %+v, %v", res.Ledger.Sent, c, err)
	}
}
