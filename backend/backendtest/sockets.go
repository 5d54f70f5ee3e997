package backendtest

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
)

func testRefusedConfigs(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	good := backend.Flow{Dst: to.addr}
	now := func() int64 { return 0 }
	for _, c := range []struct {
		about string
		cfg   backend.Config
	}{
		{"no flows", backend.Config{}},
		{"no destination port", backend.Config{Flows: []backend.Flow{{Dst: netip.AddrPortFrom(f.to, 0)}}}},
		{"no destination", backend.Config{Flows: []backend.Flow{good, {}}}},
		{"address families differ", backend.Config{Flows: []backend.Flow{{Src: netip.MustParseAddrPort("[::1]:0"), Dst: netip.AddrPortFrom(h.To4, 7)}}}},
		{"the same flow twice", backend.Config{Flows: []backend.Flow{
			{Src: netip.AddrPortFrom(f.from, 40001), Dst: to.addr}, {Src: netip.AddrPortFrom(f.from, 40001), Dst: to.addr}}}},
		{"payload below 0", backend.Config{Flows: []backend.Flow{good}, PayloadBytes: -1}},
		{"payload above UDP", backend.Config{Flows: []backend.Flow{good}, PayloadBytes: 65508}},
		{"batch below 0", backend.Config{Flows: []backend.Flow{good}, Batch: -1}},
		{"receiving without a clock", backend.Config{Flows: []backend.Flow{good}, Receive: true}},
		{"receive switches without receiving", backend.Config{Flows: []backend.Flow{good}, GRO: true, Now: now}},
		{"an interface: sockets follow the route", backend.Config{Flows: []backend.Flow{good}, Interface: "lo"}},
		{"a device queue", backend.Config{Flows: []backend.Flow{good}, Queue: 1}},
		{"a switch of AF_XDP", backend.Config{Flows: []backend.Flow{good}, ZeroCopy: true}},
	} {
		s, r, err := h.Open(c.cfg)
		if err != nil || c.cfg.ZeroCopy && h.ZeroCopy {
			if err == nil {
				s.Close()
			}
			continue
		}
		t.Errorf("%s: not refused", c.about)
		s.Close()
		if r != nil {
			r.Close()
		}
	}
}

func testOpenErrors(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	taken := listen(t, h, netip.AddrPortFrom(f.to, 0))
	refuse := func(about string, cfg backend.Config, errno syscall.Errno, words ...string) {
		t.Helper()
		s, _, err := h.Open(cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", about)
			return
		}
		if !errors.Is(err, errno) {
			t.Errorf("%s: %v does not wrap %v", about, err, errno)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", about, err, w)
			}
		}
	}
	foreign := netip.MustParseAddr("192.0.2.77") // TEST-NET-1, RFC 5737
	refuse("foreign source address", h.config(8, backend.Flow{Src: netip.AddrPortFrom(foreign, 0), Dst: to.addr}),
		unix.EADDRNOTAVAIL, "192.0.2.77", "not an address of this host")
	if h.To4 == h.From4 {
		refuse("source port in use", h.config(8, backend.Flow{Src: taken.addr, Dst: to.addr}), unix.EADDRINUSE, "source port", "in use")
	}

	once := flow(t, f, to)
	d := open(t, h, h.config(8, once)) // as another worker or another blast might
	refuse("the same flow in another sender", h.config(8, once), unix.EADDRINUSE, once.Src.String(), "another socket")
	d.close()

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(len(descriptors(t)) + 8)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	flows := make([]backend.Flow, 40)
	for i := range flows {
		flows[i].Dst = to.addr
	}
	refuse("too few open files allowed", h.config(8, flows...), unix.EMFILE, "open files are allowed", "40 flows", "ulimit -n")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

func testFreePorts(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		same := backend.Flow{Dst: to.addr}
		d := open(t, h, h.config(8, same, same, backend.Flow{Src: netip.AddrPortFrom(f.from, 0), Dst: to.addr}))
		sources := d.sender.Limits().Sources
		for flow := range sources {
			d.send(1, numbered(flow))
			if a := to.take(1)[0]; a.from != sources[flow] || a.from.Addr() != f.from {
				t.Errorf("flow %d arrived from %v, and the limits say %v", flow, a.from, sources[flow])
			}
		}
		if len(sources) != 3 || sources[0] == sources[1] || sources[1] == sources[2] || sources[0] == sources[2] {
			t.Errorf("sources %v: every flow has a port of its own", sources)
		}
		d.close()
	}
}

