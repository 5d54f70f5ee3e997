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
	l, n := &r.Ledger, stats.FormatCount
	p.line("packets", "planned %s = sent %s + refused %s + abandoned %s + kernel dropped %s",
		n(l.Planned), n(l.Sent), n(l.RefusedTotal()), n(l.Abandoned), n(l.KernelDropped))
	if r.Config.Mode == stats.ModeEcho {
		p.line("", "sent %s = replied %s + late %s + lost %s + in flight %s", n(l.Sent), n(l.Replied), n(l.Late), n(l.Lost), n(l.InFlight))
	}
	p.margin(r)
	return p.flush(w)
}
