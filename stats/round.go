package stats

import (
	"cmp"
	"slices"
)

// MedianRound returns the index of the round that speaks for all: the median by latency p99 in echo mode, by achieved rate
// in oneway mode (latency and rate of a run whose rounds were merged would be nobody's). Of two middle rounds it takes the
// worse. It returns -1 for no rounds.
func MedianRound(rounds []Result) int {
	if len(rounds) == 0 {
		return -1
	}
	order := make([]int, len(rounds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if rounds[0].Config.Mode == ModeOneway {
			return cmp.Compare(rounds[b].Rate.AchievedPPS, rounds[a].Rate.AchievedPPS)
		}
		return cmp.Compare(rounds[a].Latency.P99, rounds[b].Latency.P99)
	})
	return order[len(order)/2]
}

// MedianRule says in words what MedianRound does, for reports.
func MedianRule(mode string) string {
	if mode == ModeOneway {
		return "median by achieved rate"
	}
	return "median by latency p99"
}
