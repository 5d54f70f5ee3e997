package calib

import (
	"context"
	"errors"
	"fmt"
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

// loop is the rig of a cell: the engine as runs use it, one flow a worker, and a sink.
type loop struct {
	cfg    *Config
	cell   cell
	ctx    context.Context // of Run, which every trial is a part of
	cpus   []int           // of the workers
	flows  []backend.Flow
	server *serve.Server // nil with a sink elsewhere
	alone  bool          // the server has CPUs of its own
	sent   uint64
	before uint64 // what Config.Received said at first
}

// openLoop starts the sink on the CPUs that the workers leave, or on all where they leave none.
func openLoop(ctx context.Context, cfg *Config, k cell) (rig, error) {
	free := len(cfg.CPUs) - k.workers
	l := &loop{cfg: cfg, cell: k, ctx: ctx, cpus: cfg.CPUs[free:], alone: free > 0}
	target := cfg.Against
	if !target.IsValid() {
		at := k.Sink
		if !at.IsValid() {
			at = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		var err error
		l.server, err = serve.Start(serve.Config{
			Mode: serve.Sink, Listen: []netip.AddrPort{netip.AddrPortFrom(at, 0)}, Workers: min(max(free, 1), k.workers), CPUs: cfg.CPUs[:free],
		})
		if err != nil {
			return nil, fmt.Errorf("sink: %w", err)
		}
		target = l.server.Addrs()[0]
	}
	if cfg.Received != nil {
		var err error
		if l.before, err = cfg.Received(); err != nil {
			return nil, err
		}
	}
	var err error
	l.flows, err = backend.FlowSpace{Targets: []netip.AddrPort{target}}.Flows(k.flows())
	return l, err
}

func (l *loop) close() (*Sink, error) {
	switch {
	case l.server == nil && l.cfg.Received != nil:
		n, err := l.cfg.Received()
		return &Sink{Sent: l.sent, Received: n - l.before, OwnCPU: true}, err
	case l.server == nil:
		return nil, nil
	}
	err := l.server.Close()
	c := l.server.Counts()
	return &Sink{Sent: l.sent, Received: c.Received, Dropped: c.Drops, OwnCPU: l.alone}, err
}

// trial is one run of the engine, judged as runs are.
func (l *loop) trial(pps uint64, length time.Duration) (outcome, error) {
	k := &l.cell
	cfg := engine.Config{
		Workers: k.workers, CPUs: l.cpus, Flows: l.flows, Open: k.Entry.Open, MaxLag: maxLag, Undivided: true,
		Backend: backend.Config{PayloadBytes: k.payload, GSO: k.GSO},
		Source: func(worker int) engine.Source {
			return &engine.Stamped{PayloadBytes: k.payload, Worker: uint16(worker), Epoch: 1}
		},
		// Long enough for a stall near the end, short enough not to spend the time on rates that are out of reach.
		Grace: min(max(length/4, 20*time.Millisecond), 100*time.Millisecond),
	}
	var err error
	if pps == 0 {
		cfg.Schedule, err = pace.Max(length)
	} else {
		cfg.Schedule, err = pace.Constant(pace.Rate{Packets: pps, Per: time.Second}, length)
	}
	if err != nil {
		return outcome{}, err
	}
	if l.cfg.Steal != nil {
		read, stop := l.cfg.Steal(l.cpus)
		defer stop()
		cfg.Steal = read
	}
	var res *stats.Result
	if k.Offload != nil {
		res, err = engine.RunOffload(l.ctx, cfg, k.Offload)
	} else {
		res, err = engine.Run(l.ctx, cfg)
	}
	runtime.GC() // the collector is off during trials
	if res != nil {
		l.sent += res.Ledger.Sent
	}
	switch {
	case l.ctx.Err() != nil:
		return outcome{}, l.ctx.Err()
	case errors.Is(err, engine.ErrNothingSent) && res != nil && pps > 0:
		// The thread did not get to run in time. That is a matter for the verdict.
	case errors.Is(err, engine.ErrNothingSent) && res != nil && res.Ledger.RefusedTotal() > 0:
		return outcome{}, fmt.Errorf("%w: the kernel refused every packet (%s)", err, mostRefused(res))
	case err != nil:
		return outcome{}, err
	case res.Events[backend.EventConnRefused.String()] > 0:
		return outcome{}, fmt.Errorf("nobody listens at %v: start blast serve udp --mode sink there", l.flows[0].Dst)
	}
	return l.judge(pps, length, res), nil
}

func (l *loop) judge(pps uint64, length time.Duration, res *stats.Result) outcome {
	k := &l.cell
	res.Host, res.Backend.Name = l.cfg.Host, k.Entry.Name
	res.Config = stats.Config{
		Mode: stats.ModeOneway, Paced: pps > 0, DurationNS: int64(length), MaxLagNS: int64(maxLag),
		PayloadBytes: k.payload, Flows: len(l.flows), Workers: k.workers, CPUs: l.cpus,
	}
	res.Normalize()
	v := verdict.Judge(res, verdict.Limits{Duty: dutyLimit, Steal: stealLimit(length, k.workers)})
	return outcome{
		target: pps, rate: res.Rate, valid: v.Valid, reasons: v.Reasons, refused: mostRefused(res),
		lagP99: res.Lag.P99, lagP999: res.Lag.P999, mode: res.Backend.Mode, duty: res.Duty(),
	}
}

// stealLimit is the limit of runs and one tick more: the kernel counts stolen time in ticks of 10 ms, and one of them, which may
// have been almost all before the trial, must not fail a short one.
func stealLimit(length time.Duration, cpus int) float64 {
	const limit, tick = 0.02, 10 * time.Millisecond
	return limit + float64(tick)/float64(length*time.Duration(cpus))
}

// mostRefused names the cause of most refusals, or "dropped" where the kernel only dropped packets; "" without either.
func mostRefused(r *stats.Result) string {
	name, most := "", uint64(0)
	if r.Ledger.KernelDropped > 0 {
		name = "dropped"
	}
	for c, n := range r.Ledger.Refused {
		if n > most || n == most && most > 0 && c < name {
			name, most = c, n
		}
	}
	return name
}
