package report

import (
	"strings"
	"testing"

	"blast/stats"
)

func TestFineNS(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want string
	}{{0, "0 ns"}, {7, "7 ns"}, {999, "999 ns"}, {1000, "1.000 us"}, {62_345, "62.34 us"}, {9_999_600, "10.00 ms"}, {123_456_789, "123.5 ms"}, {999_960_000, "1.000 s"},
		{1_926_000_000, "1.926 s"}, {3_600_000_000_000, "3600.0 s"}} {
		if got := fineNS(c.ns); got != c.want {
			t.Errorf("%d: %q, want %q", c.ns, got, c.want)
		}
	}
}

// Two intervals that touch show no difference; an open one has no upper end; without either, nothing is said.
func TestDiffer(t *testing.T) {
	run := func(low, high int64, open bool) *stats.Result {
		return &stats.Result{Precision: &stats.Precision{Intervals: []stats.Interval{{Of: "latency", Quantile: 0.99, LowNS: low, HighNS: high, Open: open}}}}
	}
	for _, c := range []struct {
		a, b *stats.Result
		want string
	}{
		{run(10, 20, false), run(20, 30, false), "no difference shown"},
		{run(10, 20, false), run(21, 30, false), "differ"},
		{run(21, 30, false), run(10, 20, false), "differ"},
		{run(10, 20, true), run(21, 30, false), "no difference shown"},
		{run(21, 30, true), run(10, 20, false), "differ"},
		{run(10, 20, false), &stats.Result{}, ""},
	} {
		if got := differ("latency", 0.99, c.a, c.b); got != c.want {
			t.Errorf("%+v and %+v: %q, want %q", c.a.Precision, c.b.Precision, got, c.want)
		}
	}
}

// Every side of a comparison that is INVALID is named, and nothing is divided by 0.
func TestCompareSides(t *testing.T) {
	for _, c := range []struct {
		a, b bool
		want string
	}{{true, true, ""}, {false, true, "INVALID A"}, {true, false, "INVALID B"}, {false, false, "INVALID both"}} {
		if got := invalidSides(&stats.Result{Verdict: stats.Verdict{Valid: c.a}}, &stats.Result{Verdict: stats.Verdict{Valid: c.b}}); got != c.want {
			t.Errorf("%v and %v: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	if got := ratio(0, 5); got != "-" {
		t.Errorf("5 / 0: %q", got)
	}
}

// Results without precision (older versions, merged shards, runs too short) have no empty tables.
func TestPrecisionAbsent(t *testing.T) {
	with := text(t, echoRun(), Options{})
	if !strings.Contains(with, "95 % interval") || !strings.Contains(with, "steady") {
		t.Error("the intervals are missing")
	}
	for _, p := range []*stats.Precision{nil, {}} {
		r := echoRun()
		r.Precision = p
		if page := text(t, r, Options{}); strings.Contains(page, "interval  ") || strings.Contains(page, "steady") || strings.Contains(page, "\n\n\n") {
			t.Errorf("precision %+v:\n%s", p, page)
		}
	}
}
