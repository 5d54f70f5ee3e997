package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// A generator that keeps up sends every slot once, in order, on its planned time, and books nothing else.
func TestKeepsThePlan(t *testing.T) {
	b := newBench(t, constant(t, 7_000, 3*time.Second), 3)
	b.fake.Spend = func(int) { b.clk.T += 1000 }
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Planned != 21_000 || l.Sent != 21_000 {
		t.Fatalf("planned %d, sent %d: want 21000 each", l.Planned, l.Sent)
	}
	for k, p := range b.sent() {
		var st packet.Stamp
		packet.ParseStamp(p.Payload, p.At, &st)
		if want := b.start + int64(b.cfg.Schedule.At(uint64(k))); st.Seq != uint64(k) || st.Planned != want || p.Flow != k%3 || st.Stride != 3 {
			t.Fatalf("packet %d: seq %d planned %d flow %d stride %d: want seq %d planned %d flow %d stride 3", k, st.Seq, st.Planned, p.Flow, st.Stride, k, want, k%3)
		}
	}
	// Lag: the send costs 1 us, the spin to the planned time at most one reading of 20 ns beyond it, and the reading after.
	if res.Lag.Count != 21_000 || res.Lag.Min < 1000 || res.Lag.Max > 1000+3*20 {
		t.Errorf("lag %+v: want 21000 samples of 1000 to 1060 ns", res.Lag)
	}
	// Duty: 1 us in every 1/7000 s is 0.7 %, and the readings come to a little more.
	if d := res.Workers[0].Duty; d < 0.007 || d > 0.008 {
		t.Errorf("duty %v: want 0.007 to 0.008", d)
	}
	var sent, planned uint64
	for _, s := range res.Timeline {
		sent, planned = sent+s.Sent, planned+s.Planned
	}
	if len(res.Timeline) != 3 || sent != 21_000 || planned != 21_000 {
		t.Errorf("timeline of %d intervals with %d sent and %d planned: want 3, 21000, 21000", len(res.Timeline), sent, planned)
	}
	if r := res.Rate; r.TargetPPS != 7000 || r.AchievedPPS < 6999 || r.AchievedPPS > 7000 {
		t.Errorf("rate %+v: want target 7000, achieved 7000 but for the last packet's own time", r)
	}
}

// A worker that has nothing left to send waits: a single packet does not keep it busy for the second that its plan has.
func TestDutyOfFewPackets(t *testing.T) {
	for _, pps := range []uint64{1, 2} {
		b := newBench(t, constant(t, pps, time.Second), 1)
		b.fake.Spend = func(int) { b.clk.T += 1000 }
		res := must[*stats.Result](t)(b.go_(t))
		if d := res.Workers[0].Duty; res.Ledger.Sent != pps || d > 0.001 {
			t.Errorf("%d packets of 1 us in a second: %d sent, duty %v", pps, res.Ledger.Sent, d)
		}
	}
}

// A stall of 50 ms is caught up by bursts of at most one batch, and shows in the lag as computed: the slots of the stall are late
// by 50 ms, less their place in it, plus their place in the queue.
func TestBurstAfterStall(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.cfg.Backend.Batch = 16
	b.fake.Spend = b.stall(1000)
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Planned != 10_000 || l.Sent != 10_000 || l.Abandoned != 0 {
		t.Fatalf("ledger %+v: want all 10000 sent", l)
	}
	for _, c := range b.fake.Senders()[0].Commits {
		if c.Offered > 16 {
			t.Fatalf("offered %d in one Commit: want at most a batch of 16", c.Offered)
		}
	}
	if m := time.Duration(res.Lag.Max); m < 50*time.Millisecond || m > 50*time.Millisecond+20*time.Microsecond {
		t.Errorf("largest lag %v: want 50 ms and the cost of one send", m)
	}
	// 500 slots were planned during the stall; nearly all of them were later than 1 ms.
	if o := res.Lag.Over.Ms1; o < 485 || o > 500 {
		t.Errorf("%d slots later than 1 ms: want about 490", o)
	}
}

