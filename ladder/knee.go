package ladder

import (
	"fmt"

	"blast/stats"
)

// The codes of a ladder's verdict.
const (
	// CodeGenerator and CodeNone make it not valid: the generator was the wall, or not one step held.
	CodeGenerator = "generator"
	CodeNone      = "none"
	// CodeInterrupted makes it not valid: it ended before it had found anything.
	CodeInterrupted = "interrupted"
	// CodeUnconfirmed makes it not valid: what it found rests on a step that could not be repeated.
	CodeUnconfirmed = "unconfirmed"
	// The rest are warnings.
	WarnRepeated  = "repeated"
	WarnDisturbed = "disturbed"
	WarnLossy     = "lossy"
	WarnCollapse  = "collapse"
	WarnWide      = "wide"
	WarnOneway    = "oneway"
)

// conclude names the knee and the verdict.
func (s *search) conclude() {
	k := &s.out.Knee
	k.HeldPPS, k.BreaksPPS = s.low, s.high
	v := &s.out.Verdict
	v.Valid, v.Reasons, v.Warnings, v.SLOs = true, []stats.Reason{}, []stats.Reason{}, []stats.SLO{}
	if x := s.last(s.low, stats.OutcomeHeld); x != nil {
		v.SLOs = append(v.SLOs, x.Result.Verdict.SLOs...)
	}
	switch {
	case len(s.out.Steps) == 0:
		k.Because, k.Detail = stats.KneeNone, "no step was finished: nothing is known"
		s.invalid(CodeNone, k.Detail)
	case s.high == 0 && s.out.Interrupted != "":
		k.Because, k.PPS, k.Detail = stats.KneeTop, s.low, fmt.Sprintf("ended early: up to %s nothing had given", stats.FormatPPS(s.low))
		if s.low == 0 {
			k.Because, k.Detail = stats.KneeNone, "ended early: not one rate was settled"
		}
		s.invalid(CodeInterrupted, k.Detail)
	case s.high == 0 && s.above() != 0:
		s.cannotTell()
	case s.high == 0:
		k.Because, k.PPS, k.Detail = stats.KneeTop, s.low, s.top()
	case s.low == 0:
		s.nothing()
	case s.because == stats.OutcomeSaturated:
		s.saturated()
	case s.because == stats.OutcomeSLO:
		k.Because, k.PPS = stats.OutcomeSLO, s.low
		x := s.last(s.high, stats.OutcomeSLO)
		k.Detail = fmt.Sprintf("SLO broken at %s: %s; %s held. The target kept up at both, and the generator was %s", stats.FormatPPS(s.high), x.Why,
			stats.FormatPPS(s.low), level(s.last(s.low, stats.OutcomeHeld)))
		v.SLOs = x.Result.Verdict.SLOs
	default:
		k.Because, k.PPS = stats.OutcomeVoid, s.low
		held := s.last(s.low, stats.OutcomeHeld)
		so := "The target kept up with all that this generator can send, so its limit is not known"
		if held.Result.Config.Mode == stats.ModeOneway {
			so = "Nothing came back, so nothing is known of the target"
		}
		if s.atCeiling() {
			so = "It is the calibrated ceiling of this host. " + so
		}
		k.Detail = fmt.Sprintf("generator full at %s: the step at %s is void (%s). %s; at %s the generator was %s", stats.FormatPPS(s.low), stats.FormatPPS(s.high),
			s.last(s.high, stats.OutcomeVoid).Why, so, stats.FormatPPS(s.low), level(held))
		s.invalid(CodeGenerator, fmt.Sprintf("this generator is full at %s, and that says nothing of the target", stats.FormatPPS(s.low)))
	}
	if s.unconfirmed {
		k.Detail += ". It rests on a step that could not be repeated"
		s.invalid(CodeUnconfirmed, fmt.Sprintf("one bad step at %s proves nothing", stats.FormatPPS(s.high)))
	}
	s.warn()
}

func (s *search) invalid(code, detail string) {
	s.out.Verdict.Valid = false
	s.out.Verdict.Reasons = append(s.out.Verdict.Reasons, stats.Reason{Code: code, Detail: detail})
}

// top is the sentence of a ladder on which nothing gave.
func (s *search) top() string {
	x := s.last(s.low, stats.OutcomeHeld)
	what := "the target kept up"
	if x != nil && x.Result.Config.Mode == stats.ModeOneway {
		what = "the generator kept its plan (oneway: nothing is known of the target)"
	} else if x != nil && len(x.Result.Verdict.SLOs) > 0 {
		what += ", and every SLO was met"
	}
	end := "the top of the ladder"
	if s.next(s.low) != 0 {
		end = fmt.Sprintf("after %d rates, the most that a climb has (a larger stride, such as --by x2, goes further)", maxClimb)
	}
	return fmt.Sprintf("nothing gave up to %s, %s: %s, and the generator was %s", stats.FormatPPS(s.low), end, what, level(x))
}

