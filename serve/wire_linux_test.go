package serve

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/packet"
)

// stamped is a packet of flow 0 of a worker with stride 2.
func stamped(index uint64, size int) []byte {
	b := make([]byte, size)
	packet.PutStamp(b, &packet.Stamp{Epoch: 1, Worker: 1, Stride: 2, Seq: index * 2, Planned: int64(index) * 1000, Sent: int64(index)*1000 + 5})
	return b
}

func parse(t testing.TB, b []byte) packet.Stamp {
	t.Helper()
	var s packet.Stamp
	if !packet.ParseStamp(b, 0, &s) {
		t.Fatalf("reply without stamp: % x", b)
	}
	return s
}

func TestRepliesTellWhatTheServerReceived(t *testing.T) {
	s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("127.0.0.1:0")}})
	conn := dial(t, "", s.Addrs()[0])
	var got []report
	var last int64
	// 2 and 5 are lost on the way to the server, 3 comes after 4, 4 comes twice.
	for _, index := range []uint64{0, 1, 4, 3, 4, 6, 7} {
		r := parse(t, exchange(t, conn, stamped(index, 64)))
		got = append(got, report{r.ServerCount, r.ServerWindow})
		if r.Seq != index*2 || r.ServerReceived < last || r.ServerSent < r.ServerReceived || !r.HasReport {
			t.Errorf("packet %d after %d: %+v", index, last, r)
		}
		last = r.ServerSent
	}
	// Of the last two, bit 0 is 6 and then 7; the others are 6, 4, 3, 1 and 0.
	want := []report{{1, 0b1}, {2, 0b11}, {3, 0b11001}, {4, 0}, {4, 0}, {5, 0b1101101}, {6, 0b11011011}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Counts{Received: 7, Bytes: 7 * 64, Replied: 7, Flows: 1, Duplicate: 1, Reordered: 1}, finish(t, s)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestFlowsBeyondTheTableAreAnsweredWithoutReport(t *testing.T) {
	s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("[::1]:0")}, Flows: 3})
	for i := range 5 {
		r := parse(t, exchange(t, dial(t, "", s.Addrs()[0]), stamped(0, 64)))
		if want := i < 3; r.HasReport != want || r.ServerSent == 0 {
			t.Errorf("flow %d: report %v, want %v; %+v", i, r.HasReport, want, r)
		}
	}
	if diff := cmp.Diff(Counts{Received: 5, Bytes: 5 * 64, Replied: 5, Flows: 3, Unreported: 2}, finish(t, s)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// sendTrain sends b as one train of segments of the given size.
func sendTrain(t testing.TB, conn *net.UDPConn, b []byte, segment int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// TestTrains: one datagram of the train is one packet in every count and has its own stamp, whether the server takes it in one
// piece or not; the last one is shorter.
func TestTrains(t *testing.T) {
	const packets, size, last = 10, 100, 70
	for _, gro := range []bool{false, true} {
		for _, address := range []string{"127.0.0.1:0", "[::]:0"} {
			s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at(address)}, GRO: gro})
			to := s.Addrs()[0]
			if to.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
			}
			conn := dial(t, "", to)
			var train []byte
			for i := range uint64(packets) {
				train = append(train, stamped(i, size)...)
			}
			train = train[:len(train)-size+last]
			sendTrain(t, conn, train, size)
			for i := range uint64(packets) {
				b := receive(t, conn)
				r := parse(t, b)
				if want := (report{i + 1, 1<<(i+1) - 1}); r.Seq != i*2 || (report{r.ServerCount, r.ServerWindow}) != want || r.ServerSent < r.ServerReceived {
					t.Errorf("gro %v: packet %d: %+v, want %+v", gro, i, r, want)
				}
				if want := size; i < packets-1 && len(b) != want || i == packets-1 && len(b) != last {
					t.Errorf("gro %v: packet %d has %d bytes", gro, i, len(b))
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			batches := s.Counts().Batches
			if gro && batches > 1 {
				t.Errorf("gro: the train took %d receive calls", batches)
			}
			if diff := cmp.Diff(Counts{Received: packets, Bytes: uint64(len(train)), Replied: packets, Flows: 1}, finish(t, s)); diff != "" {
				t.Errorf("gro %v: counts (-want +got):\n%s", gro, diff)
			}
		}
	}
	s := start(t, Config{Mode: Sink, Listen: []netip.AddrPort{at("127.0.0.1:0")}, GRO: true})
	sendTrain(t, dial(t, "", s.Addrs()[0]), make([]byte, 950), 100)
	if diff := cmp.Diff(Counts{Received: 10, Bytes: 950}, finish(t, s)); diff != "" {
		t.Errorf("sink (-want +got):\n%s", diff)
	}
}

