package ladder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"blast/stats"
)

// Run climbs from cfg.From until something gives, narrows that down to cfg.Resolution, and says in the Knee what it was. It fills Steps, Knee,
// Verdict and Interrupted of the ladder; the rest is the caller's. When ctx ends, the ladder is what was found until then, with Interrupted
// set. An error of a step or of Settle ends it likewise and is returned with the ladder; only a configuration that is wrong returns none.
func Run(ctx context.Context, cfg Config) (*stats.Ladder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &search{Config: cfg, most: cfg.MostSteps(), usual: 1, repeats: maxRepeats, hints: maxHints, out: &stats.Ladder{Schema: stats.LadderSchema, Steps: []stats.Step{}}}
	err := s.run(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		s.out.Interrupted, err = "interrupt", nil
	case err != nil:
		s.out.Interrupted = err.Error()
	}
	s.conclude()
	return s.out, err
}

// search is a Run in progress.
type search struct {
	Config
	out     *stats.Ladder
	most    int
	repeats int // steps that may still be spent on repeats

	// low is the highest rate that held and high the lowest that did not, 0 = none; because is the outcome at high.
	low, high float64
	because   string
	// unconfirmed says that high rests on a step that could not be repeated as it should.
	unconfirmed bool
	// usual is the share of packets that is answered at any rate: below 1 on a path that loses some whatever the load.
	usual float64
	// skipped are rates where only interruptions from outside were seen; they prove nothing, not even that the generator is full.
	skipped []float64
	// guesses are rates to try before the middle; hints is how many more may be.
	guesses []float64
	hints   int
}

func (s *search) run(ctx context.Context) error {
	inRow := 0
	for _, pps := range s.Rates() {
		clear, err := s.ask(ctx, pps, PhaseClimb)
		if err != nil {
			return err
		}
		if inRow++; clear {
			inRow = 0
		}
		if inRow == maxSkipped {
			return nil
		}
		if s.high == 0 {
			continue
		}
		if again, err := s.narrow(ctx); err != nil || !again {
			return err
		}
	}
	return nil
}

// narrow closes the gap between low and high. again says that high was none after all, and the climb goes on.
func (s *search) narrow(ctx context.Context) (again bool, err error) {
	first := s.low == 0
	left := maxDown + s.halvings(2)
	if !first {
		left = s.halvings(s.high / s.low)
	}
	for ; left > 0; left-- {
		pps := s.middle()
		if pps == 0 {
			return false, nil
		}
		clear, err := s.ask(ctx, pps, PhaseBisect)
		if err != nil || !clear {
			return false, err
		}
		if first && s.losesAnyway() {
			return true, nil
		}
		first = false
	}
	return false, nil
}

// ask runs steps at pps until it is clear what they show, and moves low or high there. It is not clear when all of them were disturbed.
func (s *search) ask(ctx context.Context, pps float64, phase string) (clear bool, err error) {
	var held, bad, void, slo int
	for try := 1; ; try++ {
		step, err := s.step(ctx, pps, phase, try)
		if err != nil {
			if bad > held { // better than nothing, and said
				s.broke(pps, badOutcome(slo))
				s.unconfirmed = true
			}
			return false, err
		}
		switch step.Outcome {
		case stats.OutcomeHeld:
			held++
		case stats.OutcomeVoid:
			void++
		case stats.OutcomeSLO:
			slo++
			bad++
		default:
			bad++
		}
		last := try == maxTries || s.repeats == 0
		switch {
		case bad == 2:
			s.broke(pps, badOutcome(slo))
			return true, nil
		case held == 2 || held == 1 && (bad == 0 || last):
			s.low = pps
			return true, nil
		case last && bad == 1:
			s.broke(pps, badOutcome(slo))
			s.unconfirmed = true
			return true, nil
		case bad == 0 && (last || void >= patience(&step.Result)):
			if disturbed(&step.Result) {
				s.skipped = append(s.skipped, pps)
				return false, nil
			}
			s.broke(pps, stats.OutcomeVoid)
			s.unconfirmed = void < patience(&step.Result) && try < maxTries
			return true, nil
		}
		s.repeats--
	}
}

