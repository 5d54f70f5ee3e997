package report

import (
	"time"

	"blast/stats"
)

// histOf records n values from low to high ns, evenly spread, and some outliers.
func histOf(n int, low, high int64, outliers ...int64) stats.Histogram {
	h := &stats.Hist{}
	for i := range n {
		h.Record(low + (high-low)*int64(i)/int64(n))
	}
	for _, v := range outliers {
		h.Record(v)
	}
	return h.Summary()
}

// echoRun is a VALID echo run in which a bit of everything happened.
func echoRun() *stats.Result {
	const sent = 1499000
	var traffic stats.Traffic
	traffic.Add(48, false, sent)
	r := &stats.Result{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC), RunID: "7f3a", Shards: 1,
		Command: []string{"blast", "udp", "10.0.0.2:7000", "--rate", "50k", "--duration", "30s"},
		Config: stats.Config{
			Given: []string{"10.0.0.2:7000", "--rate", "50k"}, Targets: []string{"10.0.0.2:7000"}, Mode: stats.ModeEcho, Model: "open",
			Profile: "const 50k", Paced: true, DurationNS: 30e9, WarmupNS: 2e9, TimeoutNS: 1e9, MaxLagNS: 1e6, PayloadBytes: 48, Payload: "stamp",
			Flows: 64, Workers: 2, CPUs: []int{2, 3}, Batch: 32, CatchUp: "burst", Wait: "hybrid", Seed: 1, SLOs: []string{"p99<5ms", "loss<0.1%"}, Rounds: 1,
			ClockStart: "planned send time (latency) and time just before the send call (service time)",
		},
		Host: stats.Host{Hostname: "lab1", Kernel: "6.18.0", CPU: "Xeon", Cores: 8, NIC: "eth0", Driver: "igb", Queues: 8, Clocksource: "tsc",
			Governor: "performance", GoVersion: "go1.26", Blast: "v0.1.0"},
		Backend: stats.Backend{Name: "sendmmsg", Auto: "the fastest that works without root", Mode: "connected sockets", GSO: 1, Batch: 32,
			SendBuffer: 425984, ReceiveBuffer: 8388608, Notes: []string{"receive buffer capped by net.core.rmem_max"}},
		Rate: stats.RateOf(50000, traffic, 1498000, 30*time.Second),
		Ledger: stats.Ledger{Planned: 1500000, Sent: sent, Refused: map[string]uint64{"no_buffers": 700, "full": 200}, Abandoned: 80, KernelDropped: 20,
			Replied: 1498000, Late: 200, Lost: 700, InFlight: 100, InFlightAtLeastNS: 120e6, LostUp: 400, LostDown: 200, LostUnknown: 100,
			Duplicate: 3, Reordered: 12, Stray: 5},
		Events:  stats.Events{"pushback": 12, "conn_refused": 1},
		Lag:     histOf(sent-1, 800, 60e3, 710e3),
		Latency: histOf(1498000, 45e3, 1200e3, bulk(200, 1100e6)...), Service: histOf(1498000, 44e3, 1100e3, bulk(200, 1050e6)...),
		Server: histOf(1000, 2e3, 9e3), Gap: histOf(1000, 19e3, 21e3),
		Workers: []stats.Worker{
			{CPU: 2, Queue: 0, Duty: 0.41, Sent: 749500, Flows: 32, LagP99NS: 59e3, InvoluntarySwitches: 4, GuardNS: 55e3, UserNS: 9e9, SystemNS: 4e9},
			{CPU: -1, Node: 1, Queue: -1, Duty: 0.39, Sent: 749500, Flows: 32, LagP99NS: 58e3, GuardNS: 55e3, UserNS: 8e9, SystemNS: 4e9},
		},
		Counters:    []stats.Counter{{Name: "udp.RcvbufErrors", Delta: 3}, {Name: "ip.OutDiscards"}},
		Calibration: &stats.Calibration{ID: "cal-1", CeilingPPS: 210e3, Margin: 4.2, PayloadBytes: 48, Workers: 2},
		Verdict: stats.Verdict{Valid: true,
			Warnings: []stats.Reason{{Code: "numa", Detail: "1 of 2 workers run off NUMA node 0, where eth0 is: each packet crosses between nodes; choose --cpus of that node"}},
			SLOs: []stats.SLO{{Text: "p99<5ms", Met: true, Detail: "met: latency p99 is 1.19 ms, asked < 5.00 ms"},
				{Text: "loss<0.1%", Met: true, Detail: "met: loss (700 of 1,498,900 packets) is 0.047 %, asked < 0.10 %"}}},
	}
	r.Precision = precisionOf(r, 41200, 1830)
	for i := range 5 {
		r.Timeline = append(r.Timeline, stats.Second{T: float64(6 * (i + 1)), Planned: 300000, Sent: 299800 - uint64(i)*100, Replied: 299600,
			LagP50NS: 30e3, LagP99NS: 59e3 + int64(i)*100, LatencyP99NS: 1190e3 + int64(i)*1000, Steal: float64(i) / 1000})
	}
	r.Normalize()
	return r
}

