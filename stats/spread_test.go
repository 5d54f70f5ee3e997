package stats

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpreadRounds(t *testing.T) {
	round := func(p99 int64, pps float64, lost uint64, duty float64) Result {
		return Result{Config: Config{Mode: ModeEcho}, Latency: Histogram{Count: 1, P50: 10, P99: p99, P999: 2 * p99, Max: 4 * p99}, Rate: Rate{AchievedPPS: pps, RepliedPPS: pps / 2},
			Ledger: Ledger{Sent: 110, InFlight: 10, Lost: lost}, Lag: Histogram{Count: 1, P999: 7}, Workers: []Worker{{Duty: duty / 2}, {Duty: duty}}}
	}
	rounds := []Result{round(300, 1000, 0, 0.5), round(100, 3000, 10, 0.1), round(200, 2000, 5, 0.2)}
	want := []Spread{
		{"latency_ns.p50", 10, 10, 10, 0}, {"latency_ns.p99", 200, 100, 300, 1}, {"latency_ns.p999", 400, 200, 600, 1}, {"latency_ns.max", 800, 400, 1200, 1},
		{"rate.achieved_pps", 2000, 1000, 3000, 1}, {"rate.replied_pps", 1000, 500, 1500, 1}, {"loss", 0.05, 0, 0.1, 2}, {"lag_ns.p999", 7, 7, 7, 0}, {"duty", 0.2, 0.1, 0.5, 2},
	}
	if d := cmp.Diff(want, SpreadRounds(rounds)); d != "" {
		t.Error(d)
	}
	// An even number, and a median of nothing.
	got := SpreadRounds([]Result{round(100, 1000, 0, 0), round(300, 1000, 0, 0)})
	if got[1] != (Spread{"latency_ns.p99", 200, 100, 300, 1}) || got[6] != (Spread{Name: "loss"}) {
		t.Errorf("two rounds: %+v", got)
	}
	if got := SpreadRounds(rounds[:1]); got != nil {
		t.Errorf("one round: %+v", got)
	}
	// A round without replies has no latency to compare, and oneway rounds have none at all.
	rounds[0].Latency = Histogram{}
	if got := SpreadRounds(rounds); got[1] != (Spread{"latency_ns.p99", 150, 100, 200, 1. / 1.5}) {
		t.Errorf("a round without replies: %+v", got[1])
	}
	for i := range rounds {
		rounds[i].Config.Mode, rounds[i].Latency = ModeOneway, Histogram{}
	}
	var names []string
	for _, s := range SpreadRounds(rounds) {
		names = append(names, s.Name)
	}
	if d := cmp.Diff([]string{"rate.achieved_pps", "lag_ns.p999", "duty"}, names); d != "" {
		t.Error(d)
	}
}
