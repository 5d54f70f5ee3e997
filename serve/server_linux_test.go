package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"blast/packet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dial connects a socket to the server, from a given address where one is named.
func dial(t testing.TB, from string, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	var local *net.UDPAddr
	if from != "" {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
	}
	conn, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends a payload and returns the reply.
func exchange(t testing.TB, conn *net.UDPConn, payload []byte) []byte {
	t.Helper()
	if _, err := conn.Write(payload); err != nil {
		t.Fatal(err)
	}
	return receive(t, conn)
}

func receive(t testing.TB, conn *net.UDPConn) []byte {
	t.Helper()
	buf := make([]byte, 65536)
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// finish closes the server and returns its counts without what depends on timing.
func finish(t testing.TB, s *Server) Counts {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := s.Counts()
	c.Batches, c.Workers = 0, nil
	return c
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

var addresses = []struct {
	name   string // what the case is for
	listen string
	to     string
}{
	{"IPv4 loopback", "127.0.0.1:0", "127.0.0.1"},
	{"IPv6 loopback", "[::1]:0", "::1"},
	{"the IPv4 wildcard, asked on an address that is not the route's own choice", "0.0.0.0:0", "127.0.0.9"},
	{"the IPv6 wildcard", "[::]:0", "::1"},
}

func TestEchoReturnsEveryByteAndCountsExactly(t *testing.T) {
	for _, a := range addresses {
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d workers", a.name, workers), func(t *testing.T) {
				s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at(a.listen)}, Workers: workers})
				to := netip.AddrPortFrom(netip.MustParseAddr(a.to), s.Addrs()[0].Port())
				want := Counts{}
				for i := range 16 {
					conn := dial(t, "", to)
					for _, size := range []int{0, 1, 15, 16, 47, 48, 64, 1472, 9000, 65000} {
						payload := make([]byte, size)
						for k := range payload {
							payload[k] = byte(rand.Uint32())
						}
						if size > 0 {
							payload[0] = byte(i) // not a stamp
						}
						if reply := exchange(t, conn, payload); !bytes.Equal(payload, reply) {
							t.Fatalf("%d bytes (-sent +replied):\n%s", size, cmp.Diff(payload, reply))
						}
						want.Received++
						want.Replied++
						want.Bytes += uint64(size)
					}
				}
				if diff := cmp.Diff(want, finish(t, s)); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestSinkCountsExactlyAndAnswersNothing(t *testing.T) {
	const conns, each = 16, 200
	for _, a := range addresses {
		for _, workers := range []int{1, 2} {
			for _, gro := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d workers, gro %v", a.name, workers, gro), func(t *testing.T) {
					s := start(t, Config{Mode: Sink, Listen: []netip.AddrPort{at(a.listen)}, Workers: workers, GRO: gro})
					to := netip.AddrPortFrom(netip.MustParseAddr(a.to), s.Addrs()[0].Port())
					var want Counts
					for range conns {
						conn := dial(t, "", to)
						for k := range each {
							if _, err := conn.Write(make([]byte, k*5)); err != nil {
								t.Fatal(err)
							}
							want.Received++
							want.Bytes += uint64(k * 5)
						}
					}
					got := finish(t, s)
					if got.Received+got.Drops != want.Received {
						t.Errorf("received %d and dropped %d of %d", got.Received, got.Drops, want.Received)
					}
					if got.Drops == 0 {
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("counts (-want +got):\n%s", diff)
						}
					}
				})
			}
		}
	}
}

func TestWorkersShareTheFlows(t *testing.T) {
	s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("127.0.0.1:0")}, Workers: 2})
	for range 64 {
		exchange(t, dial(t, "", s.Addrs()[0]), []byte("hello"))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := s.Counts()
	if len(c.Workers) != 2 || c.Workers[0].Received == 0 || c.Workers[1].Received == 0 {
		t.Errorf("64 flows went to the workers as %+v", c.Workers)
	}
	if sum := c.Workers[0].Received + c.Workers[1].Received; sum != 64 || c.Received != 64 {
		t.Errorf("workers received %d, the server %d, want 64", sum, c.Received)
	}
}

