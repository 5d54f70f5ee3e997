package xdplive

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

func constant(t testing.TB, pps uint64, length time.Duration) pace.Schedule {
	t.Helper()
	s, err := pace.Constant(pace.Rate{Packets: pps, Per: time.Second}, length)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func unpaced(t testing.TB, length time.Duration) pace.Schedule {
	t.Helper()
	s, err := pace.Max(length)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKernelCountsAgree: the program's books, the interface and the receiver say the same, at any rate and for any shape of packet.
func TestKernelCountsAgree(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	for _, c := range []struct {
		name string // what the case is for
		plan plan
	}{
		{"one packet", plan{schedule: constant(t, 1, time.Second), length: time.Second}},
		{"few", plan{schedule: constant(t, 1000, 300*time.Millisecond)}},
		{"many", plan{schedule: constant(t, 1_000_000, 300*time.Millisecond)}},
		{"a rate whose period is no whole number of ns", plan{schedule: constant(t, 333_333, 300*time.Millisecond)}},
		{"as many as go", plan{schedule: unpaced(t, 300*time.Millisecond)}},
		{"IPv6", plan{schedule: constant(t, 200_000, 300*time.Millisecond), ipv6: true}},
		{"no stamp, no payload", plan{schedule: constant(t, 200_000, 300*time.Millisecond), payload: -1}},
		{"the compact stamp", plan{schedule: constant(t, 200_000, 300*time.Millisecond), payload: 18}},
		{"full packets", plan{schedule: constant(t, 100_000, 300*time.Millisecond), payload: 1472}},
		{"a thousand flows", plan{schedule: constant(t, 200_000, 300*time.Millisecond), flows: 1000}},
		{"two workers", plan{schedule: constant(t, 200_000, 300*time.Millisecond), workers: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, wire := counter.Total().Frames, pair.Left.Statistics()
			o := execute(t, pair, c.plan)
			if o.err != nil {
				t.Fatal(o.err)
			}
			counted, left := counter.Total().Frames-before, pair.Left.Statistics().TxPackets-wire.TxPackets
			if counted != o.sent {
				t.Errorf("sent %d, the receiver counted %d", o.sent, counted)
			}
			// ARP and neighbour discovery leave by the interface too.
			if left < o.sent || left > o.sent+16 {
				t.Errorf("sent %d, the interface counted %d", o.sent, left)
			}
			if _, max := c.plan.schedule.(pace.Unpaced); !max {
				if n := c.plan.schedule.Slots(); o.sent+o.dropped != n || o.lag.Count() != n {
					t.Errorf("sent %d, dropped %d, %d lags of %d slots", o.sent, o.dropped, o.lag.Count(), n)
				}
			}
			var sum uint64
			for _, n := range o.perTick {
				sum += n
			}
			if sum != o.sent+o.dropped {
				t.Errorf("the timeline has %d of %d", sum, o.sent+o.dropped)
			}
		})
	}
}

// TestKernelCaptured: every packet is whole, its checksum right, its plan that of the schedule, and the kernel's lag histogram is the one
// that the captured packets give, bucket for bucket.
func TestKernelCaptured(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Pass}) // a peer with a program takes redirected frames
	for _, c := range []struct {
		name string // what the case is for
		plan plan
	}{
		{"IPv4 with a full stamp", plan{payload: 48}},
		{"room for a report, and more behind it", plan{payload: 200}},
		{"a compact stamp", plan{payload: 16}},
		{"IPv6 over several flows", plan{payload: 64, ipv6: true, flows: 5}},
		{"an odd length", plan{payload: 333, flows: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plan.schedule = constant(t, 20_000, 300*time.Millisecond)
			tap := openTap(t, pair.Right)
			o := execute(t, pair, c.plan)
			if o.err != nil {
				t.Fatal(o.err)
			}
			var lag stats.Hist
			var next uint64
			for _, frame := range tap.frames(t) {
				var p packet.Parsed
				if reject := packet.Parse(frame, &p); reject != 0 || p.Dst.Port() != port {
					continue
				}
				var st packet.Stamp
				if p.SumState() != packet.SumGood || !packet.ParseStamp(p.Payload, sys.Monotonic(), &st) || len(p.Payload) != c.plan.payload {
					t.Fatalf("packet %d: checksum state %d, payload of %d bytes %x", next, p.SumState(), len(p.Payload), p.Payload)
				}
				if st.Seq != next || st.Planned-o.start != plannedAt(c.plan.schedule, next) || p.Src != o.limits.Sources[next%uint64(max(c.plan.flows, 1))] {
					t.Fatalf("packet %d: %+v from %v, planned %d after the start, want %d", next, st, p.Src, st.Planned-o.start, plannedAt(c.plan.schedule, next))
				}
				next++
				lag.Record(st.Sent - st.Planned)
			}
			if next != o.sent || next != c.plan.schedule.Slots() {
				t.Fatalf("captured %d of %d packets", next, o.sent)
			}
			if c.plan.payload < packet.StampBytes {
				return // the compact form rounds the lag
			}
			if want, got := lag.Summary(), o.lag.Summary(); want != got {
				t.Errorf("lag of the capture\n%+v, of the kernel\n%+v", want, got)
			}
		})
	}
}

