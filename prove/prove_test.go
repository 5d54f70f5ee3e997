package prove

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
	"blast/verdict"
)

// run is a result over 10 s without a timeline.
func run(asked, sent, answered float64, codes ...string) *stats.Result {
	r := &stats.Result{
		Config:  stats.Config{Mode: stats.ModeEcho, Paced: true, DurationNS: 10e9},
		Rate:    stats.Rate{TargetPPS: asked, AchievedPPS: sent, RepliedPPS: answered, ElapsedNS: 10e9},
		Ledger:  stats.Ledger{Planned: uint64(10 * asked), Sent: uint64(10 * sent), Replied: uint64(10 * answered), Lost: uint64(10 * (sent - answered))},
		Verdict: stats.Verdict{Valid: len(codes) == 0}, Workers: []stats.Worker{{CPU: 1, Duty: 0.3}},
	}
	for _, c := range codes {
		r.Verdict.Reasons = append(r.Verdict.Reasons, stats.Reason{Code: c, Detail: c + " detail"})
	}
	return r
}

// host is a host whose cores were at these levels.
func host(levels ...float64) *stats.HostUse {
	u := &stats.HostUse{Source: "agent x"}
	for i, l := range levels {
		u.Cores = append(u.Cores, stats.CoreUse{CPU: i, Busy: l})
	}
	return u
}

// counting adds counters to a host.
func counting(u *stats.HostUse, name string, n int64, more ...stats.Counter) *stats.HostUse {
	u.Counters = append(append(u.Counters, stats.Counter{Name: name, Delta: n}), more...)
	return u
}

// quiet is evidence in which everything is well: 1,000 asked, sent and answered, with every control made.
func quiet() *Evidence {
	return &Evidence{
		AskedPPS: 1000, Run: run(1000, 1000, 1000), Attempts: 1,
		Baseline: Baseline{Same: run(1000, 1000, 1000), Ample: run(3000, 3000, 3000)},
		Own:      host(0.1, 0.4), Target: counting(host(0.2, 0.3), "udp.InDatagrams", 10000),
		Noop: Noop{Run: run(1000, 1000, 1000), Where: "10.0.0.2:9101", OnTarget: true},
		Two:  Two{Parts: []stats.Result{*run(1000, 1000, 1000), *run(1000, 1000, 1000)}},
	}
}

// slowTarget answers a third of what a sound generator sends, whatever is sent.
func slowTarget(e *Evidence) {
	e.Run = run(1000, 1000, 333)
	e.Target = counting(host(0.2, 0.97), "udp.InDatagrams", 10000)
	e.Two.Parts = []stats.Result{*run(1000, 1000, 170), *run(1000, 1000, 163)}
}

// slowGenerator sends a third of what was asked, against everything; the target would answer all.
func slowGenerator(e *Evidence) {
	slow := func() *stats.Result { return run(1000, 333, 333, verdict.CodeRate, verdict.CodeDuty) }
	e.Run, e.Baseline, e.Noop.Run = slow(), Baseline{Same: slow()}, slow()
	e.Target = counting(host(0.1, 0.2), "udp.InDatagrams", 3330)
	e.Two.Parts = []stats.Result{*slow(), *slow()}
}

const (
	n = stats.PointsNeither
	t = stats.PointsTarget
	g = stats.PointsGenerator
	u = stats.PointsUnknown
)

