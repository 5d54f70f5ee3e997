package lab

import (
	"context"
	"fmt"
	"time"

	"blast/engine"
	"blast/serve"
)

// caps holds a plan back by the number in flight.
func caps(ctx context.Context, b *bench) error {
	const rate = 5000
	length := 2 * time.Second
	for _, k := range []int{1, 4} {
		res, err := b.run(ctx, load{target: serve.QueueConfig{Servers: servers, Service: time.Millisecond}, cap: k, users: 1, rate: rate, length: length, timeout: 20 * time.Second})
		if err != nil {
			return err
		}
		name := func(s string) string { return fmt.Sprintf("cap %d: %s", k, s) }
		b.that(name("most in flight at once, told by the target"), fmt.Sprint(res.truth.InsideMax), fmt.Sprintf("at most %d", k), res.truth.InsideMax <= k)
		x, mean := res.Rate.AchievedPPS, res.Service.Mean
		b.share(name("in flight: rate reached x mean service time"), x*mean/1e9, float64(k), 0.05, "")
		n := float64(res.Latency.Count)
		planned := func(q float64) float64 { return q*n*(1/x-1.0/rate) + mean/1e9 }
		b.share(name("from planned, p99: computed from the rate reached"), float64(res.Latency.P99)/1e6, planned(0.99)*1e3, 0.05, " ms")
		b.that(name("from actual, p99, hides it"), millis(res.Service.P99), "below a tenth of that", res.Service.P99*10 < res.Latency.P99)
		b.that(name("verdict"), word(res.Verdict.Valid), "INVALID", !res.Verdict.Valid)
	}
	return nil
}

// little is Little's law where the number in flight is given: that of the clients.
func little(ctx context.Context, b *bench) error {
	for _, clients := range []int{10, 20, 50, 100} {
		res, err := b.run(ctx, load{target: serve.QueueConfig{Servers: 128, Service: 20 * time.Millisecond}, model: engine.ModelClosed, users: clients,
			length: 1500 * time.Millisecond, timeout: 10 * time.Second})
		if err != nil {
			return err
		}
		b.little(res, clients)
	}
	return nil
}
