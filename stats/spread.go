package stats

import "slices"

// SpreadRounds puts the figures of rounds side by side: median (of an even number the mean of the middle two), least, most. Of latencies it
// leaves out rounds without replies, and with fewer than two rounds there is nothing to tell.
func SpreadRounds(rounds []Result) []Spread {
	if len(rounds) < 2 {
		return nil
	}
	echo := rounds[0].Config.Mode != ModeOneway
	var out []Spread
	add := func(name string, value func(*Result) (float64, bool)) {
		var all []float64
		for i := range rounds {
			if v, ok := value(&rounds[i]); ok {
				all = append(all, v)
			}
		}
		if len(all) > 1 {
			out = append(out, spreadOf(name, all))
		}
	}
	histogram := func(name string, of func(*Result) *Histogram, figure func(*Histogram) int64) {
		add(name, func(r *Result) (float64, bool) { h := of(r); return float64(figure(h)), h.Count > 0 })
	}
	latency := func(r *Result) *Histogram { return &r.Latency }
	histogram("latency_ns.p50", latency, func(h *Histogram) int64 { return h.P50 })
	histogram("latency_ns.p99", latency, func(h *Histogram) int64 { return h.P99 })
	histogram("latency_ns.p999", latency, func(h *Histogram) int64 { return h.P999 })
	histogram("latency_ns.max", latency, func(h *Histogram) int64 { return h.Max })
	add("rate.achieved_pps", func(r *Result) (float64, bool) { return r.Rate.AchievedPPS, true })
	if echo {
		add("rate.replied_pps", func(r *Result) (float64, bool) { return r.Rate.RepliedPPS, true })
		add("loss", func(r *Result) (float64, bool) { return r.Ledger.Loss() })
	}
	histogram("lag_ns.p999", func(r *Result) *Histogram { return &r.Lag }, func(h *Histogram) int64 { return h.P999 })
	add("duty", func(r *Result) (float64, bool) { return r.Duty(), len(r.Workers) > 0 })
	return out
}

// spreadOf sorts values, of which there is at least one.
func spreadOf(name string, values []float64) Spread {
	slices.Sort(values)
	n := len(values)
	s := Spread{Name: name, Median: values[(n-1)/2]/2 + values[n/2]/2, Min: values[0], Max: values[n-1]}
	if s.Median > 0 {
		s.Relative = (s.Max - s.Min) / s.Median
	}
	return s
}

// Loss is the share of packets with a known fate that were lost: lost / (sent - in flight). It reports false where there are none.
func (l *Ledger) Loss() (float64, bool) {
	if l.Sent <= l.InFlight {
		return 0, false
	}
	return float64(l.Lost) / float64(l.Sent-l.InFlight), true
}

// Duty is that of the busiest worker; 0 without workers.
func (r *Result) Duty() float64 {
	most := 0.0
	for i := range r.Workers {
		most = max(most, r.Workers[i].Duty)
	}
	return most
}
