package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"blast/backend"
)

// Config is what the lab needs. Open must be given; the zero value of the rest is documented.
type Config struct {
	// Open is the backend that is tried; it has to be able to receive.
	Open backend.Open
	// CPUs are those the process may use: the worker gets the last one, the target and the receiver the others. Empty pins nothing.
	CPUs []int
	// Attempts is how often an experiment may be tried until it passes; 0 means 3.
	Attempts int
	// Budget is the time within which a repetition has to end, by how long the last one took; 0 means 110 s.
	Budget time.Duration
	// Only names the experiments to run; empty means all.
	Only []string
	// Progress, if set, is called when an experiment begins an attempt, and when it has ended.
	Progress func(e *Experiment)
}

// Check is one figure with a right answer.
type Check struct {
	What string
	// Measured, Computed and Allowed are for people, with units.
	Measured, Computed, Allowed string
	OK                          bool
}

// Experiment is one run, or a few that belong together, and what was checked.
type Experiment struct {
	Name, About string
	Checks      []Check
	// Attempts is how often it was tried; Noise says what the machine did to the last attempt.
	Attempts int
	Noise    string
	// Earlier says why each attempt before the last failed.
	Earlier []string
	Took    time.Duration
	// Err ended the last attempt.
	Err error
	// Done is false while an attempt runs.
	Done bool
}

// OK reports whether every check passed.
func (e *Experiment) OK() bool {
	for _, c := range e.Checks {
		if !c.OK {
			return false
		}
	}
	return e.Err == nil && len(e.Checks) > 0
}

// failure is the first thing that failed, in words.
func (e *Experiment) failure() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	for _, c := range e.Checks {
		if !c.OK {
			return fmt.Sprintf("%s: %s, computed %s (%s)", c.What, c.Measured, c.Computed, e.Noise)
		}
	}
	return "nothing was checked"
}

// experiment is a row of the table of all.
type experiment struct {
	name, about string
	run         func(context.Context, *bench) error
	beside      bool // runs beside the others: it is idle but for its ends
	once        bool // nothing in it can come out otherwise a second time
}

// table is every experiment, in the order in which they run.
func table() []experiment {
	return []experiment{
		{"computed", "what needs no run: the formulas, the correction, merged percentiles", computed, false, true},
		{"open", "open load of 1000/s for 12 s on 16 servers of 5 ms, frozen from 5 s to 7 s", openLoad, false, false},
		{"closed", "closed load of 10 clients on the same service, frozen for 2 s", closedLoad, false, false},
		{"closed-20s", "the same, frozen for 20 s (runs beside the others)", closedLong, true, false},
		{"blocking", "one blocking sender at 100/s for 12 s on the same service", blockingLoad, false, false},
		{"bottleneck", "4 blocking senders of 7 ms, asked for 2000/s", bottleneck, false, false},
		{"cap", "5000/s on servers of 1 ms with at most 1 and 4 in flight", caps, false, false},
		{"little", "Little's law with 10, 20, 50 and 100 clients on servers of 20 ms", little, false, false},
		{"correction", "one client at 10 ms, one reply 1000 ms late", correction, false, false},
		{"shards", "two shards of a run, merged, against all their samples in one histogram", shards, false, false},
		{"faults", "drops, reorderings, duplicates and delays by seed, each packet by name", faults, false, false},
	}
}

// Names are the names of all experiments.
func Names() []string {
	var out []string
	for _, x := range table() {
		out = append(out, x.name)
	}
	return out
}

// Run runs the experiments and returns them in order. When ctx ends it returns what was done until then, and ctx's error.
func Run(ctx context.Context, cfg Config) ([]*Experiment, error) {
	if cfg.Attempts == 0 {
		cfg.Attempts = 3
	}
	if cfg.Budget == 0 {
		cfg.Budget = 110 * time.Second
	}
	for _, name := range cfg.Only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("experiment %q: want %s", name, strings.Join(Names(), ", "))
		}
	}
	l := &laboratory{cfg: cfg, began: time.Now()}
	var all []*Experiment
	var beside sync.WaitGroup
	for _, x := range table() {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, x.name) {
			continue
		}
		e := &Experiment{Name: x.name, About: x.about}
		all = append(all, e)
		if x.beside {
			beside.Go(func() { l.try(ctx, x, e) })
		}
	}
	if len(all) > 1 {
		pause(ctx, settle) // the one beside is quiet from then on, for as long as its stall lasts
	}
	for _, x := range table() {
		i := slices.IndexFunc(all, func(e *Experiment) bool { return e.Name == x.name })
		if i >= 0 && !x.beside && ctx.Err() == nil {
			l.try(ctx, x, all[i])
		}
	}
	beside.Wait()
	return all, ctx.Err()
}

// settle is how long the experiment that runs beside the others takes to come to its stall.
const settle = 1500 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// laboratory is a Run in progress.
type laboratory struct {
	cfg   Config
	began time.Time
	mu    sync.Mutex // of Progress
}

func (l *laboratory) progress(e *Experiment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Progress != nil {
		l.cfg.Progress(e)
	}
}

// try runs an experiment until it passes, may not be repeated any more, or cannot be run at all.
func (l *laboratory) try(ctx context.Context, x experiment, e *Experiment) {
	began := time.Now()
	last := time.Duration(0) // how long the last attempt took
	for e.Attempts < l.cfg.Attempts && (e.Attempts == 0 || time.Since(l.began)+last < l.cfg.Budget) && ctx.Err() == nil {
		if e.Attempts > 0 {
			e.Earlier = append(e.Earlier, e.failure())
		}
		attempt := time.Now()
		e.Attempts++
		e.Done = false
		l.progress(e)
		b := &bench{cfg: &l.cfg}
		e.Err = x.run(ctx, b)
		e.Checks, e.Noise, e.Took = b.checks, b.noise(), time.Since(began)
		last = time.Since(attempt)
		if e.OK() || x.once {
			break
		}
	}
	e.Done = true
	l.progress(e)
}