// cases are the combinations that matter: what each control says (baseline, generator, target, no-op, two) and the conclusion.
var cases = []struct {
	why    string
	change func(*Evidence)
	points [5]string
	want   string
	says   string // in the conclusion
}{
	{"all is well", func(*Evidence) {}, [5]string{n, n, n, n, n}, n, "neither is the wall"},
	{"a slow target, all five controls", slowTarget, [5]string{n, n, t, t, t}, t, "the target is the wall, at about 333 pps"},
	{"a slow generator, all five controls", slowGenerator, [5]string{g, g, g, g, g}, g, "the generator is the wall"},
	{"a slow target of which nobody tells, with a no-op on loopback only: the path may be it", func(e *Evidence) {
		slowTarget(e)
		e.Target, e.TargetWhy, e.Noop.OnTarget = nil, "no agent", false
	}, [5]string{n, n, u, t, t}, t, "(or the path to it"},
	{"a target that waits instead of working: idle cores are no sign of the generator while all was sent", func(e *Evidence) {
		slowTarget(e)
		e.Target = counting(host(0.1, 0.1), "udp.InDatagrams", 10000)
	}, [5]string{n, n, u, t, t}, t, "the target is the wall"},
	{"the target's host drops at its sockets", func(e *Evidence) {
		slowTarget(e)
		e.Target = counting(host(0.1, 0.1), "udp.InDatagrams", 3330, stats.Counter{Name: "udp.RcvbufErrors", Delta: 6670})
	}, [5]string{n, n, t, t, t}, t, "the target is the wall"},
	{"the path loses: less came than was sent, nothing was dropped there, and no server there gets more", func(e *Evidence) {
		slowTarget(e)
		e.Target = counting(host(0.1, 0.1), "udp.InDatagrams", 3330)
		e.Noop.Run = run(1000, 1000, 340)
		e.Two.Parts = nil
	}, [5]string{n, n, u, u, u}, u, "no control says why"},
	{"both are slow: the no-op rises although the generator breaks its plan", func(e *Evidence) {
		slowGenerator(e)
		e.Run = run(1000, 333, 100, verdict.CodeRate)
		e.Target = nil
		e.Two.Parts = nil
	}, [5]string{g, g, u, t, u}, u, "the generator's own state points at the generator (INVALID: rate: rate detail), but the no-op points at the target"},
	{"the run lags, but a second generator gets no more: a conflict", func(e *Evidence) {
		slowTarget(e)
		e.Run = run(1000, 1000, 333, verdict.CodeLag)
		e.Target, e.Noop.Run = nil, nil
	}, [5]string{n, g, u, u, t}, u, "the evidence conflicts"},
	{"two generators double what one got, though one sent everything: a limit per source, not the generator", func(e *Evidence) {
		slowTarget(e)
		e.Target, e.Noop.Run = nil, nil
		e.Two.Parts = []stats.Result{*run(1000, 1000, 333), *run(1000, 1000, 333)}
	}, [5]string{n, n, u, u, g}, u, "prove again with more --flows"},
	{"the same, though a no-op rises too: one side is wrong", func(e *Evidence) {
		slowTarget(e)
		e.Two.Parts = []stats.Result{*run(1000, 1000, 333), *run(1000, 1000, 333)}
	}, [5]string{n, n, t, t, g}, u, "Look at both before trusting either"},
	{"two generators double what a slow one got", func(e *Evidence) {
		slowGenerator(e)
		e.Target, e.Noop.Run, e.Baseline = nil, nil, Baseline{}
	}, [5]string{u, g, u, u, g}, g, "the generator is the wall"},
	{"a second generator that sends no more says nothing", func(e *Evidence) {
		slowGenerator(e)
		e.Target, e.Noop.Run, e.Baseline = nil, nil, Baseline{}
		e.Two.Parts = []stats.Result{*run(1000, 170, 170, verdict.CodeRate), *run(1000, 170, 170, verdict.CodeRate)}
	}, [5]string{u, g, u, u, u}, g, "the generator is the wall"},
	{"the rate is reached and twice that is not: no wall at this rate", func(e *Evidence) {
		e.Two.Parts = []stats.Result{*run(1000, 1000, 510), *run(1000, 1000, 510)}
	}, [5]string{n, n, n, n, n}, n, "neither is the wall"},
	{"the rate is reached with a margin below 3: said, no more", func(e *Evidence) { e.Baseline.Ample = run(3000, 2000, 2000, verdict.CodeDuty) }, [5]string{u, n, n, n, n}, n,
		"in doubt or unknown: the baseline"},
	{"the rate is reached with a full core", func(e *Evidence) { e.Own = host(0.1, 0.8) }, [5]string{n, u, n, n, n}, n, "the generator's own state"},
	{"only the run itself: nothing says why", func(e *Evidence) { *e = Evidence{AskedPPS: 1000, Run: run(1000, 1000, 333), Own: host(0.1)} }, [5]string{u, n, u, u, u}, u, "no control says why"},
	{"nothing was run", func(e *Evidence) { *e = Evidence{AskedPPS: 1000, Interrupted: "interrupted"} }, [5]string{u, u, u, u, u}, u, "nothing was measured against the target (interrupted)"},
	{"interrupted after the run", func(e *Evidence) { e.Interrupted = "interrupted" }, [5]string{n, n, n, n, n}, u, "it ended early (interrupted)"},
	{"counts that contradict each other are nobody's fault", func(e *Evidence) { e.Run = run(1000, 1000, 1000, verdict.CodeLedger) }, [5]string{n, u, n, n, n}, u, "contradict each other (ledger)"},
	{"nor are they proof against the target", func(e *Evidence) { slowTarget(e); e.Run = run(1000, 1000, 333, verdict.CodeRange) }, [5]string{n, u, t, t, t}, u, "contradict each other (range)"},
	{"all came back, but late: the lag is the gate, and two generators that double are no sign", func(e *Evidence) { e.Run = run(1000, 1000, 1000, verdict.CodeLag) }, [5]string{n, g, n, n, n}, g, "lag detail"},
	{"replies lost in the generator's own receive path", func(e *Evidence) {
		slowTarget(e)
		e.Run = run(1000, 1000, 333, verdict.CodeSelfLoss)
		e.Target, e.Noop.Run, e.Two.Parts = nil, nil, nil
	}, [5]string{n, g, u, u, u}, g, "self-loss detail"},
	{"packets lost on this host after they were sent", func(e *Evidence) {
		slowTarget(e)
		e.Own = counting(host(0.1, 0.2), "eth0.tx_dropped", 6670)
		e.Target, e.Noop.Run, e.Two.Parts = nil, nil, nil
	}, [5]string{n, g, u, u, u}, g, "eth0.tx_dropped 6,670"},
}

