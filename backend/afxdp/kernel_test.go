package afxdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/testnet"
	"blast/xdp"
)

// tagged makes an Entry's ways into a VLAN: this kernel may have no VLAN interfaces, whose route would say so.
func tagged(t testing.TB, p *testnet.Pair, vlan uint16, to, from netip.Addr) *host {
	t.Helper()
	h := &host{}
	l := &link{host: h}
	if err := h.join(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.users.Store(1); _ = leaveOnly(l) })
	w := h.find(wayKey{to, from, ""})
	if w.err != nil {
		t.Fatal(w.err)
	}
	w.hop.VLAN, w.hop.Tagged = vlan, true
	return h
}

// leaveOnly takes a link without sockets off its host.
func leaveOnly(l *link) error {
	h := l.host
	h.mu.Lock()
	h.users--
	last := h.users == 0
	if last {
		h.resolver.Close()
		close(h.quit)
	}
	h.mu.Unlock()
	if last {
		<-h.ended
	}
	return nil
}

// TestKernelFrames: what is captured at the other end is what was given, with the addresses of the flow, right checksums and clean
// padding, and the counts of sender, interfaces and capture agree.
func TestKernelFrames(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name    string
		six     bool
		vlan    uint16
		payload int
	}{
		{"IPv4, nothing in it", false, 0, 0},
		{"IPv4, one byte and padding", false, 0, 1},
		{"IPv4, the smallest frame", false, 0, 18},
		{"IPv4, an odd size", false, 0, 333},
		{"IPv4, full", false, 0, 1472},
		{"IPv6, nothing in it", true, 0, 0},
		{"IPv6, small", true, 0, 18},
		{"IPv6, full", true, 0, 1452},
		{"IPv4 in a VLAN", false, 83, 18},
		{"IPv4 in a VLAN, full", false, 83, 1472},
		{"IPv6 in a VLAN with a priority", true, 5<<13 | 83, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{})
			from, to := p.Left.IPv4.Addr(), p.Right.IPv4.Addr()
			if c.six {
				from, to = p.Left.IPv6.Addr(), p.Right.IPv6.Addr()
			}
			fd := capture(t, p.Right)
			const packets, flows = 300, 3
			do(p, func() {
				fn := backend.Open(Open)
				if c.vlan != 0 {
					fn = tagged(t, p, c.vlan, to, from).openWorker
				}
				cfg := backend.Config{PayloadBytes: c.payload}
				for range flows {
					cfg.Flows = append(cfg.Flows, backend.Flow{Dst: netip.AddrPortFrom(to, 4700)})
				}
				w := open(t, fn, cfg)
				sources := w.s.Limits().Sources
				before, there := p.Left.Statistics().TxPackets, p.Right.Statistics().RxPackets
				w.send(packets, func(i int, slot *backend.Slot) {
					slot.Flow, slot.Len = i*i%flows, len(slot.Payload)
					for k := range slot.Payload {
						slot.Payload[k] = byte(i + k*k)
					}
				})
				w.settle()
				for i := range packets {
					s := next(t, fd, 4700)
					if s.srcMAC != p.Left.MAC.String() || s.dstMAC != p.Right.MAC.String() || s.src != sources[i*i%flows] || s.dst.Addr() != to {
						t.Fatalf("packet %d from %s %v to %s %v", i, s.srcMAC, s.src, s.dstMAC, s.dst)
					}
					if want := int(c.vlan); s.vlan != want && !(want == 0 && s.vlan == -1) {
						t.Fatalf("packet %d has tag %d, want %d", i, s.vlan, want)
					}
					if len(s.payload) != c.payload {
						t.Fatalf("packet %d: %d bytes, want %d", i, len(s.payload), c.payload)
					}
					for k, b := range s.payload {
						if b != byte(i+k*k) {
							t.Fatalf("packet %d, byte %d: %d", i, k, b)
						}
					}
					if slices.ContainsFunc(s.behind, func(b byte) bool { return b != 0 }) {
						t.Fatalf("padding of packet %d: % x", i, s.behind)
					}
				}
				if sent := p.Left.Statistics().TxPackets - before; w.told.Sent != packets || sent < packets {
					t.Errorf("told of %+v, the interface sent %d", w.told, sent)
				}
				if got := p.Right.Statistics().RxPackets - there; got < packets {
					t.Errorf("the other interface received %d", got)
				}
			})
		})
	}
}

