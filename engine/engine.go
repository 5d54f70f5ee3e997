package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// CatchUp says what a worker does with slots whose planned time has passed.
type CatchUp uint8

// The catch-up policies.
const (
	// CatchUpBurst sends what is due, at most one batch a pass. The default.
	CatchUpBurst CatchUp = iota
	// CatchUpSkip abandons slots later than MaxLag.
	CatchUpSkip
	// CatchUpAbort ends the run at the first slot later than MaxLag.
	CatchUpAbort
)

// String is the policy's name on the command line.
func (c CatchUp) String() string { return [...]string{"burst", "skip", "abort"}[c] }

// Config is one run of the engine.
type Config struct {
	// Schedule is the plan of the measured part; a pace.Unpaced has none and sends as fast as the kernel accepts.
	Schedule pace.Schedule
	// Warmup is sent before it on the same sockets and counts for nothing; nil means none.
	Warmup pace.Schedule
	// Workers is the number of sending threads; at most one per flow.
	Workers int
	// CPUs pins worker w to CPUs[w]; nil leaves the threads to the kernel.
	CPUs []int
	// ReceiveCPUs confines the receiving threads; nil leaves them to the kernel.
	ReceiveCPUs []int
	// Flows are dealt to the workers round robin.
	Flows []backend.Flow
	// Open opens one worker's share of the backend, with Backend as the model of its configuration.
	Open    backend.Open
	Backend backend.Config
	// Source makes the payload source of one worker. Varied says that its payloads differ in length.
	Source func(worker int) Source
	Varied bool
	// Echo expects replies. Timeout is when a reply is late, from planned (default 1 s). Drain is how long to wait for replies
	// after the plan's end; 0 means three times the largest round trip, at least 100 ms, at most Timeout.
	Echo           bool
	Timeout, Drain time.Duration
	// Model is what decides when a packet is sent beside the plan, and Think and MaxInFlight belong to it. Models other than the open
	// one, and any with MaxInFlight above 0, need Echo and one worker, whose thread then also receives. See Model.
	Model Model
	// Think is how long a client of the closed model waits between a reply and its next request.
	Think time.Duration
	// MaxInFlight holds due slots of the open model back until fewer are in flight, a slot leaving with its reply or Timeout after its send;
	// 0 means no such cap. What it holds back counts from planned.
	MaxInFlight int
	// Correct, in the closed model only, makes Result.Corrected an estimate of what clients that send every Correct would have seen;
	// 0 means none. See stats.Hist.RecordCorrected.
	Correct time.Duration
	// StampEvery samples one slot in so many, in runs of 16 consecutive ones of a worker placed by StampSeed, for kernel stamps, which become
	// Result.Segments, Gap and Departures; 0 means none. Backend.Stamps follows from it.
	StampEvery, StampSeed uint64
	// Names, if set, is filled with the names of the slots that did not fare well. It costs an append for each.
	Names *Names
	// Replies, if set, opens a receiver inside the kernel that takes the replies in place of the workers' own. It is told the ports that the
	// workers have bound.
	Replies backend.OpenReceiver
	// ReplySockets, if set, makes RunOffload take replies on sockets that it opens, in place of a receiver inside the kernel: one thread for each
	// worker, on ReceiveCPUs.
	ReplySockets backend.Open
	// CatchUp and MaxLag are the policy for slots that are late (MaxLag 0 = 1 ms).
	CatchUp CatchUp
	MaxLag  time.Duration
	// Spin never sleeps between slots.
	Spin bool
	// Grace is how long after the plan's end late slots are still sent; 0 means 100 ms. What is left then is abandoned.
	Grace time.Duration
	// Interval is the timeline's; 0 means a second, or as many as keep it below stats.TimelineMax entries.
	Interval time.Duration
	// Undivided leaves the intervals of a short run whole, so that Result.Precision has little or nothing to rest on: for callers that want no
	// more than a verdict, and the least work beside the workers.
	Undivided bool
	// Epoch goes into the stamps.
	Epoch uint8
	// slice is what the threads hand over: Interval or a part of it; see sliceOf.
	slice time.Duration
	// Clock is the machine's when nil.
	Clock clock.Clock
	// Steal, if set, is asked at the end of every interval for the share of CPU time taken away since it was last asked.
	Steal func() float64
	// Live, if set, is called from Run's own goroutine once all threads have handed an interval over, but not for the last ones: the
	// result follows. What it is given belongs to the run and is valid only inside the call.
	Live func(*stats.Live)
}

