package netudp

import (
	"net"
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
)

const benchPayload = 18 // a minimum frame

// bareWrite is what a plain Go program does.
func bareWrite(tb testing.TB) func(n int) {
	tb.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(backendtest.Unread(tb)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	payload := make([]byte, benchPayload)
	return func(n int) {
		for range n {
			if _, err := c.Write(payload); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func sender(tb testing.TB) func(n int) {
	tb.Helper()
	return backendtest.FlatOut(tb, Open, backend.Config{}, backendtest.Unread(tb), benchPayload)
}

func BenchmarkBareWrite(b *testing.B) { backendtest.Bench(b, bareWrite(b)) }
func BenchmarkNet(b *testing.B)       { backendtest.Bench(b, sender(b)) }

func TestRatioNet(t *testing.T) { backendtest.Ratio(t, bareWrite(t), sender(t), 0.95) }
