package calib

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"blast/stats"
	"blast/verdict"
)

// Schema names the shape of Profile in JSON. Readers refuse any other.
const Schema = "blast.calibration/1"

// Margin is the ceiling divided by the rate that a run should stay below to be trusted; 3 to 5 is the rule.
const Margin = 3

// Loopback is Profile.Against of a calibration against the own sink.
const Loopback = "loopback"

// Veth is Profile.Against of a calibration against the far end of a veth pair.
const Veth = "veth"

// Profile is a calibration. Every number of it is finite; durations are in integer ns, rates in packets or bits per second.
type Profile struct {
	Schema string `json:"schema"`
	// ID names this calibration in the results that were judged by it.
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Host    stats.Host `json:"host"`
	// Fingerprint is the host's; a profile is only good for one host.
	Fingerprint string `json:"fingerprint"`
	// Against is the sink: Loopback, Veth, or its address.
	Against string `json:"against"`
	Quick   bool   `json:"quick"`
	Rows    []Row  `json:"rows"`
	// Recommended is the backend to use where nothing else decides.
	Recommended Recommended `json:"recommended"`
	// Failed are the rows that are missing, each with the reason.
	Failed []Failed `json:"failed"`
	// ElapsedNS is what it took.
	ElapsedNS int64 `json:"elapsed_ns"`
}

// Row is what one send path can do with one payload and one number of workers.
type Row struct {
	Backend string `json:"backend"`
	// Mode is what the kernel granted, in words.
	Mode string `json:"mode"`
	// GSO is the number of packets of a train, 1 without trains.
	GSO          int `json:"gso"`
	PayloadBytes int `json:"payload_bytes"`
	Workers      int `json:"workers"`
	// Flows is one a worker, or more in a row for many flows.
	Flows int `json:"flows"`
	// FlatPPS was reached without a plan; PacketNS is what a packet then took of one worker's time.
	FlatPPS  float64 `json:"flat_pps"`
	PacketNS int64   `json:"packet_ns"`
	// CeilingPPS is the highest rate found whose rounds ended VALID in majority; StayBelowPPS leaves Margin to it.
	CeilingPPS   float64 `json:"ceiling_pps"`
	StayBelowPPS float64 `json:"stay_below_pps"`
	// The rest up to Wall is of the median round at the ceiling; see stats.Rate for the definition of the bit rates.
	AchievedPPS float64 `json:"achieved_pps"`
	L1BPS       float64 `json:"l1_bps"`
	L2BPS       float64 `json:"l2_bps"`
	IPBPS       float64 `json:"ip_bps"`
	PayloadBPS  float64 `json:"payload_bps"`
	// Duty is the busiest worker's.
	Duty     float64 `json:"duty"`
	LagP99NS int64   `json:"lag_p99_ns"`
	// Wall says in words what stopped the INVALID trial just above, WallPPS its rate, WallCode its code of the verdict; empty and 0 when
	// none was met.
	Wall     string  `json:"wall"`
	WallCode string  `json:"wall_code"`
	WallPPS  float64 `json:"wall_pps"`
	// Trials is the number of trials in all; Rounds are the last ones, at the ceiling.
	Trials int     `json:"trials"`
	Rounds []Round `json:"rounds"`
	// Sink is nil with a sink elsewhere.
	Sink *Sink `json:"sink,omitempty"`
}

// manyFlows tells rows with more flows than workers.
func (r *Row) manyFlows() bool { return r.Flows > r.Workers }

// Round is one confirmation of a ceiling.
type Round struct {
	TargetPPS   float64 `json:"target_pps"`
	AchievedPPS float64 `json:"achieved_pps"`
	Valid       bool    `json:"valid"`
	// Codes are those of the verdict that made it INVALID.
	Codes     []string `json:"codes"`
	Duty      float64  `json:"duty"`
	LagP99NS  int64    `json:"lag_p99_ns"`
	LagP999NS int64    `json:"lag_p999_ns"`
}

