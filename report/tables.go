package report

import (
	"fmt"
	"slices"
	"strconv"

	"blast/stats"
)

var (
	quantiles     = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}
	quantileNames = []string{"p50", "p90", "p99", "p99.9", "p99.99"}
)

// series is one row of the table of distributions.
type series struct {
	name string
	hist *stats.Histogram
	// speaks is true where the figures speak about the target, and so must say INVALID when they do not.
	speaks bool
	// lost is true where packets without a reply are missing.
	lost bool
}

func seriesOf(r *stats.Result) []series {
	planned, actual := "latency", "service time"
	if waits(&r.Config) || r.Config.Model == stats.ModelClosed {
		planned, actual = "latency (from planned)", "service time (from actual)"
	}
	all := []series{
		{planned, &r.Latency, true, true},
		{actual, &r.Service, true, true},
		{"server's share", &r.Server, true, false},
		{"lag", &r.Lag, false, false},
		{"gap between sends", &r.Gap, false, false},
	}
	if r.Corrected != nil {
		all = slices.Insert(all, 2, series{"latency, corrected: AN ESTIMATE", r.Corrected, true, false})
	}
	return all
}

// marked is a row's name, with the word INVALID where the figures are not to be quoted.
func (s *series) marked(r *stats.Result) string {
	if s.speaks && !r.Verdict.Valid {
		return s.name + " INVALID"
	}
	return s.name
}

// distributions are latency from the plan with service time beside it, then where the time went.
func (p *page) distributions(r *stats.Result) {
	head := append([]string{"", "n"}, quantileNames...)
	rows := [][]string{append(head, "max")}
	above := [][]string{{"samples above", "1 ms", "10 ms", "100 ms", "1 s"}}
	for _, s := range seriesOf(r) {
		h := s.hist
		if h.Count > 0 || s.name == "lag" {
			rows = append(rows, append([]string{s.marked(r)}, quantileCells(h)...))
			above = append(above, append([]string{s.marked(r)}, aboveCells(h)...))
		}
		if s.lost && (h.Count > 0 || s.hist == &r.Latency) {
			rows = append(rows, withLost(r, s)...)
		}
	}
	p.table(rows)
	p.blank()
	p.table(above)
	p.blank()
	p.definitions(r)
}

// withLost is the row of s with the packets that never got a reply ranked as slower than any; none when there are none.
func withLost(r *stats.Result, s series) [][]string {
	missing := r.Unanswered(s.hist.Count)
	h, err := s.hist.Hist()
	if missing == 0 || err != nil {
		return nil
	}
	if s.name = "  lost counted"; s.hist.Count == 0 {
		s.name = "latency, lost counted"
	}
	row := []string{s.marked(r), stats.FormatCount(s.hist.Count + missing)}
	for _, q := range quantiles {
		if v, ok := h.QuantileAmong(q, missing); ok {
			row = append(row, stats.FormatNS(v))
		} else {
			row = append(row, "lost")
		}
	}
	return [][]string{append(row, "lost")}
}

// quantileCells are the number of samples, their quantiles as quantileNames has them, and the maximum.
func quantileCells(h *stats.Histogram) []string {
	cells := []string{stats.FormatCount(h.Count)}
	for _, v := range []int64{h.P50, h.P90, h.P99, h.P999, h.P9999, h.Max} {
		cells = append(cells, stats.FormatNS(v))
	}
	return cells
}

// aboveCells are the numbers of samples above 1, 10, 100 ms and 1 s.
func aboveCells(h *stats.Histogram) []string {
	return []string{stats.FormatCount(h.Over.Ms1), stats.FormatCount(h.Over.Ms10), stats.FormatCount(h.Over.Ms100), stats.FormatCount(h.Over.S1)}
}

// tailCells are p50, p99, p99.9 and the maximum; "-" where there is no sample.
func tailCells(h *stats.Histogram) []string {
	if h.Count == 0 {
		return []string{"-", "-", "-", "-"}
	}
	return []string{stats.FormatNS(h.P50), stats.FormatNS(h.P99), stats.FormatNS(h.P999), stats.FormatNS(h.Max)}
}

// lossText is the share of packets with a known fate that were lost; "-" where none has one.
func lossText(r *stats.Result) string {
	loss, known := r.Ledger.Loss()
	if !known || r.Config.Mode == stats.ModeOneway {
		return "-"
	}
	return stats.FormatPercent(loss)
}

// definitions say what the rows are, from where to where, and of what samples.
func (p *page) definitions(r *stats.Result) {
	for _, l := range definitionsOf(r) {
		p.line(l.label, "%s", l.text)
	}
}