// Under skip, slots later than max-lag are abandoned, counted, and never offered; the rest goes on time.
func TestSkipAfterStall(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.cfg.CatchUp = CatchUpSkip
	b.fake.Spend = b.stall(0)
	res := must[*stats.Result](t)(b.go_(t))
	if a := res.Ledger.Abandoned; a < 488 || a > 491 {
		t.Errorf("abandoned %d: want the 490 slots that were more than 1 ms late of the 500 in the stall", a)
	}
	if res.Lag.Max > int64(50*time.Millisecond)+1000 || res.Lag.Over.Ms1 > 1 {
		t.Errorf("lag max %d, %d over 1 ms: want only the slot that stalled", res.Lag.Max, res.Lag.Over.Ms1)
	}
}

// Under abort, the first slot later than max-lag ends the run, which says so and keeps what was measured.
func TestAbortAfterStall(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.cfg.CatchUp = CatchUpAbort
	b.fake.Spend = b.stall(0)
	res := must[*stats.Result](t)(b.go_(t))
	if res.Interrupted == "" || res.Ledger.Sent < 5000 || res.Ledger.Sent > 5002 {
		t.Errorf("interrupted %q after %d sent: want an abort after 5001", res.Interrupted, res.Ledger.Sent)
	}
}

// A backend that takes 2 us a packet cannot send 1 M/s: half of the plan is abandoned at the end, the lag grows to half the run,
// and the run ends on time.
func TestOverload(t *testing.T) {
	b := newBench(t, constant(t, 1_000_000, time.Second), 1)
	b.fake.Keep = false
	b.fake.Spend = func(n int) { b.clk.T += 2000 * int64(n) }
	res := must[*stats.Result](t)(b.go_(t))
	if s := res.Ledger.Sent; s < 545_000 || s > 551_000 {
		t.Errorf("sent %d: want about 550000, what 2 us a packet allow in the second and its 100 ms of grace", s)
	}
	if end := b.clk.T - b.start; end > int64(1150*time.Millisecond) {
		t.Errorf("ended after %v: want the plan's second and 100 ms of grace", time.Duration(end))
	}
	if m := time.Duration(res.Lag.Max); m < 540*time.Millisecond || m > 560*time.Millisecond {
		t.Errorf("largest lag %v: want about 550 ms", m)
	}
	if d := res.Workers[0].Duty; d < 0.99 {
		t.Errorf("duty %v: want 1", d)
	}
}

