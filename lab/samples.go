package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"blast/engine"
	"blast/packet"
	"blast/serve"
	"blast/stats"
)

// computed checks what needs no run.
func computed(_ context.Context, b *bench) error {
	const ms = int64(time.Millisecond)
	o := openStall{1000, servers, service, 2 * time.Second}
	q := serve.NewQueue(servers, []serve.Stall{{From: 5 * time.Second, To: 7 * time.Second}})
	var sim stats.Hist
	for i := range int64(12_000) {
		at := i * ms
		_, depart := q.Admit(at, int64(service))
		sim.Record(depart - at)
	}
	b.share("open load, simulated: slow", float64(sim.Over(int64(slow))), o.slow(slow), 0.01, "")
	b.near("open load, simulated: p99", sim.Quantile(0.99), o.quantile(0.99, 12_000), 5*time.Millisecond)
	b.near("open load, simulated: max", sim.Max(), o.max(), 5*time.Millisecond)

	var corrected, whole stats.Hist
	corrected.RecordCorrected(1000*ms, 10*ms)
	for v := 10 * ms; v <= 1000*ms; v += 10 * ms {
		whole.Record(v)
	}
	b.exactly("correction of 1000 ms at 10 ms: samples added", corrected.Count()-1, 99)
	b.that("... and they are 990, 980 ... 10 ms", same(corrected.Summary() == whole.Summary()), same(true), corrected.Summary() == whole.Summary())

	// Percentiles never average: one shard has a p99 of 10 ms, the other of 100 ms; of the whole, less than 1 % took 100 ms.
	var shardA, shardB, merged, all stats.Hist
	for i := range int64(10_000) {
		a, c := ms, ms
		if i >= 9_850 {
			a, c = 10*ms, 100*ms
		}
		shardA.Record(a)
		shardB.Record(c)
		all.Record(a)
		all.Record(c)
	}
	merged.Add(&shardA)
	merged.Add(&shardB)
	b.near("shards with p99 of 10 and of 100 ms: p99 of the whole", merged.Quantile(0.99), 10*time.Millisecond, 10*time.Microsecond)
	b.that("... merged = whole, bit for bit", same(merged.Summary() == all.Summary()), same(true), merged.Summary() == all.Summary())
	return nil
}

func same(is bool) string {
	if is {
		return "equal"
	}
	return "different"
}

// correction makes one reply of a closed load take about a second more than its service time, and looks at what the estimate adds.
func correction(ctx context.Context, b *bench) error {
	const interval = 10 * time.Millisecond
	// The client always has a request in service, so the stall catches one, whose latency is 10 ms and the stall: 1005 ms. The samples
	// missing are 995, 985 ... 15 ms.
	const stall = 995 * time.Millisecond
	begin := 504 * time.Millisecond
	res, err := b.run(ctx, load{target: serve.QueueConfig{Servers: 1, Service: interval, Stalls: []serve.Stall{{From: begin, To: begin + stall}}}, model: engine.ModelClosed,
		users: 1, length: 3 * time.Second, timeout: 10 * time.Second, correct: interval})
	if err != nil {
		return err
	}
	b.exactly("recorded above 100 ms", res.Latency.Over.Ms100, 1)
	b.exactly("estimated above 100 ms: 1005, 995 ... 105 ms", res.Corrected.Over.Ms100, 91)
	b.exactly("samples added", res.Corrected.Count-res.Latency.Count, 99)
	return nil
}

// capture is a Source that also shows every reply to another.
type capture struct {
	engine.Source
	also engine.Source
}

func (c capture) Match(payload []byte, now int64, st *packet.Stamp) bool {
	ok := c.Source.Match(payload, now, st)
	if ok {
		seen := *st
		c.also.Match(payload, now, &seen)
	}
	return ok
}

// samples keeps the latency of every reply.
type samples struct {
	engine.Source
	latency []int64
}

func (s *samples) Match(_ []byte, now int64, st *packet.Stamp) bool {
	s.latency = append(s.latency, now-st.Planned)
	return true
}

// shards runs two processes' worth of one run at once, writes and reads their results, and merges them.
func shards(ctx context.Context, b *bench) error {
	worker, rest := b.cpus()
	target, err := serve.StartQueue(serve.QueueConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), CPUs: rest, Servers: servers, Service: service,
		Jitter: service / 2, Stalls: []serve.Stall{{From: 500 * time.Millisecond, To: 700 * time.Millisecond}}})
	if err != nil {
		return err
	}
	defer target.Close()
	const n = 2
	var running sync.WaitGroup
	parts, errs, seen := make([]*stats.Result, n), make([]error, n), make([]samples, n)
	for i := range n {
		running.Go(func() {
			l := load{rate: 500, length: 1500 * time.Millisecond, timeout: 5 * time.Second, source: func(int) engine.Source { return &seen[i] }}
			parts[i], errs[i] = b.against(ctx, l, target.Addr(), worker, rest)
		})
	}
	running.Wait()
	var whole stats.Hist
	for i, p := range parts {
		if errs[i] != nil {
			return errs[i]
		}
		p.RunID, p.Shard, p.Shards = "lab", i, n
		if parts[i], err = throughJSON(p); err != nil {
			return err
		}
		for _, v := range seen[i].latency {
			whole.Record(v)
		}
	}
	merged, err := stats.Merge(parts)
	if err != nil {
		return err
	}
	b.exactly("samples of the shards", merged.Latency.Count, 1500)
	want := whole.Summary()
	b.that("merged histogram and one of all samples, bit for bit", same(merged.Latency == want), same(true), merged.Latency == want)
	b.near("p99 of the merged", merged.Latency.P99, time.Duration(want.P99), 0)
	return nil
}

// throughJSON writes a result and reads it again, as a shard's is.
func throughJSON(r *stats.Result) (*stats.Result, error) {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(r); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	return stats.ReadResult(&buf)
}
