package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

// knownLadder is a ladder by x2 on a target that answers 3,200 a second: a step void by a stall, and the knee found by two rates.
func knownLadder() *stats.Ladder {
	host := echoRun().Host
	l := &stats.Ladder{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), RunID: "ladder-1", Command: []string{"blast", "ladder", "10.0.0.2:7000", "--from", "1600"},
		Host: host, Config: stats.LadderConfig{Targets: []string{"10.0.0.2:7000"}, FromPPS: 1600, By: "x2", StepNS: 10e9, SLOs: []string{"p99<50ms"}, Resolution: 0.03},
		Knee: stats.Knee{PPS: 3201, HeldPPS: 3150, BreaksPPS: 3250, Because: stats.OutcomeSaturated,
			Detail: "target saturated at 3.20 kpps: at 3.25 kpps asked, replies came at 3.20 kpps while 3.25 kpps were sent; 3.15 kpps held, and the generator was at 4 % of its own limit (duty)"},
		Verdict: stats.Verdict{Valid: true, Warnings: []stats.Reason{{Code: "repeated", Detail: "steps repeated, because one bad step alone proves nothing: 3 of 7; void ones, which say nothing of the target: 1"}}},
	}
	for _, x := range []struct {
		asked            float64
		phase            string
		try              int
		outcome, why, of string
		replied          float64
		top              int64
		lost             uint64
		water            float64
	}{
		{1600, "climb", 1, stats.OutcomeVoid, "lag: sending fell behind its plan by 3.00 ms at p99.9", "lag", 1590, 8e6, 0, 3},
		{1600, "climb", 2, stats.OutcomeHeld, "", "duty", 1600, 5.4e6, 0, 0.02},
		{3200, "climb", 1, stats.OutcomeHeld, "", "duty", 3200, 6.2e6, 0, 0.04},
		{6400, "climb", 1, stats.OutcomeSaturated, "replies came at 3.20 kpps while 6.40 kpps were sent, 25.00 % lost", "duty", 3201, 1.5e9, 16000, 0.07},
		{6400, "climb", 2, stats.OutcomeSaturated, "replies came at 3.20 kpps while 6.40 kpps were sent, 25.00 % lost", "duty", 3200, 1.5e9, 16000, 0.07},
		{3250, "bisect", 1, stats.OutcomeSaturated, "replies came at 3.20 kpps while 3.25 kpps were sent", "duty", 3201, 160e6, 0, 0.04},
		{3250, "bisect", 2, stats.OutcomeSaturated, "replies came at 3.20 kpps while 3.25 kpps were sent", "duty", 3201, 160e6, 0, 0.04},
	} {
		r := *echoRun()
		r.Latency = histOf(int(x.asked), 5e6, x.top)
		r.Rate.AchievedPPS, r.Rate.TargetPPS = x.asked, x.asked
		r.Ledger = stats.Ledger{Planned: uint64(10 * x.asked), Sent: uint64(10 * x.asked), Replied: uint64(10*x.asked) - x.lost, Lost: x.lost, LostUnknown: x.lost}
		if x.outcome == stats.OutcomeVoid {
			r.Verdict = stats.Verdict{Reasons: []stats.Reason{{Code: "lag", Detail: x.why}}}
		}
		l.Steps = append(l.Steps, stats.Step{AskedPPS: x.asked, Phase: x.phase, Try: x.try, Outcome: x.outcome, Why: x.why, ThroughputPPS: x.replied,
			Water: x.water, WaterOf: x.of, Result: r})
	}
	l.Normalize()
	return l
}

// changed is knownLadder with a change.
func changed(change func(*stats.Ladder)) *stats.Ladder {
	l := knownLadder()
	change(l)
	return l
}

func TestLadderGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		why  string
		l    *stats.Ladder
		o    Options
	}{
		{"ladder.txt", "a knee of the target", knownLadder(), Options{}},
		{"ladder_narrow.txt", "60 columns", knownLadder(), Options{Width: 60}},
		{"ladder_generator.txt", "a full generator, one way, interrupted after two steps", changed(func(l *stats.Ladder) {
			l.Steps = l.Steps[:3]
			for i := range l.Steps {
				l.Steps[i].Result.Config.Mode, l.Steps[i].Result.Latency, l.Steps[i].ThroughputPPS = stats.ModeOneway, new(stats.Hist).Summary(), 0
			}
			l.Knee = stats.Knee{PPS: 3200, HeldPPS: 3200, BreaksPPS: 6400, Because: stats.OutcomeVoid, Detail: "generator full at 3.20 kpps: the step at 6.40 kpps is void (duty)"}
			l.Verdict = stats.Verdict{Reasons: []stats.Reason{{Code: "generator", Detail: "this generator is full at 3.20 kpps, and that says nothing of the target"}}}
			l.Interrupted, l.Config.ToPPS, l.Config.SLOs = "interrupt", 10000, nil
		}), Options{Color: true}},
		{"ladder_nothing.txt", "no step at all", changed(func(l *stats.Ladder) {
			l.Steps, l.Verdict = nil, stats.Verdict{}
			l.Knee = stats.Knee{Because: stats.KneeNone, Detail: "no step was finished: nothing is known"}
		}), Options{}},
	} {
		t.Run(c.file, func(t *testing.T) {
			var b bytes.Buffer
			if err := Ladder(&b, c.l, c.o); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file, b.Bytes())
		})
	}
}

// The longest figures of a ladder fit the columns that Options names.
func TestLadderFitsItsColumns(t *testing.T) {
	l := changed(func(l *stats.Ladder) {
		for len(l.Steps) < 99 {
			l.Steps = append(l.Steps, l.Steps[6]) // "bisect, again"
		}
		last := &l.Steps[98]
		last.AskedPPS, last.ThroughputPPS, last.Water, last.WaterOf, last.Outcome = 99.9e6, 99.9e6, 99, "ceiling", stats.OutcomeVoid
		last.Result.Rate.AchievedPPS, last.Result.Ledger = 99.9e6, stats.Ledger{Planned: 9, Sent: 9, Lost: 9, LostUnknown: 9}
	})
	var b bytes.Buffer
	if err := Ladder(&b, l, Options{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A void step in the curves says so, and so does a scale that ends at one.
func TestCurvesMarkVoidSteps(t *testing.T) {
	l := changed(func(l *stats.Ladder) {
		void := l.Steps[0]
		void.AskedPPS, void.Result.Latency = 12800, histOf(12800, 5e6, 3e9)
		l.Steps = append(l.Steps, void)
	})
	var b bytes.Buffer
	if err := Ladder(&b, l, Options{}); err != nil {
		t.Fatal(err)
	}
	_, curves, _ := strings.Cut(b.String(), "(log)")
	page := strings.Join(strings.Fields(curves), " ")
	for _, want := range []string{"12.8 kpps ########## #################### #################### + void, INVALID full bars", "p99 2.97 s INVALID (each", "down to 5.40 ms)"} {
		if !strings.Contains(strings.ReplaceAll(page, "#+", "# +"), want) {
			t.Errorf("%q is missing in:\n%s", want, curves)
		}
	}
	if n := strings.Count(curves, "void, INVALID"); n != 1 {
		t.Errorf("%d steps are marked void, want 1:\n%s", n, curves)
	}
}

// TestLadderFile: what is written is read again unchanged, and files that contradict themselves are refused.
func TestLadderFile(t *testing.T) {
	l := knownLadder()
	var b bytes.Buffer
	if err := LadderJSON(&b, l); err != nil {
		t.Fatal(err)
	}
	whole := b.String()
	got, err := stats.ReadLadder(strings.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, got); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	for what, text := range map[string]string{
		"cut short":                 whole[:len(whole)/2],
		"empty":                     " \n",
		"another schema":            strings.Replace(whole, stats.LadderSchema, "blast.ladder/2", 1),
		"an unknown outcome":        strings.Replace(whole, `"outcome": "target"`, `"outcome": "maybe"`, 1),
		"a void step that is valid": strings.Replace(whole, `"outcome": "held"`, `"outcome": "generator"`, 1),
		"a VALID step whose ledger does not add up":    strings.Replace(whole, `"replied": 16000`, `"replied": 15999`, 2),
		"a histogram whose figures are not its bucket": strings.Replace(whole, `"p99": 5`, `"p99": 6`, 1),
	} {
		if text == whole {
			t.Fatalf("%s: nothing was changed", what)
		}
		if _, err := stats.ReadLadder(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read", what)
		}
	}
}
