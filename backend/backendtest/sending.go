package backendtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"blast/backend"
)

// numbered fills a slot with its number and nothing else.
func numbered(flow int) func(int, *backend.Slot) {
	return func(i int, slot *backend.Slot) {
		binary.BigEndian.PutUint64(slot.Payload, uint64(i))
		slot.Len, slot.Flow = 8, flow
	}
}

func testCounts(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		t.Run(f.name, func(t *testing.T) {
			h.Do(func() {
				to := listen(t, h, netip.AddrPortFrom(f.to, 0))
				d := open(t, h, h.config(8, flow(t, f, to)))
				defer d.close()
				const packets = 5000
				for at := 0; at < packets; {
					n := min(window(8), packets-at)
					d.send(n, func(i int, slot *backend.Slot) { numbered(0)(at+i, slot) })
					for i, a := range to.take(n) {
						if got := binary.BigEndian.Uint64(a.payload); got != uint64(at+i) {
							t.Fatalf("packet %d arrived where %d was next", got, at+i)
						}
					}
					at += n
				}
				to.quiet()
				d.exact(packets)
			})
		})
	}
}

func testSizes(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		probe := open(t, h, h.config(0, flow(t, f, to)))
		largest := probe.sender.Limits().PayloadBytes
		probe.close()
		for _, size := range []int{0, 1, 18, 1400, largest} {
			t.Run(fmt.Sprintf("%s/%d", f.name, size), func(t *testing.T) {
				h.Do(func() { oneSize(t, h, f, to, size) })
			})
		}
		t.Run(f.name+"/mixed", func(t *testing.T) { h.Do(func() { mixedSizes(t, h, f, to) }) })
	}
}

func oneSize(t *testing.T, h *Harness, f family, to *sink, size int) {
	d := open(t, h, h.config(size, flow(t, f, to)))
	defer d.close()
	if got := d.sender.Limits().PayloadBytes; got < size {
		t.Fatalf("opened for %d bytes, and the limit is %d", size, got)
	}
	const rounds = 3
	n := window(size)
	for round := range rounds {
		d.send(n, func(i int, slot *backend.Slot) {
			if len(slot.Payload) != size {
				t.Fatalf("slot of %d bytes, %d asked for", len(slot.Payload), size)
			}
			pattern(slot.Payload, round*n+i)
			slot.Len, slot.Flow = size, 0
		})
		for i, a := range to.take(n) {
			if len(a.payload) != size {
				t.Fatalf("%d bytes arrived, %d sent", len(a.payload), size)
			}
			if err := checkPattern(a.payload, round*n+i); err != nil {
				t.Fatal(err)
			}
		}
	}
	to.quiet()
	d.exact(rounds * n)
}

// mixedSizes is about trains above all: which lengths may share one, and what ends it.
func mixedSizes(t *testing.T, h *Harness, f family, to *sink) {
	d := open(t, h, h.config(100, flow(t, f, to)))
	defer d.close()
	lengths := []int{100, 100, 100, 40, 40, 40, 41, 39, 39, 0, 0, 50, 100, 1, 1, 2, 0, 100, 100, 99, 100, 7}
	d.send(len(lengths), func(i int, slot *backend.Slot) {
		slot.Len, slot.Flow = lengths[i], 0
		pattern(slot.Payload[:slot.Len], i)
	})
	for i, a := range to.take(len(lengths)) {
		if len(a.payload) != lengths[i] {
			t.Fatalf("packet %d: %d bytes arrived, %d sent", i, len(a.payload), lengths[i])
		}
		if err := checkPattern(a.payload, i); err != nil {
			t.Fatal(err)
		}
	}
	to.quiet()
	d.exact(len(lengths))
}