// TestKernelMixedFamilies: headers of both lengths in one worker, and an IPv4-mapped address.
func TestKernelMixedFamilies(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	fd := capture(t, p.Right)
	mapped := netip.AddrFrom16(p.Right.IPv4.Addr().As16())
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 40, Flows: []backend.Flow{
			{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 4701)}, {Dst: netip.AddrPortFrom(p.Right.IPv6.Addr(), 4701)}, {Dst: netip.AddrPortFrom(mapped, 4701)},
		}})
		w.send(300, func(i int, slot *backend.Slot) {
			slot.Flow, slot.Len = i%3, 8+i%33
			binary.BigEndian.PutUint64(slot.Payload, uint64(i))
		})
		for i := range 300 {
			s := next(t, fd, 4701)
			if n := binary.BigEndian.Uint64(s.payload); n != uint64(i) || len(s.payload) != 8+i%33 || s.dst.Addr().Is6() != (i%3 == 1) {
				t.Fatalf("packet %d: number %d, %d bytes, to %v", i, n, len(s.payload), s.dst)
			}
		}
		w.settle()
	})
}

// TestKernelWorkers: two workers of one Entry share the program of their interface. Each gets the replies of its own flows and no others,
// whichever queue they come to, also where both send from one port. With the last of them the program goes.
func TestKernelWorkers(t *testing.T) {
	need(t)
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("one port for both: %v", shared), func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{Queues: 2})
			const packets, flows = 200, 20
			entry := Entry()
			var workers [2]*worker
			var conns [2]interface {
				ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error)
				WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error)
			}
			do(p, func() {
				for i := range workers {
					conn, to := sink(t, p, p.Right.IPv4.Addr())
					conns[i] = conn
					cfg := backend.Config{PayloadBytes: 16, Receive: true, Worker: i}
					for k := range flows {
						src := netip.AddrPort{}
						if shared {
							src = netip.AddrPortFrom(p.Left.IPv4.Addr(), uint16(30000+k))
						}
						cfg.Flows = append(cfg.Flows, backend.Flow{Src: src, Dst: to})
					}
					workers[i] = open(t, entry.Open, cfg)
				}
				if id := program(t, p); id == 0 {
					t.Error("no program is on the interface")
				}
				for i, w := range workers {
					w.send(packets, numbered(flows))
					buf := make([]byte, 64)
					for range packets {
						n, from, err := conns[i].ReadFromUDPAddrPort(buf)
						if err == nil {
							_, err = conns[i].WriteToUDPAddrPort(buf[:n], from)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				for i, w := range workers {
					for _, r := range w.poll(packets) {
						if n := binary.BigEndian.Uint64(r.Payload); int(n)%flows != r.Flow {
							t.Fatalf("worker %d: the reply to packet %d came to flow %d", i, n, r.Flow)
						}
					}
					w.settle()
					if n := w.r.Drops(); n != 0 {
						t.Errorf("%d drops", n)
					}
					l := w.s.Limits()
					t.Logf("worker %d: %s; %q", i, l.Mode, l.Notes)
					if shared && i == 1 && !strings.Contains(strings.Join(l.Notes, " "), fmt.Sprintf("%d of %d did not come to queue 1", packets, packets)) {
						t.Errorf("notes %q", l.Notes)
					}
				}
				workers[0].close()
				if id := program(t, p); id == 0 {
					t.Error("the program went with the first worker")
				}
				workers[1].send(3, numbered(flows))
				workers[1].settle()
				workers[1].close()
				if id := program(t, p); id != 0 {
					t.Errorf("program %d is left", id)
				}
			})
		})
	}
}

