package report

import (
	"io"
	"strconv"

	"blast/stats"
)

// Compare writes two results side by side: their verdicts, the settings they do not share, and every figure with the ratio of
// b to a. Ratios of what either run measured wrongly are marked INVALID.
func Compare(w io.Writer, a, b *stats.Result, o Options) error {
	p := newPage(o)
	for _, x := range []struct {
		name string
		r    *stats.Result
	}{{"A", a}, {"B", b}} {
		p.line(x.name, "%s  run %s, %s, started %s", p.verdictWord(x.r), x.r.RunID, x.r.Backend.Name, x.r.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
		for _, reason := range x.r.Verdict.Reasons {
			p.line("", "%s: %s", reason.Code, reason.Detail)
		}
	}
	p.blank()
	p.differences(a, b)
	p.blank()
	p.figures(a, b)
	return p.flush(w)
}

func (p *page) verdictWord(r *stats.Result) string {
	if r.Verdict.Valid {
		return p.paint(green, "VALID")
	}
	return p.paint(red, "INVALID")
}

// differences lists what makes the comparison one of more than one thing.
func (p *page) differences(a, b *stats.Result) {
	rows := [][]string{{"! settings that differ", "A", "B"}}
	theirs := b.Settings()
	for i, s := range a.Settings() {
		if s.Value != theirs[i].Value {
			rows = append(rows, []string{"! " + s.Name, orNone(s.Value), orNone(theirs[i].Value)})
		}
	}
	if len(rows) == 1 {
		p.line("settings", "all the same")
		return
	}
	p.table(rows)
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// figure is one row of the comparison; higher numbers are not always better, so the ratio is left without a judgement.
type figure struct {
	name  string
	value func(*stats.Result) float64
	write func(float64) string
	// speaks is true where a run that is INVALID must say so.
	speaks bool
	// of and quantile name the interval of the figure; "" where it is no quantile.
	of       string
	quantile float64
}

func figures() []figure {
	packets := func(v float64) string { return stats.FormatCount(uint64(v)) }
	nanos := func(v float64) string { return stats.FormatNS(int64(v)) }
	out := []figure{
		{name: "target rate", value: func(r *stats.Result) float64 { return r.Rate.TargetPPS }, write: stats.FormatPPS},
		{name: "achieved rate", value: func(r *stats.Result) float64 { return r.Rate.AchievedPPS }, write: stats.FormatPPS},
		{name: "replied rate", value: func(r *stats.Result) float64 { return r.Rate.RepliedPPS }, write: stats.FormatPPS},
		{name: "L1", value: func(r *stats.Result) float64 { return r.Rate.L1BPS }, write: stats.FormatBPS},
		{name: "sent", value: func(r *stats.Result) float64 { return float64(r.Ledger.Sent) }, write: packets},
		{name: "refused, abandoned, dropped", value: func(r *stats.Result) float64 { return float64(r.Ledger.Unsent()) }, write: packets},
		{name: "late", value: func(r *stats.Result) float64 { return float64(r.Ledger.Late) }, write: packets, speaks: true},
		{name: "lost", value: func(r *stats.Result) float64 { return float64(r.Ledger.Lost) }, write: packets, speaks: true},
		{name: "loss", value: lossOf, write: stats.FormatPercent, speaks: true},
		{name: "reordered", value: func(r *stats.Result) float64 { return float64(r.Ledger.Reordered) }, write: packets, speaks: true},
	}
	for _, s := range []struct {
		name   string
		hist   func(*stats.Result) *stats.Histogram
		speaks bool
	}{
		{"latency", func(r *stats.Result) *stats.Histogram { return &r.Latency }, true},
		{"service time", func(r *stats.Result) *stats.Histogram { return &r.Service }, true},
		{"lag", func(r *stats.Result) *stats.Histogram { return &r.Lag }, false},
	} {
		out = append(out, figure{name: s.name + " n", value: func(r *stats.Result) float64 { return float64(s.hist(r).Count) }, write: packets, speaks: s.speaks})
		for i, get := range []func(*stats.Histogram) int64{
			func(h *stats.Histogram) int64 { return h.P50 }, func(h *stats.Histogram) int64 { return h.P90 }, func(h *stats.Histogram) int64 { return h.P99 },
			func(h *stats.Histogram) int64 { return h.P999 }, func(h *stats.Histogram) int64 { return h.P9999 }, func(h *stats.Histogram) int64 { return h.Max },
		} {
			name := append(append([]string{}, quantileNames...), "max")[i]
			f := figure{name: s.name + " " + name, value: func(r *stats.Result) float64 { return float64(get(s.hist(r))) }, write: nanos, speaks: s.speaks}
			if i < len(quantiles) {
				f.of, f.quantile = s.name, quantiles[i]
			}
			out = append(out, f)
		}
	}
	return append(out, figure{name: "busiest worker's duty", value: (*stats.Result).Duty, write: stats.FormatPercent})
}

// lossOf is the share of packets with a known fate that were lost; 0 where there are none.
func lossOf(r *stats.Result) float64 {
	loss, _ := r.Ledger.Loss()
	return loss
}

func (p *page) figures(a, b *stats.Result) {
	rows := [][]string{{"", "A", "B", "B / A", "", ""}}
	shown := false
	for _, f := range figures() {
		x, y := f.value(a), f.value(b)
		if x == 0 && y == 0 {
			continue
		}
		mark := ""
		if f.speaks {
			mark = invalidSides(a, b)
		}
		says := differ(f.of, f.quantile, a, b)
		shown = shown || says != ""
		rows = append(rows, []string{f.name, f.write(x), f.write(y), ratio(x, y), says, mark})
	}
	p.table(rows)
	if shown {
		p.line("", "(no difference shown: the 95 %% intervals of A and B overlap; differ: they do not)")
	}
}

func invalidSides(a, b *stats.Result) string {
	switch {
	case !a.Verdict.Valid && !b.Verdict.Valid:
		return "INVALID both"
	case !a.Verdict.Valid:
		return "INVALID A"
	case !b.Verdict.Valid:
		return "INVALID B"
	}
	return ""
}

func ratio(a, b float64) string {
	if a == 0 {
		return "-"
	}
	return strconv.FormatFloat(b/a, 'f', 3, 64)
}