// plannedAt is At of a schedule, in ns.
func plannedAt(s pace.Schedule, slot uint64) int64 { return int64(s.At(slot)) }

// tap is a packet socket that keeps what arrives.
type tap struct{ fd int }

func openTap(t *testing.T, h *testnet.Host) *tap {
	t.Helper()
	p := &tap{}
	h.Do(func() {
		const all = 0x0300 // ETH_P_ALL in network order
		var err error
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: h.Index}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { unix.Close(p.fd) })
	return p
}

func (p *tap) frames(t *testing.T) [][]byte {
	t.Helper()
	var list [][]byte
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(p.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, append([]byte(nil), buf[:n]...))
	}
}

// TestKernelEcho: every packet is answered by the in-kernel target and timed, in every shape, and the sums agree exactly: latency minus
// service is lag, whose histogram TestKernelCaptured vouches for.
func TestKernelEcho(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{Queues: 2})
	target := echoServer(t, pair)
	for _, c := range []struct {
		name string // what the case is for
		plan plan
	}{
		{"a full stamp", plan{}},
		{"room for a report", plan{payload: 64}},
		{"the compact stamp, whose times are rounded", plan{payload: 18}},
		{"IPv6", plan{ipv6: true}},
		{"large packets over IPv6", plan{ipv6: true, payload: 1400}},
		{"several flows", plan{flows: 7}},
		{"two workers", plan{workers: 2, flows: 3}},
		{"no plan", plan{schedule: unpaced(t, 300*time.Millisecond)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := countsOf(t, target)
			if c.plan.schedule == nil {
				c.plan.schedule = constant(t, 100_000, 300*time.Millisecond)
			}
			c.plan.echo = true
			o := execute(t, pair, c.plan)
			if o.err != nil {
				t.Fatal(o.err)
			}
			after := countsOf(t, target)
			var unique, other uint64
			for _, r := range o.replies {
				unique += r.Unique
				other += r.Duplicate + r.Reordered + r.Stray
			}
			if unique != o.sent || other != 0 || after.Received-before.Received != o.sent || after.Replied-before.Replied != o.sent {
				t.Errorf("sent %d, target %+v after %+v, replies %+v", o.sent, after, before, o.replies)
			}
			if o.latency.Count() != unique || o.service.Count() != unique {
				t.Errorf("%d replies, %d latencies, %d service times", unique, o.latency.Count(), o.service.Count())
			}
			compact := c.plan.payload == 18
			if want := unique; compact && o.server.Count() != 0 || !compact && o.server.Count() != want {
				t.Errorf("%d server times of %d", o.server.Count(), want)
			}
			if _, max := c.plan.schedule.(pace.Unpaced); !max && !compact && o.dropped == 0 {
				if got, want := sumOf(t, &o.latency)-sumOf(t, &o.service), sumOf(t, &o.lag); got != want {
					t.Errorf("latencies less service times sum to %d ns, lags to %d ns", got, want)
				}
			}
		})
	}
}

