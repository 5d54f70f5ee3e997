package report

import (
	"fmt"
	"math"
	"strconv"

	"blast/stats"
)

// precision is how far the quoted quantiles can be trusted, and whether the run was one thing all through.
func (p *page) precision(r *stats.Result) {
	x := r.Precision
	if x == nil || len(x.Intervals) == 0 && x.Stationary == nil {
		return
	}
	rows := [][]string{{intervalHead(x), "value", "from", "to", "samples", "worth"}}
	open := false
	for i := range x.Intervals {
		v := &x.Intervals[i]
		open = open || v.Open
		rows = append(rows, append([]string{v.Of + " " + quantileName(v.Quantile) + invalidLatency(r, v.Of)}, intervalCells(v)...))
	}
	if len(rows) > 1 {
		p.table(rows)
		note := ""
		if open {
			note = "; open: too few of them lie beyond the quantile to bound it"
		}
		p.line("", "(from the scatter among stretches of the run; worth: the independent samples that would scatter as much%s)", note)
	}
	if s := x.Stationary; s != nil {
		rows := [][]string{{"halves", "samples", "mean", "p50", "p99"}}
		for _, h := range []struct {
			name string
			half *stats.Half
		}{{"first", &s.First}, {"second", &s.Second}} {
			rows = append(rows, []string{s.Of + ", " + h.name + invalidLatency(r, s.Of), stats.FormatCount(h.half.Samples), stats.FormatNS(int64(h.half.MeanNS)),
				stats.FormatNS(h.half.P50NS), stats.FormatNS(h.half.P99NS)})
		}
		if len(x.Intervals) > 0 {
			p.blank()
		}
		p.table(rows)
		p.line(steadiness(s), "%s", s.Detail)
	}
	p.blank()
}

// intervalCells are the value, its bounds, and the samples that they rest on.
func intervalCells(v *stats.Interval) []string {
	high := fineNS(v.HighNS)
	if v.Open {
		high = "open"
	}
	return []string{fineNS(v.ValueNS), fineNS(v.LowNS), high, stats.FormatCount(v.Samples), stats.FormatCount(uint64(max(v.Effective, 0)))}
}

// steadiness says in a word whether the halves of a run were alike.
func steadiness(s *stats.Stationary) string {
	switch {
	case !s.Holds:
		return "UNSTEADY"
	case !s.Clear():
		return "unclear"
	}
	return "steady"
}

// intervalHead says what probability the intervals have; they are all of one.
func intervalHead(x *stats.Precision) string {
	if len(x.Intervals) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g %% interval", 100*x.Intervals[0].Level)
}

// invalidLatency goes behind the name of a figure of a histogram: all but the lag speak about the target.
func invalidLatency(r *stats.Result, of string) string {
	if of == "lag" || r.Verdict.Valid {
		return ""
	}
	return " INVALID"
}

// fineNS is stats.FormatNS with a digit more: intervals are often narrower than three digits show.
func fineNS(ns int64) string {
	v, unit := float64(ns), 0
	names := []string{" ns", " us", " ms", " s"}
	for unit < len(names)-1 && math.Abs(v) >= 999.95 {
		v /= 1000
		unit++
	}
	places := 3
	switch a := math.Abs(v); {
	case unit == 0:
		places = 0
	case a >= 99.995:
		places = 1
	case a >= 9.9995:
		places = 2
	}
	return strconv.FormatFloat(v, 'f', places, 64) + names[unit]
}

// spreads is how far the rounds are apart.
func (p *page) spreads(r *stats.Result) {
	if len(r.Spreads) == 0 {
		return
	}
	bad := 0
	for i := range r.Rounds {
		if !r.Rounds[i].Verdict.Valid {
			bad++
		}
	}
	rows := [][]string{{"over the rounds", "median", "least", "most", "spread"}}
	for _, s := range r.Spreads {
		name, write := spreadName(s.Name), writerOf(s.Name)
		if speaks(s.Name) && (bad > 0 || !r.Verdict.Valid) {
			name += " INVALID"
		}
		rows = append(rows, []string{name, write(s.Median), write(s.Min), write(s.Max), stats.FormatPercent(s.Relative)})
	}
	p.table(rows)
	says := ""
	if bad > 0 {
		says = fmt.Sprintf("; %s INVALID and inside", map[bool]string{true: "1 round is", false: strconv.Itoa(bad) + " rounds are"}[bad == 1])
	}
	p.line("", "(spread: (most - least) / median%s)", says)
	p.blank()
}

// speaks reports whether the figure at a path in a Result speaks about the target.
func speaks(path string) bool {
	switch path {
	case "rate.achieved_pps", "lag_ns.p999", "duty":
		return false
	}
	return true
}

// differ says what the intervals of a quantile in two runs show; "" where one of them is not known.
func differ(of string, quantile float64, a, b *stats.Result) string {
	x, y := a.Precision.Interval(of, quantile), b.Precision.Interval(of, quantile)
	if x == nil || y == nil {
		return ""
	}
	above := func(v, w *stats.Interval) bool { return !w.Open && v.LowNS > w.HighNS }
	if above(x, y) || above(y, x) {
		return "differ"
	}
	return "no difference shown"
}
