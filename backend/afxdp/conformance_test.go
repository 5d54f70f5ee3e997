package afxdp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/testnet"
	"blast/internal/testskip"
)

// need skips the test where AF_XDP does not work.
func need(t testing.TB) {
	t.Helper()
	testskip.XDP(t, Probe())
}

// TestKernelConformance runs the suite over veth pairs of one and two queues, on either queue: with two, the target's kernel sends about
// half of the replies to the queue that is not the worker's.
func TestKernelConformance(t *testing.T) {
	need(t)
	for _, c := range []struct{ queues, queue int }{{1, 0}, {2, 0}, {2, 1}} {
		t.Run(fmt.Sprintf("queue %d of %d", c.queue, c.queues), func(t *testing.T) {
			pair := testnet.NewPair(t, testnet.Config{Queues: c.queues})
			h := backendtest.Harness{Open: Open, Config: backend.Config{Queue: c.queue, Interface: pair.Left.Interface}}
			backendtest.Run(t, backendtest.OnPair(h, pair))
		})
	}
}

// TestKernelConformanceLoopback runs the suite over ::1 of a namespace of its own; the host's lo is left alone.
func TestKernelConformanceLoopback(t *testing.T) {
	need(t)
	pair := testnet.NewPair(t, testnet.Config{})
	self := netip.IPv6Loopback()
	h := backendtest.OnPair(backendtest.Harness{Open: Open}, pair)
	h.From4, h.To4, h.OnlyIPv4 = self, self, true // the suite's only family
	h.Listen = func(addr netip.AddrPort) (c *net.UDPConn, err error) {
		pair.Left.Do(func() { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)) })
		return c, err
	}
	backendtest.Run(t, h)
}
