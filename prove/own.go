package prove

import (
	"fmt"
	"strings"

	"blast/stats"
)

// baseline is control 1: how far the generator is from its own ceiling, against a no-op.
func baseline(e *Evidence) stats.Control {
	f := &finding{stats.Control{Name: stats.ControlBaseline}}
	b := &e.Baseline
	f.keep(b.Same, b.Ample)
	asked := stats.FormatPPS(e.AskedPPS)
	switch {
	case b.Same == nil:
		f.say("not measured on loopback%s", because(b.Why))
	case !b.Same.Verdict.Valid && e.Run != nil && e.Run.Verdict.Valid:
		f.decide(stats.PointsUnknown, "against a no-op on loopback %s was INVALID (%s), against the target it was VALID: loopback has less room here, for the no-op takes CPU from the generator", asked, codes(b.Same))
	case !b.Same.Verdict.Valid:
		f.decide(stats.PointsGenerator, "the generator cannot keep %s even against a no-op on loopback: INVALID (%s), %s sent", asked, codes(b.Same), stats.FormatPPS(b.Same.Rate.AchievedPPS))
	case b.Ample == nil:
		f.decide(stats.PointsUnknown, "%s was VALID against a no-op on loopback; %d times that was not tried%s", asked, Margin, because(b.Why))
	case !b.Ample.Verdict.Valid:
		f.decide(stats.PointsUnknown, "against a no-op on loopback %s was VALID, %s was not (%s; %s sent): the margin is below %d, so the generator is not far from its own ceiling",
			asked, stats.FormatPPS(Margin*e.AskedPPS), codes(b.Ample), stats.FormatPPS(b.Ample.Rate.AchievedPPS), Margin)
	default:
		f.decide(stats.PointsNeither, "against a no-op on loopback %s was VALID too: the margin is at least %d (3 to 5 is the rule)", stats.FormatPPS(Margin*e.AskedPPS), Margin)
	}
	stored(f, e)
	return f.done()
}