// program is the id of the XDP program at the left end, 0 for none.
func program(t testing.TB, p *testnet.Pair) uint32 {
	t.Helper()
	link, err := p.Left.Netlink.LinkByName(p.Left.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

// TestKernelClosedPort: ICMP errors come to the ordinary sockets and are told as events; they are no slot's fate.
func TestKernelClosedPort(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	p.Right.Do(func() { unrationed(t) })
	for _, receive := range []bool{false, true} {
		do(p, func() {
			w := open(t, Open, backend.Config{PayloadBytes: 16, Receive: receive, Flows: []backend.Flow{
				{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}, {Dst: netip.AddrPortFrom(p.Right.IPv6.Addr(), 9)}}})
			w.send(100, numbered(2))
			for end := time.Now().Add(patience); w.told.Events[backend.EventConnRefused] < 2 && time.Now().Before(end); w.reap() {
				if w.r == nil {
					continue
				}
				if n, err := w.r.Poll(time.Millisecond, func(*backend.Packet) {}); n != 0 || err != nil {
					t.Fatalf("poll: %d, %v", n, err)
				}
			}
			w.settle()
			if n := w.told.Events[backend.EventConnRefused]; n < 2 || n > 100 || w.told.Sent != 100 {
				t.Errorf("receiving %v: %+v", receive, w.told)
			}
			w.close()
		})
	}
}

// TestKernelOverflow: replies that the ring has no room for are counted as the generator's losses, and those alone.
func TestKernelOverflow(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	conn, to := sink(t, p, p.Right.IPv4.Addr())
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Receive: true, Flows: []backend.Flow{{Dst: to}}})
		w.send(1, numbered(1))
		buf := make([]byte, 64)
		_, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		const replies = 3 * rxFrames
		for i := range replies {
			if _, err := conn.WriteToUDPAddrPort(buf[:16], from); err != nil {
				t.Fatal(i, err)
			}
		}
		got, drops := 0, uint64(0)
		for end := time.Now().Add(patience); uint64(got)+drops < replies && time.Now().Before(end); drops = w.r.Drops() {
			n, err := w.r.Poll(10*time.Millisecond, func(*backend.Packet) {})
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		if got < rxFrames || drops == 0 || uint64(got)+drops != replies {
			t.Errorf("%d replies came and %d were dropped, of %d", got, drops, replies)
		}
		w.close()
		if w.r.Drops() != drops {
			t.Errorf("%d drops after Close, %d before", w.r.Drops(), drops)
		}
	})
}

// TestKernelLinkDeleted: the interface goes away at full rate. The sender says so in bounded time, and every slot it accepted has its fate.
func TestKernelLinkDeleted(t *testing.T) {
	need(t)
	for _, receive := range []bool{false, true} {
		p := testnet.NewPair(t, testnet.Config{})
		do(p, func() {
			w := open(t, Open, backend.Config{PayloadBytes: 16, Receive: receive, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
			w.send(1000, numbered(1))
			p.Left.Delete()
			start := time.Now()
			for w.err == nil && time.Since(start) < patience {
				w.offer(0, 64, numbered(1))
				w.reap()
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if w.err == nil || !strings.Contains(w.err.Error(), "gone") {
				t.Errorf("receiving %v: %v", receive, w.err)
			}
			w.settle()
			t.Logf("%v; %+v, refused %v", w.err, w.told, w.refused)
			if w.r != nil {
				for end := time.Now().Add(patience); ; {
					_, err := w.r.Poll(10*time.Millisecond, func(*backend.Packet) {})
					if err != nil && strings.Contains(err.Error(), "gone") {
						break
					}
					if err != nil || time.Now().After(end) {
						t.Fatalf("poll: %v", err)
					}
				}
			}
		})
	}
}

// TestKernelLinkDown: packets for an interface that is down are refused one by one, and when it comes up again they leave.
func TestKernelLinkDown(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
		w.send(100, numbered(1))
		w.settle()
		p.Left.SetUp(false)
		w.send(1000, numbered(1))
		if w.err != nil || w.refused[backend.CauseDown] < 900 {
			t.Errorf("refused %v, %v", w.refused, w.err)
		}
		p.Left.SetUp(true)
		before := w.told.Sent
		for end := time.Now().Add(patience); w.told.Sent < before+100 && time.Now().Before(end); {
			w.send(10, numbered(1))
		}
		w.settle()
		if w.told.Sent < before+100 {
			t.Errorf("after it came up: %+v, %v", w.told, w.err)
		}
	})
}

// TestKernelPeerDown: what the kernel takes and drops, because the other end is down, is told packet by packet.
func TestKernelPeerDown(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
		w.send(100, numbered(1))
		w.settle()
		p.Right.SetUp(false)
		before := w.told
		w.send(500, numbered(1))
		w.settle()
		if got := w.told.Dropped - before.Dropped; got != 500 || w.told.Sent != before.Sent {
			t.Errorf("told of %+v before and %+v after 500 packets", before, w.told)
		}
	})
}

