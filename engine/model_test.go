package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"blast/backend/backendtest"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

const ms = time.Millisecond

// service is the target of the articles on the fake loopback: a FIFO queue of equal servers, frozen from one moment of the run to another.
type service struct {
	b        *bench
	hold     time.Duration
	free     []int64 // by server
	from, to time.Duration
}

// of makes the fake answer as the service does, and answer plain requests at once where there are no servers.
func (s *service) reply(uint64, int, []byte) []time.Duration {
	now := s.b.clk.T - s.b.start
	k := 0
	for i := range s.free {
		if s.free[i] < s.free[k] {
			k = i
		}
	}
	from, to := int64(s.from), int64(s.to)
	start := max(now, s.free[k])
	if start >= from && start < to {
		start = to
	}
	end := start + int64(s.hold)
	if start < from && end > from {
		end += to - from
	}
	s.free[k] = end
	return []time.Duration{time.Duration(end - now)}
}

// modelBench is a run of one of the models against servers that hold each request for hold, frozen from from to to.
func modelBench(t *testing.T, cfg Config, s pace.Schedule, flows, servers int, hold, from, to time.Duration) *bench {
	t.Helper()
	b := newBench(t, s, flows)
	b.cfg.Echo, b.cfg.Model, b.cfg.Think, b.cfg.MaxInFlight, b.cfg.Correct, b.cfg.Timeout = true, cfg.Model, cfg.Think, cfg.MaxInFlight, cfg.Correct, cfg.Timeout
	b.cfg.Names = cfg.Names
	b.fake.Keep = true
	b.fake.Reply = (&service{b: b, hold: hold, free: make([]int64, servers), from: from, to: to}).reply
	return b
}

func closedPlan(t *testing.T, d time.Duration) pace.Schedule {
	return must[pace.Unpaced](t)(pace.Max(d))
}

// The closed load of the article: as many slow samples as there are clients, however long the stall is.
func TestClosedSeesAStallOnceAClient(t *testing.T) {
	for _, stall := range []time.Duration{2 * time.Second, 20 * time.Second} {
		b := modelBench(t, Config{Model: ModelClosed, Timeout: time.Minute}, closedPlan(t, 10*time.Second+stall), 10, 16, 5*ms, 5*time.Second, 5*time.Second+stall)
		res := must[*stats.Result](t)(b.go_(t))
		if n := res.Latency.Over.Ms100; n != 10 {
			t.Errorf("stall of %v: %d samples above 100 ms, want one for each of the 10 clients", stall, n)
		}
		// 10 s of work at 10 / 5 ms.
		if n := float64(res.Ledger.Sent); math.Abs(n-20_000) > 200 {
			t.Errorf("stall of %v: %.0f requests, want 10 clients x 10 s / 5 ms = 20000", stall, n)
		}
		if m := time.Duration(res.Latency.Max); m < stall || m > stall+6*ms {
			t.Errorf("stall of %v: max %v", stall, m)
		}
		if res.Rate.TargetPPS != 0 || res.Lag.Count != res.Ledger.Sent || res.Lag.Max > int64(ms) {
			t.Errorf("target %v, %d lags up to %d ns: want no plan, and only the generator's own time", res.Rate.TargetPPS, res.Lag.Count, res.Lag.Max)
		}
	}
}

// Throughput of a closed load is a result: clients / (service + think). Each client waits for its reply and its think time.
func TestClosedThinks(t *testing.T) {
	b := modelBench(t, Config{Model: ModelClosed, Think: 15 * ms}, closedPlan(t, 4*time.Second), 8, 16, 5*ms, 0, 0)
	res := must[*stats.Result](t)(b.go_(t))
	if n := float64(res.Ledger.Sent); math.Abs(n-8*4/0.020) > 16 {
		t.Errorf("%.0f requests: want 8 clients x 4 s / 20 ms = 1600", n)
	}
	last := map[int]int64{}
	for _, p := range b.sent() {
		if gap := p.At - last[p.Flow]; last[p.Flow] != 0 && gap < int64(20*ms) {
			t.Fatalf("client %d sent again after %v", p.Flow, time.Duration(gap))
		}
		last[p.Flow] = p.At
	}
	if len(last) != 8 {
		t.Errorf("%d clients sent: want 8", len(last))
	}
}

