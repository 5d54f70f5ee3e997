package report

import (
	"io"

	"blast/stats"
)

// Heart writes what somebody who reads a report for the first time needs of Text, in the same words: the verdict, the percentiles of
// latency, service time and lag, and the two lines that must add up. Errors are the writer's.
func Heart(w io.Writer, r *stats.Result, o Options) error {
	p := newPage(o)
	p.verdict(r)
	p.blank()
	rows := [][]string{{"", "n", "p50", "p99", "p99.9", "max"}}
	for _, s := range seriesOf(r) {
		if h := s.hist; h.Count > 0 && (s.hist == &r.Latency || s.hist == &r.Service || s.hist == &r.Lag) {
			rows = append(rows, []string{s.marked(r), stats.FormatCount(h.Count), stats.FormatNS(h.P50), stats.FormatNS(h.P99), stats.FormatNS(h.P999), stats.FormatNS(h.Max)})
		}
	}
	p.table(rows)
	p.blank()
	p.planned(&r.Ledger)
	if r.Config.Mode == stats.ModeEcho {
		p.became(&r.Ledger)
	}
	p.margin(r)
	return p.flush(w)
}