// sumOf is the exact sum of a histogram, which fits 63 bits in these tests.
func sumOf(t *testing.T, h *stats.Hist) int64 {
	t.Helper()
	n, err := h.Summary().Sum.Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKernelFaultsAreNamed: of a target that drops, repeats and swaps by a fixed rule, each fault is counted exactly.
func TestKernelFaultsAreNamed(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Pass})
	conn := pair.Right.ListenUDP(netip.AddrPortFrom(pair.Right.IPv4.Addr(), port))
	if err := conn.SetReadBuffer(32 << 20); err != nil {
		t.Fatal(err)
	}
	var want backend.ReceiverBooks
	done := make(chan error, 1)
	go func() { done <- faulty(conn, 1, &want) }()
	o := execute(t, pair, plan{schedule: constant(t, 5000, 400*time.Millisecond), length: 400 * time.Millisecond, echo: true})
	_ = conn.SetReadDeadline(time.Now())
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	got := o.replies[0]
	if got.Unique != want.Unique || got.Duplicate != want.Duplicate || got.Reordered != want.Reordered || got.Stray != want.Stray {
		t.Errorf("books %+v, the target did %+v", got, want)
	}
	if want.Unique == o.sent || want.Duplicate == 0 || want.Reordered == 0 || want.Stray == 0 {
		t.Errorf("the target did too little: %+v of %d", want, o.sent)
	}
	if o.unseen != o.sent-want.Unique {
		t.Errorf("%d slots unseen, want %d", o.unseen, o.sent-want.Unique)
	}
}

// faulty echoes until the deadline and keeps the books of what it did, by a generator with a seed.
func faulty(conn *net.UDPConn, seed uint64, b *backend.ReceiverBooks) error {
	buf := make([]byte, 2048)
	var held []byte // the packet to be overtaken
	var to netip.AddrPort
	send := func(p []byte) error {
		_, err := conn.WriteToUDPAddrPort(p, to)
		return err
	}
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil
		}
		to = from
		seed = seed*6364136223846793005 + 1442695040888963407
		p := buf[:n]
		err = nil
		switch roll := seed >> 57; { // 0 to 127
		case held != nil: // let this one overtake
			err = errors.Join(send(p), send(held))
			held = nil
			b.Unique += 2
			b.Reordered++
		case roll < 8: // lose it
		case roll < 16:
			err = errors.Join(send(p), send(p))
			b.Unique++
			b.Duplicate++
		case roll < 24:
			held = append([]byte(nil), p...)
		case roll < 28: // of another epoch, with a checksum made by the socket
			p[3]++
			err = send(p)
			b.Stray++
		default:
			err = send(p)
			b.Unique++
		}
		if err != nil {
			return err
		}
	}
}

// TestKernelMidRun: what goes away in the middle of a run is counted, and the run ends in time.
func TestKernelMidRun(t *testing.T) {
	for _, c := range []struct {
		name string // what the case is for
		act  func(*testnet.Pair, *testnet.Counter)
		gone bool
	}{
		{"the sending end goes down", func(p *testnet.Pair, _ *testnet.Counter) { p.Left.SetUp(false) }, false},
		{"the receiving end goes down", func(p *testnet.Pair, _ *testnet.Counter) { p.Right.SetUp(false) }, false},
		{"the peer's program is taken off", func(_ *testnet.Pair, n *testnet.Counter) { n.Detach() }, false},
		{"the pair is deleted", func(p *testnet.Pair, _ *testnet.Counter) { p.Left.Delete() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := testnet.NewPair(t, testnet.Config{})
			counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
			o := execute(t, pair, plan{schedule: constant(t, 100_000, 400*time.Millisecond), length: 400 * time.Millisecond,
				during: func(time.Time) {
					time.Sleep(200 * time.Millisecond) // half of the plan
					c.act(pair, counter)
				}})
			if o.err != nil {
				t.Fatal(o.err)
			}
			b := o.books[0]
			var refused uint64
			for _, n := range b.Refused {
				refused += n
			}
			if o.sent == 0 || refused == 0 || o.sent+refused+b.Dropped != 40_000 {
				t.Errorf("sent %d, refused %v, dropped %d: want both, and 40000 in all", o.sent, b.Refused, b.Dropped)
			}
			if o.ran > 5*time.Second {
				t.Errorf("the run took %v", o.ran)
			}
			if got := counter.Total().Frames; got > o.sent || got < o.sent-min(512, o.sent) {
				t.Errorf("sent %d, the receiver counted %d", o.sent, got) // a ring of 256 may have been lost with the end
			}
		})
	}
}