// TestKernelNeighbourMoves: a target that gets another hardware address is followed.
func TestKernelNeighbourMoves(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	fd := capture(t, p.Right)
	do(p, func() {
		h := &host{refresh: 50 * time.Millisecond}
		w := open(t, h.openWorker, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 4702)}}})
		w.send(1, numbered(1))
		if s := next(t, fd, 4702); s.dstMAC != p.Right.MAC.String() {
			t.Fatalf("to %s", s.dstMAC)
		}
		const moved = "02:b1:a5:70:00:99"
		neighbour := &netlink.Neigh{LinkIndex: p.Left.Index, IP: p.Right.IPv4.Addr().AsSlice(), State: netlink.NUD_PERMANENT,
			HardwareAddr: []byte{2, 0xb1, 0xa5, 0x70, 0, 0x99}}
		if err := p.Left.Netlink.NeighSet(neighbour); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; {
			w.send(1, numbered(1))
			s := next(t, fd, 4702)
			if s.dstMAC == moved {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("still to %s", s.dstMAC)
			}
			time.Sleep(10 * time.Millisecond)
		}
		w.settle()
		entries, err := p.Left.Netlink.NeighList(p.Left.Index, netlink.FAMILY_V4)
		if err != nil || len(entries) != 1 || entries[0].State != netlink.NUD_PERMANENT {
			t.Errorf("the administrator's entry became %+v, %v", entries, err)
		}
	})
}

// TestKernelRefusals: what cannot be done is refused with the reason and a way out.
func TestKernelRefusals(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	to := netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)
	absent := netip.MustParseAddrPort("10.83.0.99:9")
	do(p, func() {
		holder := open(t, Open, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: to}}})
		for _, c := range []struct {
			name string
			cfg  backend.Config
			is   error
			says []string
		}{
			{"a queue that somebody holds", backend.Config{Flows: []backend.Flow{{Dst: to}}}, unix.EBUSY, []string{"queue 0", "held by", "this one"}},
			{"a queue that does not exist", backend.Config{Flows: []backend.Flow{{Dst: to}}, Queue: 1, Worker: 2}, nil,
				[]string{"queue 3 of left0: it has 1", "worker 2 takes queue 1 + 2"}},
			{"another interface than the route's", backend.Config{Flows: []backend.Flow{{Dst: to}}, Interface: "lo"}, nil, []string{"leads to left0, not to lo", "ip route get"}},
			{"nobody there", backend.Config{Flows: []backend.Flow{{Dst: absent}}}, unix.EHOSTUNREACH, []string{"10.83.0.99", "left0", "does not answer"}},
			{"no route", backend.Config{Flows: []backend.Flow{{Dst: netip.MustParseAddrPort("198.51.100.7:9")}}}, unix.ENETUNREACH, []string{"no route to 198.51.100.7"}},
			{"IPv4 on lo", backend.Config{Flows: []backend.Flow{{Dst: netip.MustParseAddrPort("127.0.0.1:9")}}}, errors.ErrUnsupported, []string{"::1", "veth"}},
			{"two interfaces", backend.Config{Flows: []backend.Flow{{Dst: to}, {Dst: netip.MustParseAddrPort("[::1]:9")}}}, errors.ErrUnsupported, []string{"left0", "lo"}},
			{"more than the path takes", backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 1473}, nil, []string{"1472"}},
			{"more than a frame takes", backend.Config{Flows: []backend.Flow{{Dst: netip.MustParseAddrPort("[::1]:9")}}, PayloadBytes: 5000}, nil,
				[]string{"frames of 4096", "--backend sendmmsg"}},
			{"zero-copy where there is none", backend.Config{Flows: []backend.Flow{{Dst: to}}, ZeroCopy: true}, errors.ErrUnsupported, []string{"zero-copy", "veth"}},
		} {
			start := time.Now()
			s, _, err := Open(c.cfg)
			if err == nil {
				t.Errorf("%s: opened", c.name)
				_ = s.Close()
				continue
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v is no %v", c.name, err, c.is)
			}
			if strings.Contains(err.Error(), "bad file descriptor") {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, w := range c.says {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %q does not say %q", c.name, err, w)
				}
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("%s: it took %v", c.name, took)
			}
			t.Logf("%s: %v", c.name, err)
		}
		holder.send(10, numbered(1))
		holder.settle()
	})
}