// saturated names the target's own throughput: what it answers when it is asked for more, held against the highest rate that held.
func (s *search) saturated() {
	k := &s.out.Knee
	x := s.last(s.high, stats.OutcomeSaturated)
	k.Because, k.PPS = stats.OutcomeSaturated, max(x.ThroughputPPS, s.low)
	held := s.last(s.low, stats.OutcomeHeld)
	k.Detail = fmt.Sprintf("target saturated at %s: at %s asked, %s; %s held, and the generator was %s", stats.FormatPPS(k.PPS), stats.FormatPPS(s.high), x.Why,
		stats.FormatPPS(s.low), level(held))
}

// nothing is the end of a ladder without a rate that held.
func (s *search) nothing() {
	k := &s.out.Knee
	x := s.last(s.high, s.because)
	k.Because = stats.KneeNone
	at := stats.FormatPPS(s.high)
	switch s.because {
	case stats.OutcomeSaturated:
		k.Detail = fmt.Sprintf("not one step held: even at %s the target did not keep up: %s", at, x.Why)
	case stats.OutcomeSLO:
		k.Detail = fmt.Sprintf("not one step held: even at %s, where the target kept up, an SLO was missed: %s", at, x.Why)
		s.out.Verdict.SLOs = x.Result.Verdict.SLOs
		return
	default:
		k.Detail = fmt.Sprintf("not one step held: even at %s the generator did not keep its plan: %s", at, x.Why)
	}
	s.invalid(CodeNone, k.Detail)
}

// above is the lowest rate above low that was skipped, 0 for none.
func (s *search) above() float64 {
	lowest := 0.0
	for _, pps := range s.skipped {
		if pps > s.low && (lowest == 0 || pps < lowest) {
			lowest = pps
		}
	}
	return lowest
}

// cannotTell is the end of a ladder that something beside the load stopped.
func (s *search) cannotTell() {
	k := &s.out.Knee
	k.BreaksPPS, k.PPS, k.Because = s.above(), s.low, stats.OutcomeVoid
	before := fmt.Sprintf("up to %s nothing gave", stats.FormatPPS(s.low))
	if s.low == 0 {
		k.Because, before = stats.KneeNone, "no rate held"
	}
	x := s.last(k.BreaksPPS, stats.OutcomeVoid)
	k.Detail = fmt.Sprintf("generator disturbed at %s: every step there is void (%s), though its workers were busy for %s of the time only: something else on this machine holds them up. "+
		"%s; run again on a quieter machine, with cores of its own for blast, or allow more with --max-lag", stats.FormatPPS(k.BreaksPPS), x.Why, stats.FormatPercent(x.Result.Duty()), before)
	s.invalid(CodeGenerator, "the steps show what disturbs this generator, and nothing of the target")
}

// least is the step in which an overloaded target did least, nil for none.
func (s *search) least() *stats.Step {
	var least *stats.Step
	for i := range s.out.Steps {
		if x := &s.out.Steps[i]; x.Outcome == stats.OutcomeSaturated && (least == nil || x.ThroughputPPS < least.ThroughputPPS) {
			least = x
		}
	}
	return least
}

// level says how full the generator was.
func level(x *stats.Step) string {
	if x == nil {
		return "not seen"
	}
	return fmt.Sprintf("at %.0f %% of its own limit (%s)", 100*x.Water, x.WaterOf)
}

// warn adds what a reader should know of how the answer was found.
func (s *search) warn() {
	add := func(code, format string, args ...any) {
		s.out.Verdict.Warnings = append(s.out.Verdict.Warnings, stats.Reason{Code: code, Detail: fmt.Sprintf(format, args...)})
	}
	void, repeats := 0, 0
	for i := range s.out.Steps {
		x := &s.out.Steps[i]
		if x.Try > 1 {
			repeats++
		}
		if x.Outcome == stats.OutcomeVoid {
			void++
		}
	}
	if repeats > 0 {
		add(WarnRepeated, "steps repeated, because one bad step alone proves nothing: %d of %d; void ones, which say nothing of the target: %d", repeats, len(s.out.Steps), void)
	}
	if len(s.skipped) > 0 && s.high > 0 {
		add(WarnDisturbed, "rates passed over, because something else on this machine held blast up at each of their steps: %d", len(s.skipped))
	}
	if s.repeats == 0 {
		add(WarnRepeated, "the %d repeats that a ladder may take are used up; run again on a quieter machine", maxRepeats)
	}
	if s.usual < 1 {
		add(WarnLossy, "%s of the packets are answered at any rate: the ladder looks for where that share falls", stats.FormatPercent(s.usual))
	}
	if x := s.least(); x != nil && s.out.Knee.Because == stats.OutcomeSaturated && x.ThroughputPPS < 0.95*s.usual*s.out.Knee.PPS {
		add(WarnCollapse, "asked for more than it can do, the target does less: %s at %s asked", stats.FormatPPS(x.ThroughputPPS), stats.FormatPPS(x.AskedPPS))
	}
	if s.low > 0 && s.high > s.low*(1+s.Resolution)*1.0001 && !s.atCeiling() {
		add(WarnWide, "the edge lies between %s and %s, wider than the resolution of %s", stats.FormatPPS(s.low), stats.FormatPPS(s.high), stats.FormatPercent(s.Resolution))
	}
	if n := len(s.out.Steps); n > 0 && s.out.Steps[0].Result.Config.Mode == stats.ModeOneway {
		add(WarnOneway, "without replies only the generator's own limit can be found")
	}
}
