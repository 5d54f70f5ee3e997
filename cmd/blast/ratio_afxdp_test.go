package main

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/safchain/ethtool"

	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/packet"
	"blast/stats"
	"blast/xdp"
)

// TestRatioAFXDP holds the whole of blast (plan, stamps, histograms, books) with AF_XDP against a bare AF_XDP loop, against sendmmsg, and
// two queues against one: 18-byte payloads over a veth pair to an XDP program that drops, planned at more than can be sent. Compared is
// what a worker sends in a second of its processor time, so that what else the machine does weighs little. In turns, medians of seven.
func TestRatioAFXDP(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	const port = 4703
	pair := testnet.NewPair(t, testnet.Config{Queues: 2})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	target := fmt.Sprintf("%v:%d", pair.Right.IPv4.Addr(), port)
	at := place{near: pair.Left.Do, far: pair.Right.Do, host: pair.Right.IPv4.Addr()}
	// The plan asks for a little more than can be sent: giving slots up costs time, too.
	whole := func(backend string, workers, pps int) float64 {
		before := counter.Total().Frames
		res := at.measure(t, target, "--mode", "oneway", "--backend", backend, "--workers", strconv.Itoa(workers), "--payload", "18",
			"--rate", strconv.Itoa(pps*workers), "--duration", "700ms")
		if arrived := counter.Total().Frames - before; arrived != res.Ledger.Sent {
			t.Errorf("%s: %d sent, %d arrived", backend, res.Ledger.Sent, arrived)
		}
		if res.Lag.Count == 0 {
			t.Error("no lag was recorded")
		}
		sum := 0.0
		for _, w := range res.Workers {
			sum += float64(w.Sent) / float64(w.UserNS+w.SystemNS) * 1e9
		}
		return sum
	}
	var bare, one, two, mmsg []float64
	for range 7 {
		bare = append(bare, bareAFXDP(t, pair, port))
		one = append(one, whole("af_xdp", 1, 1_200_000))
		mmsg = append(mmsg, whole("sendmmsg", 1, 550_000))
		if runtime.NumCPU() > 1 {
			two = append(two, whole("af_xdp", 2, 1_200_000))
		}
	}
	for _, c := range []struct {
		name     string
		ours, to []float64
		least    float64
	}{
		{"af_xdp to a bare AF_XDP loop", one, bare, 0.95},
		{"af_xdp to sendmmsg", one, mmsg, 2},
		{"two queues to one", two, one, 1.6},
	} {
		if c.ours == nil {
			testskip.Skip(t, "bench", c.name+": there is one CPU", "two CPUs")
		}
		ratios := make([]float64, len(c.ours))
		for i := range ratios {
			ratios[i] = c.ours[i] / c.to[i]
		}
		t.Logf("%s: %s against %s: ratio %.3f of %.3f (at least %.2f)", c.name, stats.FormatPPS(median(c.ours)), stats.FormatPPS(median(c.to)), median(ratios), ratios, c.least)
		if median(ratios) < c.least {
			t.Errorf("%s: ratio %.3f: want at least %.2f", c.name, median(ratios), c.least)
		}
	}
}

// bareAFXDP sends the same finished frame again and again, 64 a kick, and returns packets per second of processor time.
func bareAFXDP(t *testing.T, pair *testnet.Pair, port uint16) (pps float64) {
	t.Helper()
	pair.Left.Do(func() {
		if _, err := sys.Pin(runtime.NumCPU() - 1); err != nil {
			t.Fatal(err)
		}
		d, err := xdp.Open(xdp.DeviceConfig{Interface: pair.Left.Interface})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Open(xdp.SocketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		flow, err := packet.NewFlow(packet.Headers{SrcMAC: packet.MAC(pair.Left.MAC), DstMAC: packet.MAC(pair.Right.MAC),
			Src: netip.AddrPortFrom(pair.Left.IPv4.Addr(), port), Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), port)})
		if err != nil {
			t.Fatal(err)
		}
		frames := s.Frames()
		for i := range frames {
			frames[i].Len = flow.Write(frames[i].Data, 18)
		}
		before, sent := sys.ThreadUsage(), 0
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			for range 16 {
				n, err := s.Commit(len(s.Reserve(64)))
				if err == nil {
					_, err = s.Reap()
				}
				if err != nil {
					t.Fatal(err)
				}
				sent += n
			}
		}
		after := sys.ThreadUsage()
		pps = float64(sent) / (after.User + after.System - before.User - before.System).Seconds()
	})
	return pps
}

// takeAnswers has the kernel finish the checksums of sockets' packets: on veth nobody does it later, and an XDP program that answers with the
// unfinished one is not believed. And it turns GRO on, without which, or a program, an end takes no frames from a program (veth_xdp_xmit).
func takeAnswers(t *testing.T, name string) {
	t.Helper()
	e, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Change(name, map[string]bool{"tx-checksum-ip-generic": false, "rx-gro": true}); err != nil {
		t.Fatal(err)
	}
}

// TestRatioAFXDPEcho compares round trips over a veth pair, 64-byte payloads at 10,000 a second, actual send to reply: our end AF_XDP or
// sendmmsg, the far end ordinary sockets (blast serve udp) or an XDP program. In turns, medians of five of each run's median.
func TestRatioAFXDPEcho(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	for _, far := range []string{"sockets", "an XDP program"} {
		pair := testnet.NewPair(t, testnet.Config{})
		at := place{near: pair.Left.Do, far: pair.Right.Do, host: pair.Right.IPv4.Addr()}
		target := netip.AddrPortFrom(at.host, 4702).String()
		if far == "sockets" {
			target = at.serve(t).addr
		} else {
			serveXDP(t, pair)
			pair.Left.Do(func() { takeAnswers(t, pair.Left.Interface) })
		}
		p50 := map[string][]float64{}
		for range 5 {
			for _, backend := range []string{"af_xdp", "sendmmsg"} {
				res := at.measure(t, target, "--backend", backend, "--rate", "10k", "--duration", "700ms")
				if res.Ledger.Replied+res.Ledger.Late == 0 {
					t.Fatalf("%s: no replies: %+v", backend, res.Ledger)
				}
				p50[backend] = append(p50[backend], float64(res.Service.P50))
			}
		}
		ours, theirs := median(p50["af_xdp"]), median(p50["sendmmsg"])
		t.Logf("round trip p50 to %s: af_xdp %s of %.0f, sendmmsg %s of %.0f: ratio %.2f (at most 1.50)", far, stats.FormatNS(int64(ours)), p50["af_xdp"],
			stats.FormatNS(int64(theirs)), p50["sendmmsg"], ours/theirs)
		if ours > 1.5*theirs {
			t.Errorf("round trips to %s take %.2f times those of sendmmsg", far, ours/theirs)
		}
	}
}