// TestRefusedConfigs: what no interface could honour is refused before anything is opened.
func TestRefusedConfigs(t *testing.T) {
	good := backend.Flow{Dst: netip.MustParseAddrPort("10.83.0.2:9")}
	now := func() int64 { return 0 }
	for _, c := range []struct {
		name, says string
		cfg        backend.Config
	}{
		{"no flows", "no flows", backend.Config{}},
		{"trains", "sendmmsg has trains", backend.Config{GSO: 2}},
		{"aggregates", "sendmmsg has trains", backend.Config{GRO: true, Receive: true, Now: now}},
		{"kernel stamps", "kernel receive times", backend.Config{KernelStamp: true, Receive: true, Now: now}},
		{"fragments", "lets the kernel cut", backend.Config{Fragment: true}},
		{"socket buffers", "rings have fixed sizes", backend.Config{SendBuffer: 1}},
		{"SQPOLL", "io_uring", backend.Config{SQPoll: true}},
		{"a batch beyond the rings", "at most 4096", backend.Config{Batch: maxBatch + 1}},
		{"a queue below 0", "queue -1", backend.Config{Queue: -1}},
		{"receiving without a clock", "clock", backend.Config{Receive: true}},
	} {
		if c.name != "no flows" {
			c.cfg.Flows = []backend.Flow{good}
		}
		if _, _, err := Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.says)
		}
	}
}

// TestKernelMode: what was granted is told, read back from the kernel.
func TestKernelMode(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		for _, c := range []struct {
			to      netip.Addr
			receive bool
			mode    string
		}{
			{p.Right.IPv4.Addr(), false, "generic copy on left0, program none, 2048-byte frames"},
			{p.Right.IPv4.Addr(), true, "native copy on left0, program driver, 2048-byte frames"},
			{netip.IPv6Loopback(), false, "generic copy on lo, program none, 4096-byte frames"},
			{netip.IPv6Loopback(), true, "generic copy on lo, program generic, 4096-byte frames"},
		} {
			w := open(t, Open, backend.Config{PayloadBytes: 16, Receive: c.receive, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(c.to, 9)}}})
			l := w.s.Limits()
			if l.Mode != c.mode || l.ZeroCopy || !l.Async || l.SendBuffer == 0 {
				t.Errorf("%+v, want %s", l, c.mode)
			}
			w.close()
		}
	})
}

// TestKernelShortWaits: waits below a millisecond, which closed models live on, are not rounded up to one.
func TestKernelShortWaits(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Receive: true, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
		best := time.Hour
		for range 200 {
			start := time.Now()
			if n, err := w.r.Poll(50*time.Microsecond, func(*backend.Packet) {}); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			best = min(best, time.Since(start))
		}
		if best < 50*time.Microsecond || best > 800*time.Microsecond {
			t.Errorf("the shortest of 200 waits of 50 us took %v", best)
		}
	})
}

// TestKernelStall: what the socket says of a stall is a note and no end of the run: completions may come again. The stall itself is tested
// in package xdp, on a fake kernel.
func TestKernelStall(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
		s := w.s.(*Sender)
		if err := s.failed(fmt.Errorf("queue 0: %w for 3s", xdp.ErrStalled)); err != nil || s.err != nil || s.down {
			t.Errorf("a stall ends the run: %v, %v", err, s.err)
		}
		w.send(100, numbered(1))
		w.settle()
		if notes := strings.Join(w.s.Limits().Notes, "\n"); w.told.Sent != 100 || !strings.Contains(notes, "stall: queue 0: no completion for 3s") {
			t.Errorf("%+v, notes %q", w.told, notes)
		}
	})
}

// TestKernelFull: a Sender whose frames are all with the kernel hands out no slots, says so once, and goes on after Reap.
func TestKernelFull(t *testing.T) {
	need(t)
	p := testnet.NewPair(t, testnet.Config{})
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: 16, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}}})
		for {
			n := len(w.s.Reserve(64))
			if n == 0 {
				break
			}
			if w.offer(0, n, numbered(1)); w.accepted > 2*txFrames {
				t.Fatalf("%d accepted without a Reap", w.accepted)
			}
		}
		for range 10 {
			if n := len(w.s.Reserve(1)); n != 0 {
				t.Fatalf("%d slots when full", n)
			}
		}
		if n, err := w.s.Commit(0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		w.settle()
		if w.accepted != txFrames || w.told.Sent != txFrames || w.told.Events[backend.EventPushback] != 1 {
			t.Errorf("%d accepted, %+v", w.accepted, w.told)
		}
		w.send(100, numbered(1))
		w.settle()
	})
}
