package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"blast/stats"
)

// Ladder writes the report of a ladder: the sentence that it ends with, its steps, the three curves, and last the circumstances.
func Ladder(w io.Writer, l *stats.Ladder, o Options) error {
	p := newPage(o)
	p.knee(l)
	p.blank()
	p.steps(l)
	p.curves(l)
	p.ladderCircumstances(l)
	return p.flush(w)
}

// OutcomeWord is an outcome of a step for people.
func OutcomeWord(outcome string) string {
	word, ok := map[string]string{
		stats.OutcomeHeld: "held", stats.OutcomeSaturated: "target behind", stats.OutcomeSLO: "SLO missed", stats.OutcomeVoid: "void, INVALID",
	}[outcome]
	if !ok {
		return outcome
	}
	return word
}

// kneeWord says in a word what gave.
func kneeWord(l *stats.Ladder) string {
	switch l.Knee.Because {
	case stats.OutcomeSaturated:
		return "TARGET"
	case stats.OutcomeSLO:
		return "SLO"
	case stats.OutcomeVoid:
		return "GENERATOR"
	case stats.KneeTop:
		return "TOP"
	}
	return "NOTHING"
}

// knee is the verdict, the first thing on the page.
func (p *page) knee(l *stats.Ladder) {
	word, color := kneeWord(l), green
	if !l.Verdict.Valid || word == "SLO" {
		color = red
	}
	p.first(word, color, l.Knee.Detail)
	if l.Interrupted != "" {
		p.line("ended", "early: %s; the steps until then are shown", l.Interrupted)
	}
	for _, r := range l.Verdict.Reasons {
		if r.Detail != l.Knee.Detail {
			p.line("", "%s: %s", r.Code, r.Detail)
		}
	}
	for _, r := range l.Verdict.Warnings {
		p.line("warning", "%s: %s", r.Code, r.Detail)
	}
}

// steps is a row for each, in the order in which they ran.
func (p *page) steps(l *stats.Ladder) {
	if len(l.Steps) == 0 {
		return
	}
	rows := [][]string{{"step", "asked", "sent", "replied", "p50", "p99", "p99.9", "loss", "generator", "outcome"}}
	for i := range l.Steps {
		s := &l.Steps[i]
		r := &s.Result
		replied := stats.FormatPPS(s.ThroughputPPS)
		if r.Config.Mode == stats.ModeOneway {
			replied = "-"
		}
		row := append([]string{stepName(i, s), stats.FormatPPS(s.AskedPPS), stats.FormatPPS(r.Rate.AchievedPPS), replied}, tailCells(&r.Latency)[:3]...)
		rows = append(rows, append(row, lossText(r), percentOf(s.Water)+" "+s.WaterOf, OutcomeWord(s.Outcome)))
	}
	p.table(rows)
	p.blank()
	for i := range l.Steps {
		if s := &l.Steps[i]; s.Why != "" {
			p.line(fmt.Sprintf("step %d", i+1), "%s", s.Why)
		}
	}
	p.line("", "replied: in the settled part of the step, what came after its end left out; latency counts from the planned time; the figures of a void step measure the generator; "+
		"generator: the largest share of a limit that it used itself")
	p.blank()
}

// stepName is "4 climb" or "5 climb, again" for the step at i.
func stepName(i int, s *stats.Step) string {
	name := strconv.Itoa(i+1) + " " + s.Phase
	if s.Try > 1 {
		name += ", again"
	}
	return name
}

// gaugeWidth is the length of a full bar.
const gaugeWidth = 20

// curves draws throughput, tail and water level over the rate. Of several steps at one rate the last one that is not void stands for it.
func (p *page) curves(l *stats.Ladder) {
	steps := byRate(l)
	if len(steps) < 2 {
		return
	}
	var most float64
	slow, quick := steps[0], steps[0]
	for _, s := range steps {
		most = max(most, s.shown())
		if s.p99() > slow.p99() {
			slow = s
		}
		if s.p99() > 0 && (s.p99() < quick.p99() || quick.p99() == 0) {
			quick = s
		}
	}
	echo := steps[0].Result.Config.Mode != stats.ModeOneway
	head := []string{"asked", "replied", "p99 (log)", "generator"}
	if !echo {
		head = []string{"asked", "sent", "", "generator"}
	}
	rows := [][]string{head}
	for _, s := range steps {
		tail := ""
		if echo && s.p99() > 0 {
			tail = gauge(tailShare(float64(s.p99()), float64(quick.p99()), float64(slow.p99())))
		}
		full := gauge(min(s.Water, 1))
		if s.Water > 1 {
			full += "+"
		}
		row := []string{stats.FormatPPS(s.AskedPPS), gauge(s.shown() / max(most, 1e-9)), tail, full}
		if s.Outcome == stats.OutcomeVoid {
			row = append(row, OutcomeWord(s.Outcome))
		}
		rows = append(rows, row)
	}
	p.bars(rows)
	scale := fmt.Sprintf("full bars: %s", stats.FormatPPS(most))
	if echo && slow.p99() > 0 {
		scale += fmt.Sprintf(", p99 %s%s (each mark less is a step of a log scale down to %s%s)", stats.FormatNS(slow.p99()), invalidLatency(&slow.Result, "latency"),
			stats.FormatNS(quick.p99()), invalidLatency(&quick.Result, "latency"))
	}
	p.line("", "%s, and the generator's own limit (+: beyond it)", scale)
	p.blank()
}