// A client whose reply is lost goes on after its timeout, and the loss is booked once.
func TestClosedGivesUp(t *testing.T) {
	b := modelBench(t, Config{Model: ModelClosed, Timeout: 100 * ms, Names: &Names{}}, closedPlan(t, 2*time.Second), 2, 2, ms, 0, 0)
	reply := b.fake.Reply
	b.fake.Reply = func(seq uint64, flow int, p []byte) []time.Duration {
		if seq == 100 || seq == 501 {
			return nil
		}
		return reply(seq, flow, p)
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Lost != 2 || l.InFlight != 0 || l.Sent != l.Replied+2 {
		t.Errorf("ledger %+v: want 2 lost", l)
	}
	if n := float64(res.Ledger.Sent); math.Abs(n-(4000-200)) > 20 {
		t.Errorf("%.0f sent: want 2 clients x 2 s / 1 ms, less 100 ms twice", n)
	}
	if n := b.cfg.Names.Lost; len(n) != 2 || n[0].Seq != 100 || n[1].Seq != 501 {
		t.Errorf("lost %v: want 100 and 501", n)
	}
}

// One blocking sender at 100/s against 5 ms: from planned, the slots that had to wait are slow as computed; from actual, one is.
func TestBlockingFromPlannedAndFromActual(t *testing.T) {
	b := modelBench(t, Config{Model: ModelBlocking, Timeout: 10 * time.Second}, constant(t, 100, 12*time.Second), 1, 16, 5*ms, 5*time.Second, 7*time.Second)
	res := must[*stats.Result](t)(b.go_(t))
	const r, d, s, slow = 100.0, 2.0, 0.005, 0.1
	want := r*d + r*(r*d-(slow-s)/s)/(1/s-r)
	if n := float64(res.Latency.Over.Ms100); math.Abs(n-want) > 4 {
		t.Errorf("%.0f slow from planned: computed %.0f", n, want)
	}
	if n := res.Service.Over.Ms100; n != 1 {
		t.Errorf("%d slow from actual: want 1", n)
	}
	if l := res.Ledger; l.Planned != 1200 || l.Sent != 1200 || l.Replied != 1200 {
		t.Errorf("ledger %+v: want all 1200 replied", l)
	}
	if m := time.Duration(res.Latency.Max); m < 2*time.Second || m > 2011*ms {
		t.Errorf("max %v: want 2.00 to 2.01 s", m)
	}
}

// Four blocking senders of 7 ms each cannot make 2000/s: they reach 4 / 7 ms, the rest is abandoned, and lag grows all through.
func TestBlockingSendersAreTheBottleneck(t *testing.T) {
	b := modelBench(t, Config{Model: ModelBlocking, Timeout: 20 * time.Second}, constant(t, 2000, 5*time.Second), 4, 16, 7*ms, 0, 0)
	res := must[*stats.Result](t)(b.go_(t))
	if n := float64(res.Ledger.Sent); math.Abs(n-4*5.1/0.007) > 20 {
		t.Errorf("%.0f sent: want 4 senders x 5.1 s (the grace inside) / 7 ms = 2914", n)
	}
	if l := res.Ledger; l.Planned != 10_000 || l.Abandoned != 10_000-l.Sent {
		t.Errorf("ledger %+v: want 10000 planned, the unsent ones abandoned", l)
	}
	last := map[int]uint64{}
	var st packet.Stamp
	for _, p := range b.sent() {
		packet.ParseStamp(p.Payload, p.At, &st)
		if int(st.Seq%4) != p.Flow || last[p.Flow] > st.Seq {
			t.Fatalf("slot %d left by sender %d after %d: want senders to keep to their share, in order", st.Seq, p.Flow, last[p.Flow])
		}
		last[p.Flow] = st.Seq
	}
	if p50 := time.Duration(res.Service.P50); p50 < 7*ms || p50 > 8*ms {
		t.Errorf("service p50 %v: want 7 ms, as if nothing were wrong", p50)
	}
	if p50 := time.Duration(res.Latency.P50); p50 < 1500*ms {
		t.Errorf("latency p50 %v: want the wait for a sender counted", p50)
	}
}

// A cap holds due slots back in order, and what it holds back counts from planned.
func TestCap(t *testing.T) {
	for _, c := range []struct {
		cap     int
		reached float64 // per second
	}{{1, 1000}, {4, 4000}, {8, 5000}} {
		b := modelBench(t, Config{MaxInFlight: c.cap, Timeout: 20 * time.Second}, constant(t, 5000, 3*time.Second), 3, 100, ms, 0, 0)
		inFlight, most := 0, 0
		var ends []int64
		reply := b.fake.Reply
		b.fake.Reply = func(seq uint64, flow int, p []byte) []time.Duration {
			kept := ends[:0]
			for _, e := range ends {
				if e > b.clk.T {
					kept = append(kept, e)
				}
			}
			d := reply(seq, flow, p)
			ends = append(kept, b.clk.T+int64(d[0]))
			inFlight = len(ends)
			most = max(most, inFlight)
			return d
		}
		res := must[*stats.Result](t)(b.go_(t))
		if most > c.cap {
			t.Errorf("cap %d: %d in flight at once", c.cap, most)
		}
		ran := min(3.1, 15_000/c.reached)
		if n := float64(res.Ledger.Sent); math.Abs(n-min(c.reached*ran, 15_000)) > 0.02*n {
			t.Errorf("cap %d: %.0f sent, want about %.0f/s", c.cap, n, c.reached)
		}
		if p99 := time.Duration(res.Service.P99); p99 > 2*ms {
			t.Errorf("cap %d: service p99 %v, want what the target takes", c.cap, p99)
		}
		held := c.reached < 5000
		if p99 := time.Duration(res.Latency.P99); held != (p99 > 100*ms) {
			t.Errorf("cap %d: latency p99 %v", c.cap, p99)
		}
		for k, p := range b.sent() {
			var st packet.Stamp
			packet.ParseStamp(p.Payload, p.At, &st)
			if st.Seq != uint64(k) {
				t.Fatalf("cap %d: packet %d carries slot %d: want the order of the plan", c.cap, k, st.Seq)
			}
		}
	}
}

// What is lost under a cap takes its place until the timeout after its send, and no longer.
func TestCapAndTimeouts(t *testing.T) {
	b := modelBench(t, Config{MaxInFlight: 2, Timeout: 50 * ms}, constant(t, 1000, time.Second), 1, 10, ms, 0, 0)
	reply := b.fake.Reply
	b.fake.Reply = func(seq uint64, flow int, p []byte) []time.Duration {
		switch seq {
		case 100, 101:
			return nil
		case 300: // late, and free again before
			return []time.Duration{200 * ms}
		}
		return reply(seq, flow, p)
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Sent != 1000 || l.Lost != 2 || l.Late < 1 || l.Replied+l.Late != 998 {
		t.Errorf("ledger %+v: want all sent, 2 lost, the rest answered", l)
	}
	if m := time.Duration(res.Lag.Max); m < 48*ms || m > 52*ms {
		t.Errorf("largest lag %v: want the timeout for which nothing could be sent", m)
	}
}

// The example of the articles on the real path: an interval of 10 ms, one reply after 1000 ms, and 99 samples that were missing.
func TestCorrectionOfAClosedRun(t *testing.T) {
	b := modelBench(t, Config{Model: ModelClosed, Think: 5 * ms, Correct: 10 * ms, Timeout: 5 * time.Second}, closedPlan(t, 3*time.Second), 1, 1, 5*ms, 0, 0)
	reply := b.fake.Reply
	b.fake.Reply = func(seq uint64, flow int, p []byte) []time.Duration {
		if seq == 100 {
			return []time.Duration{1000 * ms}
		}
		return reply(seq, flow, p)
	}
	res := must[*stats.Result](t)(b.go_(t))
	if res.Corrected == nil || res.Corrected.Count != res.Latency.Count+99 {
		t.Fatalf("corrected %+v: want 99 samples more than the %d recorded", res.Corrected, res.Latency.Count)
	}
	if res.Latency.Over.Ms100 != 1 || res.Corrected.Over.Ms100 != 90 { // 1000, 990 ... 110
		t.Errorf("%d recorded above 100 ms, %d corrected: want 1 and 90", res.Latency.Over.Ms100, res.Corrected.Over.Ms100)
	}
}

// Names are the slots that the loopback touched, and no others.
func TestNames(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.cfg.Echo, b.cfg.Timeout, b.cfg.Drain, b.cfg.Names = true, 50*ms, 200*ms, &Names{}
	const rtt = 20 * time.Microsecond
	want := Names{}
	for seq := range uint64(10_000) {
		n := Name{0, seq}
		switch seq % 100 {
		case 1:
			want.Lost = append(want.Lost, n)
		case 2:
			want.Duplicate = append(want.Duplicate, n)
		case 3:
			want.Reordered = append(want.Reordered, n)
		}
	}
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		switch {
		case seq%100 == 1:
			return nil
		case seq%100 == 2:
			return []time.Duration{rtt, rtt + 5*time.Microsecond}
		case seq%100 == 3:
			return []time.Duration{rtt + 150*time.Microsecond}
		case seq == 7777:
			return []time.Duration{60 * ms}
		}
		return []time.Duration{rtt}
	}
	want.Late = []Name{{0, 7777}}
	want.Reordered = append(want.Reordered, Name{0, 7777}) // behind 600 others
	must[*stats.Result](t)(b.go_(t))
	got := b.cfg.Names
	for _, c := range []struct {
		what      string
		want, got []Name
	}{{"lost", want.Lost, got.Lost}, {"duplicate", want.Duplicate, got.Duplicate}, {"late", want.Late, got.Late}, {"in flight", nil, got.InFlight}} {
		if len(c.want) != len(c.got) {
			t.Errorf("%d named %s: want %d", len(c.got), c.what, len(c.want))
			continue
		}
		for i := range c.want {
			if c.want[i] != c.got[i] {
				t.Errorf("%s: %v, want %v", c.what, c.got[i], c.want[i])
			}
		}
	}
	seen := map[Name]bool{}
	for _, n := range got.Reordered {
		seen[n] = true
	}
	for _, n := range want.Reordered {
		if !seen[n] {
			t.Errorf("%v came out of order and was not named", n)
		}
	}
	if len(got.Reordered) != len(want.Reordered) {
		t.Errorf("%d named reordered: want %d", len(got.Reordered), len(want.Reordered))
	}
}

// Little's law on every model, by samples of the packets in flight: within 1 % whatever the load, with losses inside. A receiver polls once a
// slot or batch, so that what one poll brings is up to half of what is in flight: looks that took it for gone, or for coming, too early would show.
func TestLittle(t *testing.T) {
	const limit = 0.01
	open := func(t *testing.T) pace.Schedule { return constant(t, 1000, 12*time.Second) }
	for _, c := range []struct {
		name  string
		cfg   Config
		plan  func(*testing.T) pace.Schedule
		flows int
		to    time.Duration
		want  float64       // packets in flight; 0 = whatever
		takes time.Duration // of every reply, instead of the service's
	}{
		{"open, idle target", Config{Timeout: 500 * ms}, open, 1, 0, 5, 0},
		{"open, with a stall", Config{Timeout: 5 * time.Second}, open, 1, 7 * time.Second, 0, 0},
		{"open, with late replies", Config{Timeout: 500 * ms}, open, 1, 7 * time.Second, 0, 0},
		{"closed", Config{Model: ModelClosed, Timeout: 5 * time.Second}, func(t *testing.T) pace.Schedule { return closedPlan(t, 5*time.Second) }, 10, 0, 10, 0},
		{"blocking, with a stall", Config{Model: ModelBlocking, Timeout: 5 * time.Second}, func(t *testing.T) pace.Schedule { return constant(t, 100, 12*time.Second) }, 1, 7 * time.Second, 0, 0},
		{"capped", Config{MaxInFlight: 10, Timeout: 5 * time.Second}, open, 1, 0, 5, 0},
		{"open, two slots long", Config{Timeout: 500 * ms}, func(t *testing.T) pace.Schedule { return constant(t, 40_000, 2*time.Second) }, 1, 0, 0, 40 * time.Microsecond},
		{"without a plan", Config{Timeout: 500 * ms}, func(t *testing.T) pace.Schedule { return closedPlan(t, time.Second) }, 1, 0, 0, 1500 * time.Microsecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := modelBench(t, c.cfg, c.plan(t), c.flows, 16, 5*ms, min(c.to, 5*time.Second), c.to)
			reply := b.fake.Reply
			b.fake.Reply = func(seq uint64, flow int, p []byte) []time.Duration {
				if seq%100 == 50 && c.name == "open, idle target" {
					return nil // lost: in flight for its timeout
				}
				if c.takes > 0 {
					return []time.Duration{c.takes}
				}
				return reply(seq, flow, p)
			}
			if c.name == "open, idle target" {
				c.want += 1000 * 0.01 * c.cfg.Timeout.Seconds() // the lost ones
			}
			if _, unpaced := b.cfg.Schedule.(pace.Unpaced); unpaced && b.cfg.Model == ModelOpen {
				b.fake.Spend = func(int) { b.clk.T += int64(500 * time.Microsecond) }
			}
			b.cfg.Drain = 6 * time.Second
			res := must[*stats.Result](t)(b.go_(t))
			l := res.Little
			if l == nil || l.Suspect != "" || l.Unchecked != "" || math.Abs(l.InFlight-l.Product()) > limit*l.Product()+3*l.InFlightError {
				t.Fatalf("%+v: want both sides within %v", l, limit)
			}
			if c.want > 0 && math.Abs(l.InFlight/c.want-1) > limit {
				t.Errorf("%.3f in flight: want %.1f", l.InFlight, c.want)
			}
			t.Logf("in flight %.3f +- %.3f, rate x latency %.3f, off %.2f %%, %d samples", l.InFlight, l.InFlightError, l.Product(), 100*l.Off, l.Samples)
		})
	}
}

