package stats

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Merging k shards through their files equals one result of all samples, bit for bit.
func TestMergeEqualsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 4).Draw(t, "shards")
		var all []int64
		var shards []*Result
		for i := range k {
			values := rapid.SliceOfN(value(), 1, 30).Draw(t, "values")
			all = append(all, values...)
			shards = append(shards, shard(i, k, values...))
		}
		slices.Reverse(shards) // in any order
		got, err := Merge(shards)
		if err != nil {
			t.Fatal(err)
		}
		want := shard(0, 1, all...)
		for i, h := range got.histograms() {
			if diff := cmp.Diff(*want.histograms()[i].sum, *h.sum); diff != "" {
				t.Fatalf("%s:\n%s", h.name, diff)
			}
		}
		if diff := cmp.Diff(want.Ledger, got.Ledger); diff != "" {
			t.Fatal(diff)
		}
		if d := got.Rate.AchievedPPS/want.Rate.AchievedPPS - 1; d < -1e-12 || d > 1e-12 {
			t.Fatalf("achieved %v, want %v", got.Rate.AchievedPPS, want.Rate.AchievedPPS)
		}
		if got.Shard != 0 || got.Shards != 1 || len(got.Workers) != k || got.Config.Workers != k || got.Config.Flows != 4*k {
			t.Fatalf("shard %d of %d, %d workers, config %+v", got.Shard, got.Shards, len(got.Workers), got.Config)
		}
	})
}

func TestMergeSumsAndKeepsTheWorst(t *testing.T) {
	a, b := shard(0, 2, 1000, 2000), shard(1, 2, 3000, 4000, 5000)
	a.Precision, a.Segments, a.Departures = &Precision{Intervals: []Interval{{Of: "latency"}}}, &Segments{}, &Departures{}
	b.Interrupted, b.Events = "interrupt", Events{"pushback": 3}
	before := string(encoded(t, a)) + string(encoded(t, b))
	got, err := Merge([]*Result{b, a})
	if err != nil {
		t.Fatal(err)
	}
	if after := string(encoded(t, a)) + string(encoded(t, b)); before != after {
		t.Error("the shards were changed")
	}
	if got.Precision != nil || got.Segments != nil || got.Departures != nil {
		t.Error("the whole has what is one shard's")
	}
	if want := []Second{{T: 1, Planned: 2, Sent: 2, LagP50NS: 1, LagP99NS: 10, LatencyP99NS: 5, Steal: 0.01}, {T: 2, Planned: 3, Sent: 3}}; !cmp.Equal(want, got.Timeline) {
		t.Error(cmp.Diff(want, got.Timeline))
	}
	if want := []Counter{{Name: "Udp.SndbufErrors", Delta: 5}}; !cmp.Equal(want, got.Counters) {
		t.Errorf("both shards read the same host's counter: %v", got.Counters)
	}
	if got.Interrupted != "interrupt" || got.Events["pushback"] != 3 || !got.Started.Equal(a.Started) || got.Host.Cores != 8 {
		t.Errorf("interrupted %q, events %v, started %v, cores %d", got.Interrupted, got.Events, got.Started, got.Host.Cores)
	}
	if got.Verdict.Valid {
		t.Error("a merged result has not been judged yet")
	}
	if !slices.Equal(got.Config.CPUs, []int{0, 1}) || !slices.Equal(got.Config.Targets, []string{"10.0.0.1:7"}) {
		t.Errorf("CPUs %v targets %v", got.Config.CPUs, got.Config.Targets)
	}
}