// Refused slots are counted by cause, not offered again, and the slots behind them go out.
func TestRefused(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.fake.Refuse = func(seq uint64) (backend.Cause, bool) {
		switch {
		case seq%100 == 7:
			return backend.CauseNoBuffers, true
		case seq%1000 == 8:
			return backend.CausePermission, true
		}
		return 0, false
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Planned != 10_000 || l.Sent != 9_890 || l.Refused["no_buffers"] != 100 || l.Refused["permission"] != 10 {
		t.Errorf("ledger %+v: want 9890 sent, 100 no_buffers, 10 permission", l)
	}
}

// Back-pressure of every shape loses and doubles nothing: Reserve that has no room, Commit that takes a part or nothing.
func TestBackPressure(t *testing.T) {
	b := newBench(t, constant(t, 50_000, time.Second), 2)
	b.fake.Room = func(call, n int) int { return min(n, call%5) }
	b.fake.Accept = func(call, n int) int { return min(n, call%3) }
	b.fake.Spend = func(int) { b.clk.T += 500 }
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Sent != 50_000 {
		t.Fatalf("ledger %+v: want 50000 sent", l)
	}
	for k, p := range b.sent() {
		var st packet.Stamp
		packet.ParseStamp(p.Payload, p.At, &st)
		if st.Seq != uint64(k) {
			t.Fatalf("packet %d carries slot %d: want every slot once, in order", k, st.Seq)
		}
	}
}

// An asynchronous backend books by completions: drops and late refusals are neither sent nor lost.
func TestAsyncCompletions(t *testing.T) {
	b := newBench(t, constant(t, 10_000, time.Second), 1)
	b.cfg.Echo = true
	b.fake.Async, b.fake.Latency = true, 30*time.Microsecond
	b.fake.Drop = func(seq uint64) bool { return seq%200 == 3 }
	b.fake.RefuseLate = func(seq uint64) (backend.Cause, bool) { return backend.CauseFull, seq%500 == 4 }
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		if seq%500 == 4 {
			return nil
		}
		return []time.Duration{50 * time.Microsecond}
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Sent != 9_930 || l.KernelDropped != 50 || l.Refused["full"] != 20 || l.Replied != 9_930 || l.Lost+l.InFlight != 0 {
		t.Errorf("ledger %+v: want 9930 sent and replied, 50 dropped, 20 refused, none lost", l)
	}
}

// Each fate of a packet is counted apart, from what the loopback did by slot: loss, duplicate, reordering, late, in flight.
func TestFates(t *testing.T) {
	b := newBench(t, constant(t, 10_000, 2*time.Second), 1)
	b.cfg.Echo, b.cfg.Timeout, b.cfg.Drain = true, 300*time.Millisecond, 100*time.Millisecond
	const rtt = 20 * time.Microsecond
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		switch {
		case seq == 19_999: // never comes, and the run ends before its timeout
			return nil
		case seq%100 == 1: // lost
			return nil
		case seq%100 == 2: // twice
			return []time.Duration{rtt, rtt + 5*time.Microsecond}
		case seq%100 == 3: // behind the next one
			return []time.Duration{rtt + 150*time.Microsecond}
		case seq%1000 == 500: // late
			return []time.Duration{400 * time.Millisecond}
		}
		return []time.Duration{rtt}
	}
	res := must[*stats.Result](t)(b.go_(t))
	l := res.Ledger
	// The drain ends at 2.1 s. Late replies to slots planned after 1.7 s are not seen: 3 of 20. Without a reply: 200 lost ones, the last
	// slot, and those 3; of these 204, the ones planned before 1.8 s had their 300 ms: 180 and slot 17500.
	if l.Sent != 20_000 || l.Duplicate != 200 || l.Late != 17 || l.Lost != 181 || l.InFlight != 23 || l.Replied != 20_000-204-17 {
		t.Errorf("ledger %+v: want 200 duplicates, 17 late, 181 lost, 23 in flight, the rest replied", l)
	}
	// Reordered: 200 that came behind the next one, and the late ones, which came behind 4000 others.
	if l.Reordered != 217 {
		t.Errorf("reordered %d: want 217", l.Reordered)
	}
	if d := time.Duration(l.InFlightAtLeastNS); d < 99*time.Millisecond || d > 101*time.Millisecond {
		t.Errorf("in flight for at least %v: want the drain's 100 ms", d)
	}
	if l.LostUnknown != l.Lost {
		t.Errorf("lost %d up, %d down: want all unknown where no server reports", l.LostUp, l.LostDown)
	}
	if res.Latency.Count != l.Replied+l.Late {
		t.Errorf("latency has %d samples: want every first reply, late ones inside: %d", res.Latency.Count, l.Replied+l.Late)
	}
	if m := time.Duration(res.Latency.Max); m < 400*time.Millisecond || m > 401*time.Millisecond {
		t.Errorf("largest latency %v: want 400 ms", m)
	}
	if res.Latency.P50 < res.Service.P50 || res.Service.Min < int64(rtt) {
		t.Errorf("latency p50 %d, service p50 %d min %d: want latency at least service, service at least 20 us", res.Latency.P50, res.Service.P50, res.Service.Min)
	}
}