// shownStep is a step in the curves.
type shownStep struct{ *stats.Step }

// shown is the throughput, of what was sent where nothing comes back.
func (s shownStep) shown() float64 {
	if s.Result.Config.Mode == stats.ModeOneway {
		return s.Result.Rate.AchievedPPS
	}
	return s.ThroughputPPS
}

func (s shownStep) p99() int64 { return s.Result.Latency.P99 }

// byRate are the steps in order of rate, one for each.
func byRate(l *stats.Ladder) []shownStep {
	var list []shownStep
	for i := range l.Steps {
		s := &l.Steps[i]
		at := slices.IndexFunc(list, func(x shownStep) bool { return x.AskedPPS == s.AskedPPS })
		switch {
		case at < 0:
			list = append(list, shownStep{s})
		case s.Outcome != stats.OutcomeVoid || list[at].Outcome == stats.OutcomeVoid:
			list[at].Step = s
		}
	}
	slices.SortFunc(list, func(a, b shownStep) int { return cmp.Compare(a.AskedPPS, b.AskedPPS) })
	return list
}

// tailShare places a tail between the quickest and the slowest on a log scale; the quickest still gets a mark.
func tailShare(v, quick, slow float64) float64 {
	if slow <= quick {
		return 1
	}
	return (1 + (gaugeWidth-1)*math.Log(v/quick)/math.Log(slow/quick)) / gaugeWidth
}

func gauge(share float64) string {
	if !(share > 0) {
		return ""
	}
	return strings.Repeat("#", max(int(math.Round(min(share, 1)*gaugeWidth)), 1))
}

// bars writes rows with the first column to the right and bars to the left.
func (p *page) bars(rows [][]string) {
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	for _, row := range rows {
		line := strings.Repeat(" ", width-len(row[0])) + row[0]
		for _, cell := range row[1:] {
			line += "  " + pad(cell, gaugeWidth+1)
		}
		p.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// ladderCircumstances are what a reader needs to believe or repeat the ladder.
func (p *page) ladderCircumstances(l *stats.Ladder) {
	c := &l.Config
	to := "until something gives"
	if c.ToPPS > 0 {
		to = "to " + stats.FormatPPS(c.ToPPS)
	}
	p.line("ladder", "from %s by %s %s, steps of %s, resolution %s", stats.FormatPPS(c.FromPPS), c.By, to, stats.FormatNS(c.StepNS), stats.FormatPercent(c.Resolution))
	slos := "none"
	if len(c.SLOs) > 0 {
		slos = strings.Join(c.SLOs, ", ")
	}
	p.line("SLOs", "%s", slos)
	if len(l.Steps) > 0 {
		r := &l.Steps[0].Result
		p.line("target", "%s, %s; %s", strings.Join(c.Targets, ", "), r.Config.Mode, model(&r.Config))
		p.line("backend", "%s: %s; %s, %s, payload %d B; max lag %s, timeout %s", r.Backend.Name, r.Backend.Mode, plural(r.Config.Workers, "worker"),
			plural(r.Config.Flows, "flow"), r.Config.PayloadBytes, stats.FormatNS(r.Config.MaxLagNS), stats.FormatNS(r.Config.TimeoutNS))
	}
	p.line("host", "%s", hostLine(&l.Host))
	p.line("run", "%s, started %s", l.RunID, l.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	p.line("command", "%s", strings.Join(l.Command, " "))
}

// LadderJSON writes l as one object of stats.LadderSchema and a line end. l is normalized in doing so.
func LadderJSON(w io.Writer, l *stats.Ladder) error {
	l.Normalize()
	return writeJSON(w, l)
}

// ladderColumns are the columns of LadderCSV, one row a step in the order in which they ran.
var ladderColumns = []string{"step", "phase", "try", "outcome", "asked_pps", "achieved_pps", "throughput_pps", "latency_p50_ns", "latency_p99_ns", "latency_p999_ns",
	"latency_max_ns", "sent", "replied", "late", "lost", "in_flight", "lag_p999_ns", "water", "water_of", "verdict", "reasons"}

// LadderCSV writes the steps of l with a header row.
func LadderCSV(w io.Writer, l *stats.Ladder) error {
	rows := [][]string{ladderColumns}
	for i := range l.Steps {
		s := &l.Steps[i]
		r, n := &s.Result, &s.Result.Ledger
		lat := &r.Latency
		rows = append(rows, []string{strconv.Itoa(i + 1), s.Phase, strconv.Itoa(s.Try), s.Outcome, float(s.AskedPPS), float(r.Rate.AchievedPPS), float(s.ThroughputPPS),
			nanos(lat.P50), nanos(lat.P99), nanos(lat.P999), nanos(lat.Max), count(n.Sent), count(n.Replied), count(n.Late), count(n.Lost), count(n.InFlight),
			nanos(r.Lag.P999), float(s.Water), s.WaterOf, word(r), strings.Join(stats.Codes(r.Verdict.Reasons), " ")})
	}
	return writeCSV(w, rows)
}
