package verdict

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"blast/stats"
)

// Objective is a parsed SLO: a metric, a comparison and a limit.
//
//	[latency.|service.|server.|lag.|gap.] pN | max | mean   < | <=   duration     p99<5ms  service.p99.9<=10ms  max<1s
//	loss                                                    < | <=   percentage   loss<0.1%
//
// Latency, the default, is from the planned time. Percentiles and max of latency and service time count lost packets as slower
// than any limit; the mean is of those answered. Loss is lost / (sent - in flight).
type Objective struct {
	// Text is the SLO as it was given, without spaces.
	Text string
	// Of names the histogram; Metric is "p", "max", "mean" or "loss"; Quantile (0..1) goes with "p".
	Of, Metric string
	Quantile   float64
	// OrEqual tells <= from <.
	OrEqual bool
	// Limit is in ns, or a share (0..1) for loss.
	Limit float64
}

// SyntaxError says where in an SLO the reading stopped.
type SyntaxError struct {
	Text string
	// At is the byte in Text, from 0.
	At   int
	Want string
}

// Error shows the SLO with a caret under the character in question.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("slo %q: character %d: want %s\n\t%s\n\t%s^", e.Text, e.At+1, e.Want, e.Text, strings.Repeat(" ", e.At))
}

var histogramNames = []string{"latency", "service", "server", "lag", "gap"}

// ParseSLO reads one SLO. Errors are *SyntaxError.
func ParseSLO(text string) (Objective, error) {
	p := parser{text: text}
	o := Objective{Of: "latency", Text: strings.ReplaceAll(text, " ", "")}
	p.spaces()
	for _, name := range histogramNames {
		if p.take(name + ".") {
			o.Of = name
			break
		}
	}
	if err := p.metric(&o); err != nil {
		return Objective{}, err
	}
	p.spaces()
	if !p.take("<") {
		return Objective{}, p.want("< or <=")
	}
	o.OrEqual = p.take("=")
	p.spaces()
	return o, p.limit(&o)
}

type parser struct {
	text string
	at   int
}

func (p *parser) want(what string) error { return &SyntaxError{Text: p.text, At: p.at, Want: what} }

func (p *parser) spaces() {
	for p.take(" ") {
	}
}

func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) metric(o *Objective) error {
	start := p.at
	switch {
	case p.take("max"):
		o.Metric = "max"
	case p.take("mean"):
		o.Metric = "mean"
	case start == len(p.text)-len(strings.TrimLeft(p.text, " ")) && p.take("loss"):
		o.Metric = "loss"
	case p.take("p"):
		digits := p.at
		for p.at < len(p.text) && strings.IndexByte("0123456789.", p.text[p.at]) >= 0 {
			p.at++
		}
		v, err := strconv.ParseFloat(p.text[digits:p.at], 64)
		if err != nil || v <= 0 || v >= 100 {
			p.at = digits
			return p.want("a percentile above 0 and below 100, such as p99.9 (for 100 there is max)")
		}
		o.Metric, o.Quantile = "p", v/100
	default:
		return p.want("p and a percentile, max or mean, with latency., service., server., lag. or gap. before it; or loss alone")
	}
	return nil
}

func (p *parser) limit(o *Objective) error {
	value := strings.TrimRight(p.text[p.at:], " ")
	if o.Metric == "loss" {
		number, ok := strings.CutSuffix(value, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || err != nil || !(v >= 0 && v <= 100) {
			return p.want("a percentage from 0% to 100%, such as 0.1%")
		}
		o.Limit = v / 100
		return nil
	}
	d, err := time.ParseDuration(strings.ReplaceAll(value, " ", ""))
	if err != nil || d <= 0 {
		return p.want("a time above 0 with its unit, such as 5ms, 250us or 1.5s")
	}
	o.Limit = float64(d)
	return nil
}

// Evaluate says whether r meets o, with the figure in the detail. What was not measured is not met.
func (o Objective) Evaluate(r *stats.Result) stats.SLO {
	got, what, err := o.measure(r)
	s := stats.SLO{Text: o.Text}
	if err != nil {
		s.Detail = "not met: " + err.Error()
		return s
	}
	s.Met = got < o.Limit || o.OrEqual && got == o.Limit
	word, sign := "not met", "<"
	if s.Met {
		word = "met"
	}
	if o.OrEqual {
		sign = "<="
	}
	write := func(v float64) string { return stats.FormatNS(int64(math.Round(v))) }
	if o.Metric == "loss" {
		write = stats.FormatPercent
	}
	s.Detail = fmt.Sprintf("%s: %s is %s, asked %s %s", word, what, write(got), sign, write(o.Limit))
	return s
}

func (o Objective) measure(r *stats.Result) (got float64, what string, err error) {
	l := &r.Ledger
	if o.Metric == "loss" {
		loss, known := l.Loss()
		switch {
		case r.Config.Mode == stats.ModeOneway:
			return 0, "", errors.New("loss is not measured in oneway mode")
		case !known:
			return 0, "", errors.New("0 packets have a known fate")
		}
		return loss, fmt.Sprintf("loss (%s of %s packets)", stats.FormatCount(l.Lost), stats.FormatCount(l.Sent-l.InFlight)), nil
	}
	sum := map[string]*stats.Histogram{"latency": &r.Latency, "service": &r.Service, "server": &r.Server, "lag": &r.Lag, "gap": &r.Gap}[o.Of]
	missing := uint64(0)
	if o.Of == "latency" || o.Of == "service" {
		missing = r.Unanswered(sum.Count)
	}
	if sum.Count+missing == 0 {
		return 0, "", fmt.Errorf("%s has 0 samples in %s mode", o.Of, r.Config.Mode)
	}
	switch o.Metric {
	case "max":
		if missing > 0 {
			return 0, "", fmt.Errorf("%s packets were never answered, so %s has no maximum (of those answered: %s)", stats.FormatCount(missing), o.Of, stats.FormatNS(sum.Max))
		}
		return float64(sum.Max), o.Of + " max", nil
	case "mean":
		if sum.Count == 0 {
			return 0, "", fmt.Errorf("%s packets were never answered: 0 samples to take a mean of", stats.FormatCount(missing))
		}
		return sum.Mean, o.Of + " mean", nil
	}
	h, err := sum.Hist()
	if err != nil {
		return 0, "", err
	}
	name := o.Of + " p" + strconv.FormatFloat(o.Quantile*100, 'g', 10, 64)
	v, ok := h.QuantileAmong(o.Quantile, missing)
	if !ok {
		return 0, "", fmt.Errorf("%s lies among the %s packets that were never answered", name, stats.FormatCount(missing))
	}
	return float64(v), name, nil
}

// evaluate judges the SLOs of the run. One that cannot be read is not met.
func evaluate(r *stats.Result) []stats.SLO {
	var out []stats.SLO
	for _, text := range r.Config.SLOs {
		o, err := ParseSLO(text)
		if err != nil {
			out = append(out, stats.SLO{Text: text, Detail: "not met: " + err.Error()})
			continue
		}
		out = append(out, o.Evaluate(r))
	}
	return out
}
