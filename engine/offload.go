package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
	"blast/pace"
	"blast/stats"
)

// offloading is one RunOffload in progress: the workers run elsewhere, and what is left to do here is to start them, to watch, and to
// put their books together by the same definitions as in Run.
type offloading struct {
	Config
	workers  []offloaded
	receiver backend.OffloadReceiver // nil without Echo
	names    *told
	payload  int
	ipv6     bool
	unpaced  bool
	start    int64 // of the measured part, 0 = not ordered
	started  time.Time
	stopped  int64 // when the context ended, 0 = it did not
	drained  int64

	rows                          []offloadRow
	timeline                      []stats.Second
	lag, latency, service, server stats.Hist
	course                        stats.Course
	telling                       telling
}

// offloaded is one worker.
type offloaded struct {
	backend.Offload
	config backend.OffloadConfig
	cursor pace.Cursor // of the measured share
	books  backend.OffloadBooks
	lag    stats.Hist
	result stats.Worker
	ended  *atomic.Bool // Run has returned
	err    error
}

// offloadRow is one interval of the timeline that is being put together.
type offloadRow struct {
	sent, replied uint64
	lag, latency  *stats.Hist
}

const (
	// offloadLead is the time between the order to start and the first slot.
	offloadLead = 20 * time.Millisecond
	// offloadReady bounds the wait until all workers can start.
	offloadReady = 30 * time.Second
)

// RunOffload is Run for a backend that executes the plan itself; Open, Spin and Clock of the configuration are not used. It
// refuses what such a backend cannot express, with an error that wraps errors.ErrUnsupported: payloads that need code of ours per packet, and
// models in which replies decide what is sent.
func RunOffload(ctx context.Context, cfg Config, open backend.OpenOffload) (*stats.Result, error) {
	cfg.Open = func(backend.Config) (backend.Sender, backend.Receiver, error) { return nil, nil, errors.ErrUnsupported }
	cfg.Clock = clock.NewReal()
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.slice = cfg.sliceOf(sliceOffload)
	r := &offloading{Config: cfg, telling: newTelling(cfg.Workers)}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := r.open(open); err != nil {
		return nil, err
	}
	err := r.run(ctx)
	if r.start == 0 {
		return nil, errors.Join(err, r.close())
	}
	res, resultErr := r.result()
	return res, errors.Join(err, resultErr, r.close())
}

// prepare describes every worker's share.
func (r *offloading) prepare() error {
	if r.Model != ModelOpen || r.MaxInFlight > 0 {
		return fmt.Errorf("load model: the in-kernel engine sends by plan alone; closed, blocking and capped load need another backend: %w", errors.ErrUnsupported)
	}
	_, r.unpaced = r.Schedule.(pace.Unpaced)
	r.payload = r.Backend.PayloadBytes
	for i := range r.Workers {
		source, ok := r.Source(i).(*Stamped)
		if !ok || source.Size != nil || r.Varied {
			return fmt.Errorf("payload: the in-kernel engine sends the built-in stamp at one size; sources that compute each payload need another backend: %w",
				errors.ErrUnsupported)
		}
		w := offloaded{ended: new(atomic.Bool), result: stats.Worker{CPU: -1, Queue: -1}, cursor: pace.NewCursor(r.Schedule, uint64(i), uint64(r.Workers), 1)}
		c := backend.OffloadConfig{Config: r.Backend, CPU: -1, Worker: uint16(i), Epoch: r.Epoch, Unpaced: r.unpaced,
			CatchUp: backend.CatchUp(r.CatchUp), MaxLag: r.MaxLag, Interval: r.slice}
		c.PayloadBytes, c.Tell = source.PayloadBytes, r.Names != nil && r.Echo
		r.payload = source.PayloadBytes
		for f := i; f < len(r.Flows); f += r.Workers {
			c.Flows = append(c.Flows, r.Flows[f])
		}
		if r.CPUs != nil {
			c.CPU, w.result.CPU = r.CPUs[i], r.CPUs[i]
		}
		w.config = c
		if err := w.share(&r.Config, uint64(i)); err != nil {
			return err
		}
		r.workers = append(r.workers, w)
	}
	r.ipv6 = r.Flows[0].Dst.Addr().Unmap().Is6()
	return nil
}