// Sink is what the own sink saw of all trials of a row. Dropped packets are the sink's losses, its receive buffer being full: the
// sender had delivered them. What is neither was lost between the two.
type Sink struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Dropped  uint64 `json:"dropped"`
	// OwnCPU says that it ran on CPUs without a worker. Where it did not, it took its time from the workers.
	OwnCPU bool `json:"own_cpu"`
}

// Missing is the number of packets that the sink neither received nor dropped.
func (s *Sink) Missing() uint64 { return s.Sent - min(s.Sent, s.Received+s.Dropped) }

// Recommended is a backend and the reason; both empty when nothing was measured.
type Recommended struct {
	Backend string `json:"backend"`
	Because string `json:"because"`
}

// Failed is a row that could not be measured. Payload and workers are 0 when the backend as a whole cannot run here.
type Failed struct {
	Backend      string `json:"backend"`
	GSO          int    `json:"gso"`
	PayloadBytes int    `json:"payload_bytes"`
	Workers      int    `json:"workers"`
	Flows        int    `json:"flows"`
	Reason       string `json:"reason"`
	// WallCode is the code of what stopped the lowest rate, where trials were made.
	WallCode string `json:"wall_code"`
}

func newProfile(cfg *Config, now time.Time) *Profile {
	p := &Profile{
		Schema: Schema, Created: now.UTC().Truncate(time.Second), Host: cfg.Host, Fingerprint: cfg.Fingerprint, Against: Loopback, Quick: cfg.Quick,
		Rows: []Row{}, Failed: []Failed{},
	}
	switch {
	case cfg.Received != nil:
		p.Against = Veth
	case cfg.Against.IsValid():
		p.Against = cfg.Against.String()
	}
	p.ID = fmt.Sprintf("%s-%.8s-%s", p.Against, p.Fingerprint, p.Created.Format("20060102T150405Z"))
	return p
}

func (p *Profile) fail(k cell, reason error) {
	f := Failed{Backend: k.Entry.Name, GSO: k.gso(), PayloadBytes: k.payload, Workers: k.workers, Flows: k.flows(), Reason: reason.Error()}
	if none := (*noCeiling)(nil); errors.As(reason, &none) {
		f.WallCode, _ = wall(&none.lowest)
	}
	p.Failed = append(p.Failed, f)
}

// Disturbed is the number of rows, failed ones included, that were stopped by interruptions from outside rather than by their own
// work: late although the worker was busy for less than half of the time. On an idle machine it is 0. Rows whose workers leave the sink
// no CPU do not count: there it is the sink that interrupts.
func (p *Profile) Disturbed() int {
	outside := func(code string) bool {
		return slices.Contains([]string{verdict.CodeLag, verdict.CodeLagTrend, verdict.CodeRate, verdict.CodeSteal}, code)
	}
	n := 0
	for i := range p.Rows {
		if r := &p.Rows[i]; outside(r.WallCode) && r.Duty < 0.5 && r.Workers < p.Host.Cores {
			n++
		}
	}
	for _, f := range p.Failed {
		if outside(f.WallCode) && f.Workers < p.Host.Cores {
			n++
		}
	}
	return n
}

// newRow makes the row of k from what a search found.
func newRow(k cell, f *found, sink *Sink) *Row {
	m := medianRound(f.rounds)
	code, words := wall(f.wall)
	r := &Row{
		Backend: k.Entry.Name, Mode: m.mode, GSO: k.gso(), PayloadBytes: k.payload, Workers: k.workers, Flows: k.flows(),
		FlatPPS: f.flat.rate.AchievedPPS, CeilingPPS: float64(f.ceiling), StayBelowPPS: float64(f.ceiling) / Margin,
		AchievedPPS: m.rate.AchievedPPS, L1BPS: m.rate.L1BPS, L2BPS: m.rate.L2BPS, IPBPS: m.rate.IPBPS, PayloadBPS: m.rate.PayloadBPS,
		Duty: m.duty, LagP99NS: m.lagP99, Wall: words, WallCode: code, Trials: f.trials, Sink: sink,
	}
	if r.FlatPPS > 0 {
		r.PacketNS = int64(math.Round(1e9 * float64(k.workers) / r.FlatPPS))
	}
	if f.wall != nil {
		r.WallPPS = float64(f.wall.target)
	}
	for i := range f.rounds {
		o := &f.rounds[i]
		codes := []string{}
		for _, reason := range o.reasons {
			codes = append(codes, reason.Code)
		}
		r.Rounds = append(r.Rounds, Round{
			TargetPPS: float64(o.target), AchievedPPS: o.rate.AchievedPPS, Valid: o.valid, Codes: codes, Duty: o.duty, LagP99NS: o.lagP99, LagP999NS: o.lagP999,
		})
	}
	return r
}

