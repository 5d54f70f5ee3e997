package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"blast/calib"
	"blast/ladder"
	"blast/stats"
	"blast/verdict"
)

// climbed runs blast ladder and reads its JSON, whatever it found: the machine is shared.
func climbed(t *testing.T, args ...string) *stats.Ladder {
	t.Helper()
	return climbedWith(t, nil, args...)
}

// climbedWith is climbed with a change of the command.
func climbedWith(t *testing.T, change func(*exec.Cmd), args ...string) *stats.Ladder {
	t.Helper()
	o := start(t, change, append([]string{"ladder", "--format", "json"}, args...)...).end()
	l := o.ladder(t)
	t.Logf("blast %s: %d steps in %.0f s: %s", o.cmd, len(l.Steps), o.took.Seconds(), l.Knee.Detail)
	return l
}

// ladder reads the JSON on standard output and checks what holds for every ladder: the exit code is that of its verdict, and every step
// was taken as its own verdict says.
func (o outcome) ladder(t *testing.T) *stats.Ladder {
	t.Helper()
	l, err := stats.ReadLadder(strings.NewReader(o.stdout))
	if err != nil {
		t.Fatalf("blast %s: exit %d: %v\n%s", o.cmd, o.code, err, o.stderr)
	}
	want := map[string]int{stats.OutcomeSaturated: exitOK, stats.KneeTop: exitOK, stats.OutcomeSLO: exitSLO, stats.OutcomeVoid: exitInvalid, stats.KneeNone: exitInvalid}[l.Knee.Because]
	if last := len(l.Steps) - 1; l.Knee.Because == stats.KneeNone && l.Steps[last].Outcome == stats.OutcomeSLO {
		want = exitSLO
	}
	if hasCode(l.Verdict.Reasons, ladder.CodeUnconfirmed) { // whatever it found rests on one step
		want = exitInvalid
	}
	if l.Interrupted == "" && o.code != want || o.code != verdict.ExitCode(l.Verdict) {
		t.Errorf("blast %s: exit %d, want %d: %s", o.cmd, o.code, want, l.Knee.Detail)
	}
	epochs := map[string]bool{}
	for i := range l.Steps {
		s := &l.Steps[i]
		if epochs[s.Result.Started.String()] {
			t.Errorf("step %d started when another did", i+1)
		}
		epochs[s.Result.Started.String()] = true
		if err := s.Result.Ledger.Check(s.Result.Config.Mode); err != nil {
			t.Errorf("step %d: %v", i+1, err)
		}
	}
	return l
}

// untilFound repeats a ladder, at most four times, until it ended as it should on a quiet machine: where a neighbour spoils the steps, the
// generator is named. What it must have found is checked by the caller once.
func untilFound(t *testing.T, climb func() *stats.Ladder, good func(*stats.Ladder) bool) *stats.Ladder {
	t.Helper()
	for attempt := 1; attempt <= 4; attempt++ {
		l := climb()
		if good(l) || t.Failed() {
			return l
		}
		t.Logf("attempt %d ended otherwise: because %q, %d steps", attempt, l.Knee.Because, len(l.Steps))
		time.Sleep(time.Duration(attempt) * time.Second)
	}
	t.Fatal("no attempt ended as it should")
	return nil
}

func because(what string) func(*stats.Ladder) bool {
	return func(l *stats.Ladder) bool { return l.Knee.Because == what }
}

// TestKernelLadderFindsCapacity: 16 servers that take 5 ms each do 3,200 a second, and the ladder says so, and whose limit it is. Latencies are
// not looked at here, so lag may be what a shared machine makes it.
func TestKernelLadderFindsCapacity(t *testing.T) {
	srv := serveUDP(t, "--servers", "16", "--service", "5ms")
	l := untilFound(t, func() *stats.Ladder {
		return climbed(t, srv.addr, "--from", "500", "--step", "2s", "--max-lag", "300ms")
	}, because(stats.OutcomeSaturated))
	if off := math.Abs(l.Knee.PPS/3200 - 1); off > 0.05 || !strings.HasPrefix(l.Knee.Detail, "target saturated at ") {
		t.Errorf("knee %+v, want 3,200 a second within 5 %%, by the target", l.Knee)
	}
	if l.Knee.HeldPPS > 3200*1.05 || l.Knee.BreaksPPS < 3200*0.95 {
		t.Errorf("%g held and %g did not: 3,200 does not lie between", l.Knee.HeldPPS, l.Knee.BreaksPPS)
	}
	for i := range l.Steps { // the queue of a step does not reach into the next
		if s := &l.Steps[i]; s.Outcome == stats.OutcomeHeld && s.Result.Latency.Min < 4.9e6 {
			t.Errorf("step %d: a reply within %d ns of a service that takes 5 ms", i+1, s.Result.Latency.Min)
		}
	}
}

