package stats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

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
	// Verdict is valid when the ladder found a limit of the target or reached its top. Where the generator was the wall, or not one step held,
	// it is not: the target's limit is still unknown.
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
	// Try counts the steps at this rate from 1: a bad one is repeated before it is believed.
	Try int `json:"try"`
	// Outcome is one of the Outcome constants.
	Outcome string `json:"outcome"`
	// Why says how it came to an outcome other than OutcomeHeld; empty for that.
	Why string `json:"why,omitempty"`
	// ThroughputPPS is the rate at which replies came, of the settled part of the step: without its beginning, and without those that came
	// after its end. 0 in oneway mode.
	ThroughputPPS float64 `json:"throughput_pps"`
	// Water is the generator's own water level, the largest share of a limit that it used: 1 is full, and a void step may lie above.
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
	// HeldPPS is the highest rate that held; 0 = none.
	HeldPPS float64 `json:"held_pps"`
	// BreaksPPS is the lowest rate that did not hold; 0 = none.
	BreaksPPS float64 `json:"breaks_pps"`
	// Because is OutcomeSaturated, OutcomeSLO, OutcomeVoid, KneeTop or KneeNone.
	Because string `json:"because"`
	// Detail is the sentence that the ladder ends with.
	Detail string `json:"detail"`
}

// Normalize makes l fit to be written: the schema is named, and no list is nil, for those would be null in JSON.
func (l *Ladder) Normalize() {
	l.Schema = LadderSchema
	filled(&l.Command)
	filled(&l.Config.Targets)
	filled(&l.Config.SLOs)
	filled(&l.Steps)
	filled(&l.Verdict.Reasons)
	filled(&l.Verdict.Warnings)
	filled(&l.Verdict.SLOs)
	for i := range l.Steps {
		l.Steps[i].Result.Normalize()
	}
}

// SchemaOf reads which schema a file of blast has; "" when it names none.
func SchemaOf(file []byte) (string, error) {
	if len(bytes.TrimSpace(file)) == 0 {
		return "", errors.New("result: the file is empty")
	}
	var head struct {
		Schema string `json:"schema"`
	}
	err := unmarshalWhole(file, &head)
	return head.Schema, err
}

// ReadLadder reads one ladder file as strictly as ReadResult reads a result, each step included.
func ReadLadder(r io.Reader) (*Ladder, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	schema, err := SchemaOf(b)
	if err != nil {
		return nil, err
	}
	if schema != LadderSchema {
		return nil, fmt.Errorf("ladder: schema %q, want %q", schema, LadderSchema)
	}
	l := &Ladder{}
	if err := unmarshalWhole(b, l); err != nil {
		return nil, err
	}
	outcomes := []string{OutcomeHeld, OutcomeSaturated, OutcomeSLO, OutcomeVoid}
	for i := range l.Steps {
		s := &l.Steps[i]
		if !slices.Contains(outcomes, s.Outcome) || !(s.AskedPPS > 0) || s.Water < 0 || math.IsNaN(s.Water) {
			return nil, fmt.Errorf("ladder: step %d: %g packets/s with outcome %q, water %g", i+1, s.AskedPPS, s.Outcome, s.Water)
		}
		if (s.Outcome == OutcomeVoid) == s.Result.Verdict.Valid {
			return nil, fmt.Errorf("ladder: step %d: outcome %q, but valid is %v", i+1, s.Outcome, s.Result.Verdict.Valid)
		}
		if err := s.Result.check(); err != nil {
			return nil, fmt.Errorf("ladder: step %d: %w", i+1, err)
		}
	}
	l.Normalize()
	return l, nil
}