// TestKernelStop: a run that is told to stop ends soon, and its books hold what was done.
func TestKernelStop(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	var stopped time.Time
	o := execute(t, pair, plan{schedule: constant(t, 10_000, time.Hour), length: time.Hour, stop: func(w []backend.Offload) {
		time.Sleep(400 * time.Millisecond)
		stopped = time.Now()
		for _, w := range w {
			w.Stop()
		}
	}})
	if o.err != nil || o.sent == 0 || counter.Total().Frames != o.sent {
		t.Fatalf("sent %d, counted %d, %v", o.sent, counter.Total().Frames, o.err)
	}
	b := o.books[0]
	if took := time.Since(stopped); took > 2*time.Second || b.Ended == 0 || b.Next != o.sent {
		t.Errorf("stopping took %v; books %+v", took, b)
	}
}

// TestKernelCatchUp: slots later than allowed are skipped or end the run, by the policy.
func TestKernelCatchUp(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	const slots = 10_000_000 // a rate that no machine keeps
	for _, c := range []struct {
		policy backend.CatchUp
		check  func(o *outcome, b backend.OffloadBooks) bool
	}{
		{backend.CatchUpBurst, func(o *outcome, b backend.OffloadBooks) bool { return b.Skipped == 0 && b.Aborted == 0 && b.Ended != 0 }},
		{backend.CatchUpSkip, func(o *outcome, b backend.OffloadBooks) bool {
			return b.Skipped > 0 && b.Next == o.sent+b.Dropped+b.Skipped && o.lag.Max() <= int64(time.Millisecond)
		}},
		{backend.CatchUpAbort, func(o *outcome, b backend.OffloadBooks) bool {
			return b.Aborted > int64(time.Millisecond) && b.Ended != 0
		}},
	} {
		before := counter.Total().Frames
		o := execute(t, pair, plan{schedule: constant(t, 50*slots, 200*time.Millisecond), length: 200 * time.Millisecond, catchUp: c.policy, grace: time.Millisecond})
		if b := o.books[0]; o.err != nil || !c.check(o, b) || counter.Total().Frames-before != o.sent {
			t.Errorf("policy %d: %v, counted %d, books %+v, lag %+v", c.policy, o.err, counter.Total().Frames-before, b, o.lag.Summary().Max)
		}
	}
}