// TestKernelLadderFindsDropsBelowFrom: a target with room for few requests drops instead of queueing, and --from is more than it can do.
func TestKernelLadderFindsDropsBelowFrom(t *testing.T) {
	srv := serveUDP(t, "--servers", "4", "--service", "5ms", "--capacity", "40")
	l := untilFound(t, func() *stats.Ladder {
		return climbed(t, srv.addr, "--from", "2k", "--step", "2s", "--max-lag", "300ms")
	}, because(stats.OutcomeSaturated))
	if off := math.Abs(l.Knee.PPS/800 - 1); off > 0.05 {
		t.Errorf("knee %+v, want 800 a second within 5 %%", l.Knee)
	}
}

// TestKernelLadderBreaksSLO: with random arrivals one server of 2 ms makes requests wait s x load / (2 (1 - load)) in the mean (Pollaczek and
// Khinchine, constant service), so the mean latency is 2 s where load / (2 (1 - load)) = 1: at a load of 2/3, 333 a second. The target
// keeps up there. Waiting times of neighbours hang together, so that a step's mean scatters by several percent.
func TestKernelLadderBreaksSLO(t *testing.T) {
	srv := serveUDP(t, "--servers", "1", "--service", "2ms")
	const computed = 1000.0 / 3
	near := func(l *stats.Ladder) bool {
		return l.Knee.Because == stats.OutcomeSLO && math.Abs(l.Knee.PPS/computed-1) < 0.15
	}
	l := untilFound(t, func() *stats.Ladder {
		return climbed(t, srv.addr, "--profile", "poisson", "--from", "150", "--by", "x1.5", "--step", "4s", "--max-lag", "100ms", "--resolution", "8%", "--slo", "mean<4ms")
	}, near)
	if !strings.HasPrefix(l.Knee.Detail, "SLO broken at ") || !strings.Contains(l.Knee.Detail, "mean<4ms") {
		t.Errorf("the sentence does not say it: %q", l.Knee.Detail)
	}
}

// TestKernelLadderFindsGenerator: where the target is quick the ladder names the generator, within 10 % of the ceiling that calibrate finds for the
// same backend and payload just before, or just after: a machine that others share is not the same a minute later. One way the ladder knows nothing
// of the calibration, and the wall of both is the sending thread's duty, so that lag may be what the machine makes it. With replies the ladder has
// the calibration. On few cores it may end below the ceiling then, because receiving and the target take time from the sender, which calibrate,
// one way, does not have: there runs at 10 % less and 15 % more tell whether the generator is full where the ladder says.
func TestKernelLadderFindsGenerator(t *testing.T) {
	for _, c := range []struct{ mode, backend, serve string }{
		{stats.ModeOneway, "sendmmsg", "sink"},
		{stats.ModeEcho, "net", "echo"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			srv := serveUDP(t, "--mode", c.serve)
			flags := []string{srv.addr, "--mode", c.mode, "--backend", c.backend, "--max-lag", "100ms"}
			found := false
			l := untilFound(t, func() *stats.Ladder {
				_, shared := stateHome(t)
				before := calibrated(t, c.backend, shared)
				if math.IsNaN(before) {
					return &stats.Ladder{}
				}
				knows := shared
				if c.mode == stats.ModeOneway {
					knows = nil
				}
				l := climbedWith(t, knows, append(flags, "--from", fmt.Sprintf("%.0f", before/5), "--step", "2s")...)
				near := func(ceiling float64) bool {
					t.Logf("calibrate %.0f, ladder %.0f: ratio %.3f", ceiling, l.Knee.PPS, l.Knee.PPS/ceiling)
					return math.Abs(l.Knee.PPS/ceiling-1) <= 0.10
				}
				switch found = near(before); {
				case found:
				case c.mode == stats.ModeEcho && l.Knee.PPS < before:
					found = fullAt(t, l.Knee.PPS, flags)
				default:
					_, apart := stateHome(t)
					found = near(calibrated(t, c.backend, apart))
				}
				return l
			}, func(l *stats.Ladder) bool { return l.Knee.Because == stats.OutcomeVoid && found })
			if !strings.HasPrefix(l.Knee.Detail, "generator full at ") {
				t.Errorf("the sentence does not say it: %q", l.Knee.Detail)
			}
		})
	}
}

// fullAt reports whether most of three runs are VALID a little below pps and most are not a little above, where the generator was busy.
func fullAt(t *testing.T, pps float64, flags []string) bool {
	t.Helper()
	below, above := 0, 0
	for range 3 {
		for _, share := range []float64{0.9, 1.15} {
			res, _ := measure(t, append(flags, "--rate", fmt.Sprintf("%.0f", share*pps), "--duration", "2s")...)
			t.Logf("%.2f of the ladder's rate: valid %v%s", share, res.Verdict.Valid, reasons(res))
			switch busy := hasCode(res.Verdict.Reasons, "duty") || hasCode(res.Verdict.Reasons, "rate"); {
			case share < 1 && res.Verdict.Valid:
				below++
			case share > 1 && busy:
				above++
			}
		}
	}
	return below >= 2 && above >= 2
}

