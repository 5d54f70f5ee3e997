package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"blast/stats"
)

// percentilePicture holds latency, service time and lag in one picture, over 1/(1-share) as HdrHistogram's plots do. nil where there
// is no sample.
func percentilePicture(r *stats.Result) (*picture, error) {
	p := &picture{id: "percentiles", title: "Time by percentile", untitled: true, height: 380,
		note: "Each further nine to the right takes as much room as the one before, so that the tail is as readable as the middle.",
		desc: inWords("latency"+invalidWord(r), &r.Latency) + inWords("service time"+invalidWord(r), &r.Service) + inWords("lag", &r.Lag)}
	low, high, most := math.Inf(1), 0.0, uint64(0)
	curve := func(name string, s stroke, h *stats.Histogram, missing uint64) error {
		if h.Count == 0 {
			return nil
		}
		run, err := percentiles(h, missing)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.add(name, s, run)
		low, high, most = math.Min(low, float64(h.Min)), math.Max(high, float64(h.Max)), max(most, h.Count+missing)
		return nil
	}
	missing := r.Unanswered(r.Latency.Count)
	if r.Latency.Count > 0 && missing > 0 {
		err := curve("latency, lost packets counted as slowest"+invalidWord(r), stroke{ink: inkMain, width: 1.2, dashes: []float64{2, 2}}, &r.Latency, missing)
		if err != nil {
			return nil, err
		}
	}
	lag := strokeMuted
	if r.Config.Mode == stats.ModeOneway {
		lag = strokeMain
	}
	for _, c := range []struct {
		name  string
		style stroke
		hist  *stats.Histogram
	}{{"lag (planned to sent)", lag, &r.Lag}, {"service time (sent to reply)" + invalidWord(r), strokeDashed, &r.Service},
		{"latency (planned to reply)" + invalidWord(r), strokeMain, &r.Latency}} {
		if err := curve(c.name, c.style, c.hist, 0); err != nil {
			return nil, err
		}
	}
	slices.Reverse(p.keys) // the first drawn lies lowest and is named last
	p.spots = intervalSpots(r)
	if len(p.spots) > 0 {
		p.keys = append(p.keys, key{Name: fmt.Sprintf("%.0f %% confidence", r.Precision.Intervals[0].Level*100), Ink: inkMain, Shape: "range"})
	}
	p.x = nineAxis("percentile of packets, %", float64(most))
	p.y = timeAxis("time, logarithmic", low, high)
	return p, nil
}

func inWords(name string, h *stats.Histogram) string {
	if h.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s, max %s of %s. ", name, stats.FormatNS(h.P50), stats.FormatNS(h.P99), stats.FormatNS(h.P999), stats.FormatNS(h.Max),
		counted(h.Count, "sample"))
}

// intervalSpots are the confidence intervals of what the picture is about.
func intervalSpots(r *stats.Result) []spot {
	if r.Precision == nil {
		return nil
	}
	of := "latency"
	if r.Config.Mode == stats.ModeOneway {
		of = "lag"
	}
	var out []spot
	for _, i := range r.Precision.Intervals {
		if i.Of == of && i.Quantile < 1 && !i.Open {
			out = append(out, spot{x: 1 / (1 - i.Quantile), y: float64(i.ValueNS), low: float64(i.LowNS), high: float64(i.HighNS), ink: inkMain})
		}
	}
	return out
}

// percentiles is the distribution of s among missing further samples slower than any, as steps: x = 1/(1-share below), y in ns. The last
// sample stands at x = number of samples.
func percentiles(s *stats.Histogram, missing uint64) (plotter.XYs, error) {
	h, err := s.Hist()
	if err != nil {
		return nil, err
	}
	n := float64(s.Count + missing)
	var run plotter.XYs
	var seen uint64
	h.Each(func(_, top int64, count uint64) {
		y := float64(max(min(top, s.Max), 1))
		from := n / (n - float64(seen))
		seen += count
		to := n / math.Max(n-float64(seen), 1)
		run = append(run, plotter.XY{X: from, Y: y}, plotter.XY{X: to, Y: y})
	})
	return run, nil
}

// course makes a run of steps of the intervals of a timeline, x in the unit of by seconds. Intervals for which value reports false part
// it.
func course(timeline []stats.Second, by float64, value func(s stats.Second, length float64) (float64, bool)) []plotter.XYs {
	var runs []plotter.XYs
	joined, before := false, 0.0
	for _, s := range timeline {
		length := s.T - before
		if length <= 0 {
			continue
		}
		v, ok := value(s, length)
		if ok && !joined {
			runs = append(runs, nil)
		}
		if joined = ok; ok {
			last := &runs[len(runs)-1]
			*last = append(*last, plotter.XY{X: before / by, Y: v}, plotter.XY{X: s.T / by, Y: v})
		}
		before = s.T
	}
	return runs
}

// highest is the largest y of all lines.
func (f *picture) highest() float64 {
	high := 0.0
	for _, l := range f.lines {
		for _, run := range l.runs {
			for _, xy := range run {
				high = math.Max(high, xy.Y)
			}
		}
	}
	return high
}

