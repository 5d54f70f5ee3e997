package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"blast/stats"
)

// rule is what makes a run INVALID.
type rule struct {
	code  string
	check func(*judge)
	early bool // it can be applied before the end
}

// rules are all of them, in the order in which their reasons are given. Before the end the ledger is open, and a trend is not one yet.
func rules() []rule {
	return []rule{
		{CodeRate, (*judge).rate, true},
		{CodeLag, (*judge).lag, true},
		{CodeLagTrend, (*judge).lagTrend, false},
		{CodeDuty, (*judge).duty, true},
		{CodeRefused, (*judge).refused, true},
		{CodeSelfLoss, (*judge).selfLoss, true},
		{CodeCeiling, (*judge).ceiling, true},
		{CodeLedger, (*judge).ledger, false},
		{CodeSteal, (*judge).steal, true},
		{CodeRange, (*judge).inRange, true},
	}
}

// invalid adds a reason.
func (j *judge) invalid(code, format string, args ...any) {
	j.reasons = append(j.reasons, stats.Reason{Code: code, Detail: fmt.Sprintf(format, args...)})
}

// wouldPass ends a detail with the estimate of a rate that would have passed.
func wouldPass(pps float64) string {
	return "; about " + stats.FormatPPS(pps) + " would have passed"
}

// sustainable estimates the rate that this generator would have kept: what it achieved, and what its busiest worker could do
// at the limit of duty, less 5 % for luck.
func (j *judge) sustainable() float64 {
	pps := j.r.Rate.AchievedPPS
	if w := j.busiest(); w != nil && w.Duty > j.l.Duty {
		pps = min(pps, pps*j.l.Duty/w.Duty)
	}
	return 0.95 * pps
}

func (j *judge) busiest() *stats.Worker {
	if len(j.r.Workers) == 0 {
		return nil
	}
	i := 0
	for k := range j.r.Workers {
		if j.r.Workers[k].Duty > j.r.Workers[i].Duty {
			i = k
		}
	}
	return &j.r.Workers[i]
}

// rate compares counts, not only the ratio, so that a run of few packets does not fail by where its ends fall.
func (j *judge) rate() {
	rate := &j.r.Rate
	if j.r.Ledger.Sent == 0 {
		j.invalid(CodeRate, "0 packets were sent of %s planned: nothing was measured", stats.FormatCount(j.r.Ledger.Planned))
		return
	}
	if !j.r.Config.Paced {
		return
	}
	if rate.TargetPPS <= 0 {
		j.invalid(CodeRate, "the run was paced, but its target rate is %s", stats.FormatPPS(rate.TargetPPS))
		return
	}
	share := rate.AchievedPPS / rate.TargetPPS
	if offBy := math.Abs(rate.AchievedPPS-rate.TargetPPS) * float64(rate.ElapsedNS) / 1e9; offBy <= 1 {
		return
	}
	says := fmt.Sprintf("sent %s of %s asked: %s of the target", stats.FormatPPS(rate.AchievedPPS), stats.FormatPPS(rate.TargetPPS), stats.FormatPercent(share))
	switch {
	case share < j.l.RateLow:
		j.invalid(CodeRate, "%s, below %s%s", says, stats.FormatPercent(j.l.RateLow), wouldPass(j.sustainable()))
	case share > j.l.RateHigh:
		j.invalid(CodeRate, "%s, above %s: the generator ran ahead of its plan", says, stats.FormatPercent(j.l.RateHigh))
	}
}