// The default drain waits three round trips for what is outstanding, at least 100 ms, and then counts it as in flight.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name    string
		drain   time.Duration
		rtt     time.Duration
		silent  bool
		atLeast time.Duration
		atMost  time.Duration
	}{
		{"short round trips: the lower bound", 0, time.Millisecond, false, 100 * time.Millisecond, 101 * time.Millisecond},
		{"long round trips: three of them", 0, 90 * time.Millisecond, false, 270 * time.Millisecond, 272 * time.Millisecond},
		{"very long ones: the timeout", 0, 700 * time.Millisecond, false, time.Second, 1100 * time.Millisecond},
		{"nobody ever replied: the timeout", 0, 0, true, time.Second, 1001 * time.Millisecond},
		{"given", 50 * time.Millisecond, time.Millisecond, false, 50 * time.Millisecond, 51 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, constant(t, 1000, 2*time.Second), 1)
			b.cfg.Echo, b.cfg.Drain = true, c.drain
			b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
				if c.silent || seq == 1999 {
					return nil
				}
				return []time.Duration{c.rtt}
			}
			must[*stats.Result](t)(b.go_(t))
			lastSent := b.run.workers[0].lastSent
			if waited := time.Duration(b.run.drained - lastSent); waited < c.atLeast || waited > c.atMost {
				t.Errorf("drained for %v: want %v to %v", waited, c.atLeast, c.atMost)
			}
			if n := len(b.run.timeline); n != 2 {
				t.Errorf("%d intervals: want the plan's 2, the drain is none", n)
			}
		})
	}
}

// Warm-up counts for nothing, in either direction, and the measured part starts exactly after it.
func TestWarmup(t *testing.T) {
	b := newBench(t, constant(t, 1000, time.Second), 2)
	b.cfg.Warmup = constant(t, 500, time.Second)
	b.cfg.Echo = true
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration { return []time.Duration{5 * time.Millisecond} }
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Planned != 1000 || l.Sent != 1000 || l.Replied != 1000 || l.Stray != 0 || len(b.sent()) != 1500 {
		t.Errorf("ledger %+v of %d packets on the wire: want 1000 measured of 1500", l, len(b.sent()))
	}
	if res.Latency.Count != 1000 || res.Lag.Count != 1000 {
		t.Errorf("latency n %d, lag n %d: want 1000 each", res.Latency.Count, res.Lag.Count)
	}
}

