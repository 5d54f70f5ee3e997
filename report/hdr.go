package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"blast/stats"
)

// HDRLog writes the histograms of r as an HdrHistogram log, version 1.3, which HistogramLogReader, HistogramLogAnalyzer and the
// plotters read: one line each, tagged latency, service, server, lag and gap, over the whole measured time. The recorded values are ns;
// the maximum on each line is in ms, as is the custom there. Empty histograms have no line.
func HDRLog(w io.Writer, r *stats.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "#[blast %s run %s: %s; values in ns]\n", r.Host.Blast, r.RunID, word(r))
	b.WriteString("#[Histogram log format version 1.3]\n")
	start := float64(r.Started.UnixMilli()) / 1e3
	fmt.Fprintf(&b, "#[StartTime: %.3f (seconds since epoch), %s]\n", start, r.Started.UTC().Format("2006-01-02T15:04:05.000Z"))
	b.WriteString("\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n")
	for _, s := range taggedOf(r) {
		if s.hist.Count == 0 {
			continue
		}
		h, err := s.hist.Hist()
		if err != nil {
			return fmt.Errorf("report: %s: %w", s.tag, err)
		}
		fmt.Fprintf(&b, "Tag=%s,%.3f,%.3f,%.3f,%s\n", s.tag, start, float64(r.Rate.ElapsedNS)/1e9, float64(h.Max())/1e6, h.Encode())
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

type tagged struct {
	tag  string
	hist *stats.Histogram
}

func taggedOf(r *stats.Result) []tagged {
	return []tagged{{"latency", &r.Latency}, {"service", &r.Service}, {"server", &r.Server}, {"lag", &r.Lag}, {"gap", &r.Gap}}
}

// hgrmTicks is the number of lines for each halving of the distance to 100 %: the default of HdrHistogram's tools.
const hgrmTicks = 5

// HGRM writes the distribution of s in ms as the percentile table that HdrHistogram's plotters read (.hgrm), in the format of the Java
// tools: value, percentile, count up to it, 1/(1-percentile). An INVALID run's file says so in a comment at its end, where every
// reader passes over it.
func HGRM(w io.Writer, r *stats.Result, s *stats.Histogram) error {
	hist, err := s.Hist()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	h := hist.HDR()
	const ms = 1e6
	var b strings.Builder
	fmt.Fprintf(&b, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	for _, x := range h.CumulativeDistributionWithTicks(hgrmTicks) {
		share := x.Quantile / 100
		if share >= 1 {
			fmt.Fprintf(&b, "%12.6f %2.12f %10d\n", float64(x.ValueAt)/ms, 1.0, x.Count)
			continue
		}
		fmt.Fprintf(&b, "%12.6f %2.12f %10d %14.2f\n", float64(x.ValueAt)/ms, share, x.Count, 1/(1-share))
	}
	deviation := h.StdDev()
	if hist.Count() == 0 || math.IsNaN(deviation) {
		deviation = 0
	}
	fmt.Fprintf(&b, "#[Mean    = %12.6f, StdDeviation   = %12.6f]\n", hist.Mean()/ms, deviation/ms)
	fmt.Fprintf(&b, "#[Max     = %12.6f, Total count    = %12d]\n", float64(hist.Max())/ms, hist.Count())
	fmt.Fprintf(&b, "#[Buckets = %12d, SubBuckets     = %12d]\n", stats.HistBuckets/1024-1, 2048)
	if !r.Verdict.Valid {
		fmt.Fprintf(&b, "#[INVALID: %s]\n", strings.Join(stats.Codes(r.Verdict.Reasons), ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