// TestDropsAreTheServersOwn: what a small receive buffer loses before the server runs is counted, and with what it kept makes the whole.
func TestDropsAreTheServersOwn(t *testing.T) {
	s, err := Listen(Config{Listen: []netip.AddrPort{at("127.0.0.1:0")}, ReceiveBuffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn := dial(t, "", s.Addrs()[0])
	for range 500 {
		if _, err := conn.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if !s.start() {
		t.Fatal("not started")
	}
	c := finish(t, s)
	if c.Drops == 0 || c.Received == 0 || c.Received+c.Drops != 500 {
		t.Errorf("received %d, dropped %d of 500", c.Received, c.Drops)
	}
}

func TestListenRefuses(t *testing.T) {
	s := start(t, Config{Listen: []netip.AddrPort{at("127.0.0.1:0")}, Workers: 2})
	for _, c := range []struct {
		name string
		cfg  Config
		is   error // nil: any
	}{
		{"a port that another server has, though both would share", Config{Listen: s.Addrs(), Workers: 2}, unix.EADDRINUSE},
		{"an address that is not ours", Config{Listen: []netip.AddrPort{at("198.51.100.1:0")}}, unix.EADDRNOTAVAIL},
		{"a second address that fails after the first was bound", Config{Listen: []netip.AddrPort{at("127.0.0.1:0"), at("198.51.100.1:0")}}, unix.EADDRNOTAVAIL},
		{"no address", Config{}, nil},
		{"the zero address", Config{Listen: make([]netip.AddrPort, 1)}, nil},
		{"a batch the kernel does not take", Config{Listen: []netip.AddrPort{at("127.0.0.1:0")}, Batch: 1025}, nil},
		{"a mode there is not", Config{Mode: 7, Listen: []netip.AddrPort{at("127.0.0.1:0")}}, nil},
		{"a zone there is not", Config{Listen: []netip.AddrPort{at("[fe80::1%nowhere]:0")}}, nil},
	} {
		before := descriptors(t)
		got, err := Listen(c.cfg)
		if err == nil {
			got.Close()
		}
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%s: %d descriptors left open", c.name, after-before)
		}
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestCloseIsPromptAndLeavesNothing starts and stops idle servers. Waiting out the receive timeout of each would take pollWait a time.
func TestCloseIsPromptAndLeavesNothing(t *testing.T) {
	const times = 50
	before := descriptors(t)
	begin := time.Now()
	for i := range times {
		s, err := Start(Config{Mode: Mode(i % 2), Listen: []netip.AddrPort{at("127.0.0.1:0"), at("[::1]:0")}, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			exchangeOrSend(t, s, Mode(i%2))
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s.Counts().Received != uint64(min(i%3, 1)) {
			t.Errorf("counts after Close: %v", s.Counts())
		}
	}
	if took := time.Since(begin); took > times*pollWait/2 {
		t.Errorf("%d servers took %v", times, took)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	s, err := Listen(Config{Listen: []netip.AddrPort{at("127.0.0.1:0")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || s.start() {
		t.Errorf("a server closed before it ran: %v, or it started", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("a server closed before it ran leaves %d descriptors", after-before)
	}
}

func exchangeOrSend(t testing.TB, s *Server, m Mode) {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addrs()[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if m == Echo {
		exchange(t, conn, []byte("hello"))
	} else if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func TestAFailingWorkerEndsTheRun(t *testing.T) {
	s := start(t, Config{Listen: []netip.AddrPort{at("127.0.0.1:0")}, Workers: 2, CPUs: []int{0, 1023}})
	<-s.done
	if err := s.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("pinning to a cpu that is not there: %v", err)
	}
	s.err = nil // seen
}

// TestServingDoesNotAllocate drives a worker by hand, so that nothing else allocates in between.
func TestServingDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"sink", Config{Mode: Sink}},
		{"echo", Config{Mode: Echo}},
		{"echo with control messages", Config{Mode: Echo, GRO: true}},
	} {
		for _, address := range []string{"127.0.0.1:0", "[::]:0"} {
			c.cfg.Listen = []netip.AddrPort{at(address)}
			s, err := Listen(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			to := s.Addrs()[0]
			if to.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
			}
			conn := dial(t, "", to)
			b, reply := stamped(0, 64), make([]byte, 64)
			index := uint64(0)
			w := s.workers[0]
			if n := testing.AllocsPerRun(200, func() {
				for range 4 {
					binary.BigEndian.PutUint64(b[8:], index*2)
					index++
					if _, err := conn.Write(b); err != nil {
						t.Error(err)
					}
				}
				for range 4 {
					if err := w.pass(false); err != nil {
						break
					}
				}
				if c.cfg.Mode == Echo {
					for range 4 {
						if n, err := conn.Read(reply); n != 64 || err != nil {
							t.Errorf("read %d bytes, %v", n, err)
						}
					}
				}
			}); n != 0 {
				t.Errorf("%s on %s: %v allocations per 4 packets", c.name, address, n)
			}
			if got := w.counts.read(); got.Received != index {
				t.Errorf("%s on %s: received %d of %d", c.name, address, got.Received, index)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestKernelPrefixOfTheInterface: by default a peer on the interface's own network is served, on whatever address of the host it
// asks, and one from behind a router is not.
func TestKernelPrefixOfTheInterface(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	second, outside := netip.MustParseAddr("10.83.0.77"), netip.MustParseAddr("172.31.9.1")
	addAddress(t, pair.Right, pair.Right.Interface, netip.PrefixFrom(second, 24))
	addAddress(t, pair.Left, "lo", netip.PrefixFrom(outside, 32))
	pair.Right.AddRoute(netip.PrefixFrom(outside, 32), pair.Left.IPv4.Addr())

	var s *Server
	pair.Right.Do(func() {
		s = start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("0.0.0.0:0"), at("[::]:0")}, Workers: 2})
	})
	dialLeft := func(from, to netip.Addr) (conn *net.UDPConn) {
		port := s.Addrs()[0].Port()
		if to.Is6() {
			port = s.Addrs()[1].Port()
		}
		pair.Left.Do(func() { conn = dial(t, from.String(), netip.AddrPortFrom(to, port)) })
		return conn
	}
	for _, to := range []netip.Addr{pair.Right.IPv4.Addr(), second} {
		exchange(t, dialLeft(pair.Left.IPv4.Addr(), to), []byte("from the same network"))
	}
	exchange(t, dialLeft(pair.Left.IPv6.Addr(), pair.Right.IPv6.Addr()), []byte("from the same network"))
	if _, err := dialLeft(outside, second).Write([]byte("from elsewhere")); err != nil {
		t.Fatal(err)
	}
	// A later packet to the same worker would do as well, but which worker that is depends on the port.
	for deadline := time.Now().Add(10 * time.Second); s.Counts().Denied == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	c := finish(t, s)
	if c.Received != 3 || c.Replied != 3 || c.Denied != 1 {
		t.Errorf("counts %v, want 3 served and 1 denied; allowed %v", c, s.Allow())
	}
}

func addAddress(t testing.TB, h *testnet.Host, device string, p netip.Prefix) {
	t.Helper()
	link, err := h.Netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(p.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Netlink.AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkServe sends batches from one thread to one worker: "pps" is what both together reach on shared cores.
func BenchmarkServe(b *testing.B) {
	for _, c := range []struct {
		name string
		mode Mode
		size int
	}{{"sink/64B", Sink, 64}, {"echo/64B", Echo, 64}, {"echo/1472B", Echo, 1472}} {
		b.Run(c.name, func(b *testing.B) {
			s, err := Listen(Config{Mode: c.mode, Listen: []netip.AddrPort{at("127.0.0.1:0")}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			conn := dial(b, "", s.Addrs()[0])
			w := s.workers[0]
			payload, reply := stamped(0, c.size), make([]byte, c.size)
			b.ReportAllocs()
			var serving time.Duration
			n := 0
			for b.Loop() {
				binary.BigEndian.PutUint64(payload[8:], uint64(n*2))
				if _, err := conn.Write(payload); err != nil {
					b.Fatal(err)
				}
				if n++; n%defaultBatch != 0 {
					continue
				}
				begin := time.Now()
				if err := w.pass(false); err != nil {
					b.Fatal(err)
				}
				serving += time.Since(begin)
				for range defaultBatch {
					if c.mode == Sink {
						break
					}
					if _, err := conn.Read(reply); err != nil {
						b.Fatal(err)
					}
				}
			}
			if n -= n % defaultBatch; n > 0 {
				b.ReportMetric(float64(serving.Nanoseconds())/float64(n), "server-ns/packet")
			}
		})
	}
}
