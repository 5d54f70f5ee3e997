package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

// proofOf has two measured controls and three that nobody could make.
func proofOf(points, detail string) *stats.Prove {
	run := func(sent, answered float64) stats.Result {
		r := echoRun()
		r.Rate.TargetPPS, r.Rate.AchievedPPS, r.Rate.RepliedPPS = 50000, sent, answered
		l := &r.Ledger
		l.Late, l.InFlight, l.LostUp, l.LostDown, l.Replied = 0, 0, 0, 0, uint64(float64(l.Sent)*answered/sent)
		l.Lost = l.Sent - l.Replied
		l.LostUnknown = l.Lost
		return *r
	}
	bad := *invalid(echoRun())
	v := &stats.Prove{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), RunID: "9b1c", Command: []string{"blast", "prove", "10.0.0.2:7000", "--rate", "50k"}, Host: echoRun().Host,
		Targets: []string{"10.0.0.2:7000"}, AskedPPS: 50000, Conclusion: stats.Conclusion{Points: points, Detail: detail},
		Controls: []stats.Control{
			{Name: stats.ControlBaseline, Points: stats.PointsNeither, Evidence: []string{"against a no-op on loopback 150 kpps was VALID too: the margin is at least 3 (3 to 5 is the rule)"},
				Results: []stats.Result{run(50000, 50000)}},
			{Name: stats.ControlGenerator, Points: stats.PointsNeither, Evidence: []string{"the run was VALID: 50.0 kpps sent of 50.0 kpps asked, lag p99.9 60.0 us, busiest worker 41.00 % of its time",
				"CPU 2 was at 41.00 %", "file descriptors 70 of 1,048,576"}, Results: []stats.Result{run(50000, 21000)},
				Use: &stats.HostUse{Source: "this host", CoresNS: 35e8, Cores: []stats.CoreUse{{CPU: 2, Busy: 0.41}}}},
			{Name: stats.ControlTarget, Points: stats.PointsUnknown, Evidence: []string{"unknown (nobody was asked about the target's host)"}},
			{Name: stats.ControlNoop, Points: stats.PointsTarget, Evidence: []string{"a no-op on loopback answered 50.0 kpps where the target answered 21.0 kpps (2.38 times): the target was the wall"}},
			{Name: stats.ControlTwo, Points: stats.PointsUnknown, Results: []stats.Result{run(50000, 10500), bad}},
		},
	}
	v.Normalize()
	return v
}

func TestProveGolden(t *testing.T) {
	target := proofOf(stats.PointsTarget, "the target (or the path to it: nothing on its host was looked at) is the wall, at about 21.0 kpps")
	early := proofOf(stats.PointsUnknown, "cannot tell: it ended early (interrupted)")
	early.Interrupted = "interrupted"
	early.Controls = early.Controls[:2]
	for _, c := range []struct {
		file, why string
		v         *stats.Prove
		o         Options
	}{
		{"prove.txt", "a slow target, with controls of every kind", target, Options{}},
		{"prove_early.txt", "ended by hand, 60 columns and colour", early, Options{Width: 60, Color: true}},
	} {
		t.Run(c.file, func(t *testing.T) {
			var b bytes.Buffer
			if err := Prove(&b, c.v, c.o); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file, b.Bytes())
		})
	}
}

// What ProveJSON writes, ReadProve reads back the same; and it refuses what is no proof.
func TestProveJSON(t *testing.T) {
	want := proofOf(stats.PointsNeither, "nobody")
	var b bytes.Buffer
	if err := ProveJSON(&b, want); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "null") {
		t.Error("null in JSON")
	}
	got, err := stats.ReadProve(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ text, says string }{
		{"", "cut short"}, {b.String()[:b.Len()/2], "cut short"}, {`{"schema":"blast.result/1"}`, `schema "blast.result/1", want "blast.prove/1"`},
		{`{"schema":"blast.prove/1"}`, "no controls"},
		{strings.Replace(b.String(), `"sent": 1499000`, `"sent": 1499001`, 1), "control baseline: result 1: says VALID, but"},
	} {
		if _, err := stats.ReadProve([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.30q: %v, want %q", c.text, err, c.says)
		}
	}
}