func TestOnlyAllowedPeersAreServed(t *testing.T) {
	for _, mode := range []Mode{Sink, Echo} {
		t.Run(mode.String(), func(t *testing.T) {
			s := start(t, Config{Mode: mode, Listen: []netip.AddrPort{at("127.0.0.1:0")},
				Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
			denied, served := dial(t, "127.0.0.1", s.Addrs()[0]), dial(t, "127.0.0.2", s.Addrs()[0])
			for range 3 {
				if _, err := denied.Write([]byte("denied")); err != nil {
					t.Fatal(err)
				}
			}
			want := Counts{Received: 1, Bytes: 6, Denied: 3}
			if mode == Echo {
				want.Replied = 1
				exchange(t, served, []byte("served"))
			} else if _, err := served.Write([]byte("served")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, finish(t, s)); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			// Close has waited for everything, so a reply would be here by now.
			if err := denied.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if n, err := denied.Read(make([]byte, 64)); !os.IsTimeout(err) {
				t.Errorf("the denied peer read %d bytes, %v", n, err)
			}
		})
	}
}

func TestDefaultAllow(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	got, err := DefaultAllow([]netip.AddrPort{at("127.0.0.1:1"), at("[::1]:1")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fmt.Sprint(loopback), fmt.Sprint(got)); diff != "" {
		t.Errorf("on loopback (-want +got):\n%s", diff)
	}
	owned, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owned {
		p := netip.MustParsePrefix(o.String())
		if p.Addr().IsLoopback() {
			continue
		}
		for _, listen := range []netip.Addr{p.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			list, err := DefaultAllow([]netip.AddrPort{netip.AddrPortFrom(listen, 1)})
			if err != nil {
				t.Fatal(err)
			}
			want := listen == p.Addr() || listen.BitLen() == p.Addr().BitLen()
			if contains(list, p.Addr()) != want {
				t.Errorf("listening on %v allows %v; is %v in it? want %v", listen, list, p.Addr(), want)
			}
			if contains(list, netip.MustParseAddr("8.8.8.8")) || contains(list, netip.MustParseAddr("2001:4860::8888")) {
				t.Errorf("listening on %v allows the world: %v", listen, list)
			}
		}
	}
}

func TestEchoStampsOurPayloadsAndNothingElse(t *testing.T) {
	var tick int64
	s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("127.0.0.1:0")}, Now: func() int64 { tick += 1000; return tick }})
	conn := dial(t, "", s.Addrs()[0])
	stamp := packet.Stamp{Epoch: 3, Worker: 7, Stride: 2, Seq: 20, Planned: 5_000_000, Sent: 5_000_100}

	sent := bytes.Repeat([]byte{0xAA}, 100)
	packet.PutStamp(sent, &stamp)
	want := append([]byte(nil), sent...)
	packet.PutServer(want, 1000, 2000, 1, 1)
	if diff := cmp.Diff(want, exchange(t, conn, sent)); diff != "" {
		t.Errorf("full stamp (-want +got):\n%s", diff)
	}

	stamp.Seq, stamp.Planned = 22, 5_000_200
	short := make([]byte, packet.StampBytes+1)
	packet.PutStamp(short, &stamp)
	want = append([]byte(nil), short...)
	packet.PutServer(want, 3000, 4000, 0, 0)
	if diff := cmp.Diff(want, exchange(t, conn, short)); diff != "" {
		t.Errorf("full stamp without room for a report (-want +got):\n%s", diff)
	}

	compact := bytes.Repeat([]byte{0x55}, 60)
	packet.PutCompact(compact, &stamp)
	if diff := cmp.Diff(compact, exchange(t, conn, compact)); diff != "" {
		t.Errorf("compact stamp (-want +got):\n%s", diff)
	}

	for _, cut := range [][]byte{sent[:47], sent[:2], compact[:15]} {
		if diff := cmp.Diff(cut, exchange(t, conn, cut)); diff != "" {
			t.Errorf("cut stamp (-want +got):\n%s", diff)
		}
	}
	version2 := append([]byte(nil), sent...)
	version2[2]++
	if diff := cmp.Diff(version2, exchange(t, conn, version2)); diff != "" {
		t.Errorf("other version (-want +got):\n%s", diff)
	}

	c := finish(t, s)
	if want := (Counts{Received: 7, Bytes: 100 + 49 + 60 + 47 + 2 + 15 + 100, Replied: 7, Malformed: 4, Flows: 1}); !cmp.Equal(want, c) {
		t.Errorf("counts (-want +got):\n%s", cmp.Diff(want, c))
	}
}

