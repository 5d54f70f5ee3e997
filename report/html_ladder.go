package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"

	"blast/stats"
)

// HTMLLadder writes a ladder as a page: where it ended and why, then throughput, tail and the generator's own water level against the
// rate asked for, and every step.
func HTMLLadder(w io.Writer, l *stats.Ladder) error {
	d := &document{
		Kind: "ladder", Subject: subject(l.Config.Targets), Headlines: ladderHeadlines(l), Foot: foot(&l.Host),
		Circumstance: fmt.Sprintf("%s of %s from %s, by %s; from %s on %s", plural(len(l.Steps), "step"), stats.FormatNS(l.Config.StepNS), stats.FormatPPS(l.Config.FromPPS),
			orNone(l.Config.By), l.Host.Hostname, day(l.Started)),
	}
	if l.Interrupted != "" {
		d.Circumstance += "; ended early: " + l.Interrupted
	}
	d.Verdicts = []banner{ladderBanner(l)}
	d.add(section{ID: "curves", Title: "Against the rate asked for",
		Lead:  "Void steps are those in which the generator did not keep its plan: they say nothing about the target, and are marked, not joined.",
		Parts: pictures(throughputPicture(l), tailPicture(l), waterPicture(l))})
	d.add(section{ID: "steps", Title: "Steps", Lead: "In the order in which they ran.", Parts: []part{{Table: stepTable(l)}, {Facts: reasonFacts(l)}}})
	d.add(ladderSetup(l))
	d.add(section{ID: "host", Title: "Host", Parts: []part{{Facts: append(hostFacts(&l.Host), fact{"run", []string{l.RunID + ", started " + day(l.Started)}})}}})
	return d.write(w)
}

// ladderBanner has the words of the text report. It is red where the limit of the target is not known.
func ladderBanner(l *stats.Ladder) banner {
	b := banner{Word: kneeWord(l), Sentence: l.Knee.Detail, Warnings: l.Verdict.Warnings, Bad: !l.Verdict.Valid}
	for _, r := range l.Verdict.Reasons {
		if r.Detail != l.Knee.Detail {
			b.Reasons = append(b.Reasons, r)
		}
	}
	return b
}

// becauseOf says what a knee is because of.
func becauseOf(k *stats.Knee) string {
	switch k.Because {
	case stats.OutcomeSaturated:
		return "the target is saturated"
	case stats.OutcomeSLO:
		return "an SLO broke"
	case stats.OutcomeVoid:
		return "the generator is full"
	case stats.KneeTop:
		return "nothing gave up to the top"
	case stats.KneeNone:
		return "not one step held"
	}
	return k.Because
}

func ladderHeadlines(l *stats.Ladder) []headlineFigure {
	k := &l.Knee
	bad := !l.Verdict.Valid
	knee := headlineFigure{Label: "knee", Notes: []string{becauseOf(k)}, Invalid: bad}
	if k.PPS > 0 {
		knee = knee.of(stats.FormatPPS(k.PPS))
	} else {
		knee.Number = "-"
	}
	out := []headlineFigure{knee}
	if k.BreaksPPS > 0 {
		out = append(out, headlineFigure{Label: "breaks at", Notes: []string{"the lowest rate that did not hold"}, Invalid: bad}.of(stats.FormatPPS(k.BreaksPPS)))
	}
	var best *stats.Step
	void := 0
	for i := range l.Steps {
		s := &l.Steps[i]
		if s.Outcome == stats.OutcomeVoid {
			void++
		}
		if s.Outcome == stats.OutcomeHeld && s.AskedPPS == k.HeldPPS { // a higher rate may have held once, and not again
			best = s
		}
	}
	if best != nil {
		at := "at " + stats.FormatPPS(best.AskedPPS) + ", the highest that held"
		if best.Result.Latency.Count > 0 {
			out = append(out, headlineFigure{Label: "latency p99", Notes: []string{at}, Invalid: bad}.of(stats.FormatNS(best.Result.Latency.P99)))
		}
		out = append(out, headlineFigure{Label: "water level", Notes: []string{at, "of " + orNone(best.WaterOf)}, Invalid: bad}.of(percentOf(best.Water)))
	}
	return append(out, headlineFigure{Label: "void steps", Number: strconv.Itoa(void), Notes: []string{fmt.Sprintf("of %d", len(l.Steps))}})
}

