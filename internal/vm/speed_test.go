package vm

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/backend/mmsg"
	"blast/internal/testnet"
	"blast/packet"
	"blast/xdp"
)

// payload makes the shortest frames.
const payload = 18

// testSpeed compares ways to send in turns: AF_XDP without copies, with them, and sendmmsg. Only the order and its distance mean anything
// on emulated processors.
func testSpeed(t *testing.T, pair *testnet.Pair) {
	const packets = 20000
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9001)
	sink := pair.Right.ListenUDP(to) // unread: what is over is dropped there, and no ICMP error comes back
	defer sink.Close()
	backendOf := func(open backend.Open, cfg backend.Config, zeroCopy bool) float64 {
		cfg.PayloadBytes, cfg.Flows, cfg.Batch = payload, []backend.Flow{{Dst: to}}, 64
		s, _, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := s.Limits(); got.ZeroCopy != zeroCopy {
			t.Errorf("zero copy %t, want %t: %s %v", got.ZeroCopy, zeroCopy, got.Mode, got.Notes)
		}
		async := s.Limits().Async
		sent, done, begin := 0, uint64(0), time.Now()
		for sent < packets || async && done < packets {
			slots := s.Reserve(packets - sent)
			for i := range slots {
				slots[i].Len, slots[i].Flow = payload, 0
			}
			n, err := s.Commit(len(slots))
			if err != nil {
				t.Fatal(err)
			}
			sent += n
			c := s.Reap()
			done += c.Sent + c.Dropped
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d of %d sent after a minute", done, packets)
			}
		}
		return packets / time.Since(begin).Seconds()
	}
	ways := []struct {
		name string
		run  func() float64
	}{
		{"AF_XDP, zero-copy", func() float64 {
			return backendOf(afxdp.Open, backend.Config{ZeroCopy: true, Interface: pair.Left.Interface}, true)
		}},
		{"AF_XDP, copy", func() float64 { return copying(t, pair, packets) }},
		{"sendmmsg", func() float64 { return backendOf(mmsg.Open, backend.Config{}, false) }},
	}
	const rounds = 3
	rates := make([][]float64, len(ways))
	for range rounds {
		for i, w := range ways {
			pair.Left.Do(func() {
				runtime.LockOSThread()
				rates[i] = append(rates[i], w.run())
			})
			carrier(t, pair.Left)
		}
	}
	var medians []float64
	for i, w := range ways {
		slices.Sort(rates[i])
		medians = append(medians, rates[i][rounds/2])
		t.Logf("%s: %.0f packets/s (%.0f), zero-copy is %.2f times as fast", w.name, rates[i][rounds/2], rates[i], medians[0]/medians[i])
	}
	for i, w := range ways[1:] {
		if medians[0] < 1.2*medians[i+1] {
			t.Errorf("zero-copy is only %.2f times as fast as %s", medians[0]/medians[i+1], w.name)
		}
	}
}

// copying sends the same packets over an AF_XDP socket that copies.
func copying(t *testing.T, pair *testnet.Pair, packets int) float64 {
	d, err := xdp.Open(xdp.DeviceConfig{Interface: pair.Left.Interface, Mode: xdp.Generic})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := d.Open(xdp.SocketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	flow, err := packet.NewFlow(packet.Headers{
		SrcMAC: packet.MAC(pair.Left.MAC), DstMAC: packet.MAC(pair.Right.MAC),
		Src: netip.AddrPortFrom(pair.Left.IPv4.Addr(), 9002), Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9001),
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for sent := 0; sent < packets || s.Outstanding() > 0; {
		frames := s.Reserve(min(64, packets-sent))
		for _, f := range frames {
			f.Len = flow.Write(f.Data, payload)
		}
		n, err := s.Commit(len(frames))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		if _, err := s.Reap(); err != nil {
			t.Fatal(err)
		}
	}
	return float64(packets) / time.Since(begin).Seconds()
}
