package vm

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"blast/internal/testnet"
)

// cardPair is a testnet pair whose veth is replaced by the two cards: each in its namespace, with the veth's addresses. When the test
// ends, the kernel gives the cards back to the first namespace.
func cardPair(t *testing.T, names []string) *testnet.Pair {
	t.Helper()
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Left.Delete() // with its peer
	for i, h := range []*testnet.Host{pair.Left, pair.Right} {
		link, err := netlink.LinkByName(names[i])
		if err != nil {
			t.Fatal(err)
		}
		var ns netns.NsHandle
		h.Do(func() {
			if ns, err = netns.Get(); err != nil {
				t.Fatal(err)
			}
		})
		err = netlink.LinkSetNsFd(link, int(ns))
		_ = ns.Close()
		if err != nil {
			t.Fatal(err)
		}
		if link, err = h.Netlink.LinkByName(names[i]); err != nil {
			t.Fatal(err)
		}
		h.Interface, h.Index, h.MAC = names[i], link.Attrs().Index, link.Attrs().HardwareAddr
		for _, p := range []string{h.IPv4.String(), h.IPv6.String()} {
			addr, err := netlink.ParseAddr(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Netlink.AddrAdd(link, addr); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range []*testnet.Host{pair.Left, pair.Right} {
		carrier(t, h)
	}
	return pair
}

// carrier waits for the link, which igb takes down whenever a program or the queues change.
func carrier(t *testing.T, h *testnet.Host) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		link, err := h.Netlink.LinkByName(h.Interface)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %s after 30 s", h.Interface, link.Attrs().OperState)
		}
	}
}

// echo answers on a port of the host's addresses until the test ends, and returns the number of the port.
func echo(t *testing.T, h *testnet.Host) uint16 {
	t.Helper()
	var conn *net.UDPConn
	h.Do(func() {
		var err error
		if conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: 9000}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // the test's end
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return 9000
}