func testReserve(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := open(t, h, h.config(16, flow(t, f, to)))
	defer d.close()
	s := d.sender
	if n := len(s.Reserve(0)); n != 0 {
		t.Fatalf("reserve of 0 slots returned %d", n)
	}
	first := s.Reserve(8)
	if len(first) != 8 {
		t.Fatalf("an idle sender reserved %d of 8 slots", len(first))
	}
	for i := range first {
		pattern(first[i].Payload, i)
		first[i].Len, first[i].Flow = 16, 0
	}
	for _, n := range []int{8, 4, 8} {
		again := s.Reserve(n)
		if len(again) != n {
			t.Fatalf("reserved again: %d of %d slots", len(again), n)
		}
		for i := range again {
			if &again[i].Payload[0] != &first[i].Payload[0] || again[i].Len != 16 {
				t.Fatalf("reserved again: slot %d is not the same", i)
			}
		}
	}
	if n, err := s.Commit(3); n != 3 || err != nil {
		t.Fatalf("commit of 3 of 8: %d, %v", n, err)
	}
	if n, err := s.Commit(0); n != 0 || err != nil {
		t.Fatalf("commit of nothing: %d, %v", n, err)
	}
	d.accepted += 3
	d.send(2, func(i int, slot *backend.Slot) {
		pattern(slot.Payload, 3+i)
		slot.Len, slot.Flow = 16, 0
	})
	for i, a := range to.take(5) {
		if err := checkPattern(a.payload, i); err != nil {
			t.Fatal(err)
		}
	}
	to.quiet() // the five slots given back were not sent
	d.exact(5)
}

func testBatch(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	for _, batch := range []int{0, 1, 7} {
		cfg := h.config(8, flow(t, f, to))
		cfg.Batch = batch
		d := open(t, h, cfg)
		limit := d.sender.Limits().Batch
		if limit < 1 || batch > 0 && limit > batch {
			t.Fatalf("batch of %d asked for, limit %d", batch, limit)
		}
		if n := len(d.sender.Reserve(1 << 20)); n != limit {
			t.Fatalf("an idle sender reserved %d slots, its limit is %d", n, limit)
		}
		const packets = 40
		d.send(packets, numbered(0))
		to.take(packets)
		to.quiet()
		d.exact(packets)
		d.close()
	}
}

func testFlows(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		t.Run(f.name, func(t *testing.T) {
			h.Do(func() { manySinks(t, h, f) })
		})
	}
}

// manySinks sends over twelve flows to three sinks in runs of different lengths and looks at who got what from where.
func manySinks(t *testing.T, h *Harness, f family) {
	sinks := make([]*sink, 3)
	for i := range sinks {
		sinks[i] = listen(t, h, netip.AddrPortFrom(f.to, 0))
	}
	var flows []backend.Flow
	for i, port := range ports(t, f.from, 12) {
		flows = append(flows, backend.Flow{Src: netip.AddrPortFrom(f.from, port), Dst: sinks[i%len(sinks)].addr})
	}
	d := open(t, h, h.config(16, flows...))
	defer d.close()
	if sources := d.sender.Limits().Sources; len(sources) != len(flows) {
		t.Fatalf("sources %v of %d flows", sources, len(flows))
	}
	for i, src := range d.sender.Limits().Sources {
		if src != flows[i].Src {
			t.Fatalf("flow %d sends from %v, not from %v", i, src, flows[i].Src)
		}
	}
	sent, seen := make([]uint64, len(flows)), make([]uint64, len(flows))
	const packets = 400
	for at, k := 0, 0; at < packets; k++ {
		n := min(1+k%5, packets-at) // a run of one flow
		flow := k * 7 % len(flows)
		d.send(n, func(i int, slot *backend.Slot) {
			binary.BigEndian.PutUint64(slot.Payload, uint64(flow))
			binary.BigEndian.PutUint64(slot.Payload[8:], sent[flow]+uint64(i))
			slot.Len, slot.Flow = 16, flow
		})
		sent[flow] += uint64(n)
		at += n
		if k%8 != 7 && at < packets {
			continue
		}
		for i := range sinks {
			due := 0
			for j := i; j < len(flows); j += len(sinks) {
				due += int(sent[j] - seen[j])
			}
			for _, a := range sinks[i].take(due) {
				flow, number := binary.BigEndian.Uint64(a.payload), binary.BigEndian.Uint64(a.payload[8:])
				if int(flow)%len(sinks) != i || a.from != flows[flow].Src || number != seen[flow] {
					t.Fatalf("sink %d: packet %d of flow %d from %v; want packet %d from %v", i, number, flow, a.from, seen[flow], flows[flow].Src)
				}
				seen[flow]++
			}
		}
	}
	for _, s := range sinks {
		s.quiet()
	}
	d.exact(packets)
}

