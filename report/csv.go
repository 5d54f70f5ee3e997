package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

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
