package calib

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"blast/stats"
	"blast/verdict"
)

const (
	// dutyLimit is the default of verdict.Limits.Duty.
	dutyLimit = 0.70
	// dutyAim is the duty that the search steers for: a little below the limit, for a machine's speed is not the same every day.
	dutyAim = 0.66
	// resolution: a VALID and an INVALID rate this near to each other end the search.
	resolution = 1.06
	// maxTrials and maxSteps bound the search and the steps down after it where the clock does not.
	maxTrials = 16
	maxSteps  = 8
	leastSets = 3

	longestTrial  = 500 * time.Millisecond
	shortestTrial = 40 * time.Millisecond
	// firstOverhead is the guess of what a trial takes beyond its length: opening, the lead before the start, closing.
	firstOverhead = 40 * time.Millisecond
)

// trialLength shares a row's time out: one trial flat out, five or so for the search, and twice three rounds of one and a half.
func trialLength(share time.Duration) time.Duration {
	return min(max(share/15-firstOverhead, shortestTrial), longestTrial)
}

// outcome is one trial.
type outcome struct {
	target  uint64 // pps, 0 = flat out
	rate    stats.Rate
	valid   bool
	reasons []stats.Reason
	refused string // the cause of most refusals, or that the kernel dropped packets; "" = slots were at most abandoned
	duty    float64
	lagP99  int64
	lagP999 int64
	mode    string
}

// transient says that nothing but interruptions from outside made the trial INVALID: they may have been bad luck.
func (o *outcome) transient() bool {
	return !o.valid && !slices.ContainsFunc(o.reasons, func(r stats.Reason) bool {
		return r.Code != verdict.CodeLag && r.Code != verdict.CodeLagTrend && r.Code != verdict.CodeSteal
	})
}

// estimate is the rate at which the duty would be dutyAim if each packet cost the same; 0 = no idea. (Packets cost less at high rates,
// where they go in batches, so it is low from below and the search closes in on it.)
func (o *outcome) estimate() float64 {
	if o.duty <= 0 {
		return 0
	}
	return float64(o.target) * dutyAim / o.duty
}

// search finds one row's ceiling. Its trial and its clock are given.
type search struct {
	trial    func(pps uint64, length time.Duration) (outcome, error)
	now      func() time.Time
	deadline time.Time
	length   time.Duration
	rounds   int
	report   func(stage string, pps float64)

	overhead time.Duration // what a trial takes beyond its length, as it was lately
	trials   int
	below    *outcome // highest VALID
	above    *outcome // lowest INVALID
}

// found is what a search came to.
type found struct {
	flat    outcome
	ceiling uint64
	rounds  []outcome
	wall    *outcome // INVALID just above the ceiling; nil = none was met
	trials  int
}

func (s *search) run() (*found, error) {
	s.overhead = firstOverhead
	s.report("flat out", 0)
	flat, err := s.try(0, s.length)
	if err != nil {
		return nil, err
	}
	if err := s.bracket(flat.rate.AchievedPPS); err != nil {
		return nil, err
	}
	if s.below == nil {
		return nil, s.nothing()
	}
	f, err := s.confirm()
	if err != nil {
		return nil, err
	}
	f.flat, f.wall, f.trials = flat, s.above, s.trials
	return f, nil
}

// try runs one trial and learns what it took.
func (s *search) try(pps uint64, length time.Duration) (outcome, error) {
	before := s.now()
	o, err := s.trial(pps, length)
	s.overhead += (s.now().Sub(before) - length - s.overhead) / 2 // one stall is soon forgotten
	s.trials++
	return o, err
}

// roundLength is longer than a trial of the search: what is stored rests on the rounds.
func (s *search) roundLength() time.Duration { return s.length + s.length/2 }

// time says whether so many trials of the search and so many sets of rounds still fit.
func (s *search) time(trials, sets int) bool {
	need := time.Duration(trials)*(s.length+s.overhead) + time.Duration(sets*s.rounds)*(s.roundLength()+s.overhead)
	return s.now().Add(need).Before(s.deadline)
}