// precisionOf gives r's latency quantiles intervals of 2 % to both sides, the last of them open, and halves that are alike.
func precisionOf(r *stats.Result, worth, lagWorth float64) *stats.Precision {
	p := &stats.Precision{Stationary: &stats.Stationary{Holds: true, Of: "latency",
		First:  stats.Half{Samples: r.Latency.Count / 2, MeanNS: r.Latency.Mean, P50NS: r.Latency.P50, P99NS: r.Latency.P99},
		Second: stats.Half{Samples: r.Latency.Count / 2, MeanNS: r.Latency.Mean, P50NS: r.Latency.P50, P99NS: r.Latency.P99},
		Detail: "latency from the first half to the second: mean +0.0 %, p50 +0.0 %, p99 +0.0 %: no change"}}
	add := func(of string, q float64, v int64, n uint64, worth float64, open bool) {
		p.Intervals = append(p.Intervals, stats.Interval{Of: of, Quantile: q, ValueNS: v, LowNS: v * 98 / 100, HighNS: v * 102 / 100, Level: 0.95, Samples: n, Effective: worth, Open: open})
	}
	add("latency", 0.5, r.Latency.P50, r.Latency.Count, worth, false)
	add("latency", 0.9, r.Latency.P90, r.Latency.Count, worth, false)
	add("latency", 0.99, r.Latency.P99, r.Latency.Count, worth, false)
	add("latency", 0.999, r.Latency.P999, r.Latency.Count, worth, true)
	add("lag", 0.999, r.Lag.P999, r.Lag.Count, lagWorth, false)
	return p
}

func bulk(n int, v int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// invalid makes a run one that measured the generator.
func invalid(r *stats.Result) *stats.Result {
	r.Verdict = stats.Verdict{Reasons: []stats.Reason{
		{Code: "duty", Detail: "1 of 2 workers were busy for more than 70.00 % of the time, the most the one on CPU 2 (91.00 %); about 38.5 kpps would have passed, or more workers"},
		{Code: "rate", Detail: "sent 45.0 kpps of 50.0 kpps asked: 90.00 % of the target, below 99.00 %; about 33.0 kpps would have passed"},
	}}
	r.Normalize()
	return r
}

// deadRun has no replies at all.
func deadRun() *stats.Result {
	r := echoRun()
	l := &r.Ledger
	l.Lost, l.LostUnknown = l.Sent, l.Sent
	r.Precision = nil
	l.LostUp, l.LostDown, l.Replied, l.Late, l.InFlight, l.Duplicate, l.Reordered = 0, 0, 0, 0, 0, 0, 0
	r.Latency, r.Service, r.Server, r.Rate.RepliedPPS = stats.Histogram{}, stats.Histogram{}, stats.Histogram{}, 0
	for i := range r.Timeline {
		r.Timeline[i].Replied, r.Timeline[i].LatencyP99NS = 0, 0
	}
	r.Verdict.SLOs = []stats.SLO{{Text: "p99<5ms", Detail: "not met: latency p99 lies among the 1,499,000 packets that were never answered"},
		{Text: "loss<0.1%", Detail: "not met: loss (1,499,000 of 1,499,000 packets) is 100.00 %, asked < 0.10 %"}}
	return r
}

// onewayRun has no replies and no plan.
func onewayRun() *stats.Result {
	r := echoRun()
	r.Config.Mode, r.Config.Paced, r.Config.Profile, r.Config.SLOs = stats.ModeOneway, false, "max", nil
	r.Ledger = stats.Ledger{Planned: 1500000, Sent: 1499000, Refused: map[string]uint64{"full": 1000}}
	r.Latency, r.Service, r.Server, r.Gap = stats.Histogram{}, stats.Histogram{}, stats.Histogram{}, stats.Histogram{}
	r.Precision = &stats.Precision{Intervals: r.Precision.Intervals[4:]}
	r.Rate.TargetPPS, r.Rate.RepliedPPS, r.Calibration, r.Events = 0, 0, nil, nil
	r.Verdict = stats.Verdict{Valid: true, Warnings: []stats.Reason{{Code: "no-plan", Detail: "--rate max has no plan"}}}
	r.Normalize()
	return r
}

// roundsRun has three rounds, one of them INVALID; the second is the headline.
func roundsRun() *stats.Result {
	rounds := []stats.Result{*echoRun(), *echoRun(), *invalid(echoRun())}
	rounds[0].Latency = histOf(1000, 40e3, 900e3)
	rounds[2].Latency = histOf(1000, 50e3, 9e9)
	r := echoRun()
	r.Rounds, r.Round, r.Config.Rounds, r.Spreads = rounds, 2, 3, stats.SpreadRounds(rounds)
	r.Precision.Stationary.Holds, r.Precision.Stationary.Detail = false, "latency from the first half to the second: mean +50.0 %, p50 +0.0 %, p99 +0.0 %: mean changed"
	return r
}