// A stop in the middle reports what was planned until then and marks the result.
func TestStop(t *testing.T) {
	b := newBench(t, constant(t, 10_000, 10*time.Second), 1)
	b.cfg.Echo = true
	b.fake.Reply = func(uint64, int, []byte) []time.Duration { return []time.Duration{time.Millisecond} }
	b.fake.Spend = func(int) {
		if b.clk.T > b.start+int64(2*time.Second) {
			b.run.stopWork.Store(true)
			b.run.stopped = b.clk.T
		}
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; res.Interrupted != "interrupt" || l.Planned != 20_001 && l.Planned != 20_002 || l.Replied != l.Planned {
		t.Errorf("interrupted %q, ledger %+v: want 20001 planned and replied", res.Interrupted, l)
	}
	if r := res.Rate; r.TargetPPS < 9_990 || r.TargetPPS > 10_010 || r.AchievedPPS < 9_990 || r.AchievedPPS > 10_010 {
		t.Errorf("rate %+v: want 10000 over the time that was run", r)
	}
}

// A train has one planned time and one flow, and the trains of all workers make the schedule.
func TestTrains(t *testing.T) {
	b := newBench(t, constant(t, 32_000, time.Second), 4)
	b.cfg.Backend.GSO = 32
	res := must[*stats.Result](t)(b.go_(t))
	if res.Ledger.Sent != 32_000 {
		t.Fatalf("sent %d: want 32000", res.Ledger.Sent)
	}
	for k, p := range b.sent() {
		var st packet.Stamp
		packet.ParseStamp(p.Payload, p.At, &st)
		train := uint64(k / 32)
		if want := b.start + int64(b.cfg.Schedule.At(train*32)); st.Planned != want || p.Flow != int(train%4) || st.Stride != 0 {
			t.Fatalf("packet %d: planned %d flow %d stride %d: want %d, %d, 0", k, st.Planned, p.Flow, st.Stride, want, train%4)
		}
	}
}

// Without a plan packets leave as fast as the backend takes them until the time is up; there is no lag to speak of.
func TestUnpaced(t *testing.T) {
	b := newBench(t, must[pace.Unpaced](t)(pace.Max(100*time.Millisecond)), 1)
	b.cfg.Echo = true
	b.cfg.Warmup = must[pace.Unpaced](t)(pace.Max(10 * time.Millisecond))
	b.fake.Spend = func(n int) { b.clk.T += 1000 * int64(n) }
	b.fake.Reply = func(uint64, int, []byte) []time.Duration { return []time.Duration{time.Millisecond} }
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.Sent < 99_000 || l.Sent > 100_100 || l.Planned != l.Sent || l.Replied != l.Sent || res.Lag.Count != 0 {
		t.Errorf("ledger %+v, lag n %d: want about 100000 sent and replied, no lag", l, res.Lag.Count)
	}
}

// Replies that the receive path lost, and packets that are no replies, are told apart from the target's losses.
func TestSelfLossAndStrays(t *testing.T) {
	b := newBench(t, constant(t, 1000, time.Second), 1)
	b.cfg.Echo = true
	b.fake.Reply = func(uint64, int, []byte) []time.Duration { return []time.Duration{time.Millisecond} }
	b.fake.Overflow = func(reply uint64) bool { return reply%100 == 0 }
	b.fake.Serve = func(p []byte) {
		var st packet.Stamp
		packet.ParseStamp(p, 0, &st)
		if st.Seq == 50 {
			p[0] ^= 0xff
		}
	}
	res := must[*stats.Result](t)(b.go_(t))
	if l := res.Ledger; l.SelfLost != 10 || l.Stray != 1 || l.Lost+l.InFlight != 11 {
		t.Errorf("ledger %+v: want 10 lost by ourselves, 1 stray, 11 without a reply", l)
	}
}

// What our server reports tells the way on which a packet was lost.
func TestLossDirection(t *testing.T) {
	b := newBench(t, constant(t, 10_000, 2*time.Second), 3)
	b.cfg.Echo, b.cfg.Timeout = true, 100*time.Millisecond
	up := func(seq uint64) bool { return seq%97 == 5 && seq < 18_000 }
	down := func(seq uint64) bool { return seq%89 == 6 && seq < 18_000 }
	type flow struct{ count, window, newest uint64 }
	server := map[uint64]*flow{0: {}, 1: {}, 2: {}}
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		if up(seq) {
			return nil
		}
		f := server[seq%3]
		f.window = f.window<<(seq/3-f.newest) | 1
		f.newest = seq / 3
		f.count++
		if down(seq) {
			return nil
		}
		return []time.Duration{50 * time.Microsecond}
	}
	b.fake.Serve = func(p []byte) {
		var st packet.Stamp
		packet.ParseStamp(p, 0, &st)
		f := server[st.Seq%3]
		packet.PutServer(p, 1000, 3000, f.count, f.window)
	}
	res := must[*stats.Result](t)(b.go_(t))
	var wantUp, wantDown uint64
	for seq := range uint64(18_000) {
		switch {
		case up(seq):
			wantUp++
		case down(seq):
			wantDown++
		}
	}
	if l := res.Ledger; l.LostUp != wantUp || l.LostDown != wantDown || l.LostUnknown != 0 || l.Lost != wantUp+wantDown {
		t.Errorf("ledger %+v: want %d lost up, %d down, none unknown", l, wantUp, wantDown)
	}
	if res.Server.Min != 2000 || res.Server.Max != 2000 {
		t.Errorf("server time %+v: want 2000 ns always", res.Server)
	}
}

// A backend that fails for good gives what was measured until then, and the error.
func TestFatal(t *testing.T) {
	b := newBench(t, constant(t, 1000, time.Second), 1)
	b.fake.Fatal = func(call int) error {
		if call == 500 {
			return errBroken
		}
		return nil
	}
	res, err := b.go_(t)
	if !errors.Is(err, errBroken) || res == nil || res.Ledger.Sent != 500 || res.Interrupted == "" {
		t.Errorf("result %+v, error %v: want 500 sent, the cause, and the mark", res, err)
	}
}

