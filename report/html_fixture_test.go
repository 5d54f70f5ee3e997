package report

import (
	"math"
	"time"

	"blast/stats"
)

// skewed records n values whose logarithm is spread evenly from low to middle ns, with a tail of one in a thousand up to top.
func skewed(n int, low, middle, top float64) stats.Histogram {
	h := &stats.Hist{}
	for i := range n {
		share := (float64(i) + 0.5) / float64(n)
		v := low * math.Pow(middle/low, share)
		if tail := 1 / (1 - share); tail > 100 {
			v = middle * math.Pow(top/middle, math.Min(1, math.Log10(tail/100)/math.Log10(float64(n)/100)))
		}
		h.Record(int64(v))
	}
	return h.Summary()
}

// wavy is a timeline of n seconds at pps with a tail that comes and goes, and one stall.
func wavy(n int, pps uint64) []stats.Second {
	var out []stats.Second
	for i := range n {
		swing := 1 + 0.4*math.Sin(float64(i)/7) + 0.2*math.Sin(float64(i)/1.7)
		s := stats.Second{T: float64(i + 1), Planned: pps, Sent: pps, Replied: pps - uint64(i%3), LagP50NS: 9000, LagP99NS: int64(40e3 * swing), LatencyP99NS: int64(180e3 * swing)}
		if i == n/2 {
			s.Sent, s.Replied, s.LagP99NS, s.LatencyP99NS, s.Steal = pps*9/10, pps*8/10, 900e3, 42e6, 0.012
		}
		out = append(out, s)
	}
	return out
}

// fullRun has everything that a page can show: segments, departures, precision, and a believable distribution.
func fullRun() *stats.Result {
	r := echoRun()
	r.Latency, r.Service, r.Lag = skewed(200000, 31e3, 170e3, 42e6), skewed(200000, 30e3, 150e3, 41.8e6), skewed(200000, 900, 44e3, 900e3)
	r.Ledger = stats.Ledger{Planned: 200100, Sent: 200050, Refused: map[string]uint64{"no_buffers": 50}, Replied: 199990, Late: 10, Lost: 40, LostUp: 25, LostDown: 15, InFlight: 10,
		InFlightAtLeastNS: 80e6, Reordered: 3}
	r.Timeline = wavy(30, 50000)
	r.Segments = &stats.Segments{Every: 100, Complete: 14800, Incomplete: 190, Stamps: "software", SameClock: true, ResidualNS: 41, Latency: skewed(14800, 26e3, 138e3, 6e6),
		Notes: []string{"the driver of eth0 has no TX hardware stamps"}}
	for _, x := range []struct {
		name        string
		low, middle float64
	}{{stats.SegmentLag, 900, 30e3}, {stats.SegmentSendCall, 2e3, 9e3}, {stats.SegmentKernel, 800, 4e3}, {stats.SegmentUp, 9e3, 40e3}, {stats.SegmentServer, 2e3, 12e3},
		{stats.SegmentDown, 8e3, 38e3}, {stats.SegmentQueue, 1e3, 22e3}, {stats.SegmentUser, 700, 3e3}} {
		r.Segments.Parts = append(r.Segments.Parts, stats.Segment{Name: x.name, NS: skewed(14800, x.low, x.middle, x.middle*40)})
	}
	r.Departures = &stats.Departures{Source: "tx_software", Error: skewed(14000, 80, 6e3, 300e3),
		Test: &stats.FitTest{Name: "anderson-darling", Against: "exponential gaps with a mean of 20 us", Samples: 14000, Statistic: 0.83, P: 0.46}}
	r.Precision = nil
	for _, x := range []struct {
		q     float64
		value int64
	}{{0.5, r.Latency.P50}, {0.99, r.Latency.P99}, {0.999, r.Latency.P999}} {
		r.Precision = precisionWith(r.Precision, stats.Interval{Of: "latency", Quantile: x.q, ValueNS: x.value, LowNS: x.value * 94 / 100, HighNS: x.value * 107 / 100, Level: 0.95,
			Samples: r.Latency.Count, Effective: 91000})
	}
	r.Precision.Stationary = &stats.Stationary{Holds: true, Of: "latency", First: stats.Half{Samples: 200000, MeanNS: 91e3, P50NS: 74e3, P99NS: 172e3},
		Second: stats.Half{Samples: 200000, MeanNS: 92e3, P50NS: 75e3, P99NS: 174e3}, Detail: "the halves of the run agree: latency p50 74.0 us and 75.0 us, p99 172 us and 174 us"}
	r.Normalize()
	return r
}

func precisionWith(p *stats.Precision, i stats.Interval) *stats.Precision {
	if p == nil {
		p = &stats.Precision{}
	}
	p.Intervals = append(p.Intervals, i)
	return p
}

// hourRun is an hour long: the longest timeline there is.
func hourRun() *stats.Result {
	r := fullRun()
	r.Timeline = wavy(stats.TimelineMax, 50000)
	for i := range r.Timeline { // nothing repeats, so nothing is saved by luck
		r.Timeline[i].LatencyP99NS += int64(i*7919%60013) * 3
		r.Timeline[i].LagP99NS += int64(i * 104729 % 20011)
		r.Timeline[i].Sent -= uint64(i * 31 % 977)
		r.Timeline[i].Replied = r.Timeline[i].Sent - uint64(i*17%3)
		r.Timeline[i].Steal = float64(i*13%97) / 9700
	}
	r.Rate.ElapsedNS, r.Config.DurationNS = 3600e9, 3600e9
	return r
}

