package report

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"

	"blast/stats"
)

// segmentSection says where the time of sampled packets went.
func segmentSection(r *stats.Result) section {
	s := section{ID: "segments", Title: "Where the time went"}
	g := r.Segments
	if g == nil {
		return s
	}
	s.Lead = fmt.Sprintf("By %s stamps on one packet in %s: %s complete, %s incomplete.", orNone(g.Stamps), stats.FormatCount(g.Every), stats.FormatCount(g.Complete), stats.FormatCount(g.Incomplete))
	var facts []fact
	if g.Complete > 0 {
		s.Lead += " The parts of a packet follow one another without a gap, so their means add up to the mean latency of the sampled packets, " + stats.FormatNS(int64(g.Latency.Mean)) + invalidWord(r) + "."
		s.Parts = append(pictures(segmentPicture(r)), part{Table: segmentTable(r)})
		facts = []fact{{"clocks", segmentClocks(g)}, {"residual", []string{"latency and the sum of its parts are at most " + stats.FormatNS(g.ResidualNS) + " apart"}}}
	}
	if len(g.Notes) > 0 {
		facts = append(facts, fact{"stamps", g.Notes})
	}
	if len(facts) > 0 {
		s.Parts = append(s.Parts, part{Facts: facts})
	}
	return s
}

// segmentTable has a row for each part, and last their latency.
func segmentTable(r *stats.Result) *table {
	g := r.Segments
	t := &table{Left: 2, Head: []string{"part", "", "mean", "share", "p50", "p99", "p99.9", "max"},
		Note: "Percentiles of parts do not add up: the slowest packets of one part are not those of another."}
	for _, part := range g.Parts {
		words := segmentName(g, part.Name)
		share := 0.0
		if g.Latency.Mean > 0 {
			share = part.NS.Mean / g.Latency.Mean
		}
		t.Rows = append(t.Rows, row{Ink: words.whose, Invalid: !r.Verdict.Valid && words.whose == inkTarget, Cells: []string{words.short, words.meaning, stats.FormatNS(int64(part.NS.Mean)),
			fmt.Sprintf("%.1f %%", share*100), stats.FormatNS(part.NS.P50), stats.FormatNS(part.NS.P99), stats.FormatNS(part.NS.P999), stats.FormatNS(part.NS.Max)}})
	}
	t.Rows = append(t.Rows, row{Cells: []string{"latency", "of the sampled packets", stats.FormatNS(int64(g.Latency.Mean)), "100 %", stats.FormatNS(g.Latency.P50),
		stats.FormatNS(g.Latency.P99), stats.FormatNS(g.Latency.P999), stats.FormatNS(g.Latency.Max)}, Invalid: !r.Verdict.Valid})
	return t
}

// segmentClocks say by which clocks the parts were told apart; the sentences are those of the text.
func segmentClocks(g *stats.Segments) []string {
	var lines []string
	for _, says := range []string{serverClock(g), deviceClock(g)} {
		if says != "" {
			lines = append(lines, strings.TrimPrefix(says, "; "))
		}
	}
	if len(lines) == 0 {
		return []string{"the server's clock is not known to be ours"}
	}
	return lines
}

// segmentPicture is a bar for each part, beginning where the one before ended: the stacked bar of the mean packet, unrolled, so that small
// parts can be seen and named.
func segmentPicture(r *stats.Result) *picture {
	g := r.Segments
	p := &picture{id: "segments-mean", title: "The mean packet, from planned to received", desc: "Mean time of each part in order" + invalidWord(r) + ": ",
		keys: []key{{Name: "generator, sending", Ink: inkSend, Shape: "box"}, {Name: "network and target" + invalidWord(r), Ink: inkTarget, Shape: "box"},
			{Name: "generator, receiving", Ink: inkTake, Shape: "box"}}}
	var names []plot.Tick
	total := 0.0
	for _, x := range g.Parts {
		total += x.NS.Mean
	}
	unit, by := "ns", 1.0
	for _, u := range []struct {
		name string
		size float64
	}{{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}} {
		if total >= u.size*2 {
			unit, by = u.name, u.size
		}
	}
	at := 0.0
	for i, x := range g.Parts {
		words := segmentName(g, x.Name)
		row := len(g.Parts) - 1 - i
		p.bars = append(p.bars, bar{x0: at / by, x1: (at + x.NS.Mean) / by, row: row, ink: words.whose})
		names = append(names, plot.Tick{Value: float64(row), Label: words.short})
		p.desc += fmt.Sprintf("%s %s. ", words.short, stats.FormatNS(int64(x.NS.Mean)))
		at += x.NS.Mean
	}
	p.height = 70 + 28*float64(len(g.Parts))
	p.x = plainAxis("time since planned, "+unit, total/by*1.02)
	p.y = axis{low: -0.5, high: float64(len(g.Parts)) - 0.5, marks: func(_, _ float64, _ int) []plot.Tick { return names }}
	return p
}

// departureSection compares when packets really left with the plan.
func departureSection(r *stats.Result) section {
	s := section{ID: "departures", Title: "Evenness"}
	t := &table{Left: 1, Head: append(append([]string{"", "samples"}, quantileNames...), "max")}
	add := func(name string, h *stats.Histogram) {
		if h.Count > 0 {
			t.Rows = append(t.Rows, row{Cells: append([]string{name}, quantileCells(h)...)})
		}
	}
	add("gap between departures", &r.Gap)
	if d := r.Departures; d != nil {
		s.Lead = "When packets really left, by stamps of " + departureSource(d.Source) + ", against the plan."
		add("|gap - planned gap|", &d.Error)
		if f := d.Test; f != nil {
			s.Parts = append(s.Parts, part{Facts: []fact{{"test", []string{fitSentence(f)}}}})
		}
	}
	if len(t.Rows) > 0 {
		s.Parts = append([]part{{Table: t}}, s.Parts...)
	}
	return s
}

func departureSource(source string) string {
	switch source {
	case "tx_software":
		return "the kernel"
	case "tx_hardware":
		return "the network card"
	case "xdp":
		return "the XDP program"
	}
	return source
}
