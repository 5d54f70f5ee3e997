package ladder

import (
	"context"
	"errors"
	"fmt"
	"math"

	"blast/stats"
)

// Config is one ladder. Run, From and one of Factor and Add must be given.
type Config struct {
	// From is the first rate, in packets a second.
	From float64
	// To is the highest rate that is asked for; 0 means MaxRate, so that the climb ends when something gives.
	To float64
	// Factor multiplies the rate from step to step, Add adds packets a second; the one that is not used is 0.
	Factor, Add float64
	// Resolution is the relative width at which the bisection ends; 0 means 0.03.
	Resolution float64
	// Floor is the lowest rate that is asked for where even From is too much: below it a step has too few packets to tell anything. 0 means
	// 1 packet a second.
	Floor float64
	// Ceiling is the calibrated ceiling of the generator, where to look first when it is full; 0 means not known. It is a hint: the answer
	// is measured.
	Ceiling float64
	// Run takes one step and returns its judged result. A result with Interrupted set is not decided on; an error ends the ladder.
	Run func(ctx context.Context, pps float64) (*stats.Result, error)
	// Settle, if set, waits before each step until the target is idle again. An error ends the ladder: the next step would measure what
	// the last one left.
	Settle func(ctx context.Context) error
	// Progress, if set, is told of every step before it runs, with Step nil, and after.
	Progress func(Progress)
}

// Progress is where a ladder is.
type Progress struct {
	// N counts the steps from 1; Most is the largest number that there can be.
	N, Most int
	Phase   string
	PPS     float64
	// Step is the step that has just ended; nil for one that begins.
	Step *stats.Step
}

// The phases of a ladder, Step.Phase.
const (
	PhaseClimb  = "climb"
	PhaseBisect = "bisect"
)

const (
	defaultResolution = 0.03
	// MaxRate is the highest rate that a plan can have, packets a second.
	MaxRate = 100e6
	// maxClimb bounds the rates of a climb.
	maxClimb = 64
	// maxDown bounds the halvings where even the first rate is too much.
	maxDown = 10
	// maxHints is how many rates of the bisection may go to estimates, which need not halve the gap.
	maxHints = 3
	// maxRepeats is how many steps of a ladder may be repeats of a rate, and maxTries how many a single rate may get.
	maxRepeats = 16
	maxTries   = 5
	// maxSkipped is how many rates of the climb may be disturbed in a row before it is given up.
	maxSkipped = 2
)

// Check reports what is wrong with the configuration; the errors name fields as flags, whose values they are.
func (c *Config) Check() error {
	bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }
	switch {
	case c.Run == nil:
		return errors.New("ladder: nothing to run a step with")
	case bad(c.From) || c.From == 0 || c.From > MaxRate:
		return fmt.Errorf("--from %s: want more than 0 and at most %s, a rate that the target surely holds", stats.FormatPPS(c.From), stats.FormatPPS(MaxRate))
	case bad(c.To) || c.To > MaxRate:
		return fmt.Errorf("--to %s: want at most %s, or max for as far as it goes", stats.FormatPPS(c.To), stats.FormatPPS(MaxRate))
	case c.To != 0 && c.To < c.From:
		return fmt.Errorf("--to %s: lies below --from %s; a ladder climbs: swap them", stats.FormatPPS(c.To), stats.FormatPPS(c.From))
	case bad(c.Factor) || bad(c.Add) || (c.Factor == 0) == (c.Add == 0):
		return errors.New("--by: want one of xFACTOR and +RATE, such as x2 or +10k")
	case c.Factor != 0 && c.Factor < 1:
		return fmt.Errorf("--by x%g: goes down; want a factor above 1, such as x2", c.Factor)
	case c.Factor == 1:
		return errors.New("--by x1: would never end; want a factor above 1, such as x2")
	case c.Factor != 0 && c.Factor < 1.01 || c.Factor > 1000:
		return fmt.Errorf("--by x%g: want x1.01 to x1000", c.Factor)
	case bad(c.Resolution) || c.Resolution != 0 && (c.Resolution < 0.005 || c.Resolution > 0.5):
		return fmt.Errorf("--resolution %g: want 0.005 to 0.5, such as 0.03 for 3 %%", c.Resolution)
	case bad(c.Floor) || bad(c.Ceiling):
		return errors.New("ladder: floor and ceiling want 0 or more")
	}
	if n := c.rungs(); c.To != 0 && n > maxClimb {
		return fmt.Errorf("--by: %s to %s would take %d steps, and %d is the most; want a larger stride, such as x2", stats.FormatPPS(c.From), stats.FormatPPS(c.To), n, maxClimb)
	}
	return nil
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	if c.Resolution == 0 {
		c.Resolution = defaultResolution
	}
	if c.Floor == 0 {
		c.Floor = 1
	}
	c.Floor = min(c.Floor, c.From)
	return c
}

// next is the rate of the climb after pps; 0 when pps is the top.
func (c *Config) next(pps float64) float64 {
	top := c.To
	if top == 0 {
		top = MaxRate
	}
	if pps >= top {
		return 0
	}
	up := pps + c.Add
	if c.Factor != 0 {
		up = pps * c.Factor
	}
	if up <= pps { // an addition too small for a float
		return 0
	}
	return min(up, top)
}

// rungs counts the rates of the whole climb, up to maxClimb + 1.
func (c *Config) rungs() int {
	n := 0
	for pps := c.From; pps != 0 && n <= maxClimb; pps = c.next(pps) {
		n++
	}
	return n
}

// Rates are those of the climb if nothing gives.
func (c Config) Rates() []float64 {
	var rates []float64
	for pps := c.From; pps != 0 && len(rates) < maxClimb; pps = c.next(pps) {
		rates = append(rates, pps)
	}
	return rates
}

// MostSteps is the largest number of steps that the ladder can take, repeats included.
func (c Config) MostSteps() int {
	c = c.withDefaults()
	rates := c.Rates()
	widest := 1.0
	for i := 1; i < len(rates); i++ {
		widest = max(widest, rates[i]/rates[i-1])
	}
	most := len(rates) + c.halvings(widest)
	if c.From > c.Floor {
		most = max(most, 1+maxDown+c.halvings(2), len(rates)+maxDown)
	}
	return most + maxRepeats
}

// halvings is how many rates of a bisection close a gap between two whose ratio is given, estimates included; 0 for no gap.
func (c *Config) halvings(ratio float64) int {
	if ratio <= 1 {
		return 0
	}
	return max(int(math.Ceil(math.Log2(math.Log(ratio)/math.Log1p(c.Resolution)))), 0) + maxHints
}