func TestMergeRates(t *testing.T) {
	a, b := shard(0, 2, 1, 2, 3, 4), shard(1, 2, 1, 2, 3, 4)
	b.Rate.ElapsedNS /= 2 // it ended after 1 s: 4 packets in 1 s
	b.Rate.AchievedPPS *= 2
	got, err := Merge([]*Result{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if got.Rate.AchievedPPS != 4 || got.Rate.ElapsedNS != 2e9 || got.Rate.TargetPPS != 4 {
		t.Errorf("8 packets in 2 s: %+v", got.Rate)
	}
}

func TestMergeHosts(t *testing.T) {
	a, b, c := shard(0, 3, 1), shard(1, 3, 2), shard(2, 3, 3)
	c.Host.Hostname, c.Host.NICNode = "k", 1
	for i, r := range []*Result{a, b, c} {
		r.Rate.TargetPPS = 100
		r.Calibration = &Calibration{ID: r.Host.Hostname, CeilingPPS: []float64{400, 400, 1000}[i], Workers: 1}
	}
	got, err := Merge([]*Result{a, b, c})
	if err != nil {
		t.Fatal(err)
	}
	if got.Host.Hostname != "h + k" || got.Host.Cores != 16 || got.Host.NICNode != -1 || got.Counters[0].Delta != 10 {
		t.Errorf("host %+v, counters %v", got.Host, got.Counters)
	}
	// Host h: 400 for 200 asked, margin 2; host k: 1000 for 100, margin 10. The whole is as safe as its worst host.
	if want := (Calibration{ID: "h + k", CeilingPPS: 600, Margin: 2, PayloadBytes: 48, Workers: 3}); *got.Calibration != want {
		t.Errorf("calibration %+v, want %+v", *got.Calibration, want)
	}
	b.Calibration = nil
	if got, err = Merge([]*Result{a, b, c}); err != nil || got.Calibration != nil {
		t.Errorf("one shard without calibration: %v, %+v", err, got.Calibration)
	}
}

func TestMergeRefuses(t *testing.T) {
	pair := func(change func(a, b *Result)) []*Result {
		a, b := shard(0, 2, 1), shard(1, 2, 2)
		change(a, b)
		return []*Result{a, b}
	}
	for _, c := range []struct {
		why    string
		shards []*Result
		want   string
	}{
		{"nothing", nil, "no results to merge"},
		{"another run", pair(func(a, b *Result) { b.RunID = "run-2" }), `run_id differs: "run-1" and "run-2"`},
		{"the same shard twice", pair(func(a, b *Result) { b.Shard = 0 }), "shard 0 is there twice"},
		{"the last shard missing", []*Result{shard(0, 3, 1), shard(1, 3, 1)}, "shard 2 of 3 is missing"},
		{"a middle shard missing", []*Result{shard(0, 3, 1), shard(2, 3, 1)}, "shard 1 of 3 is missing"},
		{"another count of shards", pair(func(a, b *Result) { b.Shards = 3 }), "shards differs"},
		{"another payload", pair(func(a, b *Result) { b.Config.PayloadBytes = 64 }), `payload bytes differs: "48" in shard 0, "64" in shard 1`},
		{"another duration", pair(func(a, b *Result) { b.Config.DurationNS = 9e9 }), `duration differs: "2.00 s" in shard 0, "9.00 s" in shard 1`},
		{"another backend", pair(func(a, b *Result) { b.Backend.Name = "net" }), "backend differs"},
		{"another version", pair(func(a, b *Result) { b.Host.Blast = "v2" }), "blast differs"},
		{"other rounds", pair(func(a, b *Result) { b.Rounds = []Result{*shard(0, 1, 1)} }), "rounds differs"},
		{"a broken histogram", pair(func(a, b *Result) { b.Service.Count = 7 }), "shard 1: service_ns"},
	} {
		if _, err := Merge(c.shards); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	if _, err := Merge(pair(func(a, b *Result) { b.Config.Seed, b.Config.Targets, b.Host.Kernel = 9, nil, "6.1" })); err != nil {
		t.Errorf("what shards may have of their own: %v", err)
	}
}

// Rounds are merged one by one, and the median is chosen among the merged ones.
func TestMergeRounds(t *testing.T) {
	a, b := shard(0, 2, 10), shard(1, 2, 20)
	a.Rounds = []Result{*shard(0, 2, 10), *shard(0, 2, 1000), *shard(0, 2, 30)}
	b.Rounds = []Result{*shard(1, 2, 500), *shard(1, 2, 20), *shard(1, 2, 40)}
	got, err := Merge([]*Result{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spreads) == 0 || got.Spreads[1].Name != "latency_ns.p99" || got.Spreads[1].Median != 500 || got.Spreads[1].Min != 40 || got.Spreads[1].Max != 1000 {
		t.Errorf("spreads %+v: want those of the merged rounds, p99 500, 1000 and 40", got.Spreads)
	}
	if len(got.Rounds) != 3 || got.Round != 1 || got.Latency.P99 != 500 || got.Latency.Count != 2 {
		t.Errorf("round %d of %d, p99 %d, n %d; want 1 of 3, 500, 2", got.Round, len(got.Rounds), got.Latency.P99, got.Latency.Count)
	}
}

// Intervals of unequal length are joined up to the next common end; no packet is lost or counted twice.
func TestMergeTimelinesOfUnequalIntervals(t *testing.T) {
	for _, c := range []struct {
		why  string
		a, b []Second
		want []Second
	}{
		{"1 s and 2 s", []Second{{T: 1, Sent: 1}, {T: 2, Sent: 2, LagP99NS: 9}, {T: 3, Sent: 3}, {T: 4, Sent: 4}}, []Second{{T: 2, Sent: 10}, {T: 4, Sent: 20}},
			[]Second{{T: 2, Sent: 13, LagP99NS: 9}, {T: 4, Sent: 27}}},
		{"one ended early", []Second{{T: 1, Sent: 1}, {T: 2, Sent: 1}, {T: 2.5, Sent: 1}}, []Second{{T: 1, Sent: 1}, {T: 1.25, Sent: 1}},
			[]Second{{T: 1, Sent: 2}, {T: 2.5, Sent: 3}}},
		{"one has no timeline", []Second{{T: 1, Sent: 1}, {T: 2, Sent: 1}}, nil, []Second{{T: 2, Sent: 2}}},
	} {
		got := mergeTimelines([]*Result{{Timeline: c.a}, {Timeline: c.b}})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.why, diff)
		}
	}
}