func TestJudge(tt *testing.T) {
	for _, c := range cases {
		tt.Run(c.why, func(tt *testing.T) {
			e := quiet()
			c.change(e)
			controls, end := Judge(e)
			var points [5]string
			for i, name := range []string{stats.ControlBaseline, stats.ControlGenerator, stats.ControlTarget, stats.ControlNoop, stats.ControlTwo} {
				if controls[i].Name != name || len(controls[i].Evidence) == 0 {
					tt.Errorf("control %d is %q with %d sentences", i+1, controls[i].Name, len(controls[i].Evidence))
				}
				points[i] = controls[i].Points
			}
			if diff := cmp.Diff(c.points, points); diff != "" {
				tt.Errorf("controls (-want +got):\n%s", diff)
				for _, k := range controls {
					tt.Logf("%s: %s: %s", k.Name, k.Points, strings.Join(k.Evidence, "\n    "))
				}
			}
			if end.Points != c.want || !strings.Contains(end.Detail, c.says) {
				tt.Errorf("concludes %s: %s\nwant %s: %s", end.Points, end.Detail, c.want, c.says)
			}
			if (end.Points == u) != strings.HasPrefix(end.Detail, "cannot tell: ") {
				tt.Errorf("%s: %s", end.Points, end.Detail)
			}
			if want := map[string]int{n: 0, t: 0, g: 3, u: 3}[c.want]; ExitCode(end) != want {
				tt.Errorf("exit %d, want %d", ExitCode(end), want)
			}
		})
	}
}