// ErrNothingSent is returned by Run when not one packet was accepted: never a table of zeros.
var ErrNothingSent = errors.New("nothing was sent")

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.MaxLag == 0 {
		c.MaxLag = time.Millisecond
	}
	if c.Grace == 0 {
		c.Grace = 100 * time.Millisecond
	}
	if c.Clock == nil {
		c.Clock = clock.NewReal()
	}
	if c.Backend.GSO < 1 {
		c.Backend.GSO = 1
	}
	if c.Schedule == nil { // which validate refuses
		return c
	}
	if c.Interval == 0 {
		c.Interval = time.Second
		for c.Schedule.Length() > c.Interval*stats.TimelineMax {
			c.Interval *= 2
		}
	}
	if c.slice = c.sliceOf(sliceLeast); c.Replies != nil {
		c.slice = c.sliceOf(sliceOffload)
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Schedule == nil, "schedule: none")
	check(c.Open == nil, "backend: none")
	check(c.Source == nil, "source: none")
	check(len(c.Flows) < c.Workers, "flows: %d for %d workers; each worker needs at least one", len(c.Flows), c.Workers)
	check(c.CPUs != nil && len(c.CPUs) != c.Workers, "cpus: %d for %d workers", len(c.CPUs), c.Workers)
	if _, tick := c.Schedule.(interface{ Sessions() int }); tick {
		check(len(c.Flows)%c.Workers != 0, "tick: %d sessions do not divide among %d workers", len(c.Flows), c.Workers)
	}
	c.validateModel(check)
	return errors.Join(errs...)
}

// run is one Run in progress.
type run struct {
	Config
	workers   []*worker
	receivers []*receiver // nil without Echo
	crowd     *crowd      // nil but for models that depend on replies
	lanes     []lane
	stopWork  atomic.Bool
	failed    bool          // a worker did not open: the others close again without sending
	begun     chan struct{} // closed when start is set and the threads may go
	start     int64         // of the measured part
	length    int64
	stopped   int64 // when the context ended, 0 = it did not
	drained   int64 // when the drain ended
	kernel    *kernelReplies

	tracing tracing

	total    totals
	timeline []stats.Second
	building building
	course   stats.Course
	telling  telling
}

// lane is one worker's bookkeeping on the control side.
type lane struct {
	flows  []backend.Flow
	send   *stats.Double[stats.SendInterval]
	recv   *stats.Double[stats.ReceiveInterval]
	warm   pace.Cursor
	warmed uint64 // slots of the warm-up share: the first measured seq
	cursor pace.Cursor
	limits backend.Limits
	result stats.Worker
	trace  trace
}

// Run executes the plan and returns what it measured; the caller adds configuration, host and verdict. When ctx ends, Run stops
// sending, drains and returns what was measured until then, with Interrupted set. An error means that there is no result, except
// that a backend which fails in the middle of the run gives both.
func Run(ctx context.Context, cfg Config) (*stats.Result, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.checkReplies(); err != nil {
		return nil, err
	}
	if cfg.Replies != nil {
		cfg.Echo = false // for the workers: they receive nothing
	}
	res, err := execute(ctx, cfg)
	if res != nil || cfg.StampEvery == 0 || !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return res, err
	}
	// Stamps take descriptors of their own, and workers open beside one another: what one has for its stamps may be what another lacks.
	cfg.StampEvery = 0
	if res, err = execute(ctx, cfg); res != nil {
		res.Backend.Notes = append(res.Backend.Notes, "stamps: none: with a second socket for each flow there were too many open files (ulimit -n)")
	}
	return res, err
}