// another says whether the search may go on: without a VALID rate as long as it could still be confirmed, then only as long as one
// step down is left as well.
func (s *search) another() bool {
	if s.below == nil {
		return s.time(1, 1)
	}
	return s.time(1, 2)
}

// bracket narrows the gap between below and above, beginning at half the rate that was reached flat out: packets that go one by one
// cost more than those in full batches.
func (s *search) bracket(flat float64) error {
	for pps := 0.5 * flat; pps >= 1 && s.trials < maxTrials && s.another(); pps = s.next() {
		s.report("search", pps)
		o, err := s.try(tidy(pps), s.length)
		if err != nil {
			return err
		}
		if o.transient() && s.another() {
			if o, err = s.try(o.target, s.length); err != nil {
				return err
			}
		}
		switch {
		case !o.valid && (s.above == nil || o.target < s.above.target):
			s.above = &o
		case o.valid && (s.below == nil || o.target > s.below.target):
			s.below = &o
		}
		if s.below != nil && s.above != nil && float64(s.above.target) <= resolution*float64(s.below.target) {
			return nil
		}
	}
	return nil
}

// next is the rate to try: what the duty of the nearest trial points to where that lies between the bounds, else their middle.
func (s *search) next() float64 {
	switch {
	case s.below == nil:
		// Any VALID rate first: a coarse bound is better than none.
		high := float64(s.above.target)
		if e := s.above.estimate(); e > 0 && e < 0.6*high {
			return max(e, high/8)
		}
		return 0.6 * high
	case s.above == nil:
		low := float64(s.below.target)
		return min(max(s.below.estimate(), 1.08*low), 4*low)
	}
	low, high := float64(s.below.target), float64(s.above.target)
	e := s.below.estimate()
	if e > low*1.03 && e < high/1.03 {
		return e
	}
	return math.Sqrt(low * high)
}

// confirm repeats the highest VALID rate, and steps down, further each time, until most rounds are VALID. To come out empty-handed after
// all that would be a waste: leastSets are tried even beyond the deadline, at the cost of the rows to come.
func (s *search) confirm() (*found, error) {
	pps := s.below.target
	for step := range maxSteps {
		var rounds []outcome
		var spoiled *outcome // an INVALID round; it is the wall when the rate is given up
		bad := 0
		lower := (0.94 - 0.06*float64(step)) * float64(pps)
		for n := 0; n < s.rounds && 2*bad <= s.rounds; n++ {
			s.report(fmt.Sprintf("round %d/%d", n+1, s.rounds), float64(pps))
			o, err := s.try(pps, s.roundLength())
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, o)
			if o.valid {
				continue
			}
			bad++
			spoiled = &o
			if o.duty > dutyLimit {
				lower = min(lower, o.estimate())
			}
		}
		if 2*(len(rounds)-bad) > s.rounds {
			return &found{ceiling: pps, rounds: rounds}, nil
		}
		s.above = spoiled
		if pps = tidy(lower); step+1 >= leastSets && !s.time(0, 1) {
			break
		}
	}
	return nil, s.nothing()
}

// nothing is the error of a row without a ceiling.
func (s *search) nothing() error {
	if s.above == nil {
		return fmt.Errorf("no rate was tried: a trial of %s took %s more, and the row's share of the time was spent", stats.FormatDuration(s.length), stats.FormatDuration(s.overhead))
	}
	return &noCeiling{*s.above}
}

// noCeiling is the error of a row where nothing ended VALID.
type noCeiling struct{ lowest outcome }

func (e *noCeiling) Error() string {
	_, words := wall(&e.lowest)
	short, _, _ := strings.Cut(words, ":")
	return fmt.Sprintf("no rate down to %s ended VALID: %s", stats.FormatPPS(float64(e.lowest.target)), short)
}

// tidy rounds down to three significant digits: pps that people can read, and never more than was asked for.
func tidy(pps float64) uint64 {
	if pps < 1000 {
		return max(uint64(pps), 1)
	}
	unit := math.Pow(10, math.Floor(math.Log10(pps))-2)
	return uint64(math.Floor(pps/unit*(1+1e-12)) * unit)
}