// Each side of the thresholds of single controls, and the circumstances under which one has nothing to say.
func TestControls(tt *testing.T) {
	for _, c := range []struct {
		why    string
		at     int // control, from 0
		change func(*Evidence)
		want   string
		says   string
	}{
		{"stored ceiling below the rate", 0, func(e *Evidence) {
			e.Baseline = Baseline{Stored: &stats.Calibration{ID: "c", CeilingPPS: 900, Workers: 1}}
		}, g, "0.90 times the rate"},
		{"stored ceiling twice the rate", 0, func(e *Evidence) { e.Baseline = Baseline{Stored: &stats.Calibration{CeilingPPS: 2000}} }, u, "2.00 times"},
		{"stored ceiling three times the rate", 0, func(e *Evidence) { e.Baseline = Baseline{Stored: &stats.Calibration{CeilingPPS: 3000}} }, n, "3.00 times"},
		{"three times the rate not tried", 0, func(e *Evidence) { e.Baseline.Ample, e.Baseline.Why = nil, "no room" }, u, "3 times that was not tried (no room)"},
		{"what was measured now outweighs what is stored", 0, func(e *Evidence) { e.Baseline.Stored = &stats.Calibration{CeilingPPS: 10} }, n, "at least 3"},
		{"loopback has less room than the way to the target", 0, func(e *Evidence) { e.Baseline.Same = run(1000, 900, 900, verdict.CodeRate) }, u, "against the target it was VALID"},
		{"worker core at 65 %", 1, func(e *Evidence) { e.Own = host(0, 0.65) }, n, "VALID"},
		{"worker core at 67 %", 1, func(e *Evidence) { e.Own = host(0, 0.67) }, u, "hardly any room"},
		{"another core above 70 %: not the average", 1, func(e *Evidence) { e.Own = host(0.9, 0, 0, 0) }, u, "CPU 0 was at 90.00 %"},
		{"the same, but the target runs there", 1, func(e *Evidence) { e.Own, e.OwnRemark = host(0.9, 0), "the target is here" }, n, "VALID"},
		{"a worker that spins", 1, func(e *Evidence) { e.Own = host(0, 1); e.Own.Cores[1].Waited = 0.7 }, n, "VALID"},
		{"stolen time", 1, func(e *Evidence) { e.Own = host(0, 0.3); e.Own.Cores[1].Steal = 0.1 }, u, "the hypervisor took 10.00 %"},
		{"cores that could not be read", 1, func(e *Evidence) { e.Own = nil }, u, "were not read twice"},
		{"a table of connections nearly full", 1, func(e *Evidence) { e.Own.Rooms = []stats.RoomUsed{{Name: "entries", Used: 95, Limit: 100}} }, u, "entries 95 of 100 (nearly all)"},
		{"losses of a VLAN, whose name has a point", 1, func(e *Evidence) { counting(e.Own, "eth0.100.tx_dropped", 667) }, g, "eth0.100.tx_dropped 667"},
		{"valid in the second attempt", 1, func(e *Evidence) { e.Attempts = 2 }, n, "VALID (in attempt 2; before, it was INVALID)"},
		{"INVALID in both", 1, func(e *Evidence) { e.Run, e.Attempts = run(1000, 1000, 1000, verdict.CodeLag), 2 }, g, "INVALID in all 2 attempts: lag"},
		{"a target that others load", 1, func(e *Evidence) { e.Unsettled = "not idle" }, u, "the target had work from elsewhere, or is slow to finish: not idle"},
		{"few own losses", 1, func(e *Evidence) { counting(e.Own, "udp.SndbufErrors", 1) }, n, "VALID"},
		{"agent on the generator's own host", 2, func(e *Evidence) { slowTarget(e); e.Target.SharedCores, e.Target.SharedCounters = true, true }, u, "cannot be told"},
		{"hypervisor takes the target's CPU", 2, func(e *Evidence) { slowTarget(e); e.Target = host(0.5); e.Target.Cores[0].Steal = 0.05 }, t, "the hypervisor takes"},
		{"few losses there", 2, func(e *Evidence) { counting(e.Target, "udp.RcvbufErrors", 5) }, n, "its host dropped few packets: udp.RcvbufErrors 5"},
		{"cores there that could not be read", 2, func(e *Evidence) { slowTarget(e); e.Target = counting(host(), "udp.InDatagrams", 10000) }, u, "its cores could not be read"},
		{"neither idle nor full", 2, func(e *Evidence) { slowTarget(e); e.Target = counting(host(0.8), "udp.InDatagrams", 10000) }, u, "neither idle nor full"},
		{"losses at a VLAN there", 2, func(e *Evidence) {
			slowTarget(e)
			e.Target = counting(host(0.1), "udp.InDatagrams", 3330, stats.Counter{Name: "eth0.100.rx_dropped", Delta: 6670})
		}, t, "eth0.100.rx_dropped 6,670"},
		{"served by XDP, which UDP does not count", 2, func(e *Evidence) { slowTarget(e); e.Target = counting(host(0.95), "udp.InDatagrams", 3) }, t, "that core is full"},
		{"a no-op that is not open", 3, func(e *Evidence) { slowTarget(e); e.Noop.Run = run(1000, 1000, 0) }, u, "is UDP to it open?"},
		{"a target that answers nothing", 3, func(e *Evidence) { slowTarget(e); e.Run = run(1000, 1000, 0) }, t, "the target was the wall"},
		{"a no-op that rises a little", 3, func(e *Evidence) { slowTarget(e); e.Noop.Run = run(1000, 1000, 450) }, u, "it says nothing"},
		{"a no-op on loopback", 3, func(e *Evidence) { slowTarget(e); e.Noop.OnTarget = false }, t, "a no-op on loopback"},
		{"one reached the rate, and two reach half as much again", 4, func(e *Evidence) {
			e.Two.Parts, e.Two.Shared = []stats.Result{*run(1000, 1000, 750), *run(1000, 1000, 750)}, "one CPU for both"
		}, n, "the rate itself was reached by one"},
		{"what two take from each other is said", 4, func(e *Evidence) { e.Two.Shared = "one CPU for both" }, n, "one CPU for both"},
		{"half as much again", 4, func(e *Evidence) {
			slowTarget(e)
			e.Two.Parts = []stats.Result{*run(1000, 1000, 250), *run(1000, 1000, 250)}
		}, u, "neither the same nor the double"},
		{"own losses make 'stays' worthless", 4, func(e *Evidence) { slowTarget(e); e.Two.Parts[0].Ledger.SelfLost = 50 }, u, "says nothing"},
		{"a generator of two that sent nearly all", 4, func(e *Evidence) { slowTarget(e); e.Two.Parts[0] = *run(1000, 950, 170, verdict.CodeRate) }, t, "the target is full"},
		{"a generator of two that did not", 4, func(e *Evidence) { slowTarget(e); e.Two.Parts[0] = *run(1000, 850, 170, verdict.CodeRate) }, u, "says nothing"},
	} {
		tt.Run(c.why, func(tt *testing.T) {
			e := quiet()
			c.change(e)
			controls, _ := Judge(e)
			k := controls[c.at]
			if all := strings.Join(k.Evidence, "\n"); k.Points != c.want || !strings.Contains(all, c.says) {
				tt.Errorf("%s: %s\n%s\nwant %s: %s", k.Name, k.Points, all, c.want, c.says)
			}
		})
	}
}

