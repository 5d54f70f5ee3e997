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
}

func figures() []figure {
	packets := func(v float64) string { return stats.FormatCount(uint64(v)) }
	nanos := func(v float64) string { return stats.FormatNS(int64(v)) }
	out := []figure{
		{"target rate", func(r *stats.Result) float64 { return r.Rate.TargetPPS }, stats.FormatPPS, false},
		{"achieved rate", func(r *stats.Result) float64 { return r.Rate.AchievedPPS }, stats.FormatPPS, false},
		{"replied rate", func(r *stats.Result) float64 { return r.Rate.RepliedPPS }, stats.FormatPPS, false},
		{"L1", func(r *stats.Result) float64 { return r.Rate.L1BPS }, stats.FormatBPS, false},
		{"sent", func(r *stats.Result) float64 { return float64(r.Ledger.Sent) }, packets, false},
		{"refused, abandoned, dropped", func(r *stats.Result) float64 { return float64(r.Ledger.Unsent()) }, packets, false},
		{"late", func(r *stats.Result) float64 { return float64(r.Ledger.Late) }, packets, true},
		{"lost", func(r *stats.Result) float64 { return float64(r.Ledger.Lost) }, packets, true},
		{"loss", lossOf, stats.FormatPercent, true},
		{"reordered", func(r *stats.Result) float64 { return float64(r.Ledger.Reordered) }, packets, true},
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
		out = append(out, figure{s.name + " n", func(r *stats.Result) float64 { return float64(s.hist(r).Count) }, packets, s.speaks})
		for i, get := range []func(*stats.Histogram) int64{
			func(h *stats.Histogram) int64 { return h.P50 }, func(h *stats.Histogram) int64 { return h.P90 }, func(h *stats.Histogram) int64 { return h.P99 },
			func(h *stats.Histogram) int64 { return h.P999 }, func(h *stats.Histogram) int64 { return h.P9999 }, func(h *stats.Histogram) int64 { return h.Max },
		} {
			name := append(append([]string{}, quantileNames...), "max")[i]
			out = append(out, figure{s.name + " " + name, func(r *stats.Result) float64 { return float64(get(s.hist(r))) }, nanos, s.speaks})
		}
	}
	return append(out, figure{"busiest worker's duty", dutyOf, stats.FormatPercent, false})
}

// lossOf is lost / (sent - in flight).
func lossOf(r *stats.Result) float64 {
	known := r.Ledger.Sent - min(r.Ledger.InFlight, r.Ledger.Sent)
	if known == 0 {
		return 0
	}
	return float64(r.Ledger.Lost) / float64(known)
}

func dutyOf(r *stats.Result) float64 {
	most := 0.0
	for i := range r.Workers {
		most = max(most, r.Workers[i].Duty)
	}
	return most
}

func (p *page) figures(a, b *stats.Result) {
	rows := [][]string{{"", "A", "B", "B / A", ""}}
	for _, f := range figures() {
		x, y := f.value(a), f.value(b)
		if x == 0 && y == 0 {
			continue
		}
		mark := ""
		if f.speaks {
			mark = invalidSides(a, b)
		}
		rows = append(rows, []string{f.name, f.write(x), f.write(y), ratio(x, y), mark})
	}
	p.table(rows)
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