func testSharedPort(t *testing.T, h *Harness) {
	f := h.families()[0]
	one, two := listen(t, h, netip.AddrPortFrom(f.to, 0)), listen(t, h, netip.AddrPortFrom(f.to, 0))
	src := flow(t, f, one).Src
	cfg := h.config(8, backend.Flow{Src: src, Dst: one.addr}, backend.Flow{Src: src, Dst: two.addr})
	d := open(t, h, cfg)
	if !h.SendOnly {
		d.close()
		d = openReceive(t, h, cfg)
	}
	defer d.close()
	for i, to := range []*sink{one, two} {
		d.send(1, numbered(i))
		a := to.take(1)[0]
		if a.from != src {
			t.Fatalf("flow %d came from %v, not from %v", i, a.from, src)
		}
		if d.receive == nil {
			continue
		}
		to.reply(a.payload, a.from)
		if p := d.poll(1)[0]; p.flow != i || p.source != to.addr {
			t.Fatalf("the reply of target %d came to flow %d from %v", i, p.flow, p.source)
		}
	}
	d.exact(2)
	three := listen(t, h, netip.AddrPortFrom(f.to, 0))
	other := open(t, h, h.config(8, backend.Flow{Src: src, Dst: three.addr})) // another worker
	defer other.close()
	other.send(1, numbered(0))
	if a := three.take(1)[0]; a.from != src {
		t.Fatalf("the other sender's packet came from %v, not from %v", a.from, src)
	}
	other.exact(1)
}

func testMixedFamilies(t *testing.T, h *Harness) {
	families := h.families()
	if len(families) < 2 {
		return // a network without IPv6, as its harness says
	}
	var sinks []*sink
	var flows []backend.Flow
	for _, f := range families {
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		sinks = append(sinks, to)
		flows = append(flows, backend.Flow{Dst: to.addr})
	}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(sinks[0].addr.Addr().As16()), sinks[0].addr.Port())
	sinks, flows = append(sinks, sinks[0]), append(flows, backend.Flow{Dst: mapped}) // an IPv4-mapped IPv6 address is IPv4
	d := open(t, h, h.config(8, flows...))
	defer d.close()
	for i, to := range sinks {
		d.send(1, numbered(i))
		if a := to.take(1)[0]; a.from.Addr().Is4() != to.addr.Addr().Is4() {
			t.Fatalf("flow %d arrived from %v", i, a.from)
		}
	}
	d.exact(len(sinks))
}

func testBuffers(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	cfg := h.config(8, backend.Flow{Dst: to.addr})
	cfg.SendBuffer, cfg.ReceiveBuffer = 50_000, 60_000 // below any default limit
	d := open(t, h, cfg)
	defer d.close()
	if l := d.sender.Limits(); l.SendBuffer != 2*cfg.SendBuffer || l.ReceiveBuffer != 2*cfg.ReceiveBuffer {
		t.Fatalf("buffers of %d and %d bytes, the kernel doubles what was asked for: %d and %d",
			l.SendBuffer, l.ReceiveBuffer, cfg.SendBuffer, cfg.ReceiveBuffer)
	}
}

// vacant is an address on which nobody listens.
func vacant(t *testing.T, h *Harness, f family) netip.AddrPort {
	t.Helper()
	s := listen(t, h, netip.AddrPortFrom(f.to, 0))
	if err := s.conn.Close(); err != nil {
		t.Fatal(err)
	}
	return s.addr
}

func testClosedPort(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		t.Run(f.name, func(t *testing.T) {
			h.Do(func() {
				cfg := h.config(8, backend.Flow{Dst: vacant(t, h, f)}, backend.Flow{Dst: vacant(t, h, f)})
				d := open(t, h, cfg)
				if !h.SendOnly {
					d.close()
					d = openReceive(t, h, cfg) // whose thread may meet the errors first
				}
				defer d.close()
				const packets = 300
				for i := range packets {
					d.send(1+i%3, numbered(i/10%2))
					if d.receive != nil && i%5 == 0 {
						if n, err := d.receive.Poll(0, func(*backend.Packet) {}); n != 0 || err != nil {
							t.Fatalf("poll: %d, %v", n, err)
						}
					}
				}
				for deadline := time.Now().Add(patience); d.done.Events[backend.EventConnRefused] == 0; d.reap() {
					if time.Now().After(deadline) {
						t.Fatalf("no refused connection among the events %v", d.done.Events)
					}
				}
				d.exact(2 * packets)
				if got := d.done.Events[backend.EventConnRefused]; got > 2*packets {
					t.Fatalf("%d refused connections of %d packets", got, 2*packets)
				}
			})
		})
	}
}

// testLastError is about the ICMP error that no later send brings to light.
func testLastError(t *testing.T, h *Harness) {
	f := h.families()[0]
	flows := make([]backend.Flow, 40) // more than one look takes in
	for i := range flows {
		flows[i].Dst = vacant(t, h, f)
	}
	d := open(t, h, h.config(8, flows...))
	defer d.close()
	d.send(len(flows), func(i int, slot *backend.Slot) { numbered(i)(i, slot) })
	for deadline := time.Now().Add(patience); d.done.Events[backend.EventConnRefused] < uint64(len(flows)); d.reap() {
		if time.Now().After(deadline) {
			t.Fatalf("%d closed ports, events %v", len(flows), d.done.Events)
		}
	}
	d.exact(len(flows))
}

