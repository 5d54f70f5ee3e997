package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/stats"
)

// TestKernelReceiveSocket: the in-kernel engine with sockets for its replies. While they keep up, the run is like any other; beyond, what they lose is
// their own loss, counted as such, and the run is INVALID for it: never the target's.
func TestKernelReceiveSocket(t *testing.T) {
	for _, o := range offloads() {
		testskip.XDP(t, o.Probe())
	}
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4714")
	serveOn(t, p.Right, "--xdp", "--listen", at)
	measure := func(args ...string) *stats.Result {
		t.Helper()
		o := in(t, p, nil, append([]string{"udp", at, "--backend", "xdp_live", "--receive", "socket", "--duration", "1s", "--format", "json"}, args...)...).end()
		return o.result(t)
	}
	for _, args := range [][]string{{"--rate", "5k"}, {"--rate", "10k", "--flows", "7"}, {"--rate", "5k", "--warmup", "200ms", "--payload", "18"}} {
		res := measure(args...)
		l := res.Ledger
		if l.Sent == 0 || l.Replied+l.Late+l.SelfLost < l.Sent || l.Stray+l.Duplicate+l.Reordered != 0 || res.Latency.Count != l.Replied+l.Late ||
			!strings.Contains(res.Backend.Mode, "sockets") || res.Latency.Min <= 0 {
			t.Errorf("%v: ledger %+v, %d latencies, mode %q: want every packet replied to", args, l, res.Latency.Count, res.Backend.Mode)
		}
	}

	res := measure("--rate", "1M", "--rcvbuf", "65536")
	l := res.Ledger
	if l.SelfLost == 0 || res.Verdict.Valid {
		t.Errorf("ledger %+v, verdict %+v: want losses of our own, and INVALID", l, res.Verdict)
	}
	if missing := l.Lost + l.InFlight; missing != l.SelfLost || l.Replied+l.Late+missing != l.Sent {
		t.Errorf("%d packets have no reply, the sockets lost %d; ledger %+v", missing, l.SelfLost, l)
	}
	t.Logf("%d of %d replies lost by the sockets; %q", l.SelfLost, l.Sent, res.Verdict.Reasons)
}

// TestRatioEcho is the in-kernel engine at its task: a million round trips a second for half a minute, one core for sender, target and receiver, and as
// many as go. BLAST_BENCH only: it wants the machine for itself.
func TestRatioEcho(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "measures a speed", "make bench")
	}
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4716")
	serveOn(t, p.Right, "--xdp", "--listen", at)
	var res *stats.Result
	for attempt := 0; attempt < 4 && (res == nil || !res.Verdict.Valid); attempt++ {
		res = in(t, p, nil, "udp", at, "--backend", "xdp_live", "--rate", "1M", "--duration", "30s", "--format", "json").end().result(t)
		l := &res.Ledger
		t.Logf("valid %v; planned %d, sent %d, replied %d; latency p50 %v p99 %v p99.9 %v; lag p99.9 %v; duty %.2f", res.Verdict.Valid, l.Planned, l.Sent, l.Replied,
			time.Duration(res.Latency.P50), time.Duration(res.Latency.P99), time.Duration(res.Latency.P999), time.Duration(res.Lag.P999), res.Workers[0].Duty)
	}
	if l := &res.Ledger; !res.Verdict.Valid || l.Planned != 30_000_000 || l.Replied != l.Planned {
		t.Errorf("ledger %+v, reasons %+v: want 30,000,000 replied to, VALID", l, res.Verdict.Reasons)
	}
	res = in(t, p, nil, "udp", at, "--backend", "xdp_live", "--rate", "max", "--duration", "5s", "--format", "json").end().result(t)
	t.Logf("without a plan %.0f round trips a second", float64(res.Ledger.Replied)/5)
	if res.Ledger.Replied < 5*1_500_000 {
		t.Errorf("%d round trips in 5 s: want at least 1.5 million a second", res.Ledger.Replied)
	}
}

// TestRatioReceivers holds the receiver inside the kernel against sockets, the rest of the run being the same: the highest rate of a VALID run with
// each, of rates that double.
func TestRatioReceivers(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4715")
	serveOn(t, p.Right, "--xdp", "--listen", at)
	highest := map[string]int{}
	for _, receive := range []string{"socket", "xdp"} {
		for rate, failed := 25, 0; rate <= 1600 && failed < 2; rate *= 2 {
			var res *stats.Result
			for attempt := 0; attempt < 4 && (res == nil || !res.Verdict.Valid); attempt++ {
				res = in(t, p, nil, "udp", at, "--backend", "xdp_live", "--receive", receive, "--rate", strconv.Itoa(rate)+"k", "--duration", "3s", "--format", "json").end().result(t)
			}
			var codes []string
			for _, r := range res.Verdict.Reasons {
				codes = append(codes, r.Code)
			}
			l := &res.Ledger
			t.Logf("%s at %d k/s: valid %v %v; sent %d, lost by the receiver %d, latency p50 %v p99 %v p99.9 %v, lag p99.9 %v", receive, rate, res.Verdict.Valid, codes, l.Sent, l.SelfLost,
				time.Duration(res.Latency.P50), time.Duration(res.Latency.P99), time.Duration(res.Latency.P999), time.Duration(res.Lag.P999))
			if res.Verdict.Valid {
				highest[receive], failed = rate, 0
			} else {
				failed++
			}
		}
	}
	t.Logf("highest VALID rates in k/s: %v", highest)
	if highest["xdp"] == 0 || highest["xdp"] < 2*highest["socket"] {
		t.Errorf("want the receiver inside the kernel at twice the rate of the sockets at least: %v", highest)
	}
}