// execute is Run for a configuration that is whole.
func execute(ctx context.Context, cfg Config) (*stats.Result, error) {
	r := newRun(cfg)
	ready := make(chan error, cfg.Workers)
	var senders, replies sync.WaitGroup
	for i := range r.workers {
		if r.crowd != nil {
			senders.Go(func() { r.crowdThread(ready, &replies) })
			continue
		}
		senders.Go(func() { r.sendThread(i, ready, &replies) })
	}
	var errs []error
	for range r.workers {
		errs = append(errs, <-ready)
	}
	err := errors.Join(errs...)
	if err == nil {
		err = r.openReplies()
	}
	if err != nil {
		r.failed = true
		close(r.begun)
		senders.Wait()
		replies.Wait()
		return nil, err
	}
	r.begin(r.Clock.Now() + int64(20*time.Millisecond))
	if r.kernel != nil {
		r.kernel.err = r.kernel.Begin(r.start)
	}
	started := time.Now().Add(time.Duration(r.start - r.Clock.Now()))
	close(r.begun)

	sent := make(chan struct{})
	go func() {
		senders.Wait()
		close(sent)
	}()
	defer r.aside()()
	r.watch(ctx, sent)
	r.drain(ctx)
	r.drainReplies(ctx)
	replies.Wait()
	return r.result(started)
}

func newRun(cfg Config) *run {
	r := &run{Config: cfg, begun: make(chan struct{}), length: int64(cfg.Schedule.Length()), telling: newTelling(cfg.Workers)}
	_, unpaced := cfg.Schedule.(pace.Unpaced)
	for i := range cfg.Workers {
		l := lane{send: &stats.Double[stats.SendInterval]{}, result: stats.Worker{CPU: -1, Queue: -1}}
		for f := i; f < len(cfg.Flows); f += cfg.Workers {
			l.flows = append(l.flows, cfg.Flows[f])
		}
		group := uint64(cfg.Backend.GSO)
		l.cursor = pace.NewCursor(cfg.Schedule, uint64(i), uint64(cfg.Workers), group)
		if cfg.Warmup != nil {
			l.warm = pace.NewCursor(cfg.Warmup, uint64(i), uint64(cfg.Workers), group)
			l.warmed = l.warm.Slots()
			if unpaced {
				l.warmed = 1 << 40
			}
		}
		slots := min(l.cursor.Slots(), windowSlots)
		stride := uint64(len(l.flows))
		if group > 1 && stride > 1 {
			stride = 0
		}
		w := &worker{
			id: i, clk: cfg.Clock, src: cfg.Source(i), rec: l.send, stop: &r.stopWork, catchUp: cfg.CatchUp, maxLag: int64(cfg.MaxLag),
			spin: cfg.Spin, unpaced: unpaced && cfg.Model != ModelClosed, planless: unpaced, interval: int64(cfg.slice), flows: len(l.flows),
			stamp:  packet.Stamp{Worker: uint16(i), Epoch: cfg.Epoch},
			unsent: unsent{ring: newBitRing(l.warmed, slots), first: l.warmed},
		}
		if stride <= 0xffff {
			w.stamp.Stride = uint16(stride)
		}
		w.mixed = cfg.Varied
		for _, f := range l.flows {
			w.ipv6 = append(w.ipv6, f.Dst.Addr().Unmap().Is6())
			w.mixed = w.mixed || w.ipv6[0] != w.ipv6[len(w.ipv6)-1]
		}
		if unpaced {
			w.catchUp = CatchUpBurst
		}
		if cfg.Live != nil {
			w.told, w.tellEvery = &stats.Double[books]{}, cfg.slices()
		}
		r.workers = append(r.workers, w)
		if cfg.Echo {
			l.recv = &stats.Double[stats.ReceiveInterval]{}
			r.receivers = append(r.receivers, &receiver{
				clk: cfg.Clock, src: w.src, rec: l.recv, timeout: int64(cfg.Timeout), interval: int64(cfg.slice),
				win: newWindow(l.warmed, slots, len(l.flows), uint64(w.stamp.Stride)), limit: l.warmed + l.cursor.Slots(),
			})
			r.prepareReceiver(r.receivers[i], l.cursor, l.warmed)
			if unpaced {
				r.receivers[i].limit = 1 << 48
			}
		}
		r.lanes = append(r.lanes, l)
	}
	if cfg.Model != ModelOpen || cfg.MaxInFlight > 0 {
		r.crowd = newCrowd(&r.Config, r.workers[0], r.receivers[0], r.lanes[0].cursor)
	}
	return r
}