// testErrorWakes is about a waiting receiver: an ICMP error may end one wait, and not every wait from then on.
func testErrorWakes(t *testing.T, h *Harness) {
	f := h.families()[0]
	for _, n := range []int{1, 3} { // one socket may be waited for in another way than several
		flows := make([]backend.Flow, n)
		for i := range flows {
			flows[i].Dst = vacant(t, h, f)
		}
		d := openReceive(t, h, h.config(8, flows...))
		for i := range flows {
			slots := d.sender.Reserve(1)
			numbered(i)(0, &slots[0])
			if accepted, err := d.sender.Commit(1); accepted != 1 || err != nil {
				t.Fatalf("%d, %v", accepted, err)
			}
		}
		const wait, polls = 20 * time.Millisecond, 20
		start := time.Now()
		for range polls { // and no Reap
			if k, err := d.receive.Poll(wait, func(*backend.Packet) {}); k != 0 || err != nil {
				t.Fatalf("poll: %d, %v", k, err)
			}
		}
		if took := time.Since(start); took < wait*polls/2 {
			t.Fatalf("%d flows: %d polls of %v took %v altogether: an old error ends them", n, polls, wait, took)
		}
		for deadline := time.Now().Add(patience); d.done.Events[backend.EventConnRefused] < uint64(n); d.reap() {
			if time.Now().After(deadline) {
				t.Fatalf("%d closed ports, events %v", n, d.done.Events)
			}
		}
		d.close()
	}
}

func testLateTarget(t *testing.T, h *Harness) {
	f := h.families()[0]
	addr := vacant(t, h, f)
	d := open(t, h, h.config(8, backend.Flow{Dst: addr}))
	defer d.close()
	d.send(50, numbered(0))
	d.settle()
	to := listen(t, h, addr)
	const second = 1000
	d.send(40, func(i int, slot *backend.Slot) { numbered(0)(second+i, slot) })
	for next := uint64(second); next < second+40; {
		got := binary.BigEndian.Uint64(to.take(1)[0].payload)
		if got < 50 && next == second {
			continue // of the first ones, which a network card may still have had when the target appeared
		}
		if got != next {
			t.Fatalf("packet %d arrived where %d was next: an old error swallowed one", got, next)
		}
		next++
	}
	to.quiet()
	d.exact(90)
}

func testOverflow(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	cfg := h.config(8, flow(t, f, to), flow(t, f, to))
	cfg.ReceiveBuffer = 1 // the kernel makes it SOCK_MIN_RCVBUF, room for a packet or two
	d := openReceive(t, h, cfg)
	defer d.close()
	d.send(1, numbered(0))
	d.send(1, numbered(1))
	const replies = 500
	for _, a := range to.take(2) {
		for range replies {
			to.reply(a.payload, a.from)
		}
	}
	got := uint64(0)
	for deadline := time.Now().Add(patience); got+d.receive.Drops() < 2*replies; {
		n, err := d.receive.Poll(10*time.Millisecond, func(*backend.Packet) {})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d replies came and %d were dropped, of %d: %v", got, d.receive.Drops(), 2*replies, err)
		}
		got += uint64(n)
	}
	drops := d.receive.Drops()
	if drops == 0 || got == 0 || got+drops != 2*replies {
		t.Fatalf("%d replies came and %d were dropped, of %d", got, drops, 2*replies)
	}
	d.close()
	if d.receive.Drops() != drops {
		t.Fatalf("%d drops after Close, %d before", d.receive.Drops(), drops)
	}
}

func testManyFlows(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	flows := make([]backend.Flow, 1000)
	for i := range flows {
		flows[i].Dst = to.addr
	}
	cfg := h.config(8, flows...)
	cfg.ReceiveBuffer = 1 << 16
	d := openReceive(t, h, cfg)
	defer d.close()
	seen := make([]bool, len(flows))
	for at := 0; at < len(flows); at += 40 {
		d.send(40, func(i int, slot *backend.Slot) { numbered(at+i)(at+i, slot) })
		for _, a := range to.take(40) {
			to.reply(a.payload, a.from)
		}
		for _, p := range d.poll(40) {
			if got := binary.BigEndian.Uint64(p.payload); got != uint64(p.flow) || seen[p.flow] {
				t.Fatalf("the reply to packet %d came to flow %d", got, p.flow)
			}
			seen[p.flow] = true
		}
	}
	d.exact(len(flows))
}
