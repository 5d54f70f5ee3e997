package stats

// quoted are the quantiles that a report quotes and gives intervals for.
var quoted = []float64{0.5, 0.9, 0.99, 0.999}

// Course is how the distributions of a run came about over its measured time. The zero value is empty.
type Course struct {
	Latency, Lag Batches
}

// Precision says how far the figures can be trusted, latency and lag being the histograms of all samples. Of latency it tells the interval
// of every quoted quantile, of lag that of p99.9, by which a run is judged; without latencies, of every one. steady says that the plan is
// of one rate, so that the halves of the run can be compared.
func (c *Course) Precision(latency, lag *Hist, steady bool) *Precision {
	p := &Precision{Intervals: []Interval{}}
	add := func(of string, b *Batches, whole *Hist, quantiles ...float64) {
		for _, q := range quantiles {
			if v, ok := b.Interval(of, whole, q); ok {
				p.Intervals = append(p.Intervals, v)
			}
		}
	}
	main, of := &c.Lag, "lag"
	if latency.hi > 0 {
		main, of = &c.Latency, "latency"
		add(of, main, latency, quoted...)
		add("lag", &c.Lag, lag, 0.999)
	} else {
		add(of, main, lag, quoted...)
	}
	if steady {
		p.Stationary = main.Stationary(of)
	}
	return p
}

// Interval is the interval of a quantile of a histogram, such as 0.99 of "latency"; nil where there is none, also for a nil p.
func (p *Precision) Interval(of string, quantile float64) *Interval {
	if p == nil {
		return nil
	}
	for i := range p.Intervals {
		if v := &p.Intervals[i]; v.Of == of && v.Quantile == quantile {
			return v
		}
	}
	return nil
}
