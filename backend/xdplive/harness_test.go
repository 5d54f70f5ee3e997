package xdplive

import (
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/pace"
	"blast/stats"
	"blast/xdp/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is the target's in these tests.
const port = 4700

// plan is what a test asks for; zero values mean one flow, one worker, 48 bytes, 300 ms.
type plan struct {
	schedule pace.Schedule
	length   time.Duration
	payload  int
	flows    int
	workers  int
	ipv6     bool
	vlan     bool
	echo     bool
	batch    int
	catchUp  backend.CatchUp
	maxLag   time.Duration
	grace    time.Duration
	tell     backend.ReplyKinds
	unsent   bool // tell which slots are not sent
	ahead    bool // the workers' threads go before others on the machine: for runs of less than 0.95 s, after which the kernel holds such threads up
	// opened, if set, runs between opening and the start; during runs beside the workers; stop gets them.
	opened func()
	during func(begun time.Time)
	stop   func([]backend.Offload)
}

// outcome is what it gave.
type outcome struct {
	books    []backend.OffloadBooks
	replies  []backend.ReceiverBooks
	lag      stats.Hist
	latency  stats.Hist
	service  stats.Hist
	server   stats.Hist
	perTick  []uint64 // sent by interval of 100 ms
	replied  []uint64
	start    int64
	ran      time.Duration
	err      error
	sent     uint64
	dropped  uint64
	told     []backend.Reply
	unsent   []uint64 // of all workers
	missed   uint64
	silent   []uint64
	unseen   uint64 // slots of worker 0 below Next without a reply
	limits   backend.Limits
	receiver backend.OffloadReceiver
}

func (p *plan) fill() {
	p.flows, p.workers = max(p.flows, 1), max(p.workers, 1)
	switch p.payload {
	case 0:
		p.payload = 48
	case -1:
		p.payload = 0
	}
	if p.length == 0 {
		p.length = 300 * time.Millisecond
	}
	if p.maxLag == 0 {
		p.maxLag = time.Millisecond
	}
	if p.grace == 0 {
		p.grace = 10 * time.Second // the machine is shared
	}
}

func (p *plan) config(t testing.TB, pair *testnet.Pair, worker int) backend.OffloadConfig {
	t.Helper()
	to := pair.Right.IPv4.Addr()
	switch {
	case p.vlan && p.ipv6:
		to = pair.Right.VLAN.IPv6.Addr()
	case p.vlan:
		to = pair.Right.VLAN.IPv4.Addr()
	case p.ipv6:
		to = pair.Right.IPv6.Addr()
	}
	_, unpaced := p.schedule.(pace.Unpaced)
	c := backend.OffloadConfig{
		Config: backend.Config{PayloadBytes: p.payload, Batch: p.batch}, CPU: -1, Worker: uint16(worker), Epoch: 7,
		Unpaced: unpaced, CatchUp: p.catchUp, MaxLag: p.maxLag, Interval: 100 * time.Millisecond, Tell: p.unsent,
	}
	for range p.flows {
		c.Flows = append(c.Flows, backend.Flow{Dst: netip.AddrPortFrom(to, port)})
	}
	cursor := pace.NewCursor(p.schedule, uint64(worker), uint64(p.workers), 1)
	c.Slots = cursor.Slots()
	if !unpaced {
		c.Rate = p.schedule.MeanPPS() / float64(p.workers)
	}
	segments, err := pace.SegmentsShare(p.schedule, uint64(worker), uint64(p.workers), 1)
	if err != nil {
		c.Times = func() time.Duration {
			_, _, at, _ := cursor.Next()
			return time.Duration(at)
		}
		return c
	}
	for _, s := range segments {
		c.Segments = append(c.Segments, backend.Segment{Start: s.Start, Slots: s.Slots, Acc: s.Acc, Quot: s.Quot, Rem: s.Rem, Den: s.Den, Each: s.Group * s.Trains})
	}
	return c
}

// execute opens, runs and collects.
func execute(t testing.TB, pair *testnet.Pair, p plan) *outcome {
	t.Helper()
	p.fill()
	o := &outcome{}
	var cfgs []backend.OffloadConfig
	receive := &backend.ReceiverConfig{Epoch: 7, Timeout: 200 * time.Millisecond, Interval: 100 * time.Millisecond, Tell: p.tell}
	for w := range p.workers {
		c := p.config(t, pair, w)
		cfgs = append(cfgs, c)
		limit := c.Slots
		if c.Unpaced {
			limit = 1 << 48
		}
		receive.Shares = append(receive.Shares, backend.ReceiverShare{Limit: limit, Flows: p.flows})
	}
	if !p.echo {
		receive = nil
	}
	var list []backend.Offload
	pair.Left.Do(func() {
		var err error
		if list, o.receiver, err = Open(cfgs, receive); err != nil {
			t.Fatal(err)
		}
	})
	defer func() {
		if o.receiver != nil {
			if err := o.receiver.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, w := range list {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	if p.opened != nil {
		p.opened()
	}
	errs := make(chan error)
	for i, w := range list {
		go func() {
			runtime.LockOSThread() // the thread ends with its affinity
			restore, err := sys.Pin((runtime.NumCPU() - 1 + i) % runtime.NumCPU())
			if err != nil {
				errs <- err
				return
			}
			defer restore()
			if p.ahead {
				if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
					errs <- err
					return
				}
			}
			errs <- w.Run(p.length + p.grace + 10*time.Second)
		}()
	}
	for _, w := range list {
		for ready := false; !ready; time.Sleep(time.Millisecond) {
			var err error
			if ready, err = w.Ready(); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.start = sys.Monotonic() + int64(20*time.Millisecond)
	if p.echo {
		if err := o.receiver.Begin(o.start); err != nil {
			t.Fatal(err)
		}
	}
	deadline := o.start + int64(p.length)
	if !cfgs[0].Unpaced {
		deadline += int64(p.grace)
	}
	for _, w := range list {
		if err := w.Start(o.start, deadline); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if p.during != nil {
		p.during(begun)
	}
	if p.stop != nil {
		p.stop(list)
	}
	for range list {
		if err := <-errs; err != nil {
			o.err = err
		}
	}
	o.ran = time.Since(begun)
	if p.echo {
		time.Sleep(50 * time.Millisecond)
	}
	o.collect(t, list)
	return o
}

func (o *outcome) collect(t testing.TB, list []backend.Offload) {
	t.Helper()
	at := func(series *[]uint64, index int64, n uint64) {
		for int64(len(*series)) <= index {
			*series = append(*series, 0)
		}
		(*series)[index] += n
	}
	for _, w := range list {
		o.limits = w.Limits()
		b, err := w.Books()
		if err != nil {
			t.Fatal(err)
		}
		o.books = append(o.books, b)
		if missed, err := w.Unsent(func(seq uint64) { o.unsent = append(o.unsent, seq) }); err != nil || missed != 0 {
			t.Fatalf("unsent slots: %v, %d missed", err, missed)
		}
		o.sent += b.Sent
		o.dropped += b.Dropped
		for _, now := range []int64{sys.Monotonic(), math.MaxInt64} {
			err := w.Collect(now, func(v *backend.OffloadInterval) {
				at(&o.perTick, v.Index, v.Sent)
				addTo(t, &o.lag, &v.Lag)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.receiver == nil {
		return
	}
	var err error
	if o.replies, err = o.receiver.Books(); err != nil {
		t.Fatal(err)
	}
	if o.unseen, err = o.receiver.Unseen(0, 0, o.books[0].Next, func(seq uint64) { o.silent = append(o.silent, seq) }); err != nil {
		t.Fatal(err)
	}
	if o.missed, err = o.receiver.Told(func(r *backend.Reply) { o.told = append(o.told, *r) }); err != nil {
		t.Fatal(err)
	}
	for _, now := range []int64{sys.Monotonic(), math.MaxInt64} {
		err := o.receiver.Collect(now, func(v *backend.ReceiverInterval) {
			at(&o.replied, v.Index, v.Replied)
			addTo(t, &o.latency, &v.Latency)
			addTo(t, &o.service, &v.Service)
			addTo(t, &o.server, &v.Server)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func addTo(t testing.TB, h *stats.Hist, b *backend.Buckets) {
	t.Helper()
	if err := h.AddBuckets(stats.Buckets(*b)); err != nil {
		t.Fatal(err)
	}
}

// echoServer answers on the right end.
func echoServer(t testing.TB, pair *testnet.Pair) *live.Target {
	t.Helper()
	var target *live.Target
	pair.Right.Do(func() {
		i, err := live.Inspect(pair.Right.Interface)
		if err != nil {
			t.Fatal(err)
		}
		cfg := live.TargetConfig{Echo: true, Allow: []netip.Prefix{pair.Right.IPv4.Masked(), pair.Right.IPv6.Masked()}}
		for _, a := range []netip.Addr{pair.Right.IPv4.Addr(), pair.Right.IPv6.Addr()} {
			cfg.Endpoints = append(cfg.Endpoints, netip.AddrPortFrom(a, port))
		}
		if v := pair.Right.VLAN; v != nil {
			cfg.Allow = append(cfg.Allow, v.IPv4.Masked(), v.IPv6.Masked())
			cfg.Endpoints = append(cfg.Endpoints, netip.AddrPortFrom(v.IPv4.Addr(), port), netip.AddrPortFrom(v.IPv6.Addr(), port))
		}
		if target, err = live.NewTarget(i, cfg); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target
}

func countsOf(t testing.TB, target *live.Target) live.TargetCounts {
	t.Helper()
	perCPU, err := target.Counts()
	if err != nil {
		t.Fatal(err)
	}
	var sum live.TargetCounts
	for _, c := range perCPU {
		sum.Received += c.Received
		sum.Replied += c.Replied
	}
	return sum
}
