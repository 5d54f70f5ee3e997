package calib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"blast/backend"
	"blast/stats"
)

// Candidate is a send path to measure.
type Candidate struct {
	// Entry is the backend's row of the table. Where Offload is set, Entry.Open is not used.
	Entry backend.Entry
	// Offload, if set, opens a backend that executes the plan itself.
	Offload backend.OpenOffload
	// GSO is the number of packets of a UDP_SEGMENT train; 0 and 1 mean no trains.
	GSO int
	// Flows is the number of flows, a socket each on socket backends, of a row for many of them: measured once, with one payload and
	// the fewest workers. 0 means a flow a worker.
	Flows int
	// Sink is the loopback address that the own sink listens on; the zero value is 127.0.0.1. Frames that enter lo below the IP
	// layer reach sockets on ::1 only.
	Sink netip.Addr
}

// gso is the number of packets of a train, 1 without trains.
func (c *Candidate) gso() int { return max(c.GSO, 1) }

// Config is one calibration. Candidates and CPUs must be given.
type Config struct {
	// Candidates are measured in this order; of equals the first is recommended.
	Candidates []Candidate
	// Payloads are UDP payload sizes in bytes; nil means 18, 64, 512 and 1400, or with Quick 64 and 1400.
	Payloads []int
	// Workers are numbers of sending threads; nil means the powers of two below the number of CPUs and that number, or with Quick 1.
	Workers []int
	// CPUs are those that the process may use, ascending. Workers take the last ones, as runs do; the sink gets what is left.
	CPUs []int
	// Against is a sink elsewhere; the zero value means an own one on loopback.
	Against netip.AddrPort
	// Received, if set, counts what came out at Against so far, which is then the far end of a veth pair.
	Received func() (uint64, error)
	// Budget is the time for everything; 0 means 150 s, or with Quick 15 s. It is shared over the rows, and rows that it does not
	// reach are listed as failed.
	Budget time.Duration
	// Rounds is how often the rate that was found is confirmed; 0 means 3.
	Rounds int
	// Quick takes fewer rows and shorter trials.
	Quick bool
	// Host and Fingerprint go into the profile.
	Host        stats.Host
	Fingerprint string
	// Steal, if set, starts a meter of the CPU time taken away from cpus: read returns the share (0..1) since it was last called.
	Steal func(cpus []int) (read func() float64, stop func())
	// Explain, if set, names the wall behind the error of a row that could not be measured, in the words that go into the profile; "" where it
	// knows none.
	Explain func(error) string
	// Progress, if set, is called from Run's goroutine when something begins or ends.
	Progress func(Progress)
}

// Progress is what Run is at.
type Progress struct {
	// Cell counts rows from 1 to Cells.
	Cell, Cells           int
	Backend               string
	GSO                   int
	PayloadBytes, Workers int
	Flows                 int
	// Stage is "flat out", "search", "round 1/3" or "done".
	Stage string
	// PPS is the rate being tried, 0 when flat out.
	PPS float64
	// Row is the finished row; nil before, and for one that failed, where Failure says why.
	Row     *Row
	Failure string
}

const (
	defaultBudget = 150 * time.Second
	quickBudget   = 15 * time.Second
	defaultRounds = 3
	// leastShare is the least time for a row: below it trials are too short to be judged.
	leastShare = 600 * time.Millisecond
	// maxLag is the limit of lag p99.9 that trials are judged by, the default of runs.
	maxLag = time.Millisecond
)

func (c Config) withDefaults() Config {
	if c.Payloads == nil {
		c.Payloads = []int{18, 64, 512, 1400}
		if c.Quick {
			c.Payloads = []int{64, 1400}
		}
	}
	if c.Workers == nil {
		for n := 1; n < len(c.CPUs) && !c.Quick; n *= 2 {
			c.Workers = append(c.Workers, n)
		}
		c.Workers = append(c.Workers, len(c.CPUs))
		if c.Quick {
			c.Workers = []int{1}
		}
	}
	if c.Budget == 0 {
		c.Budget = defaultBudget
		if c.Quick {
			c.Budget = quickBudget
		}
	}
	c.Rounds = cmp.Or(c.Rounds, defaultRounds)
	return c
}

func (c *Config) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Candidates) == 0, "backends: none to calibrate")
	check(len(c.CPUs) == 0, "cpus: none to run on")
	check(len(c.Payloads) == 0 || len(c.Workers) == 0, "payloads and workers: none to calibrate")
	for _, n := range c.Payloads {
		check(n < 0 || n > 65507, "payload %d bytes: want 0 to 65507", n)
	}
	for _, n := range c.Workers {
		check(n < 1 || n > len(c.CPUs), "workers %d: want 1 to %d, one for each CPU that this process may use", n, len(c.CPUs))
	}
	check(c.Budget < leastShare, "budget %v: a row takes at least %v", c.Budget, leastShare)
	check(c.Rounds < 1 || c.Rounds > 100, "rounds %d: want 1 to 100", c.Rounds)
	return errors.Join(errs...)
}

