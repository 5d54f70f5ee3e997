package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"blast/engine"
	"blast/stats"
)

// calm is how the target answers when it is idle, as the quickest probe so far found it.
type calm struct {
	known    bool
	idle     int64 // median latency of a probe, ns
	attempts int
	backlog  time.Duration // that the last step may have left, at the pace of its replies
}

const (
	probeRate = 100 // packets a second, at most
	// probeTries bounds the probes of a target that never answered.
	probeTries = 3
	probePause = 50 * time.Millisecond
	// longestWait bounds the wait for a queue to empty.
	longestWait = 10 * time.Minute
	// probeSlack is how much slower than idle a target may answer and still count as idle, beside twice as slow.
	probeSlack = 2 * time.Millisecond
)

// settle waits until the target has worked off what the step before left: until a few packets, one by one, come back about as quickly as they
// did at first. Without replies there is nothing to see, and a pause must do.
func (c *climber) settle(ctx context.Context) error {
	if c.flags.mode == stats.ModeOneway {
		return pause(ctx, 4*probePause)
	}
	begun := time.Now()
	for {
		quiet, err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("probe before the step: %w", err)
		case quiet:
			return pause(ctx, probePause)
		case !c.calm.known && c.calm.attempts >= probeTries:
			return fmt.Errorf("the target does not answer: %d probes of %d packets, and nothing came back within %v; is it up, and does it answer what blast sends (--match for a foreign protocol)? "+
				"Without replies, --mode oneway finds the generator's limit", probeTries, c.probeSize(), c.flags.timeout)
		case time.Since(begun) > c.patience() && !c.calm.known:
			return fmt.Errorf("not one probe could be sent within %v: something else keeps this machine busy", c.patience())
		case time.Since(begun) > c.patience():
			return fmt.Errorf("the target did not become idle within %v: single packets still take longer than twice the %s that they took at first, or get lost",
				c.patience(), stats.FormatNS(c.calm.idle))
		}
		if err := pause(ctx, probePause); err != nil {
			return err
		}
	}
}

// patience bounds the wait for an idle target: three steps and some, or half as long again as what was unanswered takes at the pace of the
// last step, for at most longestWait.
func (c *climber) patience() time.Duration {
	return max(3*c.flags.step+5*time.Second, min(c.calm.backlog+c.calm.backlog/2, longestWait))
}

// left notes what a step may have left in the target's queue.
func (c *climber) left(r *stats.Result) {
	c.calm.backlog = 0
	if r.Rate.RepliedPPS > 0 {
		c.calm.backlog = time.Duration(min(float64(r.Ledger.Lost+r.Ledger.InFlight)/r.Rate.RepliedPPS, longestWait.Seconds()) * float64(time.Second))
	}
}

// probeSize is the number of packets in a probe: those of 100 ms, but 3 at least.
func (c *climber) probeSize() int {
	return max(int(math.Ceil(min(probeRate, c.config.From)/10)), 3)
}

// probePlan is a few packets, one by one whatever the profile: at random times some would come together, or none at all.
func (c *climber) probePlan() (*udpPlan, error) {
	rate := min(probeRate, c.config.From)
	return c.at(rate, time.Duration(float64(c.probeSize())/rate*float64(time.Second)), "const")
}

// probe sends a few packets and reports whether they came back as from an idle target.
func (c *climber) probe(ctx context.Context) (bool, error) {
	p, err := c.probePlan()
	if err != nil {
		return false, err
	}
	cfg := p.engine
	cfg.Warmup, cfg.Epoch = nil, p.epoch
	cfg.Source = func(worker int) engine.Source { return p.source(worker, cfg.Epoch) }
	res, err := p.execute(ctx, cfg)
	switch {
	case errors.Is(err, engine.ErrNothingSent): // a stall of this machine as long as the probe
		return false, nil
	case res == nil || err != nil:
		return false, err
	}
	c.calm.attempts++
	l := &res.Ledger
	if 2*(l.Replied+l.Late) <= l.Sent {
		return false, nil
	}
	took := res.Latency.P50
	if !c.calm.known || took < c.calm.idle {
		c.calm.known, c.calm.idle = true, took
	}
	return took <= 2*c.calm.idle+int64(probeSlack), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