// stored adds what blast calibrate found. It settles the control only where nothing was measured now: loopback as it is now says more
// than one of some other day.
func stored(f *finding, e *Evidence) {
	c := e.Baseline.Stored
	if c == nil || e.AskedPPS <= 0 {
		return
	}
	margin := c.CeilingPPS / e.AskedPPS
	at := ""
	switch {
	case e.Baseline.Same != nil:
	case margin < 1:
		at = stats.PointsGenerator
	case margin < Margin:
		at = stats.PointsUnknown
	default:
		at = stats.PointsNeither
	}
	f.decide(at, "calibration %s has a ceiling of %s (one way, %d B, %s): %.2f times the rate", c.ID, stats.FormatPPS(c.CeilingPPS), c.PayloadBytes, plural(c.Workers, "worker"), margin)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// codes are the reasons of a verdict in short.
func codes(r *stats.Result) string { return strings.Join(stats.Codes(r.Verdict.Reasons), ", ") }

// generator is control 2, with the schedule lag as its hard gate: a verdict of INVALID settles it.
func generator(e *Evidence) stats.Control {
	f := &finding{stats.Control{Name: stats.ControlGenerator, Use: e.Own}}
	f.keep(e.Run)
	if e.Run == nil {
		f.say("nothing was sent to the target")
		return f.done()
	}
	gate(f, e)
	if e.Unsettled != "" {
		f.decide(stats.PointsUnknown, "the target had work from elsewhere, or is slow to finish: %s", e.Unsettled)
	}
	if e.Own == nil {
		f.decide(stats.PointsUnknown, "the cores of this host were not read twice during the run")
		return f.done()
	}
	ownCores(f, e)
	ownLosses(f, e)
	ownRooms(f, e.Own)
	return f.done()
}

// gate is the run's own verdict.
func gate(f *finding, e *Evidence) {
	r := e.Run
	again := ""
	if e.Attempts > 1 {
		again = fmt.Sprintf(" (in attempt %d; before, it was INVALID)", e.Attempts)
	}
	if r.Verdict.Valid {
		f.decide(stats.PointsNeither, "the run was VALID%s: %s sent of %s asked, lag p99.9 %s, busiest worker %s of its time", again, stats.FormatPPS(r.Rate.AchievedPPS),
			stats.FormatPPS(r.Rate.TargetPPS), stats.FormatNS(r.Lag.P999), stats.FormatPercent(r.Duty()))
		return
	}
	if e.Attempts > 1 {
		again = fmt.Sprintf(" in all %d attempts", e.Attempts)
	}
	for i, reason := range r.Verdict.Reasons {
		at := stats.PointsGenerator
		if contradicts(reason.Code) {
			at = stats.PointsUnknown
		}
		if i > 0 {
			again = ""
		}
		f.decide(at, "INVALID%s: %s: %s", again, reason.Code, reason.Detail)
	}
}

// ownCores looks at each core by itself: an average hides the one that is full. Time that a worker waits by spinning is room. A full core
// does not make the generator the wall while the plan is kept, but it is a doubt.
func ownCores(f *finding, e *Evidence) {
	worker := map[int]bool{}
	for i := range e.Run.Workers {
		worker[e.Run.Workers[i].CPU] = true
	}
	for _, c := range e.Own.Cores {
		if !worker[c.CPU] && e.OwnRemark != "" {
			continue
		}
		level := c.Busy - c.Waited
		text := fmt.Sprintf("CPU %d was at %s", c.CPU, stats.FormatPercent(level))
		if c.Waited > 0 {
			text += fmt.Sprintf(" (busy %s, of which %s was waiting for the next packet)", stats.FormatPercent(c.Busy), stats.FormatPercent(c.Waited))
		}
		at := stats.PointsNeither
		switch {
		case level > full:
			at = stats.PointsUnknown
			text += fmt.Sprintf(", above the limit of %s: no room", stats.FormatPercent(full))
		case level > fair:
			at = stats.PointsUnknown
			text += fmt.Sprintf(", between %s and %s: hardly any room", stats.FormatPercent(fair), stats.FormatPercent(full))
		}
		if c.Steal > taken {
			at = stats.PointsUnknown
			text += fmt.Sprintf("; the hypervisor took %s", stats.FormatPercent(c.Steal))
		}
		f.decide(at, "%s", text)
	}
	if e.OwnRemark != "" {
		f.say("%s", e.OwnRemark)
	}
}

// ownLosses are packets that this host lost after the generator had handed them over: they look like the target's losses.
func ownLosses(f *finding, e *Evidence) {
	var lost []string
	var most int64
	for _, c := range e.Own.Counters {
		switch counterField(c.Name) {
		case "SndbufErrors", "tx_dropped", "tx_errors", "OutDiscards", "drop", "insert_failed":
		default:
			continue
		}
		if c.Delta > 0 {
			lost = append(lost, fmt.Sprintf("%s %s", c.Name, stats.FormatCount(uint64(c.Delta))))
			most = max(most, c.Delta)
		}
	}
	if len(lost) == 0 {
		f.say("no send errors or drops on this host, %s replies lost on its way in", stats.FormatCount(e.Run.Ledger.SelfLost))
		return
	}
	at := stats.PointsNeither
	if float64(most) > few*float64(e.Run.Ledger.Sent) {
		at = stats.PointsGenerator
	}
	f.decide(at, "this host's counters of losses moved: %s", strings.Join(lost, ", "))
}

// counterField is what a counter counts: its name without the protocol or interface, which may have points of its own, such as eth0.100.
func counterField(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func ownRooms(f *finding, use *stats.HostUse) {
	var text []string
	at := stats.PointsNeither
	for _, r := range use.Rooms {
		text = append(text, fmt.Sprintf("%s %s of %s", r.Name, stats.FormatCount(r.Used), stats.FormatCount(r.Limit)))
		if float64(r.Used) > busy*float64(r.Limit) {
			at = stats.PointsUnknown
			text[len(text)-1] += " (nearly all)"
		}
	}
	if len(text) > 0 {
		f.decide(at, "%s", strings.Join(text, ", "))
	}
}