// Nothing accepted is an error, never a table of zeros.
func TestNothingSent(t *testing.T) {
	b := newBench(t, constant(t, 1000, 10*time.Millisecond), 1)
	b.fake.Accept = func(int, int) int { b.clk.T += 1000; return 0 }
	if _, err := b.go_(t); !errors.Is(err, ErrNothingSent) {
		t.Errorf("error %v: want %v", err, ErrNothingSent)
	}
}

// Run on real threads: the union of the workers' shares is the schedule, each slot once, and everything is closed.
func TestRunThreads(t *testing.T) {
	fake := &backendtest.Fake{Keep: true, OneThread: true, Reply: func(uint64, int, []byte) []time.Duration { return []time.Duration{100 * time.Microsecond} }}
	b := newBench(t, constant(t, 9_999, 500*time.Millisecond), 6)
	cfg := b.cfg
	cfg.Open, cfg.Clock, cfg.Echo, cfg.Workers = fake.Open, nil, true, 3
	res := must[*stats.Result](t)(Run(context.Background(), cfg))
	if err := fake.Check(); err != nil {
		t.Error(err)
	}
	if l := res.Ledger; l.Planned != 5000 || l.Sent != 5000 || l.Replied != 5000 {
		t.Errorf("ledger %+v: want 5000 planned, sent and replied", l)
	}
	seen := map[[2]uint64]bool{}
	for w, s := range fake.Senders() {
		for _, p := range s.Packets {
			var st packet.Stamp
			packet.ParseStamp(p.Payload, p.At, &st)
			seen[[2]uint64{uint64(st.Worker), st.Seq}] = true
			if p.At < st.Planned {
				t.Fatalf("sender %d: slot %d left %d ns early", w, st.Seq, st.Planned-p.At)
			}
		}
	}
	if len(seen) != 5000 {
		t.Errorf("%d distinct slots on the wire: want 5000", len(seen))
	}
}

// What a run cannot do without is asked for before anything is opened.
func TestConfigRefused(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*Config)
		says   string
	}{
		{"no plan", func(c *Config) { c.Schedule = nil }, "schedule: none"},
		{"no backend", func(c *Config) { c.Open = nil }, "backend: none"},
		{"nothing to send", func(c *Config) { c.Source = nil }, "source: none"},
		{"workers without a flow", func(c *Config) { c.Workers = 3 }, "2 for 3 workers"},
		{"CPUs for other workers", func(c *Config) { c.CPUs = []int{0, 1} }, "cpus: 2 for 1 workers"},
	} {
		b := newBench(t, constant(t, 1000, time.Second), 2)
		c.change(&b.cfg)
		if _, err := Run(context.Background(), b.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want something with %q", c.why, err, c.says)
		}
	}
}

// A worker that cannot open fails the run, and the others close again.
func TestRunOpenFails(t *testing.T) {
	fake := &backendtest.Fake{OpenError: func(open int) error {
		if open == 1 {
			return errBroken
		}
		return nil
	}}
	b := newBench(t, constant(t, 1000, time.Second), 3)
	cfg := b.cfg
	cfg.Open, cfg.Clock, cfg.Echo, cfg.Workers = fake.Open, nil, true, 3
	if _, err := Run(context.Background(), cfg); !errors.Is(err, errBroken) {
		t.Errorf("error %v: want %v", err, errBroken)
	}
	if err := fake.Check(); err != nil {
		t.Error(err)
	}
}

// An interrupt ends a run of real threads soon, with its result.
func TestRunInterrupted(t *testing.T) {
	fake := &backendtest.Fake{}
	b := newBench(t, constant(t, 1000, time.Hour), 1)
	cfg := b.cfg
	cfg.Open, cfg.Clock = fake.Open, nil
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	res := must[*stats.Result](t)(Run(ctx, cfg))
	if took := time.Since(begun); took > 10*time.Second || res.Interrupted == "" || res.Ledger.Sent == 0 {
		t.Errorf("took %v, interrupted %q, sent %d: want a soon end with a marked result", took, res.Interrupted, res.Ledger.Sent)
	}
}
