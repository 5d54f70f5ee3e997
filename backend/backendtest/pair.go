package backendtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/testnet"
)

// OnPair is the harness with its sender in the left and its sinks in the right namespace of a veth pair, where ICMP errors are not
// rationed.
func OnPair(h Harness, p *testnet.Pair) Harness {
	p.Right.Do(func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/icmp_ratemask", []byte("0"), 0); err != nil {
			panic(fmt.Errorf("backendtest: %w", err)) // a namespace of our own: nothing can be in the way
		}
	})
	h.From4, h.From6 = p.Left.IPv4.Addr(), p.Left.IPv6.Addr()
	h.To4, h.To6 = p.Right.IPv4.Addr(), p.Right.IPv6.Addr()
	h.Do = p.Left.Do
	h.Listen = func(addr netip.AddrPort) (c *net.UDPConn, err error) {
		p.Right.Do(func() { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)) })
		return c, err
	}
	return h
}

// RunSocketFaults tries what a network can do to a backend on kernel sockets, on a veth pair of its own, and so needs root.
func RunSocketFaults(t *testing.T, h Harness) {
	p := testnet.NewPair(t, testnet.Config{})
	h = OnPair(h, p).withDefaults()
	h.Do(func() { h.reach(t) })
	for _, c := range []struct {
		name string
		fn   func(*testing.T, *Harness, *testnet.Pair)
	}{
		{"payload above the path MTU", testOversize},
		{"path MTU shrinks on the way", testShrink},
		{"full socket buffer is push-back", testStall},
		{"full queueing discipline is a refusal", testQueueFull},
		{"routes that refuse", testRefusingRoutes},
		{"several source addresses", testSources},
		{"ICMP errors are events", testICMP}, // one of which leaves a smaller path MTU behind: the last
	} {
		t.Run(c.name, func(t *testing.T) { h.Do(func() { c.fn(t, &h, p) }) })
	}
}

func testOversize(t *testing.T, h *Harness, _ *testnet.Pair) {
	for _, f := range h.families() {
		largest := 1500 - 28
		if f.to.Is6() {
			largest = 1500 - 48
		}
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		cfg := h.config(largest+1, flow(t, f, to))
		_, _, err := h.Open(cfg)
		if err == nil {
			t.Fatalf("%s: %d bytes were opened on a path that takes %d", f.name, largest+1, largest)
		}
		for _, w := range []string{fmt.Sprint(largest), "MTU 1500", "--fragment"} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", f.name, err, w)
			}
		}
		cfg.PayloadBytes = largest
		d := open(t, h, cfg)
		if got := d.sender.Limits().PayloadBytes; got != largest {
			t.Errorf("%s: payload limit %d, want %d", f.name, got, largest)
		}
		d.close()
		oneSize(t, h, f, to, largest)
		pieces := *h
		pieces.Config.Fragment = true
		oneSize(t, &pieces, f, to, 4000)
	}
}

func testShrink(t *testing.T, h *Harness, p *testnet.Pair) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := open(t, h, h.config(1400, flow(t, f, to)))
	defer d.close()
	fill := func(size int) func(int, *backend.Slot) {
		return func(i int, slot *backend.Slot) {
			slot.Len, slot.Flow = size, 0
			pattern(slot.Payload[:size], i)
		}
	}
	d.send(4, fill(1400))
	to.take(4)
	link, err := p.Left.Netlink.LinkByName(p.Left.Interface)
	if err == nil {
		err = p.Left.Netlink.LinkSetMTU(link, 1300)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Left.Netlink.LinkSetMTU(link, 1500); err != nil {
			t.Error(err)
		}
	}()
	d.send(6, fill(1400))
	d.settle()
	d.send(4, fill(900))
	for i, a := range to.take(4) {
		if err := checkPattern(a.payload, i); err != nil || len(a.payload) != 900 {
			t.Fatalf("%d bytes arrived: %v", len(a.payload), err)
		}
	}
	to.quiet()
	if want := [backend.NumCauses]uint64{backend.CauseMessageSize: 6}; d.settle() != 8 || d.refused != want {
		t.Fatalf("accepted %d, refused %v; want 8, %v", d.accepted, d.refused, want)
	}
}

