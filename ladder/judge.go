package ladder

import (
	"fmt"
	"strings"

	"blast/stats"
)

// dutyLimit is the default of verdict.Limits.Duty, above which a run is INVALID.
const dutyLimit = 0.70

// judge decides the outcome of a step; usual is the share of packets that is answered at any rate, 1 for all.
func judge(s *stats.Step, usual float64) {
	r := &s.Result
	back, _ := r.Settled() // or what the ledger says, in a step with few intervals
	s.ThroughputPPS = back.Throughput()
	s.Water, s.WaterOf = water(r)
	s.Outcome, s.Why = stats.OutcomeHeld, ""
	switch {
	case !r.Verdict.Valid:
		s.Outcome, s.Why = stats.OutcomeVoid, void(r)
		return
	case r.Config.Mode != stats.ModeOneway && !back.KeptUp(usual):
		s.Outcome, s.Why = stats.OutcomeSaturated, behind(r, &back)
		return
	}
	for _, slo := range r.Verdict.SLOs {
		if !slo.Met {
			s.Outcome, s.Why = stats.OutcomeSLO, slo.Text+" "+slo.Detail
			return
		}
	}
}

// void says in a phrase why a step is.
func void(r *stats.Result) string {
	if len(r.Verdict.Reasons) == 0 {
		return "nobody has judged it"
	}
	short, _, _ := strings.Cut(r.Verdict.Reasons[0].Detail, ";")
	return strings.Join(stats.Codes(r.Verdict.Reasons), ", ") + ": " + short
}

// behind says in a phrase how the target did not keep up.
func behind(r *stats.Result, back *stats.Settled) string {
	l := &r.Ledger
	text := fmt.Sprintf("replies came at %s while %s were sent", stats.FormatPPS(back.Throughput()), stats.FormatPPS(back.Throughput()/max(back.Share(), 1e-9)))
	if back.Share() <= 0 {
		text = fmt.Sprintf("no reply came to %s packets", stats.FormatCount(l.Sent))
	}
	if lost, ok := l.Loss(); ok && lost > 0 {
		text += fmt.Sprintf(", %s lost", stats.FormatPercent(lost))
	}
	if back.Share() > 0 && r.Latency.Max > 0 {
		text += fmt.Sprintf(", latency up to %s", stats.FormatNS(r.Latency.Max))
	}
	return text
}

// water is the generator's own level: the largest share of a limit that it used, 1 being full, and the name of that limit.
func water(r *stats.Result) (level float64, of string) {
	level, of = r.Duty()/dutyLimit, "duty"
	if limit := r.Config.MaxLagNS; limit > 0 {
		if lag := float64(r.Lag.P999) / float64(limit); lag > level {
			level, of = lag, "lag"
		}
	}
	if c := r.Calibration; c != nil && c.CeilingPPS > 0 {
		if share := r.Rate.TargetPPS / c.CeilingPPS; share > level {
			level, of = share, "ceiling"
		}
	}
	return level, of
}