// A warning with figures for clocks that are far apart, and none within what the round trip leaves open.
func TestClocks(tt *testing.T) {
	for _, c := range []struct {
		off, within int64
		want        bool
	}{{0, 1e6, false}, {150e6, 100e6, false}, {150e6, 1e6, true}, {-150e6, 1e6, true}} {
		e := quiet()
		e.Target.ClockOffsetNS, e.Target.ClockWithinNS = c.off, c.within
		controls, _ := Judge(e)
		if got := strings.Contains(strings.Join(controls[2].Evidence, "\n"), "150 ms away"); got != c.want {
			tt.Errorf("offset %d within %d: warned %v", c.off, c.within, got)
		}
	}
}

// A target that falls behind is seen in the middle of a run, not with the answers that come while the run drains; one stall at the end is no
// falling behind.
func TestLoadOf(tt *testing.T) {
	timeline := func(replied ...uint64) *stats.Result {
		r := run(1000, 1000, 0)
		for i, back := range replied {
			r.Timeline = append(r.Timeline, stats.Second{T: float64(i + 1), Sent: 1000, Replied: back})
			r.Ledger.Replied += back
		}
		r.Ledger.Sent = 1000 * uint64(len(replied))
		return r
	}
	for _, c := range []struct {
		why             string
		r               *stats.Result
		answered, share float64
	}{
		{"slow, and the drain brings the rest", timeline(900, 900, 900, 900, 900, 1500), 900, 0.9},
		{"one stall at the end of the window", timeline(1000, 1000, 1000, 1000, 400, 1600), 800, 1},
		{"as it should be", timeline(1000, 1000, 1000, 1000, 1000, 1000), 1000, 1},
	} {
		if l := loadOf(c.r); l.answered != c.answered || l.share != c.share {
			tt.Errorf("%s: answered %g, share %g; want %g, %g", c.why, l.answered, l.share, c.answered, c.share)
		}
	}
}
