package main

import (
	"context"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/iouring"
	"blast/backend/mmsg"
	"blast/engine"
	"blast/internal/testskip"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// segmentsOf checks what holds for every run with stamps, and returns the parts by name.
func segmentsOf(t *testing.T, res *stats.Result) map[string]*stats.Histogram {
	t.Helper()
	s := res.Segments
	if s == nil || s.Complete == 0 {
		t.Fatalf("segments %+v, notes %q", s, res.Backend.Notes)
	}
	if s.ResidualNS > 1000 || !s.SameClock {
		t.Errorf("a packet's parts are %d ns off its latency (at most 1000); same clock %v", s.ResidualNS, s.SameClock)
	}
	parts, sum := map[string]*stats.Histogram{}, 0.0
	for i := range s.Parts {
		p := &s.Parts[i]
		parts[p.Name] = &p.NS
		sum += p.NS.Mean
		if p.NS.Count != s.Complete {
			t.Errorf("%s: %d samples of %d packets", p.Name, p.NS.Count, s.Complete)
		}
	}
	if math.Abs(sum-s.Latency.Mean) > 1000 {
		t.Errorf("the parts' means add up to %.0f ns, the mean latency is %.0f", sum, s.Latency.Mean)
	}
	return parts
}

// allParts are those of a server of ours on this host.
var allParts = []string{stats.SegmentLag, stats.SegmentSendCall, stats.SegmentKernel, stats.SegmentUp, stats.SegmentServer, stats.SegmentDown,
	stats.SegmentQueue, stats.SegmentUser}

// The parts of a packet add up to its latency within 1 us on loopback, on every socket backend; stamps are not events and lose nothing.
func TestSegmentsAddUp(t *testing.T) {
	server := serveUDP(t)
	for _, backend := range []string{"sendmmsg", "net", "io_uring"} {
		t.Run(backend, func(t *testing.T) {
			if backend == iouring.Name {
				testskip.IOUring(t, iouring.Probe())
			}
			res, _ := measure(t, server.addr, "--backend", backend, "--rate", "4k", "--duration", "2s", "--flows", "5", "--stamps", "1/4")
			parts := segmentsOf(t, res)
			for _, name := range allParts {
				if parts[name] == nil {
					t.Errorf("%s is missing", name)
				}
			}
			s := res.Segments
			if asked := s.Complete + s.Incomplete; asked < 1900 || asked > 2000 || s.Incomplete > asked/20 {
				t.Errorf("%d packets complete, %d incomplete: want 2000 asked, nearly all complete", s.Complete, s.Incomplete)
			}
			if len(res.Events) > 0 && res.Events["pushback"] == 0 || res.Ledger.Stray > 0 {
				t.Errorf("events %v, stray %d", res.Events, res.Ledger.Stray)
			}
			if res.Departures == nil || res.Gap.Count < 1500 {
				t.Errorf("%d gaps, departures %v: want 15 of a run of 16 packets", res.Gap.Count, res.Departures)
			}
		})
	}
}

// A target that holds each packet for 2 ms shows 2 ms under server and nowhere else.
func TestSegmentsSlowServer(t *testing.T) {
	server := serveUDP(t, "--servers", "16", "--service", "2ms")
	const hold = int64(2 * time.Millisecond)
	untilSo(t, func() string {
		res := start(t, realTime, "udp", server.addr, "--rate", "1k", "--duration", "2s", "--stamps", "1/2", "--backend", "sendmmsg", "--format", "json").end().result(t)
		parts := segmentsOf(t, res)
		if parts[stats.SegmentServer].Min < hold-1000 {
			t.Errorf("server: a packet was held for %d ns: want 2 ms at least", parts[stats.SegmentServer].Min)
		}
		return onlyUnder(parts, stats.SegmentServer, hold, func(h *stats.Histogram) int64 { return h.P50 })
	})
}

// untilSo repeats a run, at most six times, until nothing is wrong with it: on a shared machine any part may be slow for a while.
func untilSo(t *testing.T, run func() (wrong string)) {
	t.Helper()
	wrong := ""
	for attempt := range 6 {
		if wrong = run(); wrong == "" || t.Failed() {
			return
		}
		t.Logf("attempt %d: %s", attempt+1, wrong)
		time.Sleep(time.Duration(attempt+1) * time.Second)
	}
	t.Error(wrong)
}

// onlyUnder says what is wrong unless a figure of one part, and of no other, is about want.
func onlyUnder(parts map[string]*stats.Histogram, only string, want int64, figure func(*stats.Histogram) int64) string {
	for _, name := range allParts {
		v := figure(parts[name])
		if name == only && (v < want*9/10 || v > want*5/4) || name != only && v > want/4 {
			return name + " shows " + stats.FormatNS(v) + ": want " + stats.FormatNS(want) + " under " + only + " and less than a quarter of it elsewhere"
		}
	}
	return ""
}

// dozing is a Source whose receiving thread stands still once.
type dozing struct {
	engine.Stamped
	left   int
	length time.Duration
}

// Match sleeps at one reply.
func (d *dozing) Match(payload []byte, now int64, st *packet.Stamp) bool {
	if d.left--; d.left == 0 {
		time.Sleep(d.length)
	}
	return d.Stamped.Match(payload, now, st)
}

// A receiving thread that stands still shows under receive_queue and nowhere else.
func TestSegmentsStoppedReceiver(t *testing.T) {
	server := serveUDP(t)
	to := netip.MustParseAddrPort(server.addr)
	const stop = 200 * time.Millisecond
	untilSo(t, func() string {
		plan, err := pace.Constant(pace.Rate{Packets: 1000, Per: time.Second}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		res, err := engine.Run(context.Background(), engine.Config{
			Schedule: plan, Flows: []backend.Flow{{Dst: to}}, Open: mmsg.Open, Backend: backend.Config{PayloadBytes: 64}, Echo: true, StampEvery: 1,
			Source: func(int) engine.Source {
				return &dozing{Stamped: engine.Stamped{PayloadBytes: 64}, left: 300, length: stop}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return onlyUnder(segmentsOf(t, res), stats.SegmentQueue, int64(stop), func(h *stats.Histogram) int64 { return h.Max })
	})
}

// Packets leave at the gaps of the plan: a constant plan's are off by little, a Poisson plan's pass the test against it, and neither passes
// against another plan.
func TestDeparturesKeepThePlan(t *testing.T) {
	server := serveUDP(t, "--mode", "sink")
	run := func(profile string) *stats.Result {
		res := start(t, realTime, "udp", server.addr, "--rate", "1k", "--profile", profile, "--duration", "2s", "--mode", "oneway", "--stamps", "1/1",
			"--backend", "sendmmsg", "--format", "json").end().result(t)
		if res.Departures == nil || res.Departures.Source != "tx_software" || res.Gap.Count == 0 || res.Segments != nil {
			t.Fatalf("departures %+v of %d gaps, segments %v", res.Departures, res.Gap.Count, res.Segments)
		}
		return res
	}
	untilSo(t, func() string {
		res := run("const")
		if res.Gap.Count < 1500 {
			return "too few packets left"
		}
		if against(t, res, 1000).P > 1e-4 || res.Departures.Test != nil {
			t.Errorf("a constant plan passes for a Poisson one: %+v, reported %+v", against(t, res, 1000), res.Departures.Test)
		}
		if p50 := res.Departures.Error.P50; p50 > int64(100*time.Microsecond) {
			return "constant: half of the gaps are more than " + stats.FormatNS(p50) + " off the plan's 1 ms: want 100 us"
		}
		return ""
	})
	untilSo(t, func() string {
		res := run("poisson")
		if res.Gap.Count < 1500 {
			return "too few packets left"
		}
		test := res.Departures.Test
		if test == nil || test.Samples != res.Gap.Count {
			t.Fatalf("test %+v of %d gaps", test, res.Gap.Count)
		}
		if wrong := against(t, res, 1500); wrong.P > 1e-4 {
			t.Errorf("a Poisson plan of 1,000 a second passes for one of 1,500: %+v", wrong)
		}
		if test.P < 0.001 {
			return "the gaps of a Poisson plan are not like it: p " + stats.FormatPercent(test.P)
		}
		return ""
	})
}

// realTime lets a command go before its neighbours, where that is allowed: a test of distributions notices each of them.
func realTime(c *exec.Cmd) {
	if chrt, err := exec.LookPath("chrt"); err == nil && exec.Command(chrt, "-f", "10", "true").Run() == nil {
		c.Path, c.Args = chrt, append([]string{chrt, "-f", "10"}, c.Args...)
	}
}

// against tests a result's gaps against a Poisson plan of a rate per second.
func against(t *testing.T, res *stats.Result, rate float64) stats.FitTest {
	t.Helper()
	h, err := res.Gap.Hist()
	if err != nil {
		t.Fatal(err)
	}
	var gaps []float64
	h.Each(func(low, high int64, n uint64) {
		for range n {
			gaps = append(gaps, float64(low+high)/2)
		}
	})
	test, ok := stats.FitErlang(gaps, 1, rate/1e9)
	if !ok {
		t.Fatalf("no test of %d gaps", len(gaps))
	}
	return test
}

// --stamps off, and backends and trains without stamps, leave the result without segments; asking for what cannot be is an error.
func TestStampsFlag(t *testing.T) {
	server := serveUDP(t)
	for _, args := range [][]string{{"--stamps", "off"}, {"--gso", "8"}} {
		res, _ := measure(t, append([]string{server.addr, "--rate", "1k", "--duration", "300ms", "--backend", "sendmmsg"}, args...)...)
		if res.Segments != nil || res.Departures != nil || res.Gap.Count != 0 {
			t.Errorf("%v: segments %v, departures %v, %d gaps", args, res.Segments, res.Departures, res.Gap.Count)
		}
	}
	for _, c := range []struct{ why, value string }{
		{"no number", "1/x"}, {"none of nothing", "1/0"}, {"a word", "some"}, {"a percentage", "1%"},
	} {
		if o := blast(t, "udp", server.addr, "--rate", "1k", "--stamps", c.value); o.code != exitUsage || !strings.Contains(o.stderr, "want auto, off, or 1/N") {
			t.Errorf("%s: --stamps %s: exit %d: %s", c.why, c.value, o.code, o.stderr)
		}
	}
	if o := blast(t, "udp", server.addr, "--rate", "1k", "--stamps", "1/10", "--gso", "8"); o.code != exitUsage || !strings.Contains(o.stderr, "a train has one stamp") {
		t.Errorf("--stamps 1/10 --gso 8: exit %d: %s", o.code, o.stderr)
	}
}

// TestRatioStamps: stamps cost less than a tenth of a core at 100 kpps, by default. In turns, medians of five.
func TestRatioStamps(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	server := serveUDP(t)
	duty := map[string][]float64{}
	for range 5 {
		for _, stamps := range []string{"off", "auto"} {
			res, _ := measure(t, server.addr, "--rate", "100k", "--duration", "1s", "--stamps", stamps, "--backend", "sendmmsg")
			duty[stamps] = append(duty[stamps], res.Workers[0].Duty)
		}
	}
	off, auto := median(duty["off"]), median(duty["auto"])
	t.Logf("duty at 100 kpps: %.3f without stamps (%.3f), %.3f with (%.3f)", off, slices.Sorted(slices.Values(duty["off"])), auto, slices.Sorted(slices.Values(duty["auto"])))
	if auto-off >= 0.10 {
		t.Errorf("stamps cost %.3f of a core at 100 kpps: want less than 0.10", auto-off)
	}
}