// testStall fills a socket's send buffer with packets that wait for a neighbour to be resolved, and then lets it be resolved.
func testStall(t *testing.T, h *Harness, p *testnet.Pair) {
	f := h.families()[0]
	absent := netip.MustParseAddr("10.83.0.99")
	to := listen(t, h, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	cfg := h.config(8, backend.Flow{Src: netip.AddrPortFrom(f.from, ports(t, f.from, 1)[0]), Dst: netip.AddrPortFrom(absent, to.addr.Port())})
	cfg.SendBuffer = 1 // the kernel makes it SOCK_MIN_SNDBUF
	d := open(t, h, cfg)
	defer d.close()
	const packets = 1000 // in trains, many fit into the smallest buffer
	sent := 0
	for {
		slots := d.sender.Reserve(packets - sent)
		for i := range slots {
			numbered(0)(sent+i, &slots[i])
		}
		n, err := d.sender.Commit(len(slots))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		if d.reap(); n < len(slots) {
			break // full
		}
		if sent == packets {
			t.Fatalf("%d packets fit into the smallest send buffer", packets)
		}
	}
	if d.done.Events[backend.EventPushback] == 0 {
		t.Fatal("no push-back was told")
	}
	d.accepted = uint64(sent)
	link, err := p.Right.Netlink.LinkByName(p.Right.Interface)
	if err == nil {
		err = p.Right.Netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: absent.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	d.send(packets-sent, func(i int, slot *backend.Slot) { numbered(0)(sent+i, slot) })
	seen := make([]bool, packets)
	for range packets {
		// In any order: the kernel lets new packets pass while it sends the waiting ones (net/core/neighbour.c __neigh_update).
		n := binary.BigEndian.Uint64(to.take(1)[0].payload)
		if seen[n] {
			t.Fatalf("packet %d twice", n)
		}
		seen[n] = true
	}
	to.quiet()
	d.exact(packets)
}

func testQueueFull(t *testing.T, h *Harness, p *testnet.Pair) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := open(t, h, h.config(100, flow(t, f, to)))
	defer d.close()
	d.send(1, numbered(0)) // resolves the neighbour
	to.take(1)
	slow := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.Left.Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       1000, Limit: 3000, Buffer: uint32(netlink.Xmittime(1000, 10_000)),
	}
	if err := p.Left.Netlink.QdiscReplace(slow); err != nil {
		t.Fatal(err)
	}
	const packets = 500
	d.send(packets, numbered(0))
	d.settle()
	if err := p.Left.Netlink.QdiscDel(slow); err != nil {
		t.Fatal(err)
	}
	refused := d.refused[backend.CauseNoBuffers]
	if refused == 0 || d.accepted+refused != packets+1 {
		t.Fatalf("%d accepted, refused %v, of %d through a queue of 3000 bytes", d.accepted, d.refused, packets)
	}
	for { // what the queue let through
		if _, ok := to.next(50 * time.Millisecond); !ok {
			break
		}
	}
	d.send(5, numbered(0))
	to.take(5)
}

func testRefusingRoutes(t *testing.T, h *Harness, p *testnet.Pair) {
	f := h.families()[0]
	far := netip.MustParseAddr("198.51.100.7") // TEST-NET-2
	_, _, err := h.Open(h.config(8, backend.Flow{Dst: netip.AddrPortFrom(far, 7)}))
	if !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "no route to 198.51.100.7") {
		t.Errorf("no route: %v", err)
	}
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	only := &net.IPNet{IP: f.to.AsSlice(), Mask: net.CIDRMask(32, 32)}
	for _, c := range []struct {
		kind  int
		cause backend.Cause
	}{
		{unix.RTN_PROHIBIT, backend.CausePermission},
		{unix.RTN_UNREACHABLE, backend.CauseUnreachable},
	} {
		d := open(t, h, h.config(8, flow(t, f, to)))
		route := &netlink.Route{Dst: only, Type: c.kind}
		if err := p.Left.Netlink.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		d.send(10, numbered(0))
		d.settle()
		if err := p.Left.Netlink.RouteDel(route); err != nil {
			t.Fatal(err)
		}
		d.send(10, numbered(0))
		to.take(10)
		to.quiet()
		want := [backend.NumCauses]uint64{}
		want[c.cause] = 10
		if d.settle() != 10 || d.refused != want {
			t.Errorf("accepted %d, refused %v; want 10, %v", d.accepted, d.refused, want)
		}
		d.done.Events[backend.EventPushback] = 0 // waiting for a kernel thread may be some
		if d.done.Events != [backend.NumEvents]uint64{} {
			t.Errorf("events %v, and no ICMP error came back", d.done.Events)
		}
		d.close()
	}
}