func TestRunEndsWithItsContextAndRunsOnce(t *testing.T) {
	s, err := Listen(Config{Mode: Echo, Listen: []netip.AddrPort{at("127.0.0.1:0"), at("[::1]:0")}, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	for _, to := range s.Addrs() {
		exchange(t, dial(t, "", to), []byte("hello"))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.Run(context.Background()); err == nil {
		t.Error("a second Run did not fail")
	}
	if got := finish(t, s); got.Received != 2 || got.Replied != 2 {
		t.Errorf("counts after both address families: %v", got)
	}
}

// TestAReplyToItselfIsNotAnswered: a datagram whose source is the server's own address and port, as one may be forged, would be
// answered for ever. A second socket that shares the port stands in for the forger.
func TestAReplyToItselfIsNotAnswered(t *testing.T) {
	s := start(t, Config{Mode: Echo, Listen: []netip.AddrPort{at("0.0.0.0:0")}, Workers: 2})
	port := s.Addrs()[0].Port()
	fd, err := newSocket(netip.IPv4Unspecified(), &Config{ReceiveBuffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 5}, Port: int(port)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, []byte("from your own port"), 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 6}, Port: int(port)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Counts{Denied: 1}, finish(t, s)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestModesAndCountsRead(t *testing.T) {
	for _, m := range []Mode{Sink, Echo} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("ParseMode(%q) = %v, %v", m.String(), got, err)
		}
	}
	if _, err := ParseMode("discard"); err == nil || err.Error() != `mode "discard": want sink or echo` {
		t.Errorf("ParseMode of an unknown mode: %v", err)
	}
	c := Counts{Received: 1, Bytes: 2, Denied: 3, Replied: 4, ReplyRefused: 5, Malformed: 6, Drops: 7, Flows: 8, Restarted: 9, Unreported: 10,
		Duplicate: 11, Reordered: 12, Beyond: 13, Stale: 14, Batches: 15}
	want := "received 1 packets 2 bytes, denied 3, replied 4, reply refused 5, malformed 6, drops 7, flows 8, restarted 9, " +
		"unreported 10, duplicate 11, reordered 12, beyond window 13, stale 14, batches 15"
	if diff := cmp.Diff(want, c.String()); diff != "" {
		t.Errorf("String (-want +got):\n%s", diff)
	}
	var sum Counts
	sum.add(&c)
	sum.add(&c)
	var p counters
	batch := c
	p.publish(&batch)
	batch = c
	p.publish(&batch)
	p.flows.Store(2 * c.Flows)
	published := p.read()
	published.Drops = 2 * c.Drops
	if diff := cmp.Diff(sum, published); diff != "" {
		t.Errorf("published and added differ (-added +published):\n%s", diff)
	}
	if diff := cmp.Diff(Counts{}, batch); diff != "" {
		t.Errorf("a published batch is not cleared:\n%s", diff)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"received":1,"bytes":2,"denied":3,"replied":4,"reply_refused":5,"malformed":6,"flows":8,"restarted":9,"unreported":10,` +
		`"duplicate":11,"reordered":12,"beyond":13,"stale":14,"drops":7,"batches":15}`
	if diff := cmp.Diff(wantJSON, string(b)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}
