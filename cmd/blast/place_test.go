package main

import (
	"net/netip"
	"os"
	"testing"

	"blast/backend/afxdp"
	"blast/internal/testnet"
	"blast/stats"
)

// place is where a test sends: over loopback, or from one namespace to another.
type place struct {
	near, far func(fn func()) // run fn, and what it starts, at the sender and at the receiver
	host      netip.Addr      // of the receiver
}

// placeOf is where a backend can be tested with any number of workers: lo, or for AF_XDP, which has one queue and no IPv4 there, a veth
// pair with a queue for each of two workers.
func placeOf(t *testing.T, backend string) place {
	t.Helper()
	if backend != afxdp.Name {
		here := func(fn func()) { fn() }
		return place{here, here, netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	p.Right.Do(func() { // ICMP errors are not rationed on loopback; here neither
		if err := os.WriteFile("/proc/sys/net/ipv4/icmp_ratemask", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	})
	return place{p.Left.Do, p.Right.Do, p.Right.IPv4.Addr()}
}

// receive is receive in the place of the receiver.
func (p place) receive(t *testing.T, bufferBytes int) (r *receiver) {
	t.Helper()
	p.far(func() { r = receiveOn(t, p.host, bufferBytes) })
	return r
}

// serve is serveUDP in the place of the receiver.
func (p place) serve(t *testing.T, args ...string) (s *target) {
	t.Helper()
	p.far(func() { s = serveUDP(t, append(args, "--listen", netip.AddrPortFrom(p.host, 0).String())...) })
	return s
}

// start is start in the place of the sender.
func (p place) start(t *testing.T, args ...string) (s *process) {
	t.Helper()
	p.near(func() { s = start(t, nil, args...) })
	return s
}

// measure is measure in the place of the sender.
func (p place) measure(t *testing.T, args ...string) *stats.Result {
	t.Helper()
	return p.start(t, append([]string{"udp", "--format", "json"}, args...)...).end().result(t)
}

// end ends a receiver of the place.
func (p place) end(t *testing.T, r *receiver) (got []arrival, dropped uint64) {
	t.Helper()
	p.far(func() { got, dropped = r.end(t) })
	return got, dropped
}
