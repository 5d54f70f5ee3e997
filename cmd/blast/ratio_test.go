package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/engine"
	"blast/internal/sys"
	"blast/internal/testskip"
	"blast/pace"
	"blast/stats"
)

// TestRatioBackends holds what the whole of blast gets accepted (engine, stamps, clock, books) against a bare loop of the same
// system call, in turns on one pinned core, to a bound socket on loopback that nobody reads. Medians of five.
func TestRatioBackends(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	target := sink.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, c := range []struct {
		name string
		gso  int
		bare func(testing.TB, netip.AddrPort, time.Duration) float64
		want float64
	}{
		{"net", 0, bareWrite, 0.95},
		{"sendmmsg", 0, func(t testing.TB, to netip.AddrPort, d time.Duration) float64 { return bareSendmmsg(t, to, 0, d) }, 0.95},
		{"sendmmsg", 32, func(t testing.TB, to netip.AddrPort, d time.Duration) float64 { return bareSendmmsg(t, to, 32, d) }, 0.90},
	} {
		var ours, bare, ratios []float64
		for range 5 {
			b := onCore(1, func() float64 { return c.bare(t, target, 500*time.Millisecond) })
			o := flatOut(t, c.name, c.gso, target, 500*time.Millisecond)
			bare, ours, ratios = append(bare, b), append(ours, o), append(ratios, o/b)
		}
		ratio := median(ratios)
		t.Logf("%s gso %d: blast %s, bare loop %s: ratio %.3f of %.3f (at least %.2f)", c.name, c.gso, stats.FormatPPS(median(ours)), stats.FormatPPS(median(bare)), ratio, ratios, c.want)
		if ratio < c.want {
			t.Errorf("%s gso %d: ratio %.3f: want at least %.2f", c.name, c.gso, ratio, c.want)
		}
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// onCore runs fn on a locked thread pinned to the last of the first n+1 CPUs, or the only one.
func onCore(n int, fn func() float64) float64 {
	out := make(chan float64)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		_, _ = sys.Pin(min(n, runtime.NumCPU()-1))
		out <- fn()
	}()
	return <-out
}

// flatOut is blast at --rate max, as packets per second accepted.
func flatOut(t testing.TB, name string, gso int, target netip.AddrPort, d time.Duration) float64 {
	t.Helper()
	entry, _, err := choose(name, "")
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := pace.Max(d)
	if err != nil {
		t.Fatal(err)
	}
	res, err := engine.Run(context.Background(), engine.Config{
		Schedule: schedule, CPUs: []int{min(1, runtime.NumCPU()-1)}, Flows: []backend.Flow{{Dst: target}}, Open: entry.Open,
		Backend: backend.Config{PayloadBytes: 18, GSO: gso},
		Source:  func(int) engine.Source { return &engine.Stamped{PayloadBytes: 18} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.Rate.AchievedPPS
}

func bareWrite(t testing.TB, target netip.AddrPort, d time.Duration) float64 {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf, n := make([]byte, 18), 0
	begun := time.Now()
	for time.Since(begun) < d {
		for range 64 {
			if _, err := conn.Write(buf); err == nil {
				n++
			}
		}
	}
	return float64(n) / time.Since(begun).Seconds()
}

// bareSendmmsg sends 64 messages a call, or with trains 16 messages of gso segments each.
func bareSendmmsg(t testing.TB, target netip.AddrPort, gso int, d time.Duration) float64 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	const payload = 18
	segments := max(gso, 1)
	msgs := make([]unix.Mmsghdr, 64)
	if gso > 1 {
		msgs = msgs[:16]
	}
	iovs := make([]unix.Iovec, len(msgs))
	control := make([]byte, sys.ControlSpace(2))
	sys.PutSegment(control, payload)
	for i := range msgs {
		buf := make([]byte, payload*segments)
		iovs[i].Base = &buf[0]
		iovs[i].SetLen(len(buf))
		msgs[i].Hdr.Iov, msgs[i].Hdr.Iovlen = &iovs[i], 1
		if gso > 1 {
			msgs[i].Hdr.Control = &control[0]
			msgs[i].Hdr.SetControllen(len(control))
		}
	}
	n := 0
	begun := time.Now()
	for time.Since(begun) < d {
		for range 16 {
			sent, errno := sys.Sendmmsg(fd, msgs)
			if errno != 0 && errno != unix.EAGAIN {
				t.Fatal(errno)
			}
			n += sent * segments
		}
	}
	return float64(n) / time.Since(begun).Seconds()
}
