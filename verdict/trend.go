package verdict

import (
	"math"
	"slices"

	"blast/stats"
)

// The lag-trend rule. A generator that falls behind for good has a lag that grows all through the run. Three things must hold
// for that, so that noise and a slow first second do not look like it:
//
//   - at least trendIntervals intervals, and a plan that does not climb by itself (ramps are judged by the lag alone);
//   - the Theil-Sen slope of the per-interval median lag (the median of the slopes of all pairs; up to 29 % of the intervals may
//     be wild; Sen 1968) times the run's length is a rise above TrendShare of MaxLag;
//   - the Mann-Kendall test says the rise is none of chance: z above trendZ, about 1 % of trendless runs (one in 120 at five
//     intervals, where only a rise in every step passes).
const (
	trendIntervals = 5
	trendPoints    = 300
	trendZ         = 2.2
	climb          = 0.10 // rise of the plan over the run, as a share of its median, that makes it a ramp
)

func (j *judge) lagTrend() {
	line := j.r.Timeline
	if !j.r.Config.Paced || len(line) < trendIntervals {
		return
	}
	t, lag, planned := points(line)
	length := t[len(t)-1] - t[0]
	if length <= 0 || theilSen(t, planned)*length > climb*median(slices.Clone(planned)) {
		return
	}
	slope := theilSen(t, lag) // ns of lag per s
	rise, limit := slope*length, j.l.TrendShare*float64(j.l.MaxLag)
	if rise <= limit || mannKendall(lag) <= trendZ {
		return
	}
	// Lag that grows by g s per s means that a share g of the plan is not kept.
	pps := min(0.95*j.r.Rate.TargetPPS*max(1-slope/1e9, 0), j.sustainable())
	j.invalid(CodeLagTrend, "the median lag rose all through the run, by %s over %.0f s (limit %s): sending never caught up%s",
		stats.FormatNS(int64(rise)), length, stats.FormatNS(int64(limit)), wouldPass(pps))
}

// points turns a timeline into time in s, median lag in ns and planned rate in packets/s. Long timelines are thinned to at most
// trendPoints, each the medians of neighbours: both tests compare every pair.
func points(line []stats.Second) (t, lag, planned []float64) {
	group := (len(line) + trendPoints - 1) / trendPoints
	before := 0.0
	for part := range slices.Chunk(line, group) {
		var lags, rates []float64
		for _, s := range part {
			lags = append(lags, float64(s.LagP50NS))
			if s.T > before {
				rates = append(rates, float64(s.Planned)/(s.T-before))
			}
			before = s.T
		}
		t, lag, planned = append(t, before), append(lag, median(lags)), append(planned, median(rates))
	}
	return t, lag, planned
}

// theilSen is the median slope over all pairs of points; x rises.
func theilSen(x, y []float64) float64 {
	slopes := make([]float64, 0, len(x)*(len(x)-1)/2)
	for i := range x {
		for k := i + 1; k < len(x); k++ {
			if x[k] > x[i] {
				slopes = append(slopes, (y[k]-y[i])/(x[k]-x[i]))
			}
		}
	}
	return median(slopes)
}

// mannKendall is the test's z with continuity correction; positive for a rise. Variance n(n-1)(2n+5)/18, without ties: ties
// make z smaller than it could be, the cautious side.
func mannKendall(y []float64) float64 {
	s := 0
	for i := range y {
		for k := i + 1; k < len(y); k++ {
			switch {
			case y[k] > y[i]:
				s++
			case y[k] < y[i]:
				s--
			}
		}
	}
	n := float64(len(y))
	return (float64(s) - 1) / math.Sqrt(n*(n-1)*(2*n+5)/18)
}

// median sorts v; 0 for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
