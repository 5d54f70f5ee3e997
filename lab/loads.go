package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"blast/engine"
	"blast/serve"
	"blast/stats"
)

// slow is the limit of the articles for a slow sample.
const slow = 100 * time.Millisecond

// The service of the articles: 16 servers of 5 ms.
const (
	servers = 16
	service = 5 * time.Millisecond
)

// frozen is that service, frozen from one moment of a run to another.
func frozen(from, to time.Duration) serve.QueueConfig {
	return serve.QueueConfig{Servers: servers, Service: service, Stalls: []serve.Stall{{From: from, To: to}}}
}

// openStall are the closed forms for an open load of rate lambda on servers of rate mu = servers/service in all, frozen for D:
//
//	arriving tau into the stall        latency = (D - tau) + lambda tau / mu + s
//	arriving u after it, until u*      latency = (lambda D - (mu - lambda) u) / mu + s,    u* = lambda D / (mu - lambda)
//	slower than L                      lambda D + lambda (lambda D - mu (L - s)) / (mu - lambda) + lambda s    (the last: caught in service)
//
// The q-th of n samples from above lies on the first line, lambda s places further down for those caught in service, who all took D + s.
type openStall struct {
	lambda, servers float64
	service, stall  time.Duration
}

func (o openStall) mu() float64 { return o.servers / o.service.Seconds() }

func (o openStall) slow(limit time.Duration) float64 {
	d, s := o.stall.Seconds(), o.service.Seconds()
	return o.lambda*d + o.lambda*(o.lambda*d-o.mu()*(limit.Seconds()-s))/(o.mu()-o.lambda) + o.lambda*s
}

func (o openStall) max() time.Duration { return o.stall + o.service }

// quantile is the latency at quantile q of n samples, where that lies in the first half of the stall.
func (o openStall) quantile(q, n float64) time.Duration {
	tau := max((1-q)*n-o.lambda*o.service.Seconds(), 0) / o.lambda
	return o.max() - time.Duration(tau*(1-o.lambda/o.mu())*1e9)
}

// blockingSlow is the number of slots of one blocking sender at rate r, slower than limit from planned, after a stall D of a service s: it
// catches up at 1/s.
//
//	r D + r (r D - (L - s)/s) / (1/s - r),  r < 1/s
func blockingSlow(r float64, s, stall, limit time.Duration) float64 {
	d := stall.Seconds()
	return r*d + r*(r*d-(limit-s).Seconds()/s.Seconds())/(1/s.Seconds()-r)
}

