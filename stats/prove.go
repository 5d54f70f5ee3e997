package stats

import "time"

// ProveSchema names the shape of Prove in JSON.
const ProveSchema = "blast.prove/1"

// Prove is the five controls that tell a slow target from a slow generator, and what follows from them.
type Prove struct {
	Schema   string    `json:"schema"`
	Started  time.Time `json:"started"`
	RunID    string    `json:"run_id"`
	Command  []string  `json:"command"`
	Host     Host      `json:"host"`
	Targets  []string  `json:"targets"`
	AskedPPS float64   `json:"asked_pps"`
	// Controls are in the order of design/measurement.md 6.
	Controls   []Control  `json:"controls"`
	Conclusion Conclusion `json:"conclusion"`
	// Interrupted says why it ended early; empty for a whole proof.
	Interrupted string `json:"interrupted,omitempty"`
}

// What a control points at, and what a conclusion says.
const (
	PointsTarget    = "target"    // the target is the wall
	PointsGenerator = "generator" // the generator is the wall
	PointsNeither   = "neither"   // nothing was slow
	PointsUnknown   = "unknown"   // not measured, or it tells nothing
)

// Control is one of the five.
type Control struct {
	// Name is "baseline", "generator", "target", "noop" or "two_generators".
	Name string `json:"name"`
	// Points is one of the Points constants.
	Points string `json:"points"`
	// Evidence are sentences with figures and units.
	Evidence []string `json:"evidence"`
	// Results are the runs it rests on.
	Results []Result `json:"results,omitempty"`
}

// Conclusion is what the controls say together.
type Conclusion struct {
	// Points is one of the Points constants; PointsUnknown means "cannot tell".
	Points string `json:"points"`
	Detail string `json:"detail"`
}
