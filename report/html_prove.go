package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"blast/stats"
)

// HTMLProve writes a proof as a page: the conclusion, then each control with its evidence, and the distributions of their runs laid over
// one another.
func HTMLProve(w io.Writer, p *stats.Prove) error {
	d := &document{
		Kind: "proof", Subject: subject(p.Targets), Foot: foot(&p.Host), Verdicts: []banner{{Word: pointsWord(p.Conclusion.Points), Sentence: p.Conclusion.Detail}},
		Circumstance: fmt.Sprintf("five controls at %s, from %s on %s", stats.FormatPPS(p.AskedPPS), p.Host.Hostname, day(p.Started)),
	}
	if p.Interrupted != "" {
		d.Circumstance += "; ended early: " + p.Interrupted
	}
	summary := &table{Left: 3, Head: []string{"control", "question", "answer"}}
	for i := range p.Controls {
		c := &p.Controls[i]
		summary.Rows = append(summary.Rows, row{Cells: []string{fmt.Sprintf("%d %s", i+1, controlTitle(c.Name)), controlQuestion(c.Name), pointsSentence(c.Points)}})
	}
	d.add(section{ID: "controls", Title: "What each control says", Parts: []part{{Table: summary}}})
	overlay, err := controlsPicture(p)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	d.add(section{ID: "distribution", Title: "Latency of the runs", Parts: pictures(overlay)})
	for i := range p.Controls {
		d.add(controlSection(i+1, &p.Controls[i]))
	}
	d.add(section{ID: "setup", Title: "Setup", Parts: []part{{Facts: append([]fact{{"targets", p.Targets}, {"rate", []string{"asked " + stats.FormatPPS(p.AskedPPS)}}},
		hostFacts(&p.Host)...)}, {Facts: []fact{{"run", []string{p.RunID + ", started " + day(p.Started)}}}}, {Command: strings.Join(p.Command, " ")}}})
	return d.write(w)
}

// controlQuestion is what a control asks.
func controlQuestion(name string) string {
	switch name {
	case stats.ControlBaseline:
		return "What can this generator do against a no-op on its own host?"
	case stats.ControlGenerator:
		return "Was a core, a queue or a limit of this host used up?"
	case stats.ControlTarget:
		return "Was the target busy while its rate was flat?"
	case stats.ControlNoop:
		return "Does the same load against a no-op server go higher?"
	case stats.ControlTwo:
		return "Do two of them get twice as much out of the target?"
	}
	return ""
}

// controlSection is the n-th control: its answer, the evidence, the runs, and what the host did that it rests on.
func controlSection(n int, c *stats.Control) section {
	s := section{ID: fmt.Sprintf("control-%d", n), Title: fmt.Sprintf("%d %s", n, controlTitle(c.Name)), Lead: controlQuestion(c.Name),
		Parts: []part{{Facts: []fact{{"answer", []string{pointsSentence(c.Points)}}}}}}
	if len(c.Evidence) > 0 {
		s.Parts[0].Facts = append(s.Parts[0].Facts, fact{"evidence", c.Evidence})
	}
	if len(c.Results) > 0 {
		s.Parts = append(s.Parts, part{Table: runTable(c.Results)})
	}
	if c.Use != nil {
		s.Parts = append(s.Parts, usedParts(c.Use)...)
	}
	return s
}

// runTable has a row for each run.
func runTable(results []stats.Result) *table {
	t := &table{Left: 1, Head: []string{"run", "asked", "sent", "replied", "loss", "latency p50", "p99", "p99.9", "max", "lag p99.9", "duty"}}
	for i := range results {
		r := &results[i]
		cells := append([]string{subject(r.Config.Targets), stats.FormatPPS(r.Rate.TargetPPS), stats.FormatPPS(r.Rate.AchievedPPS), stats.FormatPPS(r.Rate.RepliedPPS), lossText(r)},
			tailCells(&r.Latency)...)
		t.Rows = append(t.Rows, row{Invalid: !r.Verdict.Valid, Cells: append(cells, stats.FormatNS(r.Lag.P999), percentOf(r.Duty()))})
	}
	return t
}

// usedParts are the cores, rooms and counters of a host.
func usedParts(u *stats.HostUse) []part {
	var parts []part
	cores := &table{Left: 1, Caption: "Cores by " + orNone(u.Source), Head: []string{"CPU", "busy", "of it softirq", "of it steal", "of it waiting by spinning"},
		Note: "Watched for " + stats.FormatNS(u.CoresNS) + " inside the run."}
	for _, c := range u.Cores {
		cores.Rows = append(cores.Rows, row{Cells: []string{strconv.Itoa(c.CPU), percentOf(c.Busy), percentOf(c.Softirq), percentOf(c.Steal), percentOf(c.Waited)}})
	}
	rooms := &table{Left: 1, Caption: "Room used", Head: []string{"", "used", "limit"}}
	for _, x := range u.Rooms {
		rooms.Rows = append(rooms.Rows, row{Cells: []string{x.Name, stats.FormatCount(x.Used), stats.FormatCount(x.Limit)}})
	}
	for _, t := range []*table{cores, rooms, movedTable(u.Counters)} {
		if len(t.Rows) > 0 {
			parts = append(parts, part{Table: t})
		}
	}
	return parts
}

// controlsPicture lays the latencies of the controls' first runs over one another; nil for fewer than two.
func controlsPicture(p *stats.Prove) (*picture, error) {
	f := &picture{id: "controls-overlay", title: "Latency of the controls by percentile", untitled: true, height: 360,
		note: "A target that is the wall is far from the baseline and from the no-op; a generator that is the wall is as slow against all of them."}
	low, high, most := math.Inf(1), 0.0, uint64(0)
	styles := map[string]stroke{stats.ControlBaseline: strokeText, stats.ControlGenerator: strokeMain, stats.ControlTarget: strokeMain, stats.ControlNoop: strokeDashed,
		stats.ControlTwo: {ink: inkMain, width: 1.5, dashes: []float64{5, 4}}}
	for i := range p.Controls {
		c := &p.Controls[i]
		if len(c.Results) == 0 || c.Results[0].Latency.Count == 0 {
			continue
		}
		r := &c.Results[0]
		run, err := percentiles(&r.Latency, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		title := controlTitle(c.Name)
		style, ok := styles[c.Name]
		if !ok {
			style = strokeMuted
		}
		f.add(title+invalidWord(r), style, run)
		f.desc += inWords(title+invalidWord(r), &r.Latency)
		low, high, most = math.Min(low, float64(r.Latency.Min)), math.Max(high, float64(r.Latency.Max)), max(most, r.Latency.Count)
	}
	if len(f.lines) < 2 {
		return nil, nil
	}
	f.x, f.y = nineAxis("percentile of packets, %", float64(most)), timeAxis("time, logarithmic", low, high)
	return f, nil
}
