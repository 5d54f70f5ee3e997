package backendtest

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/testskip"
)

// Unread opens a bound socket on loopback that nobody reads: the cheapest thing to send to flat out.
func Unread(tb testing.TB) netip.AddrPort {
	tb.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}

// FlatOut opens a backend for one flow to the address, or for cfg.Flows in turn, and returns what sends n packets of the given payload
// through it, as fast as it goes, with the calls the engine makes. Where the backend is bound to a thread, that is the caller's.
func FlatOut(tb testing.TB, openBackend backend.Open, cfg backend.Config, to netip.AddrPort, payload int) func(n int) {
	tb.Helper()
	cfg.PayloadBytes = payload
	if len(cfg.Flows) == 0 {
		cfg.Flows = []backend.Flow{{Dst: to}}
	}
	s, _, err := openBackend(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	next, flows := 0, len(cfg.Flows)
	return func(n int) {
		for n > 0 {
			slots := s.Reserve(n)
			for i := range slots {
				slots[i].Len, slots[i].Flow = payload, (next+i)%flows
			}
			accepted, err := s.Commit(len(slots))
			if err != nil {
				tb.Fatal(err)
			}
			n -= accepted
			next = (next + accepted) % flows
			s.Reap()
		}
	}
}

// Bench runs send as a benchmark: one operation is one packet, and pkts/s is reported.
func Bench(b *testing.B, send func(n int)) {
	b.ReportAllocs()
	send(64) // whatever is done once
	b.ResetTimer()
	send(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pkts/s")
}

// Ratio compares two ways to send by the processor time their thread takes per packet, in turns, so that what else the machine does
// weighs on both. It skips itself unless BLAST_BENCH is set, and fails when ours reaches less than the given part of the bare loop's speed.
func Ratio(t *testing.T, bare, ours func(n int), least float64) {
	t.Helper()
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rounds, packets = 31, 1 << 15
	cost := func(send func(int)) float64 {
		before := sys.ThreadUsage()
		send(packets)
		after := sys.ThreadUsage()
		return float64(after.User+after.System-before.User-before.System) / float64(packets*time.Nanosecond)
	}
	var all []float64
	var bareCost, oursCost []float64
	for range rounds {
		b, o := cost(bare), cost(ours)
		bareCost, oursCost, all = append(bareCost, b), append(oursCost, o), append(all, b/o)
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	ratio := median(all)
	t.Logf("a packet costs %.0f ns, in a bare loop of the same call %.0f ns: ratio %.3f (at least %.2f)", median(oursCost), median(bareCost), ratio, least)
	if ratio < least {
		t.Errorf("ratio %.3f: want at least %.2f", ratio, least)
	}
}