// share expresses the share of worker i, warm-up before measured part, in segments or else time by time.
func (w *offloaded) share(cfg *Config, i uint64) error {
	c, n := &w.config, uint64(cfg.Workers)
	if c.Unpaced {
		s := backend.Segment{Slots: math.MaxInt64, Den: 1, Each: math.MaxInt64}
		if cfg.Warmup != nil {
			s.Start, c.First = -cfg.Warmup.Length(), 1<<40
		}
		c.Segments, c.Slots, c.CatchUp = []backend.Segment{s}, s.Slots, backend.CatchUpBurst
		return nil
	}
	c.Rate = cfg.Schedule.MeanPPS() / float64(n)
	c.Slots = w.cursor.Slots()
	segments, err := pace.SegmentsShare(cfg.Schedule, i, n, 1)
	var early []pace.Segment
	var before time.Duration
	var warm pace.Cursor
	if cfg.Warmup != nil {
		before = cfg.Warmup.Length()
		warm = pace.NewCursor(cfg.Warmup, i, n, 1)
		c.First = warm.Slots()
		c.Slots += c.First
		if err == nil {
			early, err = pace.SegmentsShare(cfg.Warmup, i, n, 1)
		}
	}
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		measured, left := w.cursor, c.First
		c.Times = func() time.Duration {
			if left > 0 {
				left--
				_, _, at, _ := warm.Next()
				return time.Duration(at) - before
			}
			_, _, at, _ := measured.Next()
			return time.Duration(at)
		}
		return nil
	}
	for k, s := range slices.Concat(early, segments) {
		start := s.Start
		if k < len(early) {
			start -= before
		}
		c.Segments = append(c.Segments, backend.Segment{Start: start, Slots: s.Slots, Acc: s.Acc, Quot: s.Quot, Rem: s.Rem, Den: s.Den, Each: s.Group * s.Trains})
	}
	return nil
}

// open opens all workers and the receiver.
func (r *offloading) open(open backend.OpenOffload) error {
	var sockets *socketReplies
	if r.Echo && r.ReplySockets != nil {
		var err error
		if sockets, err = r.openSockets(); err != nil {
			return err
		}
	}
	var cfgs []backend.OffloadConfig
	receive := &backend.ReceiverConfig{Interface: r.Backend.Interface, Epoch: r.Epoch, Timeout: r.Timeout, Interval: r.slice}
	for i := range r.workers {
		c := r.workers[i].config
		cfgs = append(cfgs, c)
		limit := c.Slots
		if r.unpaced {
			limit = 1 << 48
		}
		receive.Shares = append(receive.Shares, backend.ReceiverShare{First: c.First, Limit: limit, Flows: len(c.Flows)})
	}
	if r.Echo {
		r.names = newTold(r.Names, len(r.workers), receive)
	}
	if !r.Echo || sockets != nil {
		receive = nil
	}
	list, receiver, err := open(cfgs, receive)
	if err != nil {
		if sockets != nil {
			err = errors.Join(err, sockets.Close())
		}
		return err
	}
	if sockets != nil {
		receiver = sockets
	}
	for i := range list {
		r.workers[i].Offload = list[i]
	}
	if r.Echo {
		r.receiver = receiver
	}
	return nil
}

// run starts the workers, watches them and drains. It leaves start at 0 when they did not come to it.
func (r *offloading) run(ctx context.Context) error {
	length := r.Schedule.Length() + r.Grace
	if r.Warmup != nil {
		length += r.Warmup.Length()
	}
	ended := make(chan struct{}, len(r.workers))
	for i := range r.workers {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			r.workers[i].execute(length + offloadReady)
			ended <- struct{}{}
		}()
	}
	defer r.aside()()
	err := r.begin(ctx)
	if err != nil {
		r.stop()
	}
	err = errors.Join(err, r.watch(ctx, ended))
	for i := range r.workers {
		w := &r.workers[i]
		var booksErr error
		w.books, booksErr = w.Books()
		err = errors.Join(err, booksErr)
		if w.err != nil {
			err = errors.Join(err, fmt.Errorf("worker %d: %w", i, w.err))
		}
	}
	if r.receiver != nil && r.start != 0 {
		err = errors.Join(err, r.drain(ctx))
	}
	r.drained = r.Clock.Now()
	return errors.Join(err, r.collect(math.MaxInt64))
}

