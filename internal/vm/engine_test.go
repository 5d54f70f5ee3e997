package vm

import (
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/xdplive"
	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/pace"
	"blast/xdp/live"
)

// testEngine has the in-kernel engine send a plan over one card, a program on the other answer, and the engine's receiver time the answers.
func testEngine(t *testing.T, pair *testnet.Pair) {
	const (
		port = 4700
		rate = 2000
	)
	length := 3 * time.Second
	schedule, err := pace.Constant(pace.Rate{Packets: rate, Per: time.Second}, length)
	if err != nil {
		t.Fatal(err)
	}
	segments, err := pace.Segments(schedule)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), port)
	var target *live.Target
	pair.Right.Do(func() {
		i, err := live.Inspect(pair.Right.Interface)
		if err == nil {
			target, err = live.NewTarget(i, live.TargetConfig{Echo: true, Endpoints: []netip.AddrPort{to}, Allow: []netip.Prefix{pair.Right.IPv4.Masked()}})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	defer target.Close()
	carrier(t, pair.Right)
	cursor := pace.NewCursor(schedule, 0, 1, 1)
	cfg := backend.OffloadConfig{
		Config: backend.Config{PayloadBytes: 64, Flows: []backend.Flow{{Dst: to}}},
		CPU:    -1, Epoch: 7, Slots: cursor.Slots(), Rate: rate, MaxLag: time.Second, Interval: time.Second, // the program keeps four intervals
	}
	for _, s := range segments {
		cfg.Segments = append(cfg.Segments, backend.Segment{Start: s.Start, Slots: s.Slots, Acc: s.Acc, Quot: s.Quot, Rem: s.Rem, Den: s.Den, Each: s.Group * s.Trains})
	}
	receive := &backend.ReceiverConfig{Epoch: 7, Timeout: 5 * time.Second, Interval: time.Second, Shares: []backend.ReceiverShare{{Limit: cfg.Slots, Flows: 1}}}
	var workers []backend.Offload
	var receiver backend.OffloadReceiver
	pair.Left.Do(func() {
		if workers, receiver, err = xdplive.Open([]backend.OffloadConfig{cfg}, receive); err != nil {
			t.Fatal(err)
		}
	})
	defer func() {
		if err := receiver.Close(); err != nil {
			t.Error(err)
		}
		if err := workers[0].Close(); err != nil {
			t.Error(err)
		}
	}()
	carrier(t, pair.Left)
	for _, note := range workers[0].Limits().Notes {
		t.Log(note)
	}
	run(t, workers[0], receiver, length)

	books, err := workers[0].Books()
	if err != nil {
		t.Fatal(err)
	}
	replies, err := receiver.Books()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := target.Counts()
	if err != nil {
		t.Fatal(err)
	}
	var received uint64
	for _, c := range counts {
		received += c.Received
	}
	var timed, lags uint64
	ticks := map[int64]uint64{}
	for _, now := range []int64{sys.Monotonic(), math.MaxInt64} {
		if err := receiver.Collect(now, func(v *backend.ReceiverInterval) { timed += total(&v.Latency) }); err != nil {
			t.Fatal(err)
		}
		if err := workers[0].Collect(now, func(v *backend.OffloadInterval) { lags += total(&v.Lag); ticks[v.Index] += v.Sent }); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d slots: %d sent, %d dropped, %d arrived, %d replied, %d timed; by tick %v", cfg.Slots, books.Sent, books.Dropped, received, replies[0].Unique, timed, ticks)
	if books.Sent+books.Dropped != cfg.Slots || lags != books.Sent+books.Dropped && lags != books.Sent {
		t.Errorf("the books do not add up: %+v, %d lags", books, lags)
	}
	// The emulated cards lose some packets when their processors are slow; what is lost is not what this is about.
	if received < cfg.Slots*9/10 || received > books.Sent || replies[0].Unique < received*9/10 || replies[0].Unique > received || timed != replies[0].Unique {
		t.Errorf("%d of %d arrived, %d replied, %d timed", received, books.Sent, replies[0].Unique, timed)
	}
	// Paced, not at once: emulated processors may stand still for a while, but every second has packets of its own.
	for i := range int64(length / time.Second) {
		if ticks[i] < rate/2 || ticks[i] > rate*3/2 {
			t.Errorf("second %d has %d packets of a plan of %d", i, ticks[i], rate)
		}
	}
}

// run gives the worker a pinned thread and the order, and waits for the end and for the last replies.
func run(t *testing.T, w backend.Offload, receiver backend.OffloadReceiver, length time.Duration) {
	t.Helper()
	const patience = 30 * time.Second
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with its affinity
		restore, err := sys.Pin(1)
		if err != nil {
			ended <- err
			return
		}
		defer restore()
		ended <- w.Run(length + 2*patience)
	}()
	for begun, ready := time.Now(), false; !ready; time.Sleep(time.Millisecond) {
		var err error
		if ready, err = w.Ready(); err != nil || time.Since(begun) > patience {
			t.Fatalf("ready %t, %v", ready, err)
		}
	}
	start := sys.Monotonic() + int64(200*time.Millisecond)
	if err := receiver.Begin(start); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(start, start+int64(length+patience)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
}

// total is the number of values in a histogram.
func total(b *backend.Buckets) (n uint64) {
	for _, c := range b.Counts {
		n += c
	}
	return n
}
