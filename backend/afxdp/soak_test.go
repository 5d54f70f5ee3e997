package afxdp

import (
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"blast/backend"
	"blast/internal/testnet"
	"blast/xdp/live"
)

// soakPackets is how long soaks are: 2 million packets, or what BLAST_SOAK_PACKETS says (100000000 for the long one). Rings of 2048 wrap
// 977 times in the short one; the wrap of their 32-bit indices is tested in package xdp, on a fake kernel.
func soakPackets(t *testing.T) int {
	text := os.Getenv("BLAST_SOAK_PACKETS")
	if text == "" {
		return 2_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("BLAST_SOAK_PACKETS=%q: want a number of packets", text)
	}
	return n
}

// mallocs is the number of objects ever allocated by this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// TestKernelSoak: flat out for long, no frame is lost from the books: each accepted slot was sent or dropped, and what was sent arrived.
// Nothing is allocated on the way.
func TestKernelSoak(t *testing.T) {
	packets := soakPackets(t)
	p, to := dropping(t, 1)
	counter := p.Right.Statistics().RxPackets
	do(p, func() {
		w := open(t, Open, backend.Config{PayloadBytes: benchPayload, Flows: []backend.Flow{{Dst: to}, {Dst: to}, {Dst: to}}})
		fill := func(_ int, slot *backend.Slot) { slot.Flow, slot.Len = int(w.accepted%3), benchPayload }
		w.offer(0, 64, fill)
		w.reap()
		before := mallocs()
		for int(w.accepted) < packets {
			w.offer(0, min(64, packets-int(w.accepted)), fill)
			w.reap()
			if w.err != nil {
				t.Fatal(w.err)
			}
		}
		allocated := mallocs() - before
		w.settle()
		if allocated > 100+uint64(packets)/100_000 { // those of the runtime, and of confirming next hops twice a minute
			t.Errorf("%d allocations", allocated)
		}
		if w.told.Sent+w.told.Dropped != uint64(packets) || w.refused != [backend.NumCauses]uint64{} {
			t.Errorf("%d packets: %+v, refused %v", packets, w.told, w.refused)
		}
		arrived := p.Right.Statistics().RxPackets - counter
		t.Logf("%d sent, %d dropped by the kernel, %d came to the other interface, %d allocations", w.told.Sent, w.told.Dropped, arrived, allocated)
		if arrived < w.told.Sent {
			t.Errorf("%d sent, %d arrived", w.told.Sent, arrived)
		}
	})
}

// TestKernelSoakEcho: round trips without a pause by a target inside the kernel, 256 in flight. Every packet comes back once, to its flow.
func TestKernelSoakEcho(t *testing.T) {
	need(t)
	const flows, window = 4, 256
	packets := soakPackets(t) / 4
	p := testnet.NewPair(t, testnet.Config{})
	to := netip.AddrPortFrom(p.Right.IPv4.Addr(), 4706)
	p.Right.Do(func() {
		i, err := live.Inspect(p.Right.Interface)
		if err != nil {
			t.Fatal(err)
		}
		target, err := live.NewTarget(i, live.TargetConfig{Echo: true, Allow: []netip.Prefix{p.Right.IPv4.Masked()}, Endpoints: []netip.AddrPort{to}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = target.Close() })
	})
	do(p, func() {
		cfg := backend.Config{PayloadBytes: 16, Receive: true}
		for range flows {
			cfg.Flows = append(cfg.Flows, backend.Flow{Dst: to})
		}
		w := open(t, Open, cfg)
		seen := make([]bool, packets)
		got, sent := 0, 0
		take := func(r *backend.Packet) {
			n := int(r.Payload[0]) | int(r.Payload[1])<<8 | int(r.Payload[2])<<16 | int(r.Payload[3])<<24
			if n >= packets || seen[n] || n%flows != r.Flow || r.Source != to {
				t.Fatalf("reply %d on flow %d from %v, seen before: %v", n, r.Flow, r.Source, n < packets && seen[n])
			}
			seen[n] = true
			got++
		}
		fill := func(i int, slot *backend.Slot) {
			slot.Flow, slot.Len = i%flows, 16
			slot.Payload[0], slot.Payload[1], slot.Payload[2], slot.Payload[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
		}
		before := mallocs()
		for last := time.Now(); got < packets; {
			if n := min(packets, got+window); sent < n {
				sent += w.offer(sent, n, fill)
			}
			w.reap()
			n, err := w.r.Poll(0, take)
			if w.err != nil || err != nil {
				t.Fatal(w.err, err)
			}
			if n > 0 {
				last = time.Now()
			} else if time.Since(last) > patience {
				t.Fatalf("%d of %d replies to %d packets, %d drops; %+v", got, packets, sent, w.r.Drops(), w.told)
			}
		}
		allocated := mallocs() - before
		w.settle()
		if allocated > 100+uint64(packets)/100_000 || w.r.Drops() != 0 || w.told.Sent != uint64(packets) {
			t.Errorf("%d allocations, %d drops, %+v", allocated, w.r.Drops(), w.told)
		}
		t.Logf("%d round trips, %d allocations; %q", got, allocated, w.s.Limits().Notes)
	})
}