// badOutcome is that of a rate whose VALID steps did not hold, so many of them for an SLO alone. Where they differ the target kept up once.
func badOutcome(slo int) string {
	if slo > 0 {
		return stats.OutcomeSLO
	}
	return stats.OutcomeSaturated
}

// patience is how many void steps show that a rate is one, by the reasons of the last: interruptions from outside may be bad luck, a rate
// above the calibrated ceiling is not.
func patience(r *stats.Result) int {
	switch {
	case slices.Contains(stats.Codes(r.Verdict.Reasons), "ceiling"):
		return 1
	case disturbed(r):
		return 4
	case outside(r):
		return 3
	}
	return 2
}

// outside says that a step is void by nothing but lateness or stolen time, which need not be the generator's own doing.
func outside(r *stats.Result) bool {
	list := stats.Codes(r.Verdict.Reasons)
	return len(list) > 0 && !slices.ContainsFunc(list, func(code string) bool { return code != "lag" && code != "lag-trend" && code != "steal" })
}

// disturbed says that it surely is not: no worker was half as busy as it may be, so that something else held them up, and would at other
// rates. What that left unsent at the end of the step, at most given up, comes of it too.
func disturbed(r *stats.Result) bool {
	if r.Duty() >= dutyLimit/2 || len(r.Verdict.Reasons) == 0 {
		return false
	}
	l := &r.Ledger
	return !slices.ContainsFunc(stats.Codes(r.Verdict.Reasons), func(code string) bool {
		switch code {
		case "lag", "lag-trend", "steal", "rate":
			return false
		case "refused":
			return l.RefusedTotal()+l.KernelDropped > 0
		}
		return true
	})
}

// broke makes pps the lowest rate that did not hold, and guesses from its last step where the edge lies.
func (s *search) broke(pps float64, because string) {
	s.high, s.because, s.unconfirmed = pps, because, false
	s.guesses = nil
	switch because {
	case stats.OutcomeSaturated:
		if at := s.last(pps, because).ThroughputPPS / s.usual; at > 0 {
			s.guesses = []float64{at * (1 - s.Resolution/2), at * (1 + s.Resolution/2)}
		}
	case stats.OutcomeVoid:
		s.guesses = []float64{s.Ceiling, s.byDuty()}
	}
}

// byDuty estimates the rate at which the generator would be as busy as it may, if each packet costs what it did where it was last seen.
func (s *search) byDuty() float64 {
	at, outcome := s.low, stats.OutcomeHeld
	if at == 0 {
		at, outcome = s.high, stats.OutcomeVoid
	}
	step := s.last(at, outcome)
	if step == nil || step.WaterOf != "duty" || step.Water <= 0 {
		return 0
	}
	return 0.97 * at / step.Water
}

// last is the last step at a rate with an outcome, nil if there is none.
func (s *search) last(pps float64, outcome string) *stats.Step {
	for i := len(s.out.Steps) - 1; i >= 0; i-- {
		if x := &s.out.Steps[i]; x.AskedPPS == pps && x.Outcome == outcome {
			return x
		}
	}
	return nil
}

// middle is the next rate between low and high; 0 when they are near enough, or there is none.
func (s *search) middle() float64 {
	low, high := s.low, s.high
	if low > 0 && high <= low*(1+s.Resolution) || s.atCeiling() {
		return 0
	}
	for len(s.guesses) > 0 && s.hints > 0 {
		at := tidy(s.guesses[0])
		if s.guesses[0] == s.Ceiling {
			at = s.Ceiling // to the packet: anything above it is void
		}
		s.guesses = s.guesses[1:]
		if at >= s.Floor && at > low*(1+s.Resolution/8) && at < high/(1+s.Resolution/8) {
			s.hints--
			return at
		}
	}
	at := math.Sqrt(low * high)
	if low == 0 {
		if at = max(high/2, s.Floor); at >= high {
			return 0
		}
	}
	if round := tidy(at); round > low && round < high && round >= s.Floor {
		return round
	}
	if at <= low || at >= high {
		return 0
	}
	return at
}