// begin waits until all workers are ready, and gives the order to start.
func (r *offloading) begin(ctx context.Context) error {
	give := r.Clock.Now() + int64(offloadReady)
	for i := range r.workers {
		for {
			ready, err := r.workers[i].Ready()
			if err != nil {
				return fmt.Errorf("worker %d: %w", i, err)
			}
			if ready {
				break
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case r.Clock.Now() > give || r.workers[i].ended.Load():
				return fmt.Errorf("worker %d: not ready to start within %v", i, offloadReady)
			}
			time.Sleep(time.Millisecond)
		}
	}
	start := r.Clock.Now() + int64(offloadLead)
	if r.Warmup != nil {
		start += int64(r.Warmup.Length())
	}
	deadline := start + int64(r.Schedule.Length())
	if !r.unpaced {
		deadline += int64(r.Grace)
	}
	if r.receiver != nil {
		if err := r.receiver.Begin(start); err != nil {
			return err
		}
	}
	for i := range r.workers {
		if err := r.workers[i].Start(start, deadline); err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
	}
	r.start, r.started = start, time.Now().Add(time.Duration(start-r.Clock.Now()))
	return nil
}

func (r *offloading) stop() {
	for i := range r.workers {
		r.workers[i].Stop()
	}
}

// execute is the life of a worker's thread.
func (w *offloaded) execute(atMost time.Duration) {
	defer w.ended.Store(true)
	if cpu := w.config.CPU; cpu >= 0 {
		restore, err := sys.Pin(cpu)
		if err != nil {
			w.err = fmt.Errorf("cpu %d: %w", cpu, err)
			return
		}
		defer restore()
	}
	before := sys.ThreadUsage()
	w.err = w.Run(atMost)
	after := sys.ThreadUsage()
	w.result.InvoluntarySwitches = after.Involuntary - before.Involuntary
	w.result.UserNS, w.result.SystemNS = int64(after.User-before.User), int64(after.System-before.System)
}

// watch collects intervals until all workers have ended, and stops them when ctx ends.
func (r *offloading) watch(ctx context.Context, ended <-chan struct{}) error {
	tick := time.NewTicker(min(r.slice/2, 250*time.Millisecond))
	defer tick.Stop()
	done := ctx.Done()
	var err error
	for left := len(r.workers); left > 0; {
		select {
		case <-ended:
			left--
		case <-done:
			r.stopped = r.Clock.Now()
			r.stop()
			done = nil
		case <-tick.C:
			if err == nil {
				err = r.collect(r.Clock.Now())
			}
		}
	}
	return err
}