// labelled is a sentence under a label; without one it goes on with the label before.
type labelled struct{ label, text string }

func definitionsOf(r *stats.Result) []labelled {
	var out []labelled
	if r.Config.Mode == stats.ModeEcho {
		start := r.Config.ClockStart
		if start == "" {
			start = "the planned time (latency) and the actual send (service time)"
		}
		out = append(out, labelled{"clocks", "start at " + start + ", and stop at the reply; lag: from the planned to the actual send"},
			labelled{"samples", "latency and service time count " + samples(r)})
	} else {
		out = append(out, labelled{"clocks", "lag: from the planned to the actual send; latency is not measured in oneway mode"})
	}
	if waits(&r.Config) {
		out = append(out, labelled{"", "what waited for a reply before it was sent counts from its planned time: latency holds that wait, service time does not"})
	}
	if r.Corrected != nil {
		out = append(out, labelled{"estimate", fmt.Sprintf("the corrected row adds, for each reply that took longer than %s, the samples that a client sending every %s would have had meanwhile "+
			"(HdrHistogram recordCorrectedValue): %s that nobody measured", stats.FormatNS(r.Config.CorrectNS), stats.FormatNS(r.Config.CorrectNS),
			counted(r.Corrected.Count-r.Latency.Count, "sample"))})
	}
	return append(out, labelled{"", "percentiles come from one histogram of all samples (HdrHistogram, 3 digits); none is averaged"})
}

// samples says which packets are in the latency histogram, by the counts themselves.
func samples(r *stats.Result) string {
	l, n := &r.Ledger, r.Latency.Count
	missing := r.Unanswered(n)
	switch {
	case missing == 0 && n >= l.Sent-min(l.InFlight, l.Sent):
		return "every packet with a known fate, errors and timeouts inside"
	case n == l.Replied+l.Late:
		return fmt.Sprintf("replied and late packets; the %s lost %s slower than any", stats.FormatCount(missing), ranked(missing, "reply"))
	}
	return fmt.Sprintf("%s; %s more %s slower than any", counted(n, "packet"), stats.FormatCount(missing), ranked(missing, "sample"))
}

// ranked says how packets without what a latency is made of are counted.
func ranked(missing uint64, without string) string {
	if missing == 1 {
		return "has no " + without + ", and the rows \"lost counted\" rank it"
	}
	return "have no " + without + ", and the rows \"lost counted\" rank them"
}

// rounds lists every round and names the one that the page is about.
func (p *page) rounds(r *stats.Result) {
	if len(r.Rounds) < 2 {
		return
	}
	rows := [][]string{{"round", "verdict", "sent", "replied", "lost", "latency p50", "p99", "max", "lag p99.9"}}
	for i := range r.Rounds {
		x := &r.Rounds[i]
		name := strconv.Itoa(i + 1)
		if i+1 == r.Round {
			name += " *"
		}
		tail := tailCells(&x.Latency)
		rows = append(rows, []string{name, word(x), stats.FormatPPS(x.Rate.AchievedPPS), stats.FormatPPS(x.Rate.RepliedPPS), stats.FormatCount(x.Ledger.Lost),
			tail[0], tail[1], tail[3], stats.FormatNS(x.Lag.P999)})
	}
	p.table(rows)
	p.line("rounds", "* all other figures are of round %d of %d, the %s", r.Round, len(r.Rounds), stats.MedianRule(r.Config.Mode))
	p.blank()
	p.spreads(r)
}

// workers has a row for each sending thread.
func (p *page) workers(r *stats.Result) {
	if len(r.Workers) == 0 {
		return
	}
	p.table(workerRows(r))
	p.line("", "(duty: share of the time not spent waiting for the next packet; preempted: involuntary context switches)")
	p.blank()
}

// workerRows are a head and a row for each sending thread.
func workerRows(r *stats.Result) [][]string {
	rows := [][]string{{"worker", "CPU", "node", "queue", "flows", "sent", "duty", "lag p99", "preempted", "guard", "user", "system"}}
	for i := range r.Workers {
		w := &r.Workers[i]
		rows = append(rows, []string{strconv.Itoa(i), orDash(w.CPU), orDash(w.Node), orDash(w.Queue), strconv.Itoa(w.Flows), stats.FormatCount(w.Sent),
			percentOf(w.Duty), stats.FormatNS(w.LagP99NS), stats.FormatCount(uint64(max(w.InvoluntarySwitches, 0))),
			stats.FormatNS(w.GuardNS), stats.FormatNS(w.UserNS), stats.FormatNS(w.SystemNS)})
	}
	return rows
}

func orDash(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
