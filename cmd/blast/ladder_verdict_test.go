package main

import (
	"context"
	"slices"
	"testing"

	"blast/ladder"
	"blast/stats"
	"blast/verdict"
)

// stepped is the first rate of a ladder on which every step comes out as r.
func stepped(t *testing.T, r stats.Result) *stats.Ladder {
	t.Helper()
	l, err := ladder.Run(t.Context(), ladder.Config{From: 1000, To: 1000, Floor: 1000, Factor: 2, Run: func(context.Context, float64) (*stats.Result, error) { return &r, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The ladder knows the limit of duty and the codes of a verdict by value, for it imports nothing that judges.
func TestLadderKnowsTheVerdict(t *testing.T) {
	for _, duty := range []float64{0.69, 0.71} {
		r := stats.Result{Config: stats.Config{Mode: stats.ModeOneway, Paced: true}, Workers: []stats.Worker{{Duty: duty}}}
		busy := slices.ContainsFunc(verdict.Judge(&r, verdict.Limits{}).Reasons, func(reason stats.Reason) bool { return reason.Code == verdict.CodeDuty })
		if s := &stepped(t, r).Steps[0]; (s.Water > 1) != busy || s.WaterOf != "duty" {
			t.Errorf("duty %g: %g of %s, and the verdict's too busy is %v", duty, s.Water, s.WaterOf, busy)
		}
	}
	for _, c := range []struct {
		why, code string
		duty      float64
		steps     int
	}{
		{"above the calibrated ceiling there is nothing to repeat", verdict.CodeCeiling, 0.1, 1},
		{"too busy is believed when it happens twice", verdict.CodeDuty, 0.8, 2},
		{"late while busy may be a neighbour", verdict.CodeLag, 0.5, 3},
		{"the same, growing", verdict.CodeLagTrend, 0.5, 3},
		{"the same, by stolen time", verdict.CodeSteal, 0.5, 3},
		{"late without being busy surely is", verdict.CodeLag, 0.1, 4},
		{"and so is less than the rate", verdict.CodeRate, 0.1, 4},
		{"what is given up without a refusal comes of being late", verdict.CodeRefused, 0.1, 4},
		{"counts that contradict each other do not", verdict.CodeLedger, 0.1, 2},
	} {
		r := stats.Result{Config: stats.Config{Mode: stats.ModeOneway}, Workers: []stats.Worker{{Duty: c.duty}}, Verdict: stats.Verdict{Reasons: []stats.Reason{{Code: c.code}}}}
		if l := stepped(t, r); len(l.Steps) != c.steps {
			t.Errorf("%s: %d steps, want %d", c.why, len(l.Steps), c.steps)
		}
	}
}