// testICMP forges ICMP errors as a router on the way would send them. None of them is the fate of the packet in hand.
func testICMP(t *testing.T, h *Harness, p *testnet.Pair) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	var raw *net.IPConn
	var err error
	p.Right.Do(func() {
		raw, err = net.DialIP("ip4:icmp", &net.IPAddr{IP: f.to.AsSlice()}, &net.IPAddr{IP: f.from.AsSlice()})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for _, c := range []struct {
		about      string // what the router says and, where it is special, the errno the kernel makes of it
		kind, code byte
		event      backend.Event
	}{
		{"port unreachable", 3, 3, backend.EventConnRefused},
		{"host unreachable", 3, 1, backend.EventUnreachable},
		{"protocol unreachable, ENOPROTOOPT", 3, 2, backend.EventUnreachable},
		{"network unknown to the router", 3, 6, backend.EventUnreachable},
		{"host isolated, ENONET", 3, 8, backend.EventUnreachable},
		{"forbidden by a firewall", 3, 13, backend.EventUnreachable},
		{"time exceeded", 11, 0, backend.EventUnreachable},
		{"parameter problem, EPROTO", 12, 0, backend.EventUnreachable},
		{"fragmentation needed", 3, 4, backend.EventTooBig},
	} {
		d := open(t, h, h.config(8, flow(t, f, to)))
		const rounds = 10
		for range rounds {
			if _, err := raw.Write(icmpError(c.kind, c.code, d.sender.Limits().Sources[0], to.addr)); err != nil {
				t.Fatal(err)
			}
			d.send(4, numbered(0))
			for i, a := range to.take(4) {
				if got := binary.BigEndian.Uint64(a.payload); got != uint64(i) {
					t.Fatalf("%s: packet %d arrived where %d was next", c.about, got, i)
				}
			}
		}
		for deadline := time.Now().Add(patience); d.done.Events[c.event] < rounds && time.Now().Before(deadline); {
			d.reap()
		}
		to.quiet()
		d.exact(4 * rounds)
		want := [backend.NumEvents]uint64{backend.EventPushback: d.done.Events[backend.EventPushback]}
		want[c.event] = rounds
		if d.done.Events != want {
			t.Errorf("%s: events %v, want %v", c.about, d.done.Events, want)
		}
		d.close()
	}
}

// icmpError is an ICMP error about a UDP packet (RFC 792): eight bytes of its own, the packet's IP header and the first eight bytes.
func icmpError(kind, code byte, src, dst netip.AddrPort) []byte {
	b := make([]byte, 8+20+8)
	b[0], b[1] = kind, code
	if kind == 3 && code == 4 {
		binary.BigEndian.PutUint16(b[6:], 1400) // RFC 1191: MTU of the next hop
	}
	ip := b[8:28]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], 36)
	copy(ip[12:], src.Addr().AsSlice())
	copy(ip[16:], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[28:], src.Port())
	binary.BigEndian.PutUint16(b[30:], dst.Port())
	binary.BigEndian.PutUint16(b[32:], 16)
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

func testSources(t *testing.T, h *Harness, p *testnet.Pair) {
	link, err := p.Left.Netlink.LinkByName(p.Left.Interface)
	if err != nil {
		t.Fatal(err)
	}
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	var flows []backend.Flow
	for i := range 3 {
		src := netip.AddrFrom4([4]byte{10, 83, 0, byte(50 + i)})
		if err := p.Left.Netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: src.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
			t.Fatal(err)
		}
		flows = append(flows, backend.Flow{Src: netip.AddrPortFrom(src, 4000), Dst: to.addr}) // one port, different addresses
	}
	d := open(t, h, h.config(8, flows...))
	defer d.close()
	for i := range flows {
		d.send(2, numbered(i))
		for _, a := range to.take(2) {
			if a.from != flows[i].Src {
				t.Fatalf("flow %d arrived from %v, not from %v", i, a.from, flows[i].Src)
			}
		}
	}
	d.exact(2 * len(flows))
}
