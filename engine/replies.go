package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"blast/backend"
	"blast/stats"
)

// kernelReplies takes the replies of all workers where they arrive, inside the kernel, in place of the workers' receiving threads. nil is
// the absence of it. It belongs to Run's goroutine.
type kernelReplies struct {
	backend.OffloadReceiver
	names *told
	err   error // the first one of collecting
}

// checkReplies refuses what replies that are never handed out cannot do.
func (c *Config) checkReplies() error {
	if c.Replies == nil {
		return nil
	}
	if _, stamped := c.Source(0).(*Stamped); !c.Echo || !stamped {
		return fmt.Errorf("receive in the kernel: replies are known there by our stamp alone; echo mode without a foreign payload, or receive on sockets: %w", errors.ErrUnsupported)
	}
	if c.Model != ModelOpen || c.MaxInFlight > 0 {
		return fmt.Errorf("receive in the kernel: closed, blocking and capped load need each reply; receive on sockets: %w", errors.ErrUnsupported)
	}
	return nil
}

// openReplies opens the receiver for the ports that the workers have bound.
func (r *run) openReplies() error {
	if r.Replies == nil {
		return nil
	}
	cfg := backend.ReceiverConfig{Epoch: r.Epoch, Timeout: r.Timeout, Interval: r.slice}
	for i := range r.lanes {
		l := &r.lanes[i]
		for _, src := range l.limits.Sources {
			cfg.Ports = append(cfg.Ports, src.Port())
		}
		limit := l.warmed + min(l.cursor.Slots(), math.MaxUint64-l.warmed)
		if r.workers[i].planless {
			limit = 1 << 48
		}
		cfg.Shares = append(cfg.Shares, backend.ReceiverShare{First: l.warmed, Limit: limit, Flows: len(l.flows)})
	}
	names := newTold(r.Names, len(r.lanes), &cfg)
	receiver, err := r.Replies(cfg)
	if err != nil {
		return fmt.Errorf("receive in the kernel: %w", err)
	}
	r.kernel = &kernelReplies{OffloadReceiver: receiver, names: names}
	return nil
}

// takeReplies adds the intervals that are over at now.
func (r *run) takeReplies(now int64) {
	k := r.kernel
	if k == nil || k.err != nil {
		return
	}
	var addErr error
	err := k.Collect(now, func(v *backend.ReceiverInterval) {
		r.enter(v.Index)
		addErr = errors.Join(addErr, r.addSlice(&r.course.Latency, v.Index, v.Latency, &r.total.latency, &r.building.latency), merge(v.Service, &r.total.service), merge(v.Server, &r.total.server))
		r.building.replied += v.Replied
	})
	k.err = errors.Join(err, addErr, k.names.read(k.OffloadReceiver))
}

// drainReplies waits for the replies to what was sent.
func (r *run) drainReplies(ctx context.Context) {
	k := r.kernel
	if k == nil {
		return
	}
	defer func() { r.drained = r.Clock.Now() }()
	for begun := r.Clock.Now(); k.err == nil; time.Sleep(time.Millisecond) {
		var answered, accepted uint64
		var longest time.Duration
		books, err := k.Books()
		if k.err = err; err != nil {
			return
		}
		for i, b := range books {
			answered += b.Unique
			accepted += r.workers[i].accepted
			longest = max(longest, b.Longest)
		}
		if answered >= accepted || r.Clock.Now()-begun >= int64(r.drainTime(int64(longest))) || ctx.Err() != nil && r.stopped == 0 {
			return
		}
	}
}

// kernelLedger adds the fates of the sent packets. Replies in the kernel carry no report that could tell on which way a packet was lost.
func (r *run) kernelLedger(l *stats.Ledger) {
	k := r.kernel
	books, err := k.Books()
	k.err = errors.Join(k.err, err)
	for i, b := range books {
		w, lane := r.workers[i], &r.lanes[i]
		addReplies(l, &b)
		sent := w.accepted
		if w.async {
			sent = w.completed.Sent - min(w.warmed, w.completed.Sent)
		}
		lost := sent - min(b.Unique, sent)
		flying, cut := uint64(0), w.nextSeq
		if !w.planless {
			cut = min(lane.warmed+lane.cursor.DueBy(r.drained-int64(r.Timeout)-r.start), w.nextSeq)
		}
		k.err = errors.Join(k.err, k.names.unreplied(k.OffloadReceiver, i, lane.warmed, cut, w.nextSeq, w.unsent.ring.has, w.givenUp()))
		if lost > 0 && cut < w.nextSeq {
			unseen, err := k.Unseen(i, cut, w.nextSeq, nil)
			k.err = errors.Join(k.err, err)
			unsent := w.unsent.before(w.nextSeq) - w.unsent.before(cut)
			flying = min(unseen-min(unsent, unseen), lost)
		}
		addUnreplied(l, lost, flying, r.drained-r.end())
	}
}

// givenUp is the number of slots that an asynchronous backend gave up after accepting them: they are among those without a reply, and
// which ones they are, it does not say.
func (w *worker) givenUp() uint64 {
	n := w.completed.Dropped
	for _, refused := range w.completed.Refused {
		n += refused
	}
	return n
}

// closeReplies detaches the receiver and says in the result how replies were taken.
func (r *run) closeReplies(res *stats.Result) error {
	k := r.kernel
	if k == nil {
		return nil
	}
	res.Backend.Mode += "; replies by " + k.Mode()
	res.Backend.Notes = append(append(res.Backend.Notes, k.Notes()...), k.names.give(r.Names)...)
	res.Little = &stats.Little{RatePPS: res.Rate.AchievedPPS, LatencyNS: int64(r.total.latency.Mean()), Unchecked: "replies are taken in the kernel, and packets in flight are not looked at"}
	return errors.Join(k.err, k.Close())
}