// atCeiling says that the generator's calibrated ceiling held: above it every step is void by rule, and there is nothing left to look for.
func (s *search) atCeiling() bool {
	return s.because == stats.OutcomeVoid && s.Ceiling > 0 && s.low >= s.Ceiling*(1-s.Resolution/8)
}

// tidy rounds to three significant digits, a rate that people can read.
func tidy(pps float64) float64 {
	if pps <= 0 || math.IsInf(pps, 0) || math.IsNaN(pps) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(pps))-2)
	if unit < 1 {
		per := math.Round(1 / unit)
		return math.Round(pps*per) / per
	}
	return math.Round(pps/unit) * unit
}

// step runs one.
func (s *search) step(ctx context.Context, pps float64, phase string, try int) (*stats.Step, error) {
	n := len(s.out.Steps) + 1
	if s.Settle != nil {
		if err := s.Settle(ctx); err != nil {
			return nil, s.after(err)
		}
	}
	if s.Progress != nil {
		s.Progress(Progress{N: n, Most: s.most, Phase: phase, PPS: pps})
	}
	r, err := s.Run(ctx, pps)
	switch {
	case err != nil:
		return nil, fmt.Errorf("step %d at %s: %w", n, stats.FormatPPS(pps), err)
	case r == nil:
		return nil, fmt.Errorf("step %d at %s: no result", n, stats.FormatPPS(pps))
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.Interrupted != "":
		return nil, fmt.Errorf("step %d at %s: %s", n, stats.FormatPPS(pps), r.Interrupted)
	}
	s.out.Steps = append(s.out.Steps, stats.Step{AskedPPS: pps, Phase: phase, Try: try, Result: *r})
	step := &s.out.Steps[n-1]
	judge(step, s.usual)
	if s.Progress != nil {
		s.Progress(Progress{N: n, Most: s.most, Phase: phase, PPS: pps, Step: step})
	}
	return step, nil
}

// after says what the target was asked last when it did not settle.
func (s *search) after(err error) error {
	n := len(s.out.Steps)
	if n == 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("after the step at %s: %w", stats.FormatPPS(s.out.Steps[n-1].AskedPPS), err)
}

// losesAnyway looks at the first two rates, when neither held: a target that is too slow answers a larger share of the lower one. The same
// share at both is the way of the path, or of the target, at any rate; what counts then is whether that share changes, and all is judged anew.
func (s *search) losesAnyway() bool {
	if s.low != 0 || s.because != stats.OutcomeSaturated {
		return false
	}
	lower, higher := s.last(s.high, stats.OutcomeSaturated), (*stats.Step)(nil)
	for i := range s.out.Steps {
		if x := &s.out.Steps[i]; x.AskedPPS > s.high && x.Outcome == stats.OutcomeSaturated {
			higher = x
		}
	}
	if lower == nil || higher == nil {
		return false
	}
	a, _ := lower.Result.Settled()
	b, _ := higher.Result.Settled()
	if b.Share() < 0.1 || math.Abs(a.Share()-b.Share()) > stats.Shortfall/2 {
		return false
	}
	s.usual = min(a.Share(), b.Share())
	for i := range s.out.Steps {
		judge(&s.out.Steps[i], s.usual)
	}
	switch {
	case higher.Outcome == stats.OutcomeHeld:
		s.low, s.high, s.because, s.unconfirmed = higher.AskedPPS, 0, "", false
		return true
	case lower.Outcome == stats.OutcomeHeld: // an objective lies between them
		s.low = lower.AskedPPS
		s.broke(higher.AskedPPS, higher.Outcome)
	default:
		s.broke(lower.AskedPPS, lower.Outcome)
	}
	return false
}