// medianRound is the median by duty of the VALID rounds; of two middle ones the busier.
func medianRound(rounds []outcome) outcome {
	var valid []outcome
	for _, o := range rounds {
		if o.valid {
			valid = append(valid, o)
		}
	}
	slices.SortStableFunc(valid, func(a, b outcome) int { return cmp.Compare(a.duty, b.duty) })
	return valid[len(valid)/2]
}

// finish sets what follows from the rows.
func (p *Profile) finish(cfg *Config, elapsed time.Duration) {
	p.Recommended = recommend(p.Rows, cfg.Candidates)
	p.ElapsedNS = int64(elapsed)
}

// advantage is how much better a backend must be than one that stands before it in the table to be recommended instead: more than
// two calibrations of the same thing differ by.
const advantage = 1.05

// recommend compares backends without trains, in the order of the candidates, by the geometric mean of their ceilings' ratio over the
// rows that both have.
func recommend(rows []Row, candidates []Candidate) Recommended {
	best := ""
	for _, c := range candidates {
		switch {
		case c.gso() > 1 || c.Flows > 0 || !slices.ContainsFunc(rows, func(r Row) bool { return r.Backend == c.Entry.Name && r.GSO == 1 }):
		case best == "":
			best = c.Entry.Name
		default:
			if ratio, n := compare(rows, c.Entry.Name, best); n > 0 && ratio > advantage {
				best = c.Entry.Name
			}
		}
	}
	return Recommended{Backend: best, Because: because(rows, candidates, best)}
}

// compare returns the mean ratio of a's ceilings to b's over the n rows that both have.
func compare(rows []Row, a, b string) (ratio float64, n int) {
	sum := 0.0
	for i := range rows {
		for k := range rows {
			x, y := &rows[i], &rows[k]
			if x.Backend == a && y.Backend == b && x.GSO == 1 && y.GSO == 1 && x.PayloadBytes == y.PayloadBytes && x.Workers == y.Workers &&
				!x.manyFlows() && !y.manyFlows() {
				sum += math.Log(x.CeilingPPS / y.CeilingPPS)
				n++
			}
		}
	}
	if n == 0 {
		return 0, 0
	}
	return math.Exp(sum / float64(n)), n
}

func because(rows []Row, candidates []Candidate, best string) string {
	if best == "" {
		return ""
	}
	text, seen := "", map[string]bool{best: true}
	for _, c := range candidates {
		name := c.Entry.Name
		if seen[name] {
			continue
		}
		seen[name] = true
		if ratio, n := compare(rows, best, name); n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%.2f times %s", ratio, name)
		}
	}
	if text == "" {
		return "no other backend could be compared here"
	}
	return "its ceiling is " + text + " on average over the rows that both have"
}

// JSON writes p as one JSON object of Schema.
func (p *Profile) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}

// check is what cannot be told from JSON syntax.
func (p *Profile) check() error {
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Backend == "" || r.GSO < 1 || r.Workers < 1 || r.PayloadBytes < 0 || r.CeilingPPS <= 0 {
			return fmt.Errorf("row %d: backend %q, gso %d, payload %d bytes, %d workers, ceiling %g pps: not a measurement", i+1,
				r.Backend, r.GSO, r.PayloadBytes, r.Workers, r.CeilingPPS)
		}
	}
	if len(p.Rows) == 0 {
		return errors.New("no rows")
	}
	return nil
}