// open opens worker i's share on the calling thread.
func (r *run) open(i int) error {
	w, l := r.workers[i], &r.lanes[i]
	cfg := r.Backend
	cfg.Flows, cfg.Receive, cfg.Now = l.flows, r.Echo, r.Clock.Now
	cfg.Worker, cfg.Stamps = i, r.StampEvery > 0
	snd, rcv, err := r.Open(cfg)
	if err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	l.limits = snd.Limits()
	w.snd, w.async = snd, l.limits.Async
	w.due = make([]slot, 0, l.limits.Batch)
	if r.Echo {
		r.receivers[i].rcv = rcv
	}
	r.follow(i)
	return nil
}

// begin fixes the start of the measured part, the warm-up going before it.
func (r *run) begin(at int64) {
	if r.Warmup != nil {
		at += int64(r.Warmup.Length())
	}
	r.start = at
	r.beginTrace()
	for i, w := range r.workers {
		w.start, w.nextFlip = at, at+w.interval
		if r.Echo {
			r.receivers[i].start, r.receivers[i].nextFlip = at, at+w.interval
		}
	}
	r.beginLooks()
}

// sendThread is the life of worker i: pin, open, measure the guard, warm up, send, close.
func (r *run) sendThread(i int, ready chan<- error, replies *sync.WaitGroup) {
	runtime.LockOSThread() // never unlocked: the thread, with its timer slack, ends with the goroutine
	w := r.workers[i]
	restore, err := r.settle(i)
	if err != nil {
		ready <- err
		return
	}
	defer restore()
	if err := r.open(i); err != nil {
		ready <- err
		return
	}
	if r.Echo {
		replies.Go(func() { r.receiveThread(i) })
	}
	w.guard = measureGuard(w.clk)
	ready <- nil
	<-r.begun
	r.sendAll(i)
}

// sendAll runs worker i's phases on the calling thread, charges them to it, and closes the sender. Without a go-ahead it only closes.
func (r *run) sendAll(i int) {
	w, l := r.workers[i], &r.lanes[i]
	if !r.failed {
		before, kernel := sys.ThreadUsage(), measureKernel(w)
		r.send(i)
		if w.told != nil {
			w.hand(r.lastInterval(), w.clk.Now())
		}
		after, kernel := sys.ThreadUsage(), measureKernel(w).since(kernel)
		l.result.InvoluntarySwitches = after.Involuntary - before.Involuntary
		l.result.UserNS, l.result.SystemNS = int64(after.User-before.User), int64(after.System-before.System+kernel.cpu)
		w.kernelDuty = kernel.duty()
		r.settleCompletions(w)
		w.settleStamps()
		l.limits = w.snd.Limits()
	}
	if err := w.snd.Close(); err != nil && w.err == nil {
		w.err = fmt.Errorf("worker %d: close: %w", i, err)
	}
}

// kernelUse is what a backend's kernel thread had used at a time.
type kernelUse struct {
	cpu, busy time.Duration
	at        int64
}

func measureKernel(w *worker) (u kernelUse) {
	if k, ok := w.snd.(backend.KernelThread); ok {
		u.cpu, u.busy = k.KernelTime()
	}
	u.at = w.clk.Now()
	return u
}

func (u kernelUse) since(before kernelUse) kernelUse {
	return kernelUse{u.cpu - before.cpu, u.busy - before.busy, u.at - before.at}
}

// duty is the share of the time in which the thread did something: like the worker's own, without spinning.
func (u kernelUse) duty() float64 {
	if u.at <= 0 {
		return 0
	}
	return float64(u.busy) / float64(u.at)
}

// settle pins the calling thread and sharpens its timers; restore undoes the pinning.
func (r *run) settle(i int) (restore func(), err error) {
	if err := sys.TimerSlack(1); err != nil {
		return nil, fmt.Errorf("worker %d: %w", i, err)
	}
	if r.CPUs == nil {
		return func() {}, nil
	}
	r.lanes[i].result.CPU = r.CPUs[i]
	restore, err = sys.Pin(r.CPUs[i])
	if err != nil {
		return nil, fmt.Errorf("worker %d: cpu %d: %w", i, r.CPUs[i], err)
	}
	return restore, nil
}