func percentOf(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

// steps puts a spot for each rate, and joins those that are not void. Of several steps at one rate the last one that is not void stands for it.
func (f *picture) steps(l *stats.Ladder, name string, s stroke, withSpots bool, value func(shownStep) (float64, bool)) {
	var run plotter.XYs
	for _, step := range byRate(l) {
		v, ok := value(step)
		if !ok {
			continue
		}
		at := spot{x: step.AskedPPS, y: v, ink: s.ink, shape: "dot"}
		switch step.Outcome {
		case stats.OutcomeVoid:
			at.ink, at.shape = inkBad, "cross"
		case stats.OutcomeSaturated, stats.OutcomeSLO:
			at.shape = "ring"
		}
		if withSpots {
			f.spots = append(f.spots, at)
		}
		if step.Outcome != stats.OutcomeVoid {
			run = append(run, plotter.XY{X: step.AskedPPS, Y: v})
		}
	}
	f.add(name, s, run)
}

// outcomeKeys explain the spots that are there.
func (f *picture) outcomeKeys(l *stats.Ladder) {
	for _, k := range []struct {
		key      key
		outcomes []string
	}{{key{Name: "held", Ink: inkMain, Shape: "dot"}, []string{stats.OutcomeHeld}},
		{key{Name: "target behind, or SLO missed", Ink: inkMain, Shape: "ring"}, []string{stats.OutcomeSaturated, stats.OutcomeSLO}},
		{key{Name: "void, INVALID: the generator's figures, not the target's", Ink: inkBad, Shape: "cross"}, []string{stats.OutcomeVoid}}} {
		if slices.ContainsFunc(byRate(l), func(s shownStep) bool { return slices.Contains(k.outcomes, s.Outcome) }) {
			f.keys = append(f.keys, k.key)
		}
	}
}

// highestAsked is the right end of the curves.
func highestAsked(l *stats.Ladder) float64 {
	high := 0.0
	for i := range l.Steps {
		high = math.Max(high, l.Steps[i].AskedPPS)
	}
	return high * 1.04
}

// kneeLine stands at the knee.
func (f *picture) kneeLine(l *stats.Ladder) {
	if l.Knee.PPS > 0 {
		f.add("knee, "+stats.FormatPPS(l.Knee.PPS), stroke{ink: inkMuted, width: 1.2, dashes: []float64{2, 3}},
			plotter.XYs{{X: l.Knee.PPS, Y: f.y.low}, {X: l.Knee.PPS, Y: f.y.high}})
	}
}

func throughputPicture(l *stats.Ladder) *picture {
	p := &picture{id: "throughput", title: "Throughput", height: 300, note: "Replies of the settled part of each step: without its beginning, and without those that came after its end.", desc: "Replies a second against packets a second asked for, a point for each step. " + l.Knee.Detail}
	high := highestAsked(l)
	name := "replied"
	if len(l.Steps) > 0 && l.Steps[0].Result.Config.Mode == stats.ModeOneway {
		name, p.note, p.desc = "sent", "", "Packets sent a second against packets a second asked for, a point for each step. "+l.Knee.Detail
	}
	p.add("what was asked", stroke{ink: inkFaint, width: 3}, plotter.XYs{{X: 0, Y: 0}, {X: high, Y: high}})
	p.steps(l, name, strokeMain, true, func(s shownStep) (float64, bool) { return s.shown(), true })
	if len(p.spots) == 0 {
		return nil
	}
	p.x, p.y = rateAxis("asked rate, packets per second", high), rateAxis("packets per second", high)
	p.kneeLine(l)
	p.outcomeKeys(l)
	return p
}

func tailPicture(l *stats.Ladder) *picture {
	p := &picture{id: "tail", title: "Latency", height: 300, desc: "Latency p50, p99 and p99.9 against the rate asked for."}
	quantile := func(v func(*stats.Histogram) int64) func(shownStep) (float64, bool) {
		return func(s shownStep) (float64, bool) {
			return float64(v(&s.Result.Latency)), s.Result.Latency.Count > 0
		}
	}
	p.steps(l, "p99.9", strokeMuted, false, quantile(func(h *stats.Histogram) int64 { return h.P999 }))
	p.steps(l, "p50", strokeDashed, false, quantile(func(h *stats.Histogram) int64 { return h.P50 }))
	p.steps(l, "p99", strokeMain, true, quantile(func(h *stats.Histogram) int64 { return h.P99 }))
	slices.Reverse(p.keys)
	if len(p.spots) == 0 {
		return nil
	}
	low, top := p.lowest(), p.highest()
	for _, s := range p.spots {
		low, top = math.Min(low, s.y), math.Max(top, s.y)
	}
	p.x, p.y = rateAxis("asked rate, packets per second", highestAsked(l)), timeAxis("time, logarithmic", low, top)
	p.kneeLine(l)
	p.outcomeKeys(l)
	return p
}

func waterPicture(l *stats.Ladder) *picture {
	p := &picture{id: "water", title: "The generator's own water level", height: 240, note: "The largest share of a limit that the generator used: at 100 % it is full, whatever the target does.",
		desc: "Share of its limits that the generator used, against the rate asked for."}
	p.steps(l, "water level", strokeMain, true, func(s shownStep) (float64, bool) { return s.Water * 100, true })
	if len(p.spots) == 0 {
		return nil
	}
	high := 110.0
	for _, s := range p.spots {
		high = math.Max(high, math.Min(s.y, 200)*1.05) // beyond twice the limit, more says nothing
	}
	p.x, p.y = rateAxis("asked rate, packets per second", highestAsked(l)), plainAxis("share of the limit, %", high)
	p.add("full", stroke{ink: inkText, width: 1, dashes: []float64{6, 3}}, plotter.XYs{{X: 0, Y: 100}, {X: highestAsked(l), Y: 100}})
	p.kneeLine(l)
	p.outcomeKeys(l)
	return p
}

func stepTable(l *stats.Ladder) *table {
	t := &table{Left: 1, Head: []string{"step", "asked", "sent", "throughput", "latency p50", "p99", "p99.9", "max", "loss", "water", "of", "outcome"}}
	for i := range l.Steps {
		s := &l.Steps[i]
		r := &s.Result
		cells := append([]string{stepName(i, s), stats.FormatPPS(s.AskedPPS), stats.FormatPPS(r.Rate.AchievedPPS), stats.FormatPPS(shownStep{s}.shown())}, tailCells(&r.Latency)...)
		t.Rows = append(t.Rows, row{Invalid: s.Outcome == stats.OutcomeVoid, Cells: append(cells, lossText(r), percentOf(s.Water), orNone(s.WaterOf), OutcomeWord(s.Outcome))})
	}
	return t
}

// reasonFacts say of each step that did not hold why.
func reasonFacts(l *stats.Ladder) []fact {
	var facts []fact
	for i := range l.Steps {
		if s := &l.Steps[i]; s.Why != "" {
			facts = append(facts, fact{fmt.Sprintf("step %d", i+1), []string{s.Why}})
		}
	}
	return facts
}

func ladderSetup(l *stats.Ladder) section {
	c := &l.Config
	to := "until something gives"
	if c.ToPPS > 0 {
		to = "to " + stats.FormatPPS(c.ToPPS)
	}
	facts := []fact{{"targets", c.Targets},
		{"climb", []string{fmt.Sprintf("from %s by %s %s, %s a step, then bisection to %s", stats.FormatPPS(c.FromPPS), orNone(c.By), to, stats.FormatNS(c.StepNS), stats.FormatPercent(c.Resolution))}},
		{"SLOs", []string{orNone(strings.Join(c.SLOs, ", "))}}}
	if len(l.Steps) > 0 {
		r := &l.Steps[0].Result
		facts = append(facts, fact{"model", []string{model(&r.Config)}}, fact{"backend", []string{r.Backend.Name + ", " + orNone(r.Backend.Mode)}},
			fact{"payload", []string{fmt.Sprintf("%d B, %s", r.Config.PayloadBytes, r.Config.Payload)}}, fact{"ceiling", []string{ceilingSentence(r)}})
	}
	return section{ID: "setup", Title: "Setup", Parts: []part{{Facts: facts}, {Command: strings.Join(l.Command, " ")}}}
}
