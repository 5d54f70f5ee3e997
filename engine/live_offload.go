package engine

import (
	"fmt"
	"time"

	"blast/backend"
	"blast/stats"
)

// tell calls Config.Live for the intervals that are complete.
func (r *offloading) tell() error {
	l := &stats.Live{Lag: &r.lag, Latency: &r.latency, Service: &r.service}
	res := &l.Result
	res.Ledger, res.Timeline = stats.Ledger{Refused: map[string]uint64{}}, r.timeline
	now := r.Clock.Now()
	elapsed := min(time.Duration(now-r.start), r.Schedule.Length())
	for i := range r.workers {
		w := &r.workers[i]
		b, err := w.Books()
		if err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
		worker := stats.Worker{CPU: w.config.CPU, Queue: -1, Flows: len(w.config.Flows), Sent: b.Sent}
		worker.Duty = dutyOf(b.Waited, now-r.start)
		res.Workers = append(res.Workers, worker)
		res.Ledger.Sent += b.Sent
		res.Ledger.Abandoned += b.Skipped
		res.Ledger.KernelDropped += b.Dropped
		for c, n := range b.Refused {
			if n > 0 {
				res.Ledger.Refused[backend.Cause(c).String()] += n
			}
		}
	}
	res.Ledger.Planned = res.Ledger.Sent + res.Ledger.Unsent()
	if err := r.repliesSoFar(&res.Ledger, now); err != nil {
		return err
	}
	var target float64
	if !r.unpaced {
		// The program's counters are read now, so the plan is what was due by now; what it had due and had not sent yet is in its lag.
		res.Ledger.Planned = max(r.Schedule.Due(elapsed-1), res.Ledger.Planned)
		target = float64(res.Ledger.Planned) / elapsed.Seconds()
	}
	res.Rate = stats.RateOf(target, stats.Traffic{Packets: res.Ledger.Sent}, res.Ledger.Replied+res.Ledger.Late, elapsed)
	r.telling.finish(l, false, stats.Second{}, r.Live)
	return nil
}

// repliesSoFar adds what the receiver counted.
func (r *offloading) repliesSoFar(l *stats.Ledger, now int64) error {
	if r.receiver == nil {
		return nil
	}
	all, err := r.receiver.Books()
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	for i := range all {
		addReplies(l, &all[i])
		if !r.unpaced {
			w := &r.workers[i]
			cut := w.config.First + w.cursor.DueBy(now-int64(r.Timeout)-r.start)
			l.Lost += r.telling.kernel[i].unseen(i, w.config.First, cut, r.receiver)
		}
	}
	censor(l)
	return nil
}