// ladderRun is a ladder on a target that takes 3,200 a second.
func ladderRun() *stats.Ladder {
	l := &stats.Ladder{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), RunID: "ladder-1", Command: []string{"blast", "ladder", "10.0.0.2:7000", "--from", "200", "--by", "x2"},
		Host:   echoRun().Host,
		Config: stats.LadderConfig{Targets: []string{"10.0.0.2:7000"}, FromPPS: 200, By: "x2", StepNS: 10e9, SLOs: []string{"p99<50ms"}, Resolution: 0.05},
		Knee: stats.Knee{PPS: 3196, HeldPPS: 2800, BreaksPPS: 3000, Because: stats.OutcomeSaturated,
			Detail: "target saturated at 3.20 kpps: at 3.20 kpps asked its replies came at 3.20 kpps and its queue grew all the time, while the generator used 4 % of its limits"},
		Verdict: stats.Verdict{Valid: true},
	}
	for _, x := range []struct {
		asked   float64
		outcome string
		phase   string
		p99     float64
		water   float64
	}{{200, "held", "climb", 5.4e6, 0.02}, {400, "held", "climb", 5.6e6, 0.02}, {800, "held", "climb", 6e6, 0.03}, {1600, "held", "climb", 6.4e6, 0.03}, {3200, "target", "climb", 1.1e9, 0.04},
		{6400, "generator", "climb", 4.9e9, 1.3}, {2400, "held", "bisect", 7.1e6, 0.04}, {2800, "held", "bisect", 12.7e6, 0.04}, {3000, "slo", "bisect", 61e6, 0.04}} {
		r := echoRun()
		if x.outcome == stats.OutcomeVoid {
			r = invalid(r)
		}
		r.Latency = skewed(20000, 5e6, x.p99, x.p99*1.6)
		r.Rate.AchievedPPS, r.Rate.TargetPPS, r.Rate.RepliedPPS = x.asked, x.asked, math.Min(x.asked, 3196)
		step := stats.Step{AskedPPS: x.asked, Phase: x.phase, Try: 1, Outcome: x.outcome, Water: x.water, WaterOf: "duty", ThroughputPPS: r.Rate.RepliedPPS, Result: *r}
		if x.outcome != stats.OutcomeHeld {
			step.Why = "replies came at 3.20 kpps, and 9,000 packets were unanswered at the end"
		}
		l.Steps = append(l.Steps, step)
	}
	l.Normalize()
	return l
}

// proveRun is a proof that the target is slow.
func proveRun() *stats.Prove {
	run := func(target string, low, middle, top float64) stats.Result {
		r := echoRun()
		r.Config.Targets = []string{target}
		r.Latency = skewed(50000, low, middle, top)
		return *r
	}
	return &stats.Prove{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), RunID: "prove-1", Command: []string{"blast", "prove", "10.0.0.2:7000", "--rate", "50k"}, Host: echoRun().Host,
		Targets: []string{"10.0.0.2:7000"}, AskedPPS: 50000,
		Controls: []stats.Control{
			{Name: "baseline", Points: stats.PointsTarget, Evidence: []string{"against a no-op on this host the generator kept 210 kpps: 4.2 times the rate asked for"},
				Results: []stats.Result{run("127.0.0.1:4000", 20e3, 60e3, 300e3)}},
			{Name: "generator", Points: stats.PointsTarget, Evidence: []string{"the busiest worker was busy for 41 % of the time", "lag p99.9 was 60.0 us of 1.00 ms allowed"},
				Results: []stats.Result{run("10.0.0.2:7000", 400e3, 9e6, 900e6)},
				Use: &stats.HostUse{Source: "this host", CoresNS: 35e8, Cores: []stats.CoreUse{{CPU: 2, Busy: 0.41, Softirq: 0.07, Steal: 0.01, Waited: 0.3}},
					Rooms:    []stats.RoomUsed{{Name: "source ports towards one target", Used: 70, Limit: 28232}},
					Counters: []stats.Counter{{Name: "udp.RcvbufErrors", Delta: 0}, {Name: "udp.NoPorts", Delta: -12}}}},
			{Name: "target", Points: stats.PointsUnknown, Evidence: []string{"no agent was named: nothing is known of the target's resources"}},
			{Name: "noop", Points: stats.PointsTarget, Evidence: []string{"a no-op server on the target's host answered at p99 71.0 us, the target at 9.00 ms"},
				Results: []stats.Result{run("10.0.0.2:7001", 30e3, 71e3, 420e3)}},
			{Name: "two_generators", Points: stats.PointsTarget, Evidence: []string{"two generators got 50.1 kpps together, one got 49.9 kpps"},
				Results: []stats.Result{run("10.0.0.2:7000", 500e3, 11e6, 950e6), run("10.0.0.2:7000", 500e3, 12e6, 940e6)}},
		},
		Conclusion: stats.Conclusion{Points: stats.PointsTarget, Detail: "the target is the wall: the generator keeps four times this rate elsewhere, is half idle, and two of them get no more out of the target than one"},
	}
}
