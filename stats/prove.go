package stats

import (
	"errors"
	"fmt"
	"time"
)

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
	// Controls are in the order of docs/prove.md.
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

// The five controls, Control.Name.
const (
	ControlBaseline  = "baseline"
	ControlGenerator = "generator"
	ControlTarget    = "target"
	ControlNoop      = "noop"
	ControlTwo       = "two_generators"
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
	// Use is what a host did during the run, where the control rests on that.
	Use *HostUse `json:"use,omitempty"`
}

// HostUse is what a host did between two moments.
type HostUse struct {
	// Source says who told: "this host", "agent ADDR" or the URL of a node_exporter's page.
	Source string `json:"source"`
	// CoresNS is the time over which the cores were watched, inside the run; the counters are of the whole run.
	CoresNS  int64      `json:"cores_ns"`
	Cores    []CoreUse  `json:"cores"`
	Counters []Counter  `json:"counters"`
	Rooms    []RoomUsed `json:"rooms"`
	// ClockOffsetNS is the host's wall clock minus this one's, known to ClockWithinNS; both 0 for this host.
	ClockOffsetNS int64 `json:"clock_offset_ns"`
	ClockWithinNS int64 `json:"clock_within_ns"`
	// SharedCores says that it is the generator's own host, SharedCounters that it is its network namespace as well.
	SharedCores    bool `json:"shared_cores"`
	SharedCounters bool `json:"shared_counters"`
}

// CoreUse is one CPU; the shares are 0..1 of the time. Softirq and Steal are parts of Busy.
type CoreUse struct {
	CPU     int     `json:"cpu"`
	Busy    float64 `json:"busy"`
	Softirq float64 `json:"softirq"`
	Steal   float64 `json:"steal"`
	// Waited is the part of Busy in which a sending thread waited for the next packet by spinning.
	Waited float64 `json:"waited"`
}

// RoomUsed is how much of something countable was in use, such as file descriptors or connection tracking entries.
type RoomUsed struct {
	Name  string `json:"name"`
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
}

// ReadProve reads one file of ProveSchema, its results as strictly as ReadResult does.
func ReadProve(b []byte) (*Prove, error) {
	p := &Prove{}
	if err := unmarshalWhole(b, p); err != nil {
		return nil, err
	}
	switch {
	case p.Schema != ProveSchema:
		return nil, fmt.Errorf("proof: schema %q, want %q", p.Schema, ProveSchema)
	case len(p.Controls) == 0 || p.Conclusion.Points == "":
		return nil, errors.New("proof: no controls or no conclusion in it")
	}
	for i := range p.Controls {
		c := &p.Controls[i]
		for k := range c.Results {
			if err := c.Results[k].check(); err != nil {
				return nil, fmt.Errorf("proof: control %s: result %d: %w", c.Name, k+1, err)
			}
		}
	}
	p.Normalize()
	return p, nil
}

// Normalize names the schema and leaves no list nil, for those would be null in JSON.
func (p *Prove) Normalize() {
	p.Schema = ProveSchema
	filled(&p.Command)
	filled(&p.Targets)
	filled(&p.Controls)
	for i := range p.Controls {
		c := &p.Controls[i]
		filled(&c.Evidence)
		for k := range c.Results {
			c.Results[k].Normalize()
		}
		if c.Use != nil {
			filled(&c.Use.Cores)
			filled(&c.Use.Counters)
			filled(&c.Use.Rooms)
		}
	}
}

// Conclusion is what the controls say together.
type Conclusion struct {
	// Points is one of the Points constants; PointsUnknown means "cannot tell".
	Points string `json:"points"`
	Detail string `json:"detail"`
}
