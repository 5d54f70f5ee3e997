// Package verdict judges a Result: did the generator keep its own plan, so that the figures speak about the target?
//
// Judge is pure: the same Result and Limits give the same Verdict. Codes are stable; details carry a figure, its unit and, where
// a lower rate would help, an estimate of the rate that would have passed. It needs no privilege and no kernel.
package verdict

import (
	"time"

	"blast/stats"
)

// The codes that make a run INVALID.
const (
	CodeLag      = "lag"
	CodeLagTrend = "lag-trend"
	CodeRate     = "rate"
	CodeDuty     = "duty"
	CodeRefused  = "refused"
	CodeSelfLoss = "self-loss"
	CodeCeiling  = "ceiling"
	CodeLedger   = "ledger"
	CodeSteal    = "steal"
	CodeRange    = "range"
)

// The codes of warnings.
const (
	WarnSilent        = "silent"
	WarnNoPlan        = "no-plan"
	WarnMargin        = "margin"
	WarnNoCalibration = "no-calibration"
	WarnCopyMode      = "copy-mode"
	WarnIRQBalance    = "irqbalance"
	WarnGovernor      = "governor"
	WarnClocksource   = "clocksource"
	WarnFlows         = "flows"
	WarnNUMA          = "numa"
	WarnGSO           = "gso"
	WarnInterrupted   = "interrupted"
	WarnRounds        = "rounds"
	WarnClosed        = "closed"
	WarnLittle        = "little"
	WarnNonStationary = "non-stationary"
)

// Limits are the thresholds. A zero field means its default.
type Limits struct {
	// MaxLag is the largest lag p99.9; default: the run's own --max-lag, else 1 ms.
	MaxLag time.Duration
	// RateLow and RateHigh bound achieved / target; defaults 0.99 and 1.01. One packet more or less never fails a run.
	RateLow, RateHigh float64
	// Duty is the largest duty of any worker; default 0.70.
	Duty float64
	// Refused is the largest share of planned slots that may be refused, abandoned or dropped by the kernel; default 0.001.
	Refused float64
	// Steal is the largest share of CPU time that may be taken away, as the mean over the run; default 0.02. (What a burst
	// of it does to the plan shows in the lag.)
	Steal float64
	// Margin is the smallest ceiling / target that is not warned about; default 3.
	Margin float64
	// TrendShare is the rise of the per-second median lag over the run that counts as a trend, as a share of MaxLag;
	// default 0.10.
	TrendShare float64
}

// withDefaults fills the zero fields for r.
func (l Limits) withDefaults(r *stats.Result) Limits {
	if l.MaxLag == 0 {
		l.MaxLag = time.Duration(r.Config.MaxLagNS)
	}
	if l.MaxLag == 0 {
		l.MaxLag = time.Millisecond
	}
	fill := func(f *float64, v float64) {
		if *f == 0 {
			*f = v
		}
	}
	fill(&l.RateLow, 0.99)
	fill(&l.RateHigh, 1.01)
	fill(&l.Duty, 0.70)
	fill(&l.Refused, 0.001)
	fill(&l.Steal, 0.02)
	fill(&l.Margin, 3)
	fill(&l.TrendShare, 0.10)
	return l
}

// Judge returns the verdict on r, with the SLOs of r.Config.SLOs evaluated; r is not changed. The rounds in r.Rounds must have
// their verdicts already: half of them INVALID, or not judged, make the run INVALID, whichever round is the median.
func Judge(r *stats.Result, limits Limits) stats.Verdict {
	j := &judge{r: r, l: limits.withDefaults(r)}
	for _, x := range rules() {
		x.check(j)
	}
	j.rounds()
	j.warn()
	v := stats.Verdict{Reasons: j.reasons, Warnings: j.warnings, SLOs: evaluate(r)}
	v.Valid = len(v.Reasons) == 0
	return v
}

// Merged is Judge for a whole that was merged from shards, whose own reasons stay reasons: what one shard missed may be
// diluted in the whole. It judges whole's rounds, which are new as well, and writes their verdicts into them.
func Merged(whole *stats.Result, shards []*stats.Result, limits Limits) stats.Verdict {
	for i := range whole.Rounds {
		whole.Rounds[i].Verdict = Judge(&whole.Rounds[i], limits)
	}
	v := Judge(whole, limits)
	for _, s := range shards {
		v.Reasons = append(v.Reasons, prefixed("shard", s.Shard, s.Verdict.Reasons)...)
	}
	v.Valid = len(v.Reasons) == 0
	return v
}

// ExitCode is what a run's verdict means to a shell: 0 valid and SLOs met, 3 INVALID, 4 valid but an SLO failed.
func ExitCode(v stats.Verdict) int {
	if !v.Valid {
		return 3
	}
	for _, s := range v.SLOs {
		if !s.Met {
			return 4
		}
	}
	return 0
}

// judge collects findings on one result.
type judge struct {
	r                 *stats.Result
	l                 Limits
	reasons, warnings []stats.Reason
}
