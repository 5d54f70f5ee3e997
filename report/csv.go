package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"blast/stats"
)

// timelineColumns are the columns of CSV, one row an interval: its end in s since the measured part began, its packets, its
// percentiles in ns, the share (0..1) of CPU time taken away, and the run's verdict, VALID or INVALID, so that no latency
// travels without it.
var timelineColumns = []string{"t_s", "planned", "sent", "replied", "lag_p50_ns", "lag_p99_ns", "latency_p99_ns", "steal", "verdict"}

// CSV writes the timeline of r with a header row.
func CSV(w io.Writer, r *stats.Result) error {
	rows := [][]string{timelineColumns}
	for _, s := range r.Timeline {
		rows = append(rows, []string{float(s.T), count(s.Planned), count(s.Sent), count(s.Replied),
			nanos(s.LagP50NS), nanos(s.LagP99NS), nanos(s.LatencyP99NS), float(s.Steal), word(r)})
	}
	return writeCSV(w, rows)
}

// summaryColumns are the columns of CSVSummary, one row a result: who and what, the verdict with its reasons, rates over the
// measured time, the ledger in packets, percentiles in ns from merged histograms, and samples above thresholds; then the 95 % intervals of
// percentiles, empty where they are not known or have no upper end, and whether the halves of the run were alike: yes, no, unclear, or
// empty where they were not compared.
var summaryColumns = []string{
	"run_id", "started", "backend", "mode", "profile", "payload_bytes", "flows", "workers", "verdict", "reasons",
	"elapsed_ns", "target_pps", "achieved_pps", "replied_pps", "l1_bps", "l2_bps", "ip_bps", "payload_bps",
	"planned", "sent", "refused", "abandoned", "kernel_dropped", "replied", "late", "lost", "in_flight", "duplicate", "reordered", "self_lost", "stray",
	"latency_n", "latency_min_ns", "latency_mean_ns", "latency_p50_ns", "latency_p90_ns", "latency_p99_ns", "latency_p999_ns", "latency_p9999_ns", "latency_max_ns",
	"latency_over_1ms", "latency_over_10ms", "latency_over_100ms", "latency_over_1s",
	"service_p50_ns", "service_p99_ns", "service_p999_ns", "service_max_ns", "lag_p50_ns", "lag_p99_ns", "lag_p999_ns", "lag_max_ns",
	"latency_p50_low_ns", "latency_p50_high_ns", "latency_p99_low_ns", "latency_p99_high_ns", "latency_p999_low_ns", "latency_p999_high_ns", "lag_p999_low_ns",
	"lag_p999_high_ns", "steady",
}

// CSVSummary writes one row for each result, with a header row.
func CSVSummary(w io.Writer, results ...*stats.Result) error {
	rows := [][]string{summaryColumns}
	for _, r := range results {
		c, rate, l := &r.Config, &r.Rate, &r.Ledger
		lat, svc, lag := &r.Latency, &r.Service, &r.Lag
		rows = append(rows, append([]string{
			r.RunID, r.Started.UTC().Format("2006-01-02T15:04:05.000Z"), r.Backend.Name, c.Mode, c.Profile, strconv.Itoa(c.PayloadBytes), strconv.Itoa(c.Flows),
			strconv.Itoa(c.Workers), word(r), strings.Join(reasonCodes(r.Verdict.Reasons), " "),
			nanos(rate.ElapsedNS), float(rate.TargetPPS), float(rate.AchievedPPS), float(rate.RepliedPPS), float(rate.L1BPS), float(rate.L2BPS), float(rate.IPBPS), float(rate.PayloadBPS),
			count(l.Planned), count(l.Sent), count(l.RefusedTotal()), count(l.Abandoned), count(l.KernelDropped), count(l.Replied), count(l.Late), count(l.Lost),
			count(l.InFlight), count(l.Duplicate), count(l.Reordered), count(l.SelfLost), count(l.Stray),
			count(lat.Count), nanos(lat.Min), float(lat.Mean), nanos(lat.P50), nanos(lat.P90), nanos(lat.P99), nanos(lat.P999), nanos(lat.P9999), nanos(lat.Max),
			count(lat.Over.Ms1), count(lat.Over.Ms10), count(lat.Over.Ms100), count(lat.Over.S1),
			nanos(svc.P50), nanos(svc.P99), nanos(svc.P999), nanos(svc.Max), nanos(lag.P50), nanos(lag.P99), nanos(lag.P999), nanos(lag.Max),
		}, precisionCells(r.Precision)...))
	}
	return writeCSV(w, rows)
}

// precisionCells are the last columns of CSVSummary.
func precisionCells(p *stats.Precision) []string {
	var cells []string
	for _, of := range []struct {
		name     string
		quantile float64
	}{{"latency", 0.5}, {"latency", 0.99}, {"latency", 0.999}, {"lag", 0.999}} {
		low, high := "", ""
		if v := p.Interval(of.name, of.quantile); v != nil {
			low = nanos(v.LowNS)
			if !v.Open {
				high = nanos(v.HighNS)
			}
		}
		cells = append(cells, low, high)
	}
	switch {
	case p == nil || p.Stationary == nil:
		return append(cells, "")
	case !p.Stationary.Holds:
		return append(cells, "no")
	case !p.Stationary.Clear():
		return append(cells, "unclear")
	}
	return append(cells, "yes")
}

func writeCSV(w io.Writer, rows [][]string) error {
	if err := csv.NewWriter(w).WriteAll(rows); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// word is the verdict in one word.
func word(r *stats.Result) string {
	if r.Verdict.Valid {
		return "VALID"
	}
	return "INVALID"
}

func count(n uint64) string  { return strconv.FormatUint(n, 10) }
func nanos(n int64) string   { return strconv.FormatInt(n, 10) }
func float(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
