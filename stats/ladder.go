package stats

import "time"

// LadderSchema names the shape of Ladder in JSON.
const LadderSchema = "blast.ladder/1"

// Ladder is a run at rising rates in search of the knee.
type Ladder struct {
	Schema  string       `json:"schema"`
	Started time.Time    `json:"started"`
	RunID   string       `json:"run_id"`
	Command []string     `json:"command"`
	Host    Host         `json:"host"`
	Config  LadderConfig `json:"config"`
	// Steps are whole results in the order in which they ran; a step whose verdict is not valid is void.
	Steps []Step `json:"steps"`
	Knee  Knee   `json:"knee"`
	// Verdict is valid when the ladder found what it looked for, whatever that is.
	Verdict Verdict `json:"verdict"`
	// Interrupted says why it ended early; empty for a whole ladder.
	Interrupted string `json:"interrupted,omitempty"`
}

// LadderConfig is what the ladder was asked for.
type LadderConfig struct {
	Targets []string `json:"targets"`
	FromPPS float64  `json:"from_pps"`
	// By is the rule in the form of the flag: "x2" or "+10k".
	By string `json:"by"`
	// ToPPS bounds the climb; 0 = until something gives.
	ToPPS  float64  `json:"to_pps"`
	StepNS int64    `json:"step_ns"`
	SLOs   []string `json:"slos"`
	// Resolution is the relative width at which the bisection ends.
	Resolution float64 `json:"resolution"`
}

// Step is one rate.
type Step struct {
	AskedPPS float64 `json:"asked_pps"`
	// Phase is "climb" or "bisect".
	Phase string `json:"phase"`
	// Outcome is one of the Outcome constants.
	Outcome string `json:"outcome"`
	// Water is the generator's own water level, 0 to 1: the largest share of a limit that it used.
	Water float64 `json:"water"`
	// WaterOf names that limit: "duty", "lag", "ceiling".
	WaterOf string `json:"water_of"`
	Result  Result `json:"result"`
}

// The outcomes of a step, and what a knee can be because of.
const (
	OutcomeHeld      = "held"      // VALID, the target kept up, SLOs met
	OutcomeSaturated = "target"    // VALID, but the target did not keep up
	OutcomeSLO       = "slo"       // VALID and the target kept up, but an SLO was missed
	OutcomeVoid      = "generator" // INVALID: the generator did not keep its plan
	KneeTop          = "top"       // nothing gave up to the top of the ladder
	KneeNone         = "none"      // not one step held
)

// Knee is where the ladder ended.
type Knee struct {
	// PPS is the highest rate that held, or the target's own throughput beyond it when Because is OutcomeSaturated.
	PPS float64 `json:"pps"`
	// BreaksPPS is the lowest rate that did not hold; 0 = none.
	BreaksPPS float64 `json:"breaks_pps"`
	// Because is OutcomeSaturated, OutcomeSLO, OutcomeVoid, KneeTop or KneeNone.
	Because string `json:"because"`
	// Detail is the sentence that the ladder ends with.
	Detail string `json:"detail"`
}