// openLoad is the truth.
func openLoad(ctx context.Context, b *bench) error {
	const rate = 1000
	o := openStall{rate, servers, service, 2 * time.Second}
	res, err := b.run(ctx, load{target: frozen(5*time.Second, 7*time.Second), rate: rate, length: 12 * time.Second, timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	b.exactly("samples", res.Latency.Count, 12_000)
	b.exactly("arrivals told by the target", res.truth.Arrivals, 12_000)
	b.share("slow (above 100 ms)", float64(res.Latency.Over.Ms100), o.slow(slow), 0.02, "")
	b.near("p50", res.Latency.P50, service, time.Millisecond)
	b.near("p99", res.Latency.P99, o.quantile(0.99, 12_000), 10*time.Millisecond)
	b.near("max", res.Latency.Max, o.max(), 10*time.Millisecond)
	b.little(res, 0)
	return nil
}

// little checks in flight = rate x mean latency; where clients is not 0, both are that number.
func (b *bench) little(res *outcome, clients int) {
	l := res.Little
	if l.Unchecked != "" || l.Suspect != "" {
		b.that("Little's law", l.Unchecked+l.Suspect, "checked, and none suspect", false)
		return
	}
	if clients == 0 {
		b.share("Little: in flight against rate x latency", l.InFlight, l.Product(), stats.LittleLimit, "")
		return
	}
	b.share(fmt.Sprintf("Little, %d clients: in flight", clients), l.InFlight, float64(clients), stats.LittleLimit, "")
	b.share(fmt.Sprintf("Little, %d clients: rate x latency", clients), l.Product(), float64(clients), stats.LittleLimit, "")
}

// closedLoad sees a stall once a client.
func closedLoad(ctx context.Context, b *bench) error {
	return b.closed(ctx, 2*time.Second, 2500*time.Millisecond)
}

// closedLong sees a longer stall just as often.
func closedLong(ctx context.Context, b *bench) error {
	return b.closed(ctx, 20*time.Second, time.Second)
}

// closed runs 10 clients against a stall, with work of lead before and after it.
func (b *bench) closed(ctx context.Context, stall, lead time.Duration) error {
	const clients = 10
	res, err := b.run(ctx, load{target: frozen(lead, lead+stall), model: engine.ModelClosed, users: clients, length: 2*lead + stall, timeout: time.Minute})
	if err != nil {
		return err
	}
	b.exactly("slow (above 100 ms): one a client", res.Latency.Over.Ms100, clients)
	b.near("max", res.Latency.Max, stall+service, 10*time.Millisecond)
	b.exactly("samples: all that the target completed", res.Latency.Count, res.truth.Completions)
	// Throughput is a result: clients / latency while nothing is frozen. What the generator and loopback add is measured, not computed.
	most := clients * (2 * lead).Seconds() / service.Seconds()
	b.that("samples: at most 10 clients / 5 ms", stats.FormatCount(res.Latency.Count), "at most "+number(most+clients), float64(res.Latency.Count) <= most+clients)
	return nil
}

// blockingLoad is timed from planned and from actual, in one run.
func blockingLoad(ctx context.Context, b *bench) error {
	const rate = 100
	res, err := b.run(ctx, load{target: frozen(5*time.Second, 7*time.Second), model: engine.ModelBlocking, users: 1, rate: rate, length: 12 * time.Second,
		timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	b.exactly("samples", res.Latency.Count, 1200)
	b.share("slow from planned", float64(res.Latency.Over.Ms100), blockingSlow(rate, service, 2*time.Second, slow), 0.05, "")
	b.exactly("slow from actual", res.Service.Over.Ms100, 1)
	return nil
}

// bottleneck is a generator that cannot do what it was asked: it has to say so.
func bottleneck(ctx context.Context, b *bench) error {
	const hold, rate, senders = 7 * time.Millisecond, 2000, 4
	length := 5 * time.Second
	res, err := b.run(ctx, load{target: serve.QueueConfig{Servers: servers, Service: hold}, model: engine.ModelBlocking, users: senders, rate: rate, length: length,
		timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	codes := stats.Codes(res.Verdict.Reasons)
	b.that("verdict", word(res.Verdict.Valid)+" "+strings.Join(codes, ", "), "INVALID by rate and lag-trend",
		!res.Verdict.Valid && slices.Contains(codes, "rate") && slices.Contains(codes, "lag-trend"))
	// Each sender has one in flight for its service time as measured: Little's law with L = senders.
	mean := res.Service.Mean
	b.share("rate reached: 4 / mean service time as measured", res.Rate.AchievedPPS, senders*1e9/mean, 0.05, "/s")
	b.share("rate reached: 4 / 7 ms", res.Rate.AchievedPPS, senders/hold.Seconds(), 0.1, "/s")
	b.near("from actual, p50", res.Service.P50, hold, time.Millisecond)
	// Slot i of the plan left at i/x instead of i/r: latency runs evenly from 0 to the end of the run less its place in the plan.
	x := res.Rate.AchievedPPS
	n := float64(res.Latency.Count)
	planned := func(q float64) float64 { return q*n*(1/x-1.0/rate) + mean/1e9 }
	b.share("from planned, p50: as computed from the rate reached", float64(res.Latency.P50)/1e9, planned(0.5), 0.05, " s")
	b.share("from planned, p99: as computed from the rate reached", float64(res.Latency.P99)/1e9, planned(0.99), 0.05, " s")
	return nil
}

func word(valid bool) string {
	if valid {
		return "VALID"
	}
	return "INVALID"
}