// send runs both phases of worker i.
func (r *run) send(i int) {
	w, l := r.workers[i], &r.lanes[i]
	if r.Warmup != nil {
		w.run(l.warm, r.start-int64(r.Warmup.Length()), r.start)
		w.nextSeq = l.warmed
		w.ended = 0
	}
	w.flow = int(w.nextSeq % uint64(w.flows))
	w.measuring = true
	deadline := r.start + r.length
	if !w.planless {
		deadline += int64(r.Grace)
	}
	if r.crowd != nil {
		r.crowd.run(l.cursor, r.start, deadline)
		return
	}
	w.run(l.cursor, r.start, deadline)
}

// settleCompletions waits, at most a second, until an asynchronous backend has said what became of everything it took.
func (r *run) settleCompletions(w *worker) {
	w.reap()
	taken := w.warmed + w.accepted
	for give := w.clk.Now() + int64(time.Second); w.async && w.settled() < taken && w.clk.Now() < give; {
		w.clk.Sleep(w.clk.Now() + int64(100*time.Microsecond))
		w.reap()
	}
}

// settled is the number of accepted slots whose fate an asynchronous backend has told.
func (w *worker) settled() uint64 {
	n := w.completed.Sent + w.completed.Dropped
	for _, c := range w.completed.Refused {
		n += c
	}
	return n
}

func (r *run) receiveThread(i int) {
	runtime.LockOSThread()
	rc := r.receivers[i]
	if r.ReceiveCPUs != nil {
		restore, err := sys.Pin(r.ReceiveCPUs...)
		if err != nil {
			rc.err = fmt.Errorf("receiver %d: cpus %v: %w", i, r.ReceiveCPUs, err)
		} else {
			defer restore()
		}
	}
	if rc.err == nil { // binds what belongs to this thread before there are replies
		_, rc.err = rc.rcv.Poll(0, func(*backend.Packet) {})
	}
	<-r.begun
	if rc.err == nil && !r.failed {
		rc.run()
	}
	rc.drops = rc.rcv.Drops()
	if err := rc.rcv.Close(); err != nil && rc.err == nil {
		rc.err = fmt.Errorf("receiver %d: close: %w", i, err)
	}
}

// watch collects intervals until all senders have ended, and stops them when ctx ends.
func (r *run) watch(ctx context.Context, sent <-chan struct{}) {
	tick := time.NewTicker(min(r.slice/2, 250*time.Millisecond))
	defer tick.Stop()
	done := ctx.Done()
	for {
		select {
		case <-sent:
			return
		case <-done:
			r.stopped = r.Clock.Now()
			r.stopWork.Store(true)
			done = nil
		case <-tick.C:
			r.collect()
		}
	}
}

// drain waits for the replies to what was sent, then stops the receivers.
func (r *run) drain(ctx context.Context) {
	defer func() { r.drained = r.Clock.Now() }()
	if !r.Echo {
		return
	}
	begun := r.Clock.Now()
	for {
		var answered, accepted uint64
		var rtt int64
		for i, rc := range r.receivers {
			answered += rc.answered.Load()
			rtt = max(rtt, rc.maxRTT.Load())
			accepted += r.workers[i].accepted
		}
		if answered >= accepted || r.Clock.Now()-begun >= int64(r.drainTime(rtt)) {
			break
		}
		r.collect()
		time.Sleep(time.Millisecond)
	}
	for _, rc := range r.receivers {
		rc.stop.Store(true)
	}
}

// drainTime is how long to wait for replies when the largest round trip so far was rtt ns.
func (c *Config) drainTime(rtt int64) time.Duration {
	if c.Drain > 0 {
		return c.Drain
	}
	if rtt == 0 {
		return c.Timeout
	}
	return min(max(3*time.Duration(rtt), 100*time.Millisecond), max(c.Timeout, 100*time.Millisecond))
}
