package engine

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/clock"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// bench is a run of one worker on a fake clock and a fake backend, on the test's own goroutine.
type bench struct {
	cfg   Config
	clk   *clock.Fake
	fake  *backendtest.Fake
	run   *run
	start int64
}

// newBench plans a schedule on a clock whose every reading costs 20 ns, over flows flows of 64-byte payloads.
func newBench(t *testing.T, s pace.Schedule, flows int) *bench {
	t.Helper()
	b := &bench{clk: &clock.Fake{T: 1_000_000_000, Step: 20}}
	b.fake = &backendtest.Fake{Keep: true, Now: func() int64 { return b.clk.T }, Sleep: b.clk.Sleep}
	b.cfg = Config{
		Schedule: s, Flows: make([]backend.Flow, flows), Open: b.fake.Open, Clock: b.clk,
		Backend: backend.Config{PayloadBytes: 64},
		Source:  func(w int) Source { return &Stamped{PayloadBytes: 64, Worker: uint16(w), Epoch: 1} }, Epoch: 1,
	}
	for i := range b.cfg.Flows {
		b.cfg.Flows[i] = backend.Flow{Dst: netip.MustParseAddrPort("127.0.0.1:9")}
	}
	return b
}

// go_ runs to the end as Run does, and checks what every run has to fulfil.
func (b *bench) go_(t *testing.T) (*stats.Result, error) {
	t.Helper()
	cfg := b.cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := newRun(cfg)
	b.run = r
	if err := r.open(0); err != nil {
		return nil, err
	}
	w := r.workers[0]
	w.guard = measureGuard(w.clk)
	r.begin(b.clk.T + int64(20*time.Millisecond))
	b.start = r.start
	w.idle = func() {
		r.collect()
		if cfg.Echo {
			r.receivers[0].poll(0)
		}
	}
	r.send(0)
	r.settleCompletions(w)
	if err := w.snd.Close(); err != nil {
		return nil, err
	}
	if cfg.Echo {
		rc := r.receivers[0]
		for begun := b.clk.T; rc.unique < w.accepted && b.clk.T-begun < int64(r.drainTime(rc.longest)); b.clk.T += 10_000 {
			rc.poll(0)
		}
		r.drained = b.clk.T
		rc.drops = rc.rcv.Drops()
		if err := rc.rcv.Close(); err != nil {
			return nil, err
		}
	}
	res, err := r.result(time.Unix(0, 0))
	if checkErr := b.fake.Check(); checkErr != nil {
		t.Error(checkErr)
	}
	if res != nil {
		res.Normalize()
		mode := stats.ModeOneway
		if cfg.Echo {
			mode = stats.ModeEcho
		}
		if ledgerErr := res.Ledger.Check(mode); ledgerErr != nil {
			t.Error(ledgerErr)
		}
		b.checkNeverEarly(t)
	}
	return res, err
}

// stall makes every Commit cost ns, and the first one after half a second 50 ms more.
func (b *bench) stall(ns int64) func(int) {
	stalled := false
	return func(int) {
		b.clk.T += ns
		if !stalled && b.clk.T > b.start+int64(500*time.Millisecond) {
			stalled = true
			b.clk.T += int64(50 * time.Millisecond)
		}
	}
}

// checkNeverEarly reads the stamps off the wire: no packet was offered before its planned time.
func (b *bench) checkNeverEarly(t *testing.T) {
	t.Helper()
	var st packet.Stamp
	for _, p := range b.sent() {
		if !packet.ParseStamp(p.Payload, p.At, &st) {
			t.Fatalf("packet %d carries no stamp", p.Seq)
		}
		if p.At < st.Planned {
			t.Fatalf("slot %d: offered at %d, planned at %d: early", st.Seq, p.At, st.Planned)
		}
	}
}

func (b *bench) sent() []backendtest.FakePacket { return b.fake.Senders()[0].Packets }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func constant(t *testing.T, rate uint64, d time.Duration) pace.Schedule {
	t.Helper()
	return must[*pace.Plan](t)(pace.Constant(pace.Rate{Packets: rate, Per: time.Second}, d))
}

var errBroken = errors.New("broken")
