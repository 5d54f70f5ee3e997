package engine

import (
	"context"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/stats"
)

// A run in progress, as somebody sees it who looks on: after k of its seconds the account is what was due, sent, refused, answered and lost by
// then, computed apart; it only grows; and it never exceeds the result.
func TestLive(t *testing.T) {
	b := newBench(t, constant(t, 10_000, 3*time.Second), 1)
	b.cfg.Echo, b.cfg.Timeout, b.cfg.Drain = true, 300*time.Millisecond, 100*time.Millisecond
	b.fake.Refuse = func(seq uint64) (backend.Cause, bool) { return backend.CauseNoBuffers, seq%100 == 7 }
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		switch {
		case seq%100 == 1: // lost
			return nil
		case seq%1000 == 500: // late
			return []time.Duration{400 * time.Millisecond}
		}
		return []time.Duration{20 * time.Microsecond}
	}
	var seen []stats.Live
	b.cfg.Live = func(l *stats.Live) {
		k := uint64(len(seen) + 1)
		res := &l.Result
		if l.Lag.Count() != res.Lag.Count || l.Latency.Count() != res.Latency.Count || res.Latency.Count != res.Ledger.Replied+res.Ledger.Late {
			t.Errorf("second %d: %d lags, %d latencies for %+v", k, l.Lag.Count(), l.Latency.Count(), res.Ledger)
		}
		got := res.Ledger
		// Late: 10 a second of those planned until 0.4 s ago. Lost: 100 a second of those planned until 0.3 s ago, and of the late ones
		// those planned 0.4 to 0.3 s ago. Refused slots have no reply either, and are not lost.
		if got.Planned != 10_000*k || got.Refused["no_buffers"] != 100*k || got.Sent != 9_900*k || got.Late != 10*k-4 {
			t.Errorf("second %d: %+v: want %d planned, %d refused, the rest sent, %d late", k, got, 10_000*k, 100*k, 10*k-4)
		}
		// The refused ones of the last 0.3 s are taken off too early: 30 fewer.
		if want := 100*k - 30 + 1 - 30; got.Lost < want-2 || got.Lost > want+2 {
			t.Errorf("second %d: %d lost: want about %d", k, got.Lost, want)
		}
		if err := got.Check(stats.ModeEcho); err != nil {
			t.Errorf("second %d: %v", k, err)
		}
		if r := res.Rate; r.TargetPPS != 10_000 || r.AchievedPPS != 9_900 || r.ElapsedNS != int64(k)*1e9 {
			t.Errorf("second %d: rate %+v", k, r)
		}
		if len(res.Workers) != 1 || res.Workers[0].Sent != got.Sent || res.Workers[0].Duty <= 0 || res.Workers[0].Duty > 0.1 {
			t.Errorf("second %d: workers %+v", k, res.Workers)
		}
		if s := l.Last; l.LastNS != 1e9 || s.T != float64(k) || s.Planned != 10_000 || s.Sent != 9_900 || s.LagP99NS <= 0 || s.LatencyP99NS < 20_000 {
			t.Errorf("second %d: last %+v", k, s)
		}
		copied := *l
		seen = append(seen, copied)
	}
	res := must[*stats.Result](t)(b.go_(t))
	if len(seen) < 2 {
		t.Fatalf("told %d times: want each second but for the last", len(seen))
	}
	last := seen[len(seen)-1].Result.Ledger
	for what, pair := range map[string][2]uint64{
		"planned": {last.Planned, res.Ledger.Planned}, "sent": {last.Sent, res.Ledger.Sent}, "replied": {last.Replied, res.Ledger.Replied}, "late": {last.Late, res.Ledger.Late},
		"refused": {last.RefusedTotal(), res.Ledger.RefusedTotal()}, "reordered": {last.Reordered, res.Ledger.Reordered},
	} {
		if pair[0] > pair[1] {
			t.Errorf("%s: told %d, in the end %d", what, pair[0], pair[1])
		}
	}
	if res.Ledger.Planned != 30_000 || res.Ledger.Refused["no_buffers"] != 300 {
		t.Errorf("result %+v: looking on has changed it", res.Ledger)
	}
}

// On real threads, with several of them: each interval is told once, nothing is read that a thread writes (the race detector looks), and an
// interval that was told is whole.
func TestLiveThreads(t *testing.T) {
	fake := &backendtest.Fake{OneThread: true, Reply: func(uint64, int, []byte) []time.Duration { return []time.Duration{100 * time.Microsecond} }}
	b := newBench(t, constant(t, 6_000, time.Second), 6)
	cfg := b.cfg
	cfg.Open, cfg.Clock, cfg.Echo, cfg.Workers, cfg.Interval = fake.Open, nil, true, 3, 100*time.Millisecond
	var told, sent uint64
	cfg.Live = func(l *stats.Live) {
		told++
		if got := l.Result.Ledger; got.Sent < sent || got.Sent > 6_000 || len(l.Result.Workers) != 3 {
			t.Errorf("told %d: %+v after %d sent", told, got, sent)
		}
		whole := l.Result.Ledger
		if whole.Planned < whole.Sent {
			t.Errorf("told %d: %+v", told, whole)
		}
		whole.Planned = whole.Sent // the rest is not sent yet
		if err := whole.Check(stats.ModeEcho); err != nil {
			t.Error(err)
		}
		sent = l.Result.Ledger.Sent
	}
	res := must[*stats.Result](t)(Run(context.Background(), cfg))
	if told == 0 || told > 10 || sent > res.Ledger.Sent || res.Ledger.Planned != 6_000 {
		t.Errorf("told %d times, %d sent, in the end %+v: want at most once an interval", told, sent, res.Ledger)
	}
}
