package xdp_test

import (
	"net/netip"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/xdp"
)

// TestKernelSteer: packets to a port that belongs to one queue go to that queue's socket, and to the kernel when they arrive on
// another, though a socket holds that one too. Frames sent on a queue of a veth arrive on the peer's queue of the same number.
func TestKernelSteer(t *testing.T) {
	const packets = 40
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	ordinary := p.Left.ListenUDP(netip.AddrPortFrom(p.Left.IPv4.Addr(), 0))
	port := ordinary.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	var socks [2]*xdp.Socket
	p.Left.Do(func() {
		d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if err := d.SteerPorts(2, port); err == nil {
			t.Error("a queue that does not exist was taken")
		}
		if err := d.SteerPorts(1, port); err != nil {
			t.Fatal(err)
		}
		for q := range socks {
			if socks[q], err = d.Open(xdp.SocketConfig{Queue: q}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = socks[q].Close() })
		}
	})
	from := flow(t, netip.AddrPortFrom(p.Right.IPv4.Addr(), theirPort), netip.AddrPortFrom(p.Left.IPv4.Addr(), port), p.Right.MAC, p.Left.MAC, 0)
	p.Right.Do(func() {
		d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Right.Interface})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for q := range socks {
			s, err := d.Open(xdp.SocketConfig{Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			for i := range packets {
				f := s.Reserve(1)[0]
				f.Len = copy(f.Data, from.frame([]byte{byte(q), byte(i)}))
				if _, err := s.Commit(1); err != nil {
					t.Fatal(err)
				}
			}
			for s.Outstanding() > 0 {
				if _, err := s.Reap(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	got := 0
	for end := time.Now().Add(10 * time.Second); got < packets && time.Now().Before(end); {
		if _, err := socks[1].Wait(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for _, frame := range socks[1].Receive(64) {
			if frame[42] != 1 {
				t.Fatalf("a packet that was sent on queue %d", frame[42])
			}
			got++
		}
	}
	if n := len(socks[0].Receive(64)); n != 0 || got != packets {
		t.Errorf("%d packets on queue 0, %d on queue 1; want 0 and %d", n, got, packets)
	}
	buf := make([]byte, 100)
	for i := range packets {
		if err := ordinary.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := ordinary.Read(buf); err != nil || buf[0] != 0 || buf[1] != byte(i) {
			t.Fatalf("packet %d of queue 0: %v, %v", i, buf[:2], err)
		}
	}
	// A socket that waits is woken by the other descriptor.
	right := p.Right.ListenUDP(netip.AddrPortFrom(p.Right.IPv4.Addr(), 0))
	other := p.Left.ListenUDP(netip.AddrPortFrom(p.Left.IPv4.Addr(), 0))
	conn, err := other.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := right.WriteTo([]byte{1}, other.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	_ = conn.Control(func(fd uintptr) {
		start := time.Now()
		if here, err := socks[0].WaitAlso(30*time.Second, int(fd)); here || err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("waited %v: %v, %v", time.Since(start), here, err)
		}
	})
}