// testFlatOut gives a backend no rest: what it accepted arrived or was dropped by the sink, and nothing came twice.
func testFlatOut(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := open(t, h, h.config(8, flow(t, f, to)))
	defer d.close()
	const packets = 20_000
	d.send(packets, numbered(0))
	sent := d.settle()
	seen := make([]bool, packets)
	got := uint64(0)
	for last := uint64(0); ; got++ {
		a, ok := to.next(100 * 1e6)
		if !ok {
			break
		}
		n := binary.BigEndian.Uint64(a.payload)
		if seen[n] || got > 0 && n < last {
			t.Fatalf("packet %d twice or after packet %d", n, last)
		}
		seen[n], last = true, n
	}
	refused := uint64(0)
	for _, n := range d.refused {
		refused += n
	}
	if d.accepted+refused != packets {
		t.Fatalf("%d accepted and %d refused are not %d", d.accepted, refused, packets)
	}
	if got+uint64(to.drops()) > sent || got == 0 {
		t.Fatalf("%d sent, but %d arrived and %d were dropped by the sink", sent, got, to.drops())
	}
	if h.Sockets && got+uint64(to.drops()) != sent && h.To4.IsLoopback() {
		t.Fatalf("%d sent over loopback: %d arrived, %d dropped by the sink, the rest is missing", sent, got, to.drops())
	}
}

func testClose(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	flows := []backend.Flow{flow(t, f, to), flow(t, f, to)}
	use := func() {
		cfg := h.config(8, flows...)
		d := open(t, h, cfg)
		if !h.SendOnly {
			d.close()
			d = openReceive(t, h, cfg)
		}
		d.send(3, numbered(0))
		to.take(3)
		d.exact(3)
		for range 2 {
			d.close()
		}
		if n := len(d.sender.Reserve(1)); n != 0 {
			t.Errorf("reserved %d slots of a closed sender", n)
		}
		if n, err := d.sender.Commit(0); n != 0 || err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("commit on a closed sender: %d, %v", n, err)
		}
		if d.receive != nil {
			if n, err := d.receive.Poll(0, func(*backend.Packet) {}); n != 0 || !errors.Is(err, os.ErrClosed) {
				t.Errorf("poll on a closed receiver: %d, %v; want os.ErrClosed", n, err)
			}
			d.receive.Drops()
		}
		d.sender.Limits()
		bad := cfg
		bad.Flows = append(slices.Clone(flows), backend.Flow{}) // the last one cannot be had
		if _, _, err := h.Open(bad); err == nil {
			t.Error("a flow without a destination was opened")
		}
	}
	use() // whatever is made once is made here
	routines := goleak.IgnoreCurrent()
	before := descriptors(t)
	for range 3 {
		use()
	}
	if after := descriptors(t); len(after) != len(before) {
		t.Errorf("open files before %v, after %v", before, after)
	}
	if err := goleak.Find(routines); err != nil {
		t.Error(err)
	}
}

// descriptors are the open files of this process.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil { // not the one that ReadDir itself used
			names = append(names, e.Name()+" "+target)
		}
	}
	return names
}

func testSendAllocs(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0)) // bound and not read
	cfg := h.config(32, flow(t, f, to), flow(t, f, to))
	d := open(t, h, cfg)
	defer d.close()
	s := d.sender
	failed := error(nil)
	allocs := testing.AllocsPerRun(50, func() {
		slots := s.Reserve(64)
		for i := range slots {
			slots[i].Len, slots[i].Flow = 32, i/16%2
		}
		if _, err := s.Commit(len(slots)); err != nil {
			failed = err
		}
		s.Reap()
	})
	var cause backend.Cause
	if failed != nil && !errors.As(failed, &cause) {
		t.Fatal(failed)
	}
	if allocs != 0 {
		t.Fatalf("%v allocations per batch", allocs)
	}
}
