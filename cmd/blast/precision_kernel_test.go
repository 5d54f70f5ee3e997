package main

import (
	"net"
	"testing"
	"time"

	"blast/engine"
	"blast/internal/testnet"
	"blast/pace"
	"blast/stats"
)

// TestKernelOffloadPrecision: a plan that runs in the kernel, replies included, tells what its figures are worth like any other.
func TestKernelOffloadPrecision(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	serveXDP(t, pair)
	schedule, err := pace.Constant(pace.Rate{Packets: 20_000, Per: time.Second}, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	res, err := offloadRun(t, pair, schedule, func(c *engine.Config) { c.Interval = 0 })
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Timeline) != 4 || res.Timeline[0].Planned != 20_000 {
		t.Errorf("timeline %+v: want 4 intervals of 20,000", res.Timeline)
	}
	for _, c := range []struct {
		of    string
		whole *stats.Histogram
	}{{"latency", &res.Latency}, {"lag", &res.Lag}} {
		v := res.Precision.Interval(c.of, 0.999)
		if v == nil || v.ValueNS != c.whole.P999 || v.Samples != c.whole.Count || v.LowNS > v.ValueNS || v.HighNS < v.ValueNS || v.Effective <= 0 {
			t.Errorf("%s p99.9 %d ns of %d: interval %+v", c.of, c.whole.P999, c.whole.Count, v)
		}
	}
	if s := res.Precision.Stationary; s == nil || s.Of != "latency" || s.First.Samples+s.Second.Samples != res.Latency.Count {
		t.Errorf("halves: %+v", s)
	}
}

// TestKernelReceivePrecision: so do replies that the kernel takes for a backend of sockets.
func TestKernelReceivePrecision(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	serveXDP(t, p)
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4702")
	res := in(t, p, nil, "udp", at, "--backend", "sendmmsg", "--receive", "xdp", "--rate", "5k", "--duration", "4s", "--format", "json").end().result(t)
	v, s := res.Precision.Interval("latency", 0.99), res.Precision.Stationary
	if v == nil || v.ValueNS != res.Latency.P99 || v.Samples != res.Latency.Count || s == nil || s.First.Samples+s.Second.Samples != res.Latency.Count {
		t.Errorf("%d latencies, p99 %d ns: interval %+v, halves %+v", res.Latency.Count, res.Latency.P99, v, s)
	}
}
