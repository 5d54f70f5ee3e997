package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"blast/backend"
	"blast/engine"
	"blast/pace"
	"blast/serve"
	"blast/stats"
	"blast/verdict"
)

// bench is one attempt at an experiment.
type bench struct {
	cfg    *Config
	checks []Check
	// What the machine did, at worst over the runs of the attempt.
	lag, behind int64 // ns: the generator behind its plan at p99.9, the target behind what it computed at p99.9
	path        int64 // ns: how much longer requests took than the target held them, at p99
	preempted   int64
	drops       uint64
}

// load is one run of the engine against a queueing target of its own.
type load struct {
	target  serve.QueueConfig
	model   engine.Model
	users   int // flows
	rate    uint64
	length  time.Duration
	think   time.Duration
	cap     int
	correct time.Duration
	timeout time.Duration
	drain   time.Duration
	names   *engine.Names
	source  func(worker int) engine.Source // nil: the stamp
}

// outcome is what came of a load: the judged result and the target's own word.
type outcome struct {
	*stats.Result
	truth serve.RunTruth
	drops uint64 // of the target's socket
}

const payloadBytes = 64

// run starts the target, runs the load against it and judges the result.
func (b *bench) run(ctx context.Context, l load) (*outcome, error) {
	runtime.GC() // what earlier runs left behind; the collector is off or rare while one is measured
	worker, rest := b.cpus()
	l.target.Listen, l.target.CPUs = netip.MustParseAddrPort("127.0.0.1:0"), rest
	target, err := serve.StartQueue(l.target)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	res, err := b.against(ctx, l, target.Addr(), worker, rest)
	if err != nil {
		return nil, err
	}
	if err := target.Close(); err != nil {
		return nil, err
	}
	truth := target.Truth()
	if len(truth.Runs) != 1 {
		return nil, fmt.Errorf("the target counted %d runs, want 1", len(truth.Runs))
	}
	out := &outcome{Result: res, truth: truth.Runs[0], drops: truth.Drops}
	b.behind, b.drops = max(b.behind, out.truth.Behind.P999), b.drops+truth.Drops+res.Ledger.SelfLost
	if l.model != engine.ModelBlocking && l.cap == 0 { // there, lag is what the model makes of the target
		b.lag = max(b.lag, res.Lag.P999)
	}
	b.path = max(b.path, res.Service.P99-out.truth.Sojourn.P99)
	for i := range res.Workers {
		b.preempted += res.Workers[i].InvoluntarySwitches
	}
	return out, nil
}

// against runs the load against a target at addr.
func (b *bench) against(ctx context.Context, l load, addr netip.AddrPort, worker, rest []int) (*stats.Result, error) {
	l.users = max(l.users, 1)
	epoch := uint8(rand.Uint32())
	cfg := engine.Config{
		Workers: 1, CPUs: worker, ReceiveCPUs: rest, Flows: make([]backend.Flow, l.users), Open: b.cfg.Open, Backend: backend.Config{PayloadBytes: payloadBytes},
		Echo: true, Timeout: l.timeout, Drain: l.drain, Model: l.model, Think: l.think, MaxInFlight: l.cap, Correct: l.correct, Names: l.names, Epoch: epoch,
		Source: func(w int) engine.Source {
			return &engine.Stamped{PayloadBytes: payloadBytes, Worker: uint16(w), Epoch: epoch}
		},
	}
	if source := l.source; source != nil {
		inner := cfg.Source
		cfg.Source = func(w int) engine.Source { return capture{inner(w), source(w)} }
	}
	for i := range cfg.Flows {
		cfg.Flows[i] = backend.Flow{Dst: addr}
	}
	var err error
	if l.model == engine.ModelClosed {
		cfg.Schedule, err = pace.Max(l.length)
	} else {
		cfg.Schedule, err = pace.Constant(pace.Rate{Packets: l.rate, Per: time.Second}, l.length)
	}
	if err != nil {
		return nil, err
	}
	res, err := engine.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if res.Interrupted != "" {
		return nil, errors.New(res.Interrupted)
	}
	res.Config = stats.Config{Mode: stats.ModeEcho, Model: l.model.String(), Paced: l.model != engine.ModelClosed, MaxInFlight: l.cap, Clients: l.users,
		TimeoutNS: int64(l.timeout)}
	res.Normalize()
	res.Verdict = verdict.Judge(res, verdict.Limits{})
	if res.Little != nil {
		res.Little.Judge(res) // now that the model is known
	}
	return res, nil
}

// cpus deals the CPUs: the last one to the worker, the others to whoever answers.
func (b *bench) cpus() (worker, rest []int) {
	n := len(b.cfg.CPUs)
	if n < 2 {
		return nil, nil
	}
	return b.cfg.CPUs[n-1:], b.cfg.CPUs[:n-1]
}

// noise says what the machine did to the attempt.
func (b *bench) noise() string {
	text := fmt.Sprintf("at p99.9, the generator was behind its plan by %s and the target behind its own answers by %s; at p99, a request took %s beyond its holding time; "+
		"the sending thread was preempted %s times", stats.FormatNS(b.lag), stats.FormatNS(b.behind), stats.FormatNS(max(b.path, 0)), stats.FormatCount(uint64(max(b.preempted, 0))))
	if b.drops > 0 {
		text += fmt.Sprintf(", %d packets dropped by full buffers", b.drops)
	}
	return text
}

// share checks a number against a computed one, within a share of it.
func (b *bench) share(what string, measured, computed, within float64, unit string) {
	b.checks = append(b.checks, Check{what, number(measured) + unit, number(computed) + unit, fmt.Sprintf("%g %%", within*100),
		math.Abs(measured-computed) <= within*computed})
}

// exactly checks a count.
func (b *bench) exactly(what string, measured, computed uint64) {
	b.checks = append(b.checks, Check{what, stats.FormatCount(measured), stats.FormatCount(computed), "exact", measured == computed})
}

// near checks a time against a computed one, within a time.
func (b *bench) near(what string, measured int64, computed, within time.Duration) {
	b.checks = append(b.checks, Check{what, millis(measured), millis(int64(computed)), millis(int64(within)),
		math.Abs(float64(measured-int64(computed))) <= float64(within)})
}

// that checks a statement.
func (b *bench) that(what, measured, want string, ok bool) {
	b.checks = append(b.checks, Check{what, measured, want, "-", ok})
}

func millis(ns int64) string { return fmt.Sprintf("%.2f ms", float64(ns)/1e6) }

func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return stats.FormatCount(uint64(v))
	}
	return fmt.Sprintf("%.4g", v)
}