// Run calibrates. It returns an error and no profile when the configuration is wrong, and what was measured so far together with
// the context's error when ctx ends. A row that cannot be measured is listed in the profile with the reason; only when no row at all
// could be measured is that an error, ErrNothingMeasured, with the profile beside it.
func Run(ctx context.Context, cfg Config) (*Profile, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// Every spinning sender keeps a processor of the scheduler to itself, and so may every thread of the sink.
	procs := 2*slices.Max(cfg.Workers) + len(cfg.CPUs) + 2
	if before := runtime.GOMAXPROCS(0); before < procs {
		runtime.GOMAXPROCS(procs)
		defer runtime.GOMAXPROCS(before)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c := &calibrator{Config: cfg, now: time.Now}
	c.open = func(ctx context.Context, k cell) (rig, error) { return openLoop(ctx, &c.Config, k) }
	return c.run(ctx)
}

// ErrNothingMeasured is returned by Run when not one row could be measured.
var ErrNothingMeasured = errors.New("calibration: no backend could be measured")

// cell is a row to be.
type cell struct {
	Candidate
	payload, workers int
}

// flows is the number of flows of the row.
func (k *cell) flows() int { return max(k.Flows, k.workers) }

// rig is what the trials of a cell run on.
type rig interface {
	// trial sends at pps for length; pps 0 is flat out.
	trial(pps uint64, length time.Duration) (outcome, error)
	// close ends it and returns what the own sink saw, nil without one.
	close() (*Sink, error)
}

// calibrator is a Run in progress; its clock and its rigs are its own in tests.
type calibrator struct {
	Config
	now  func() time.Time
	open func(context.Context, cell) (rig, error)
}

func (c *calibrator) run(ctx context.Context) (*Profile, error) {
	began := c.now()
	p := newProfile(&c.Config, began)
	cells := c.cells(p)
	if room := int(c.Budget / leastShare); len(cells) > room {
		for _, k := range cells[room:] {
			p.fail(k, errors.New(c.outOfTime()))
		}
		cells = cells[:room]
	}
	for i, k := range cells {
		report := func(s Progress) {
			if c.Progress != nil {
				s.Cell, s.Cells, s.Backend, s.GSO, s.PayloadBytes, s.Workers, s.Flows = i+1, len(cells), k.Entry.Name, k.gso(), k.payload, k.workers, k.flows()
				c.Progress(s)
			}
		}
		left := c.Budget - c.now().Sub(began)
		if left < leastShare {
			p.fail(k, errors.New(c.outOfTime()))
			report(Progress{Stage: "done", Failure: c.outOfTime()})
			continue
		}
		row, err := c.measure(ctx, k, max(left/time.Duration(len(cells)-i), leastShare), report)
		if ctx.Err() != nil {
			p.finish(&c.Config, c.now().Sub(began))
			return p, fmt.Errorf("calibration: stopped after %d of %d rows: %w", i, len(cells), ctx.Err())
		}
		if err != nil {
			p.fail(k, c.explained(err))
			report(Progress{Stage: "done", Failure: err.Error()})
			continue
		}
		p.Rows = append(p.Rows, *row)
		report(Progress{Stage: "done", PPS: row.CeilingPPS, Row: row})
	}
	p.finish(&c.Config, c.now().Sub(began))
	if len(p.Rows) == 0 {
		return p, ErrNothingMeasured
	}
	return p, nil
}

// explained is err with the wall behind it.
func (c *calibrator) explained(err error) error {
	if c.Explain == nil {
		return err
	}
	if why := c.Explain(err); why != "" {
		return fmt.Errorf("%w; %s", err, why)
	}
	return err
}

func (c *calibrator) outOfTime() string {
	return fmt.Sprintf("the time of %v did not reach this far; give more, or name fewer backends, payloads and workers", c.Budget)
}

// cells are the rows to measure: one worker before many, so that a short budget has compared all backends first. What a probe rules
// out goes to p.Failed, once.
func (c *calibrator) cells(p *Profile) []cell {
	var able []Candidate
	for _, cand := range c.Candidates {
		if err := cand.Entry.Probe(); errors.Is(err, errors.ErrUnsupported) {
			p.Failed = append(p.Failed, Failed{Backend: cand.Entry.Name, GSO: cand.gso(), Reason: err.Error()})
			continue
		}
		able = append(able, cand)
	}
	var out []cell
	for i, workers := range c.Workers {
		for n, payload := range c.Payloads {
			for _, cand := range able {
				if cand.Flows == 0 {
					out = append(out, cell{cand, payload, workers})
				} else if i == 0 && n == min(1, len(c.Payloads)-1) { // 64 bytes where nothing else was asked for
					out = append(out, cell{cand, payload, workers})
				}
			}
		}
	}
	return out
}

// measure makes the row of k within share.
func (c *calibrator) measure(ctx context.Context, k cell, share time.Duration, report func(Progress)) (row *Row, err error) {
	deadline := c.now().Add(share)
	r, err := c.open(ctx, k)
	if err != nil {
		return nil, err
	}
	s := &search{
		trial: r.trial, now: c.now, deadline: deadline, length: trialLength(share), rounds: c.Rounds,
		report: func(stage string, pps float64) { report(Progress{Stage: stage, PPS: pps}) },
	}
	f, err := s.run()
	sink, closeErr := r.close()
	if err = errors.Join(err, closeErr); err != nil {
		return nil, err
	}
	return newRow(k, f, sink), nil
}