// drain waits for the replies to what was sent.
func (r *offloading) drain(ctx context.Context) error {
	begun := r.Clock.Now()
	for {
		books, err := r.receiver.Books()
		if err != nil {
			return err
		}
		var answered, sent uint64
		var longest time.Duration
		for i, b := range books {
			answered += b.Unique
			sent += r.workers[i].books.Sent
			longest = max(longest, b.Longest)
		}
		if answered >= sent || r.Clock.Now()-begun >= int64(r.drainTime(int64(longest))) || ctx.Err() != nil && r.stopped == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// collect takes what is over at now and completes the intervals that all have handed in.
func (r *offloading) collect(now int64) error {
	for i := range r.workers {
		w := &r.workers[i]
		var addErr error
		err := w.Collect(now, func(v *backend.OffloadInterval) {
			row := r.row(v.Index)
			row.sent += v.Sent
			addErr = errors.Join(addErr, r.addSlice(&r.course.Lag, v.Index, v.Lag, &w.lag, &r.lag, row.lag))
		})
		if err := errors.Join(err, addErr, r.names.readUnsent(i, w)); err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
	}
	if r.receiver != nil {
		var addErr error
		err := r.receiver.Collect(now, func(v *backend.ReceiverInterval) {
			row := r.row(v.Index)
			row.replied += v.Replied
			addErr = errors.Join(addErr, r.addSlice(&r.course.Latency, v.Index, v.Latency, &r.latency, row.latency), merge(v.Service, &r.service), merge(v.Server, &r.server))
		})
		if err := errors.Join(err, addErr, r.names.read(r.receiver)); err != nil {
			return fmt.Errorf("receiver: %w", err)
		}
	}
	over := len(r.rows) - 1 // the last may still get more
	if now == math.MaxInt64 {
		over = len(r.rows)
	}
	before := len(r.timeline)
	for len(r.timeline) < over {
		r.complete()
	}
	if r.Live != nil && len(r.timeline) > before && now != math.MaxInt64 {
		return r.tell()
	}
	return nil
}

// merge adds what was recorded elsewhere to h.
func merge(b backend.Buckets, h *stats.Hist) error { return h.AddBuckets(stats.Buckets(b)) }

// row is the interval of a slice; what comes behind the plan's end, or for an interval that is complete, goes to the last one.
func (r *offloading) row(slice int64) *offloadRow {
	index := max(min(slice/r.slices(), r.lastInterval()), int64(len(r.timeline)))
	for int64(len(r.rows)) <= index {
		r.rows = append(r.rows, offloadRow{lag: new(stats.Hist), latency: new(stats.Hist)})
	}
	return &r.rows[index]
}

// complete appends the next interval to the timeline.
func (r *offloading) complete() {
	index := len(r.timeline)
	row := &r.rows[index]
	from := time.Duration(index) * r.Interval
	to := max(min(from+r.Interval, r.Schedule.Length()), from)
	s := stats.Second{T: to.Seconds(), Sent: row.sent, Replied: row.replied, LagP50NS: row.lag.Quantile(0.5), LagP99NS: row.lag.Quantile(0.99),
		LatencyP99NS: row.latency.Quantile(0.99)}
	if !r.unpaced {
		s.Planned = r.Schedule.Due(to-1) - r.Schedule.Due(from-1)
	}
	if r.Steal != nil {
		s.Steal = r.Steal()
	}
	row.lag, row.latency = nil, nil
	r.timeline = append(r.timeline, s)
}

// end is when the measured part ended: the plan's end, or earlier.
func (r *offloading) end() int64 {
	end := r.start + int64(r.Schedule.Length())
	for i := range r.workers {
		if e := r.workers[i].books.Ended; e != 0 && e < end {
			end = e
		}
	}
	return end
}

// ledger adds the books up.
func (r *offloading) ledger() (stats.Ledger, error) {
	l := stats.Ledger{Refused: map[string]uint64{}}
	for i := range r.workers {
		w := &r.workers[i]
		b := &w.books
		dealt := b.Sent + b.Dropped + b.Skipped
		for c, n := range b.Refused {
			dealt += n
			if n > 0 {
				l.Refused[backend.Cause(c).String()] += n
			}
		}
		planned := dealt
		if !r.unpaced {
			if planned = w.cursor.Slots(); b.Ended != 0 {
				planned = w.cursor.DueBy(b.Ended - r.start)
			}
			planned = max(planned, dealt) // a slot is due in the ns in which the program finds it so
		}
		l.Planned += planned
		l.Sent += b.Sent
		l.KernelDropped += b.Dropped
		l.Abandoned += b.Skipped + planned - dealt
	}
	if r.receiver == nil {
		return l, nil
	}
	books, err := r.receiver.Books()
	if err != nil {
		return l, err
	}
	for i := range books {
		addReplies(&l, &books[i])
		if err := r.unreplied(i, &books[i], &l); err != nil {
			return l, err
		}
	}
	return l, nil
}

// unreplied adds worker i's packets without a reply: lost if their timeout had passed when the drain ended, else in flight.
func (r *offloading) unreplied(i int, b *backend.ReceiverBooks, l *stats.Ledger) error {
	w := &r.workers[i]
	lost := w.books.Sent - min(b.Unique, w.books.Sent)
	flying, cut := uint64(0), w.books.Next
	if !r.unpaced {
		cut = min(w.config.First+w.cursor.DueBy(r.drained-int64(r.Timeout)-r.start), cut)
	}
	if err := r.nameUnreplied(i, cut); err != nil {
		return err
	}
	if lost > 0 && cut < w.books.Next {
		n, err := r.receiver.Unseen(i, cut, w.books.Next, nil)
		if err != nil {
			return fmt.Errorf("receiver: %w", err)
		}
		flying = min(n-min(r.names.unsentFrom(i, cut), n), lost)
	}
	addUnreplied(l, lost, flying, r.drained-r.end())
	return nil
}

// nameUnreplied names worker i's slots without a reply.
func (r *offloading) nameUnreplied(i int, cut uint64) error {
	if r.names == nil {
		return nil
	}
	w := &r.workers[i]
	if err := r.names.readUnsent(i, w); err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	unsent := w.books.Next - min(w.books.Next, w.config.First+w.books.Sent)
	hidden := unsent - min(unsent, uint64(len(r.names.unsent[i])))
	if err := r.names.unreplied(r.receiver, i, w.config.First, cut, w.books.Next, r.names.wasUnsent(i), hidden); err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	return nil
}

// result puts everything together.
func (r *offloading) result() (*stats.Result, error) {
	ledger, err := r.ledger()
	res := &stats.Result{Schema: stats.ResultSchema, Started: r.started, Ledger: ledger, Timeline: r.timeline, Shards: 1, Events: stats.Events{}}
	last, end := r.start, r.end()
	for i := range r.workers {
		w := &r.workers[i]
		last = max(last, w.books.LastSent)
		w.result.Flows, w.result.Sent, w.result.GuardNS = len(w.config.Flows), w.books.Sent, w.books.Guard
		w.result.LagP99NS = w.lag.Quantile(0.99)
		w.result.Duty = dutyAtEnd(r.start, end, w.books.LastSent, w.books.Waited, w.books.Ended == 0)
		res.Workers = append(res.Workers, w.result)
		if w.books.Aborted != 0 {
			res.Interrupted = fmt.Sprintf("catch-up abort: worker %d was %v late", i, time.Duration(w.books.Aborted))
		}
		if w.err != nil && res.Interrupted == "" {
			res.Interrupted = fmt.Sprintf("worker %d: %v", i, w.err)
		}
	}
	if r.stopped != 0 {
		res.Interrupted = "interrupt"
	}
	res.Backend = r.granted()
	var traffic stats.Traffic
	traffic.Add(r.payload, r.ipv6, ledger.Sent)
	target := 0.0
	if !r.unpaced {
		target = r.Schedule.MeanPPS()
		if length := end - r.start; length > 0 && length < int64(r.Schedule.Length()) {
			target = float64(r.Schedule.Due(time.Duration(length))) / time.Duration(length).Seconds()
		}
	}
	res.Rate = stats.RateOf(target, traffic, ledger.Replied+ledger.Late, time.Duration(max(last, end)-r.start))
	res.Lag, res.Latency, res.Service, res.Server = r.lag.Summary(), r.latency.Summary(), r.service.Summary(), r.server.Summary()
	err = errors.Join(err, r.departures(res))
	res.Precision = r.precision(&r.course, &r.latency, &r.lag)
	if r.Echo {
		res.Little = &stats.Little{RatePPS: res.Rate.AchievedPPS, LatencyNS: int64(r.latency.Mean()), Unchecked: "the backend executes the plan itself, and its packets in flight are not looked at"}
	}
	if ledger.Sent == 0 && err == nil {
		err = ErrNothingSent
	}
	return res, err
}

// granted is the backend as all workers got it.
func (r *offloading) granted() stats.Backend {
	l := r.workers[0].Limits()
	b := stats.Backend{Mode: l.Mode, GSO: 1, Batch: l.Batch, Notes: []string{}}
	if r.receiver != nil {
		b.Mode += "; replies by " + r.receiver.Mode()
		b.Notes = append(append(b.Notes, r.receiver.Notes()...), r.names.give(r.Names)...)
	}
	for i := range r.workers {
		for _, note := range r.workers[i].Limits().Notes {
			if !slices.Contains(b.Notes, note) {
				b.Notes = append(b.Notes, note)
			}
		}
		if g := &r.workers[i].books; g.Gaps > 0 {
			b.Notes = append(b.Notes, fmt.Sprintf("worker %d was started anew %d times, %d of them overlapped by a second one; the longest gap %v counts as lag",
				i, g.Gaps, g.Bridged, time.Duration(g.MaxGap)))
		}
	}
	return b
}

// close lets go of everything.
func (r *offloading) close() error {
	var errs []error
	if r.receiver != nil {
		errs = append(errs, r.receiver.Close())
	}
	for i := range r.workers {
		errs = append(errs, r.workers[i].Close())
	}
	return errors.Join(errs...)
}