// TestKernelUnsentAreNamed: slots that the plan gave up or the device did not take are told, each: they are the ones without a reply, where every packet
// that left is answered.
func TestKernelUnsentAreNamed(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	target := echoServer(t, pair)
	const length = 100 * time.Millisecond
	for _, c := range []struct {
		name string // what the case is for
		plan plan
	}{
		{"a rate that no machine keeps", plan{schedule: constant(t, 8_000_000, length), catchUp: backend.CatchUpSkip, maxLag: 100 * time.Microsecond}},
		{"a device that goes away", plan{schedule: constant(t, 100_000, length), during: func(begun time.Time) {
			time.Sleep(length / 2)
			pair.Left.SetUp(false)
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plan.length, c.plan.echo, c.plan.unsent = length, true, true
			before := countsOf(t, target).Replied
			o := execute(t, pair, c.plan)
			if o.err != nil {
				t.Fatal(o.err)
			}
			b := o.books[0]
			not := b.Skipped + b.Dropped
			for _, n := range b.Refused {
				not += n
			}
			if not == 0 || uint64(len(o.unsent)) != not || b.Next != o.sent+not {
				t.Fatalf("%d slots told, books %+v", len(o.unsent), b)
			}
			slices.Sort(o.unsent)
			if len(slices.Compact(slices.Clone(o.unsent))) != len(o.unsent) {
				t.Error("a slot was told twice")
			}
			if countsOf(t, target).Replied-before == o.sent && o.replies[0].Unique == o.sent && !slices.Equal(o.silent, o.unsent) {
				t.Errorf("%d slots have no reply, %d were told not to be sent", len(o.silent), len(o.unsent))
			} else if missing := o.sent - o.replies[0].Unique; uint64(len(o.silent)) != not+missing {
				t.Errorf("%d slots have no reply: %d were not sent, %d sent and lost on the way", len(o.silent), not, missing)
			}
			t.Logf("sent %d, skipped %d, dropped %d, refused %v, answered %d", o.sent, b.Skipped, b.Dropped, b.Refused, o.replies[0].Unique)
		})
	}
}

// TestKernelPreempted: a worker that shares its CPU with another busy thread is late, and says so.
func TestKernelPreempted(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	var stop atomic.Bool
	go func() {
		runtime.LockOSThread()
		if _, err := sys.Pin(runtime.NumCPU() - 1); err != nil {
			t.Error(err)
		}
		for !stop.Load() {
		}
	}()
	o := execute(t, pair, plan{schedule: constant(t, 100_000, 300*time.Millisecond)})
	stop.Store(true)
	if o.err != nil || o.lag.Quantile(0.999) < int64(time.Millisecond) {
		t.Errorf("%v; lag p99.9 %d ns beside a busy thread", o.err, o.lag.Quantile(0.999))
	}
	if b := o.books[0]; float64(b.Waited) > 0.9*float64(300*time.Millisecond) {
		t.Errorf("waited %d ns of 300 ms: the time of the other thread counts as waiting", b.Waited)
	}
}

// othersPause is the longest time for which a socket echo on the worker's own CPU may stand still.
const othersPause = 100 * time.Millisecond

// TestKernelOthersGoOn: a socket echo on the same CPU goes on while a worker spins there, in the kernel: its packets come by softirqs that the worker's
// batches hold back for some us, and its thread gets its turns.
func TestKernelOthersGoOn(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	a, b := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0)), pair.Right.ListenUDP(netip.AddrPortFrom(pair.Right.IPv4.Addr(), 0))
	for attempt := 1; ; attempt++ { // others use the machine too
		var trips []time.Duration
		o := execute(t, pair, plan{schedule: constant(t, 500_000, 400*time.Millisecond), length: 400 * time.Millisecond, during: func(begun time.Time) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread()
				if _, err := sys.Pin(runtime.NumCPU() - 1); err != nil {
					t.Error(err)
				}
				for last := time.Now(); time.Since(begun) < 450*time.Millisecond; {
					if err := echoOnce(a, b); err != nil {
						t.Error(err)
						return
					}
					now := time.Now()
					trips, last = append(trips, now.Sub(last)), now
				}
			}()
			<-done
		}})
		if o.err != nil || len(trips) < 20 {
			t.Fatalf("%v; %d round trips beside the worker", o.err, len(trips))
		}
		slices.Sort(trips)
		longest := trips[len(trips)-1]
		t.Logf("%d round trips beside the worker, p50 %v, longest %v; worker p99 lag %v", len(trips), trips[len(trips)/2], longest, time.Duration(o.lag.Quantile(0.99)))
		if longest < othersPause {
			return
		}
		if attempt == 6 {
			t.Fatalf("the echo stood still for %v, want less than %v", longest, othersPause)
		}
	}
}

// echoOnce is one round trip from a to b and back, on the calling thread.
func echoOnce(a, b *net.UDPConn) error {
	buf := make([]byte, 16)
	deadline := time.Now().Add(2 * time.Second)
	err := errors.Join(a.SetReadDeadline(deadline), b.SetReadDeadline(deadline))
	if err == nil {
		_, err = a.WriteToUDPAddrPort([]byte("hello"), b.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	if err != nil {
		return err
	}
	n, from, err := b.ReadFromUDPAddrPort(buf)
	if err == nil {
		_, err = b.WriteToUDPAddrPort(buf[:n], from)
	}
	if err == nil {
		_, err = a.Read(buf)
	}
	return err
}

// TestKernelRefuses names what cannot be done, and the way out.
func TestKernelRefuses(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{MTU: 3450}) // above, veth takes no program
	base := plan{schedule: constant(t, 1000, 100*time.Millisecond)}
	base.fill()
	for _, c := range []struct {
		name   string // what the case is for
		change func(*backend.OffloadConfig)
		want   string
	}{
		{"a peer that takes no frames", func(*backend.OffloadConfig) {}, "ethtool -K"},
		{"a payload beyond a page", func(c *backend.OffloadConfig) { c.PayloadBytes = 3400 }, "one page"},
		{"trains", func(c *backend.OffloadConfig) { c.GSO = 8 }, "sendmmsg"},
		{"loopback", func(c *backend.OffloadConfig) { c.Flows[0].Dst = netip.MustParseAddrPort("127.0.0.1:9") }, "lo"},
		{"families mixed in one worker", func(c *backend.OffloadConfig) {
			c.Flows = append(c.Flows, backend.Flow{Dst: netip.AddrPortFrom(pair.Right.IPv6.Addr(), port)})
		}, "IPv4 and IPv6"},
		{"a batch that is no power of two", func(c *backend.OffloadConfig) { c.Batch = 3 }, "batch 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := base.config(t, pair, 0)
			c.change(&cfg)
			if c.want == "batch 3" {
				pair.Right.Count(testnet.CountConfig{Action: testnet.Drop})
			}
			pair.Left.Do(func() {
				_, _, err := Open([]backend.OffloadConfig{cfg}, nil)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
			})
		})
	}
}