// lowest is the smallest y of all lines.
func (f *picture) lowest() float64 {
	low := math.Inf(1)
	for _, l := range f.lines {
		for _, run := range l.runs {
			for _, xy := range run {
				low = math.Min(low, xy.Y)
			}
		}
	}
	return low
}

func lengthOf(timeline []stats.Second) float64 {
	if len(timeline) == 0 {
		return 0
	}
	return timeline[len(timeline)-1].T
}

func perSecond(count func(stats.Second) uint64) func(stats.Second, float64) (float64, bool) {
	return func(s stats.Second, length float64) (float64, bool) { return float64(count(s)) / length, true }
}

// ratePicture shows what was planned, sent and answered.
func ratePicture(r *stats.Result) *picture {
	p := &picture{id: "rates", title: "Rate", height: 220, desc: fmt.Sprintf("Packets a second in each interval: sent on average %s.", stats.FormatPPS(r.Rate.AchievedPPS))}
	x, by := elapsed(lengthOf(r.Timeline))
	if r.Config.Paced {
		p.add("planned", strokeFaint, course(r.Timeline, by, perSecond(func(s stats.Second) uint64 { return s.Planned }))...)
	}
	sent := strokeMain
	if r.Config.Mode == stats.ModeEcho {
		sent = strokeText
		p.add("sent", sent, course(r.Timeline, by, perSecond(func(s stats.Second) uint64 { return s.Sent }))...)
		replied := stroke{ink: inkMain, width: 2, dashes: []float64{5, 4}}
		p.add("replied", replied, course(r.Timeline, by, perSecond(func(s stats.Second) uint64 { return s.Replied }))...)
	} else {
		p.add("sent", sent, course(r.Timeline, by, perSecond(func(s stats.Second) uint64 { return s.Sent }))...)
	}
	p.x, p.y = x, rateAxis("packets per second", p.highest()*1.08)
	return p
}

// delayPicture shows the tail of latency and of lag.
func delayPicture(r *stats.Result) *picture {
	p := &picture{id: "delays", title: "Latency and lag", height: 260, desc: "Percentiles of each interval: latency p99, lag p99 and lag p50."}
	x, by := elapsed(lengthOf(r.Timeline))
	positive := func(v func(stats.Second) int64) func(stats.Second, float64) (float64, bool) {
		return func(s stats.Second, _ float64) (float64, bool) { return float64(v(s)), v(s) > 0 }
	}
	p.add("lag p50", strokeMuted, course(r.Timeline, by, positive(func(s stats.Second) int64 { return s.LagP50NS }))...)
	lag := strokeDashed
	if r.Config.Mode == stats.ModeOneway {
		p.title, p.desc, lag = "Lag", "Percentiles of each interval: lag p99 and lag p50.", strokeMain
	}
	p.add("lag p99", lag, course(r.Timeline, by, positive(func(s stats.Second) int64 { return s.LagP99NS }))...)
	if r.Config.Mode == stats.ModeEcho {
		p.add("latency p99"+invalidWord(r), strokeMain, course(r.Timeline, by, positive(func(s stats.Second) int64 { return s.LatencyP99NS }))...)
	}
	slices.Reverse(p.keys)
	if p.empty() {
		return nil
	}
	p.x, p.y = x, timeAxis("time, logarithmic", p.lowest(), p.highest())
	return p
}

// unansweredPicture shows how many more packets left than replies came; nil where every packet had its reply in time.
func unansweredPicture(r *stats.Result) *picture {
	if l := &r.Ledger; r.Config.Mode != stats.ModeEcho || l.Lost+l.Late+l.InFlight == 0 {
		return nil
	}
	p := &picture{id: "unanswered", title: "Without a reply so far", height: 180,
		note: "Packets sent less replies received since the start: lost ones, and those still on their way.",
		desc: fmt.Sprintf("Packets sent less replies received, summed from the start: %s lost and %s in flight at the end.", stats.FormatCount(r.Ledger.Lost), stats.FormatCount(r.Ledger.InFlight))}
	x, by := elapsed(lengthOf(r.Timeline))
	open := 0.0
	p.add("", strokeMain, course(r.Timeline, by, func(s stats.Second, _ float64) (float64, bool) {
		open += float64(s.Sent) - float64(s.Replied)
		return math.Max(open, 0), true
	})...)
	if p.empty() {
		return nil
	}
	p.x, p.y = x, rateAxis("packets", math.Max(p.highest()*1.08, 4))
	return p
}

// stealPicture shows the CPU time that others took; nil where they took none.
func stealPicture(r *stats.Result) *picture {
	p := &picture{id: "steal", title: "CPU time stolen", height: 160, note: "By the hypervisor or a cgroup quota.", desc: "Share of CPU time taken away in each interval."}
	x, by := elapsed(lengthOf(r.Timeline))
	p.add("", strokeText, course(r.Timeline, by, func(s stats.Second, _ float64) (float64, bool) { return s.Steal * 100, true })...)
	if p.empty() || p.highest() == 0 {
		return nil
	}
	p.x, p.y = x, plainAxis("share of CPU time, %", p.highest()*1.08)
	return p
}