func (j *judge) lag() {
	lag := &j.r.Lag
	switch {
	case j.r.Config.Model == stats.ModelClosed && lag.P999 > int64(j.l.MaxLag):
		j.invalid(CodeLag, "the generator took %s at p99.9 (p50 %s, max %s) from a reply and think time to its client's next request, above the limit of %s: "+
			"its own work is in these figures; fewer clients would have passed", stats.FormatNS(lag.P999), stats.FormatNS(lag.P50), stats.FormatNS(lag.Max),
			stats.FormatDuration(j.l.MaxLag))
	case !j.r.Config.Paced:
	case lag.Count == 0 && j.r.Ledger.Sent > 0:
		j.invalid(CodeLag, "no lag was recorded for the %s packets sent: nothing shows that the plan was kept", stats.FormatCount(j.r.Ledger.Sent))
	case lag.P999 > int64(j.l.MaxLag):
		j.invalid(CodeLag, "sending fell behind its plan by %s at p99.9 (p50 %s, max %s), above the limit of %s%s",
			stats.FormatNS(lag.P999), stats.FormatNS(lag.P50), stats.FormatNS(lag.Max), stats.FormatDuration(j.l.MaxLag), wouldPass(j.sustainable())+j.stalls())
	}
}

// stalls says when lag is no matter of the rate: the rate was kept and no worker was busy, so something else held them up.
func (j *judge) stalls() string {
	if c := &j.r.Config; c.Model == stats.ModelBlocking || c.MaxInFlight > 0 {
		return " if replies had come faster; packets wait for them in this model, so more senders, a larger cap or the open model would have kept the plan"
	}
	w := j.busiest()
	if w == nil || w.Duty > j.l.Duty || j.r.Rate.AchievedPPS < j.l.RateLow*j.r.Rate.TargetPPS {
		return ""
	}
	var preempted int64
	for i := range j.r.Workers {
		preempted += j.r.Workers[i].InvoluntarySwitches
	}
	return fmt.Sprintf(" if load did it; but the rate was kept and no worker was busy above %s, so look for stalls first (%s preemptions): give the workers cores of their own",
		stats.FormatPercent(j.l.Duty), stats.FormatCount(uint64(max(preempted, 0))))
}

func (j *judge) duty() {
	w := j.busiest()
	if !j.r.Config.Paced || w == nil || w.Duty <= j.l.Duty {
		return
	}
	over := 0
	for i := range j.r.Workers {
		if j.r.Workers[i].Duty > j.l.Duty {
			over++
		}
	}
	j.invalid(CodeDuty, "%d of %d workers were busy for more than %s of the time, the most %s (%s); %s", over, len(j.r.Workers),
		stats.FormatPercent(j.l.Duty), onCPU(w), stats.FormatPercent(w.Duty),
		"about "+stats.FormatPPS(j.sustainable())+" would have passed, or more workers")
}

func onCPU(w *stats.Worker) string {
	if w.CPU < 0 {
		return "an unpinned one"
	}
	return fmt.Sprintf("the one on CPU %d", w.CPU)
}

func (j *judge) refused() {
	l := &j.r.Ledger
	if l.Planned == 0 {
		return
	}
	share := float64(l.Unsent()) / float64(l.Planned)
	if share <= j.l.Refused {
		return
	}
	advice := ""
	if j.r.Config.Paced {
		advice = wouldPass(min(0.95*j.r.Rate.TargetPPS*(1-share), j.sustainable()))
	}
	j.invalid(CodeRefused, "%s of %s planned packets (%s, limit %s) never left: %s refused%s, %s abandoned, %s dropped by the kernel%s",
		stats.FormatCount(l.Unsent()), stats.FormatCount(l.Planned), stats.FormatPercent(share), stats.FormatPercent(j.l.Refused),
		stats.FormatCount(l.RefusedTotal()), mostly(l.Refused), stats.FormatCount(l.Abandoned), stats.FormatCount(l.KernelDropped), advice)
}

// mostly names the cause with the largest count.
func mostly(causes map[string]uint64) string {
	name, most := "", uint64(0)
	for c, n := range causes {
		if n > most || n == most && n > 0 && c < name {
			name, most = c, n
		}
	}
	if most == 0 {
		return ""
	}
	return " (mostly " + name + ")"
}

func (j *judge) selfLoss() {
	l := &j.r.Ledger
	if l.SelfLost == 0 {
		return
	}
	advice := "; a larger receive buffer or more workers help"
	if j.r.Rate.RepliedPPS > 0 {
		advice += wouldPass(0.95 * j.r.Rate.RepliedPPS)
	}
	j.invalid(CodeSelfLoss, "the generator's own receive path dropped %s replies: they look like the target's loss and are not%s",
		stats.FormatCount(l.SelfLost), advice)
}

