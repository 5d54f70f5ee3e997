package xdplive

import (
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/pace"
)

func constant(t testing.TB, pps uint64, length time.Duration) pace.Schedule {
	t.Helper()
	s, err := pace.Constant(pace.Rate{Packets: pps, Per: time.Second}, length)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKernelCountsAgree(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: port})
	for _, pps := range []uint64{1, 1000, 1e6} {
		before := counter.Total().Frames
		o := execute(t, pair, plan{schedule: constant(t, pps, 300*time.Millisecond)})
		t.Logf("%d pps: %+v counted %d, lag max %d p99 %d; %v ran %v", pps, o.sent, counter.Total().Frames-before, o.lag.Max(), o.lag.Quantile(0.99), o.perTick, o.ran)
	}
}

func TestKernelEcho(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	target := echoServer(t, pair)
	for _, p := range []plan{{}, {payload: 64}, {payload: 18}, {ipv6: true}, {ipv6: true, payload: 1000}, {flows: 7}, {workers: 2}} {
		p.schedule, p.echo = constant(t, 1e6, 300*time.Millisecond), true
		o := execute(t, pair, p)
		c, _ := target.Counts()
		t.Logf("%+v: sent %d replies %+v; latency p50 %d p99 %d n %d; %v; target %v err %v server p50 %d n %d", p, o.sent, o.replies, o.latency.Quantile(0.5), o.latency.Quantile(0.99), o.latency.Count(), o.replied, c, o.err, o.server.Quantile(0.5), o.server.Count())
	}
	max, _ := pace.Max(300 * time.Millisecond)
	o := execute(t, pair, plan{schedule: max, echo: true})
	t.Logf("max: sent %d replies %+v; latency p50 %d p99 %d n %d; %v", o.sent, o.replies, o.latency.Quantile(0.5), o.latency.Quantile(0.99), o.latency.Count(), o.replied)
}