// TestKernelLargestFrame: the limit that Open states is one that the kernel keeps.
func TestKernelLargestFrame(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{MTU: 3300})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	o := execute(t, pair, plan{schedule: constant(t, 1000, 100*time.Millisecond), length: 100 * time.Millisecond, payload: maxFrame - 42})
	if o.err != nil || o.sent != 100 || counter.Total().Frames != 100 {
		t.Errorf("%v; sent %d, counted %d", o.err, o.sent, counter.Total().Frames)
	}
}

func TestKernelProbe(t *testing.T) {
	testnet.NewPair(t, testnet.Config{})
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

// TestKernelKilled: a process that is killed in the middle of a run ends at once and leaves no program on its interface.
func TestKernelKilled(t *testing.T) {
	if os.Getenv("XDPLIVE_CHILD") != "" {
		child(t)
		return
	}
	pair := testnet.NewPair(t, testnet.Config{})
	echoServer(t, pair)
	var cmd *exec.Cmd
	pair.Left.Do(func() {
		cmd = exec.Command(os.Args[0], "-test.run=^TestKernelKilled$")
		cmd.Env = append(os.Environ(), "XDPLIVE_CHILD="+pair.Right.IPv4.Addr().String())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	attached := func() bool {
		l, err := pair.Left.Netlink.LinkByName(pair.Left.Interface)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
	}
	wait := func(what string, done func() bool) {
		for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				_ = cmd.Process.Kill()
				t.Fatalf("%s: not within 20 s", what)
			}
		}
	}
	before := pair.Left.Statistics().TxPackets
	wait("the child sends", func() bool { return pair.Left.Statistics().TxPackets > before+10_000 })
	if !attached() {
		t.Error("no program is attached while the child runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("the child took %v to die", took)
	}
	wait("the program goes away", func() bool { return !attached() })
	sent := pair.Left.Statistics().TxPackets
	time.Sleep(50 * time.Millisecond)
	if now := pair.Left.Statistics().TxPackets; now > sent+16 {
		t.Errorf("%d packets left after the child's death", now-sent)
	}
}

// child runs for an hour.
func child(t *testing.T) {
	runtime.LockOSThread()
	p := plan{schedule: constant(t, 100_000, time.Hour), length: time.Hour, echo: true}
	p.fill()
	s, err := pace.SegmentsShare(p.schedule, 0, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := backend.OffloadConfig{Config: backend.Config{PayloadBytes: 48}, CPU: -1, Slots: s[0].Slots, MaxLag: time.Millisecond, Interval: time.Second, Rate: 1e5}
	cfg.Flows = []backend.Flow{{Dst: netip.AddrPortFrom(netip.MustParseAddr(os.Getenv("XDPLIVE_CHILD")), port)}}
	for _, g := range s {
		cfg.Segments = append(cfg.Segments, backend.Segment{Start: g.Start, Slots: g.Slots, Acc: g.Acc, Quot: g.Quot, Rem: g.Rem, Den: g.Den, Each: 1})
	}
	list, receiver, err := Open([]backend.OffloadConfig{cfg}, &backend.ReceiverConfig{Interval: time.Second, Timeout: time.Second,
		Shares: []backend.ReceiverShare{{Limit: cfg.Slots, Flows: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	start := sys.Monotonic() + int64(100*time.Millisecond)
	if err := receiver.Begin(start); err != nil {
		t.Fatal(err)
	}
	if err := list[0].Start(start, start+int64(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Error(list[0].Run(time.Minute)) // bounded even if the parent dies
}

// TestKernelReceiverForSockets: the receiver serves a sender that knows nothing of it: an ordinary socket, whose replies it takes before the
// socket sees them, while what is no reply goes on to the socket.
func TestKernelReceiverForSockets(t *testing.T) {
	for _, c := range []struct {
		name string // what the case is for
		lo   bool
		mode string
	}{
		{"a veth pair, in the driver", false, "native XDP"},
		{"loopback, where there is no driver", true, "generic XDP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := testnet.NewPair(t, testnet.Config{})
			server, iface, addr := pair.Right, pair.Left.Interface, pair.Right.IPv4.Addr()
			from := pair.Left.IPv4.Addr()
			if c.lo {
				server, iface, addr, from = pair.Left, "lo", netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1")
			}
			conn, echo := pair.Left.ListenUDP(netip.AddrPortFrom(from, 0)), server.ListenUDP(netip.AddrPortFrom(addr, port))
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 2048)
				for {
					n, from, err := echo.ReadFromUDPAddrPort(buf)
					if err != nil {
						return
					}
					if _, err := echo.WriteToUDPAddrPort(buf[:n], from); err != nil {
						t.Error(err)
						return
					}
				}
			}()
			defer func() {
				_ = echo.SetReadDeadline(time.Now())
				<-done
			}()
			var r backend.OffloadReceiver
			pair.Left.Do(func() {
				var err error
				r, err = OpenReceiver(backend.ReceiverConfig{Interface: iface, Ports: []uint16{uint16(conn.LocalAddr().(*net.UDPAddr).Port)},
					Epoch: 3, Shares: []backend.ReceiverShare{{First: 10, Limit: 500, Flows: 1}}, Timeout: time.Second, Interval: time.Second})
				if err != nil {
					t.Fatal(err)
				}
			})
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			if r.Mode() != c.mode {
				t.Errorf("mode %q, want %q", r.Mode(), c.mode)
			}
			start := sys.Monotonic()
			if err := r.Begin(start); err != nil {
				t.Fatal(err)
			}
			to := netip.AddrPortFrom(addr, port)
			payload := make([]byte, 48)
			var sent int64
			for seq := range uint64(500) {
				now := sys.Monotonic()
				packet.PutStamp(payload, &packet.Stamp{Epoch: 3, Seq: seq, Planned: now - 1000, Sent: now})
				if _, err := conn.WriteToUDPAddrPort(payload, to); err != nil {
					t.Fatal(err)
				}
				if sent++; sent%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			if _, err := conn.WriteToUDPAddrPort([]byte("no stamp, no reply"), to); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			buf := make([]byte, 64)
			if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "no stamp, no reply" {
				t.Errorf("the socket read %q, %v", buf[:n], err)
			}
			books, err := r.Books()
			if err != nil || books[0].Unique != 490 || books[0].Replied != 490 || books[0].Stray+books[0].Duplicate != 0 {
				t.Errorf("books %+v, %v; want 490 replies", books, err)
			}
			var latency, service stats.Hist
			if err := r.Collect(math.MaxInt64, func(v *backend.ReceiverInterval) {
				addTo(t, &latency, &v.Latency)
				addTo(t, &service, &v.Service)
			}); err != nil {
				t.Fatal(err)
			}
			if got := sumOf(t, &latency) - sumOf(t, &service); got != 490*1000 {
				t.Errorf("latencies less service times sum to %d ns, want %d", got, 490*1000)
			}
		})
	}
}

// TestKernelReach tells beforehand what Open would say.
func TestKernelReach(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	reach := func(to netip.AddrPort) (err error) {
		pair.Left.Do(func() { err = Reach([]backend.Flow{{Dst: to}}) })
		return err
	}
	if err := reach(netip.AddrPortFrom(pair.Right.IPv4.Addr(), port)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a peer that takes no frames: %v", err)
	}
	if err := reach(netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("loopback: %v", err)
	}
	pair.Right.Count(testnet.CountConfig{Action: testnet.Pass})
	if err := reach(netip.AddrPortFrom(pair.Right.IPv4.Addr(), port)); err != nil {
		t.Errorf("a peer with a program: %v", err)
	}
}
