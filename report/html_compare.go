package report

import (
	"fmt"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"blast/stats"
)

// HTMLCompare writes two results as one page: their verdicts, the settings they do not share, every figure with the ratio of b to a, and
// their distributions and timelines laid over one another. Results of different hosts are compared, and the page says that they are.
func HTMLCompare(w io.Writer, a, b *stats.Result) error {
	d := &document{
		Kind: "comparison", Subject: subject(a.Config.Targets), Circumstance: "A: " + circumstance(a) + ". B: " + circumstance(b) + ".",
		Verdicts: []banner{verdictBanner("A: run "+a.RunID+", "+a.Backend.Name, a), verdictBanner("B: run "+b.RunID+", "+b.Backend.Name, b)},
		Foot:     foot(&a.Host),
	}
	if theirs := subject(b.Config.Targets); theirs != d.Subject {
		d.Subject += " against " + theirs
	}
	d.Headlines = ratios(a, b)
	d.add(differenceSection(a, b))
	latency, err := overlay("latency-overlay", "Latency by percentile", a, b, func(r *stats.Result) []*stats.Histogram { return []*stats.Histogram{&r.Latency, &r.Service} })
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	lag, err := overlay("lag-overlay", "Lag by percentile", a, b, func(r *stats.Result) []*stats.Histogram { return []*stats.Histogram{&r.Lag} })
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	d.add(section{ID: "distribution", Title: "Distributions", Parts: pictures(latency, lag)})
	d.add(section{ID: "timeline", Title: "Course of the runs", Lead: "Both from the start of their measured parts.", Parts: pictures(ratesOverlay(a, b), delaysOverlay(a, b))})
	d.add(section{ID: "figures", Title: "Figures", Lead: "More is not always better, so the ratios are left without a judgement.", Parts: []part{{Table: comparison(a, b)}}})
	for _, x := range []struct {
		name string
		r    *stats.Result
	}{{"A", a}, {"B", b}} {
		setup, host := setupSection(x.r), hostSection(x.r)
		setup.ID, setup.Title = "setup-"+x.name, "Setup of "+x.name
		setup.Parts = append(setup.Parts, host.Parts...)
		d.add(setup)
	}
	return d.write(w)
}

// ratios are the quoted figures of B over those of A.
func ratios(a, b *stats.Result) []headlineFigure {
	var out []headlineFigure
	all := figures()
	for _, name := range []string{"achieved rate", "latency p50", "latency p99", "latency p99.9", "latency max", "loss"} {
		i := slices.IndexFunc(all, func(f figure) bool { return f.name == name })
		x, y := all[i].value(a), all[i].value(b)
		if x == 0 && y == 0 {
			continue
		}
		h := headlineFigure{Label: name + ", B / A", Notes: []string{"A " + all[i].write(x), "B " + all[i].write(y)}, Invalid: all[i].speaks && invalidSides(a, b) != ""}
		h.Number = ratio(x, y)
		out = append(out, h)
	}
	return out
}

// differenceSection lists what makes the comparison one of more than one thing.
func differenceSection(a, b *stats.Result) section {
	s := section{ID: "differences", Title: "What differs besides the figures"}
	t := &table{Left: 3, Head: []string{"setting", "A", "B"}}
	theirs := b.Settings()
	for i, x := range a.Settings() {
		if x.Value != theirs[i].Value {
			t.Rows = append(t.Rows, row{Cells: []string{x.Name, orNone(x.Value), orNone(theirs[i].Value)}})
		}
	}
	if a.Host.Hostname != b.Host.Hostname {
		s.Lead = fmt.Sprintf("The runs are of different hosts, %s and %s: a difference between their figures may be one between the machines.", orNone(a.Host.Hostname), orNone(b.Host.Hostname))
	}
	if len(t.Rows) == 0 {
		s.Parts = []part{{Text: "Nothing: all settings are the same."}}
		return s
	}
	s.Parts = []part{{Table: t}}
	return s
}