// Models that contradict themselves or one another are refused, with the reason.
func TestModelsRefused(t *testing.T) {
	plan, none := constant(t, 100, time.Second), closedPlan(t, time.Second)
	for _, c := range []struct {
		why    string
		change func(*Config)
		says   string
	}{
		{"thinking senders", func(c *Config) { c.Think = ms }, "think time"},
		{"correction of an open run", func(c *Config) { c.Correct = ms }, "count the same wait twice"},
		{"correction by an interval that no receiver keeps up with", func(c *Config) { c.Model, c.Schedule, c.Correct = ModelClosed, none, 1 }, "too short"},
		{"a capped closed run", func(c *Config) { c.Model, c.Schedule, c.MaxInFlight = ModelClosed, none, 3 }, "has its own"},
		{"a closed run with a plan", func(c *Config) { c.Model = ModelClosed }, "follow no plan"},
		{"a blocking run without one", func(c *Config) { c.Model, c.Schedule = ModelBlocking, none }, "nothing can be held back"},
		{"one way", func(c *Config) { c.Model, c.Echo = ModelBlocking, false }, "have to be some"},
		{"two workers", func(c *Config) { c.MaxInFlight, c.Workers, c.Flows = 1, 2, append(c.Flows, c.Flows...) }, "2 workers"},
		{"warm-up", func(c *Config) { c.MaxInFlight, c.Warmup = 1, plan }, "warm-up"},
		{"trains", func(c *Config) { c.MaxInFlight, c.Backend.GSO = 1, 8 }, "train"},
	} {
		b := newBench(t, plan, 1)
		b.cfg.Echo = true
		c.change(&b.cfg)
		if _, err := b.go_(t); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want something with %q", c.why, err, c.says)
		}
	}
}