func (j *judge) ceiling() {
	c := j.r.Calibration
	if c == nil || !j.r.Config.Paced || j.r.Rate.TargetPPS <= c.CeilingPPS {
		return
	}
	j.invalid(CodeCeiling, "the target of %s is above this host's calibrated ceiling of %s%s", stats.FormatPPS(j.r.Rate.TargetPPS),
		stats.FormatPPS(c.CeilingPPS), wouldPass(c.CeilingPPS))
}

func (j *judge) ledger() {
	if err := j.r.Ledger.Check(j.r.Config.Mode); err != nil {
		j.invalid(CodeLedger, "the packets do not add up: %v; no rate would have passed, the counts themselves are wrong", err)
	}
	for _, c := range j.r.Counters {
		if c.Name == stats.CounterSent && c.Delta >= 0 && uint64(c.Delta) < j.r.Ledger.Sent {
			j.invalid(CodeLedger, "the interface sent %s packets in all, %s fewer than the %s counted as sent",
				stats.FormatCount(uint64(c.Delta)), stats.FormatCount(j.r.Ledger.Sent-uint64(c.Delta)), stats.FormatCount(j.r.Ledger.Sent))
		}
	}
}

// steal is the mean over the run, each interval by its length.
func (j *judge) steal() {
	var taken, before float64
	worst := stats.Second{}
	for _, s := range j.r.Timeline {
		taken += s.Steal * (s.T - before)
		before = s.T
		if s.Steal > worst.Steal {
			worst = s
		}
	}
	if before <= 0 || taken/before <= j.l.Steal {
		return
	}
	j.invalid(CodeSteal, "the hypervisor or a cgroup quota took %s of the CPU time (limit %s; worst %s in the interval to %.0f s): no rate is safe until that ends",
		stats.FormatPercent(taken/before), stats.FormatPercent(j.l.Steal), stats.FormatPercent(worst.Steal), worst.T)
}

func (j *judge) inRange() {
	for _, h := range []struct {
		name string
		hist *stats.Histogram
	}{{"lag", &j.r.Lag}, {"latency", &j.r.Latency}, {"service time", &j.r.Service}, {"server time", &j.r.Server}, {"gap", &j.r.Gap}} {
		if h.hist.Refused > 0 {
			j.invalid(CodeRange, "%s values of %s fell outside 0 ns to 1 h, which a histogram holds: percentiles would be without them",
				stats.FormatCount(h.hist.Refused), h.name)
		}
	}
}

// rounds makes the run INVALID when at least half of its rounds are, whichever of them is the headline.
func (j *judge) rounds() {
	var reasons []stats.Reason
	bad := 0
	for i := range j.r.Rounds {
		if v := &j.r.Rounds[i].Verdict; !v.Valid {
			bad++
			if len(v.Reasons) == 0 {
				reasons = append(reasons, stats.Reason{Code: CodeLedger, Detail: fmt.Sprintf("round %d of %d has no verdict", i+1, len(j.r.Rounds))})
			}
			reasons = append(reasons, prefixed("round", i+1, v.Reasons)...)
		}
	}
	switch {
	case bad == 0:
	case 2*bad >= len(j.r.Rounds):
		j.reasons = append(j.reasons, reasons...)
	default:
		j.warning(WarnRounds, "%d of %d rounds were INVALID (%s): they are listed and marked; run again for %d good ones", bad, len(j.r.Rounds), codes(reasons), len(j.r.Rounds))
	}
}

func prefixed(what string, n int, reasons []stats.Reason) []stats.Reason {
	out := make([]stats.Reason, len(reasons))
	for i, r := range reasons {
		out[i] = stats.Reason{Code: r.Code, Detail: fmt.Sprintf("%s %d: %s", what, n, r.Detail)}
	}
	return out
}

func codes(reasons []stats.Reason) string {
	var names []string
	for _, r := range reasons {
		names = append(names, r.Code)
	}
	slices.SortFunc(names, cmp.Compare[string])
	out := ""
	for i, n := range slices.Compact(names) {
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}