// calibrated is the ceiling that blast calibrate finds for 64 bytes by one worker; NaN where the machine was too busy for any.
func calibrated(t *testing.T, backend string, change func(*exec.Cmd)) float64 {
	t.Helper()
	o := start(t, change, "calibrate", "--quick", "--backend", backend, "--payloads", "64", "--workers", "1", "--budget", "6s", "--json").end()
	var p calib.Profile
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		t.Fatalf("blast %s: exit %d, %v\n%s", o.cmd, o.code, err, o.stderr)
	}
	for _, row := range p.Rows {
		if row.Backend == backend && row.GSO == 1 && row.PayloadBytes == 64 {
			return row.CeilingPPS
		}
	}
	t.Logf("blast %s: exit %d: no row of it: %s", o.cmd, o.code, o.stderr)
	return math.NaN()
}

// TestKernelLadderInterrupted: Ctrl-C in a later step reports the steps until then, marked.
func TestKernelLadderInterrupted(t *testing.T) {
	srv := serveUDP(t, "--mode", "echo")
	p := start(t, func(cmd *exec.Cmd) { cmd.Cancel = nil }, "ladder", "--format", "json", srv.addr, "--from", "200", "--by", "+1", "--to", "260", "--step", "500ms", "--max-lag", "1s")
	before := srv.counted(t)["received"]
	if !eventually(t.Context(), 20*time.Second, func() bool { return srv.counted(t)["received"] > before+350 }) {
		t.Fatal("no third step")
	}
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	l := p.end().ladder(t)
	if l.Interrupted != "interrupt" || len(l.Steps) == 0 || len(l.Steps) > 50 || l.Verdict.Valid {
		t.Errorf("interrupted %q after %d steps, valid %v", l.Interrupted, len(l.Steps), l.Verdict.Valid)
	}
}

// TestTargetGone: a target that answers for a while and then no more ends a ladder with what was found until then, as an error; one that never
// answers is no proof of anything. Both are waited for first.
func TestTargetGone(t *testing.T) {
	target, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		b := make([]byte, 2048)
		for answers := 0; ; {
			n, from, err := target.ReadFrom(b)
			if err != nil {
				return
			}
			if answers++; answers <= 513 { // a probe of 10, the first step of 500 and a bit of the next probe
				_, _ = target.WriteTo(b[:n], from)
			}
		}
	})
	t.Cleanup(func() { target.Close(); ended.Wait() })
	flags := []string{target.LocalAddr().String(), "--timeout", "100ms", "--max-lag", "1s", "--backend", "net", "--format", "json"}
	o := start(t, nil, append([]string{"ladder", "--from", "1k", "--step", "500ms"}, flags...)...).end()
	l, err := stats.ReadLadder(strings.NewReader(o.stdout))
	if err != nil {
		t.Fatalf("exit %d: %v\n%s", o.code, err, o.stderr)
	}
	if o.code != exitRun || !strings.Contains(o.stderr, "the target did not become idle within 6.5s") || l.Interrupted == "" || len(l.Steps) == 0 || l.Steps[0].AskedPPS != 1000 {
		t.Errorf("exit %d after %d steps, ended by %q: %s", o.code, len(l.Steps), l.Interrupted, o.stderr)
	}
	o = blast(t, append([]string{"prove", "--rate", "1k", "--duration", "500ms"}, flags...)...)
	if o.code != exitRun || o.stdout != "" || !strings.Contains(o.stderr, "does not answer; waiting for it for 6.5s at most") || !strings.Contains(o.stderr, "answered none of ") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// TestStepSays: the line of a finished step names no figure that was not measured.
func TestStepSays(t *testing.T) {
	step := func(mode string, n uint64) *stats.Step {
		x := &stats.Step{Outcome: stats.OutcomeHeld, Water: 0.5, WaterOf: "duty"}
		x.Result.Config.Mode, x.Result.Rate.AchievedPPS, x.Result.Latency.Count, x.Result.Latency.P99 = mode, 2000, n, 5_000_000
		if mode == stats.ModeEcho && n > 0 {
			x.ThroughputPPS = 1000
		}
		return x
	}
	const rest = ", generator at 50 % (duty): held"
	for _, c := range []struct {
		why  string
		x    *stats.Step
		want string
	}{
		{"replies", step(stats.ModeEcho, 7), "1.00 kpps replied, p99 5.00 ms" + rest},
		{"a target that went silent has a throughput, and no latency", step(stats.ModeEcho, 0), "0 pps replied" + rest},
		{"one way", step(stats.ModeOneway, 0), "2.00 kpps sent" + rest},
	} {
		if got := stepSays(c.x); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