// comparison is every figure side by side.
func comparison(a, b *stats.Result) *table {
	t := &table{Left: 1, Head: []string{"", "A", "B", "B / A"}}
	invalid, intervals := invalidSides(a, b) != "", a.Precision != nil && b.Precision != nil
	if intervals {
		t.Head = append(t.Head, "intervals")
		t.Note = "No difference shown: the 95 % intervals of A and B overlap. Differ: they do not."
	}
	if invalid {
		t.Head = append(t.Head, "verdict")
	}
	for _, f := range figures() {
		x, y := f.value(a), f.value(b)
		if x == 0 && y == 0 {
			continue
		}
		cells := []string{f.name, f.write(x), f.write(y), ratio(x, y)}
		if intervals {
			cells = append(cells, differ(f.of, f.quantile, a, b))
		}
		if invalid && f.speaks {
			cells = append(cells, invalidSides(a, b))
		} else if invalid {
			cells = append(cells, "")
		}
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	return t
}

// overlay lays the distributions of both over one another: A in the text's colour, B in the accent; the first of each is a full line.
func overlay(id, title string, a, b *stats.Result, hists func(*stats.Result) []*stats.Histogram) (*picture, error) {
	p := &picture{id: id, title: title, height: 340}
	low, high, most := math.Inf(1), 0.0, uint64(0)
	for _, x := range []struct {
		name string
		ink  ink
		r    *stats.Result
	}{{"A", inkText, a}, {"B", inkMain, b}} {
		for i, h := range hists(x.r) {
			if h.Count == 0 {
				continue
			}
			run, err := percentiles(h, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", x.name, err)
			}
			name, s := x.name, stroke{ink: x.ink, width: 2}
			if len(hists(x.r)) > 1 {
				name += []string{" latency", " service time"}[i]
			}
			if i > 0 {
				s = stroke{ink: x.ink, width: 1.2, dashes: []float64{4, 3}}
			}
			p.add(name+invalidWord(x.r), s, run)
			p.desc += inWords(name+invalidWord(x.r), h)
			low, high, most = math.Min(low, float64(h.Min)), math.Max(high, float64(h.Max)), max(most, h.Count)
		}
	}
	p.x, p.y = nineAxis("percentile of packets, %", float64(most)), timeAxis("time, logarithmic", low, high)
	return p, nil
}

// invalidWord goes behind names in legends.
func invalidWord(r *stats.Result) string {
	if r.Verdict.Valid {
		return ""
	}
	return " (INVALID)"
}

// ratesOverlay shows what both sent.
func ratesOverlay(a, b *stats.Result) *picture {
	p := &picture{id: "rates", title: "Rate sent", height: 200, desc: "Packets a second that A and B sent in each interval."}
	x, by := elapsed(max(lengthOf(a.Timeline), lengthOf(b.Timeline)))
	sent := perSecond(func(s stats.Second) uint64 { return s.Sent })
	p.add("A", strokeText, course(a.Timeline, by, sent)...)
	p.add("B", strokeMain, course(b.Timeline, by, sent)...)
	p.x, p.y = x, rateAxis("packets per second", p.highest()*1.08)
	return p
}

// delaysOverlay shows the tail of both: of latency, or of lag where no latency was measured.
func delaysOverlay(a, b *stats.Result) *picture {
	p := &picture{id: "delays", title: "Latency p99", height: 240, desc: "Latency p99 of each interval of A and B."}
	x, by := elapsed(max(lengthOf(a.Timeline), lengthOf(b.Timeline)))
	value := func(s stats.Second, _ float64) (float64, bool) { return float64(s.LatencyP99NS), s.LatencyP99NS > 0 }
	if a.Config.Mode == stats.ModeOneway && b.Config.Mode == stats.ModeOneway {
		p.title, p.desc = "Lag p99", "Lag p99 of each interval of A and B."
		value = func(s stats.Second, _ float64) (float64, bool) { return float64(s.LagP99NS), s.LagP99NS > 0 }
	}
	for _, side := range []struct {
		name  string
		style stroke
		runs  []plotter.XYs
	}{{"A" + invalidWord(a), strokeText, course(a.Timeline, by, value)}, {"B" + invalidWord(b), strokeMain, course(b.Timeline, by, value)}} {
		p.add(side.name, side.style, side.runs...)
	}
	if p.empty() {
		return nil
	}
	p.x, p.y = x, timeAxis("time, logarithmic", p.lowest(), p.highest())
	return p
}
