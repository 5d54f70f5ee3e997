package testnet_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"blast/internal/testnet"
)

// TestKernelPair proves that ordinary sockets talk across the pair: both families, with and without a VLAN.
func TestKernelPair(t *testing.T) {
	for _, c := range []struct {
		name string
		vlan int
		addr func(h *testnet.Host) netip.Prefix
	}{
		{"IPv4 across the pair", 0, func(h *testnet.Host) netip.Prefix { return h.IPv4 }},
		{"IPv6 across the pair", 0, func(h *testnet.Host) netip.Prefix { return h.IPv6 }},
		{"IPv4 inside the VLAN", 83, func(h *testnet.Host) netip.Prefix { return h.VLAN.IPv4 }},
		{"IPv6 inside the VLAN", 83, func(h *testnet.Host) netip.Prefix { return h.VLAN.IPv6 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{Queues: 2, VLAN: c.vlan})
			l := p.Left.ListenUDP(netip.AddrPortFrom(c.addr(p.Left).Addr(), 0))
			r := p.Right.ListenUDP(netip.AddrPortFrom(c.addr(p.Right).Addr(), 0))
			if _, err := l.WriteToUDPAddrPort([]byte("hello"), r.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort()); err != nil {
				t.Fatal(err)
			}
			_ = r.SetReadDeadline(time.Now().Add(5 * time.Second))
			buf := make([]byte, 16)
			n, from, err := r.ReadFromUDPAddrPort(buf)
			if err != nil || string(buf[:n]) != "hello" || from.Addr().Unmap() != c.addr(p.Left).Addr() {
				t.Fatalf("got %q from %s, %v", buf[:n], from, err)
			}
		})
	}
}

// TestKernelCount proves that the counting program drops and counts what it was asked to, and only that.
func TestKernelCount(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  testnet.CountConfig
	}{
		{"native mode", testnet.CountConfig{Action: testnet.Drop, Port: 9}},
		{"generic mode", testnet.CountConfig{Action: testnet.Drop, Port: 9, Generic: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{Queues: 2})
			counter := p.Right.Count(c.cfg)
			for _, pair := range [][2]netip.Prefix{{p.Left.IPv4, p.Right.IPv4}, {p.Left.IPv6, p.Right.IPv6}} {
				l := p.Left.ListenUDP(netip.AddrPortFrom(pair[0].Addr(), 0))
				r := p.Right.ListenUDP(netip.AddrPortFrom(pair[1].Addr(), 10))
				for _, port := range []uint16{9, 10} {
					for range 5 {
						if _, err := l.WriteToUDPAddrPort(make([]byte, 18), netip.AddrPortFrom(pair[1].Addr(), port)); err != nil {
							t.Fatal(err)
						}
					}
				}
				_ = r.SetReadDeadline(time.Now().Add(5 * time.Second))
				for range 5 {
					if _, err := r.Read(make([]byte, 64)); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := testnet.Count{Frames: 10, Bytes: 5*60 + 5*80}
			if got := counter.Total(); got != want {
				t.Fatalf("counted %+v, want %+v", got, want)
			}
		})
	}
}

// TestKernelDoRestores proves that a namespace does not leak into other threads, not even when the function panics.
func TestKernelDoRestores(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	p.Left.Do(func() { seen, _ = os.Readlink("/proc/thread-self/ns/net") })
	if seen == home || seen == "" {
		t.Fatalf("inside Do the namespace is %q, outside %q", seen, home)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		p.Left.Do(func() { panic("in the namespace") })
	}()
	for range 20 {
		done := make(chan string)
		go func() {
			now, _ := os.Readlink("/proc/thread-self/ns/net")
			done <- now
		}()
		if now := <-done; now != home {
			t.Fatalf("a thread stayed in %s", now)
		}
	}
	if now, _ := os.Readlink("/proc/self/ns/net"); now != home {
		t.Fatalf("the main thread stayed in %s", now)
	}
}

// TestKernelNothingLeft proves that neither interface is ever visible on the host.
func TestKernelNothingLeft(t *testing.T) {
	t.Run("pair", func(t *testing.T) { testnet.NewPair(t, testnet.Config{Lossless: true}) })
	for _, name := range []string{"left0", "right0"} {
		if _, err := netlink.LinkByName(name); err == nil {
			t.Errorf("%s is left on the host", name)
		}
	}
}