// The real thing, on threads: each model ends by itself, ends early when told to, and says why when it cannot begin.
func TestModelThreads(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"closed", func(c *Config) { c.Model, c.Schedule, c.Think = ModelClosed, closedPlan(t, 300*ms), ms }},
		{"blocking", func(c *Config) { c.Model = ModelBlocking }},
		{"capped", func(c *Config) { c.MaxInFlight = 2 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := &backendtest.Fake{OneThread: true, Reply: func(uint64, int, []byte) []time.Duration { return []time.Duration{ms} }}
			b := newBench(t, constant(t, 200, 300*ms), 3)
			b.cfg.Clock, b.cfg.Open, b.cfg.Echo = nil, fake.Open, true
			c.change(&b.cfg)
			res := must[*stats.Result](t)(Run(t.Context(), b.cfg))
			if err := res.Ledger.Check(stats.ModeEcho); err != nil || res.Ledger.Replied < 30 || res.Ledger.Lost > 0 || res.Little == nil || res.Little.Samples < 5 {
				t.Errorf("%v, %+v, little %+v", err, res.Ledger, res.Little)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
				if seq == 9 { // however long this machine takes to get there
					cancel()
				}
				return []time.Duration{ms}
			}
			if b.cfg.Model == ModelClosed {
				b.cfg.Schedule = closedPlan(t, time.Hour)
			} else {
				b.cfg.Schedule = constant(t, 200, time.Hour)
			}
			res = must[*stats.Result](t)(Run(ctx, b.cfg))
			if err := res.Ledger.Check(stats.ModeEcho); err != nil || res.Interrupted != "interrupt" || res.Ledger.Sent == 0 || res.Little.Unchecked == "" {
				t.Errorf("stopped: %v, interrupted %q, %+v", err, res.Interrupted, res.Ledger)
			}

			fake.OpenError = func(int) error { return errBroken }
			if _, err := Run(t.Context(), b.cfg); !errors.Is(err, errBroken) {
				t.Errorf("does not open: %v", err)
			}
			if err := fake.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
