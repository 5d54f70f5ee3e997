package afxdp

import (
	"net/netip"
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/testnet"
	"blast/packet"
	"blast/xdp"
)

const (
	benchPayload = 18 // a minimum frame
	benchPort    = 4704
)

// dropping is a pair whose right end drops what comes to benchPort. Its left end is entered by the calling test for good.
func dropping(tb testing.TB, queues int) (p *testnet.Pair, to netip.AddrPort) {
	tb.Helper()
	need(tb)
	p = testnet.NewPair(tb, testnet.Config{Queues: queues})
	p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: benchPort})
	return p, netip.AddrPortFrom(p.Right.IPv4.Addr(), benchPort)
}

// bare is a loop around an AF_XDP socket with nothing in it that could be left out: finished frames, 64 a kick.
func bare(tb testing.TB, p *testnet.Pair, queue int) func(n int) {
	tb.Helper()
	d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := d.Open(xdp.SocketConfig{Queue: queue})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close(); _ = s.Close() })
	flow, err := packet.NewFlow(packet.Headers{SrcMAC: packet.MAC(p.Left.MAC), DstMAC: packet.MAC(p.Right.MAC),
		Src: netip.AddrPortFrom(p.Left.IPv4.Addr(), benchPort), Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), benchPort)})
	if err != nil {
		tb.Fatal(err)
	}
	frames := s.Frames()
	for i := range frames {
		frames[i].Len = flow.Write(frames[i].Data, benchPayload)
	}
	return func(n int) {
		for n > 0 {
			sent, err := s.Commit(len(s.Reserve(min(n, 64))))
			if err == nil {
				_, err = s.Reap()
			}
			if err != nil {
				tb.Fatal(err)
			}
			n -= sent
		}
	}
}

func BenchmarkKernelBare(b *testing.B) {
	p, _ := dropping(b, 1)
	p.Left.Do(func() { backendtest.Bench(b, bare(b, p, 0)) })
}

func BenchmarkKernelSender(b *testing.B) {
	p, to := dropping(b, 1)
	p.Left.Do(func() {
		backendtest.Bench(b, backendtest.FlatOut(b, Open, backend.Config{}, to, benchPayload))
	})
}

// TestRatioKernelSender: the backend alone, by the processor time of a packet, against the bare loop on the other queue.
func TestRatioKernelSender(t *testing.T) {
	p, to := dropping(t, 2)
	p.Left.Do(func() {
		backendtest.Ratio(t, bare(t, p, 1), backendtest.FlatOut(t, Open, backend.Config{}, to, benchPayload), 0.95)
	})
}
