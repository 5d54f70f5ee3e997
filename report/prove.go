package report

import (
	"io"
	"strconv"
	"strings"

	"blast/stats"
)

// Prove writes the report of a proof: the conclusion, the five controls with their evidence, and the runs that they rest on.
func Prove(w io.Writer, v *stats.Prove, o Options) error {
	p := newPage(o)
	p.conclusion(v)
	p.blank()
	for i := range v.Controls {
		p.control(i+1, &v.Controls[i])
	}
	p.blank()
	p.proofRuns(v)
	p.proofCircumstances(v)
	return p.flush(w)
}

// ProveJSON writes v as one object of stats.ProveSchema and a line end. v is normalized in doing so.
func ProveJSON(w io.Writer, v *stats.Prove) error {
	v.Normalize()
	return writeJSON(w, v)
}

// conclusion is the first thing on the page.
func (p *page) conclusion(v *stats.Prove) {
	word, color := pointsWord(v.Conclusion.Points), red
	if v.Conclusion.Points == stats.PointsTarget || v.Conclusion.Points == stats.PointsNeither {
		color = green
	}
	p.first(word, color, v.Conclusion.Detail)
	if v.Interrupted != "" {
		p.line("ended", "early: %s; what was measured until then is shown", v.Interrupted)
	}
	p.line("target", "%s, asked %s", strings.Join(v.Targets, ", "), stats.FormatPPS(v.AskedPPS))
}

// pointsWord is a conclusion in capitals.
func pointsWord(points string) string {
	switch points {
	case stats.PointsTarget:
		return "TARGET"
	case stats.PointsGenerator:
		return "GENERATOR"
	case stats.PointsNeither:
		return "NEITHER"
	}
	return "UNKNOWN"
}

// controlTitle is a control's name for people.
func controlTitle(name string) string {
	title, ok := map[string]string{
		stats.ControlBaseline: "baseline", stats.ControlGenerator: "generator", stats.ControlTarget: "target", stats.ControlNoop: "no-op", stats.ControlTwo: "two generators",
	}[name]
	if !ok {
		return name
	}
	return title
}

// pointsSentence says where a control points, for people.
func pointsSentence(points string) string {
	word, ok := map[string]string{
		stats.PointsTarget: "points at the target", stats.PointsGenerator: "points at the generator", stats.PointsNeither: "nothing slow here", stats.PointsUnknown: "in doubt or unknown",
	}[points]
	if !ok {
		return points
	}
	return word
}

func (p *page) control(n int, c *stats.Control) {
	p.line(strconv.Itoa(n), "%s: %s", controlTitle(c.Name), pointsSentence(c.Points))
	for _, text := range c.Evidence {
		for i, l := range wrap(text, p.width-labelWidth-2) {
			mark := "- "
			if i > 0 {
				mark = "  "
			}
			p.b.WriteString(strings.TrimRight(strings.Repeat(" ", labelWidth)+mark+l, " ") + "\n")
		}
	}
}

// proofRuns is a row for each run.
func (p *page) proofRuns(v *stats.Prove) {
	rows := [][]string{{"run", "asked", "sent", "answered", "of sent", "lag p99.9", "duty", "verdict"}}
	for i := range v.Controls {
		c := &v.Controls[i]
		for k := range c.Results {
			r := &c.Results[k]
			share := 0.0
			if r.Ledger.Sent > 0 {
				share = float64(r.Ledger.Replied+r.Ledger.Late) / float64(r.Ledger.Sent)
			}
			rows = append(rows, []string{strconv.Itoa(i+1) + " " + controlTitle(c.Name), stats.FormatPPS(r.Rate.TargetPPS), stats.FormatPPS(r.Rate.AchievedPPS),
				stats.FormatPPS(r.Rate.RepliedPPS), stats.FormatPercent(share), stats.FormatNS(r.Lag.P999), percentOf(r.Duty()), word(r)})
		}
	}
	if len(rows) == 1 {
		return
	}
	p.table(rows)
	p.line("", "(answered: late replies and those of the drain too; each run is a whole result in the JSON of --out)")
	p.blank()
}

// proofCircumstances is where it was measured.
func (p *page) proofCircumstances(v *stats.Prove) {
	h := &v.Host
	p.line("host", "%s, %s, %s, kernel %s, out by %s", h.Hostname, h.CPU, plural(h.Cores, "core"), h.Kernel, h.NIC)
	p.line("run", "%s, started %s, by %s", v.RunID, v.Started.UTC().Format("2006-01-02 15:04:05 UTC"), strings.Join(v.Command, " "))
}
