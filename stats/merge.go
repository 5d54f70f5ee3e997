package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Merge makes one result of all shards of one run. Counts and rates are summed over the longest measured time; histograms
// are merged, so that each percentile is that of one histogram of all samples, bit for bit; workers are put in a row. In the
// timeline, whose percentiles cannot be merged, lag, latency and steal are those of the worst shard in each interval. Counters
// of one host are counted once. With rounds, each round is merged, the median chosen and their spread told anew. What cannot be merged from
// files (Precision, Segments, Departures) is left out.
//
// It refuses shards of other runs, duplicate or missing shards, and shared settings that differ, naming the field and both values.
// The verdict is left empty: judge the whole, and keep the shards' own reasons (verdict.Merged). The shards are not changed.
func Merge(shards []*Result) (*Result, error) {
	if len(shards) == 0 {
		return nil, errors.New("no results to merge")
	}
	shards = slices.SortedFunc(slices.Values(shards), func(a, b *Result) int { return a.Shard - b.Shard })
	if err := mergeable(shards); err != nil {
		return nil, err
	}
	whole, err := mergeRound(shards)
	if err != nil {
		return nil, err
	}
	if len(shards[0].Rounds) == 0 {
		return whole, nil
	}
	var rounds []Result
	for i := range shards[0].Rounds {
		var parts []*Result
		for _, s := range shards {
			parts = append(parts, &s.Rounds[i])
		}
		round, err := mergeRound(parts)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, *round)
	}
	median := MedianRound(rounds)
	headline := rounds[median]
	headline.Rounds, headline.Round, headline.Interrupted = rounds, median+1, whole.Interrupted
	headline.Spreads = SpreadRounds(rounds)
	return &headline, nil
}

// mergeable says why sorted shards are not one whole run.
func mergeable(shards []*Result) error {
	first := shards[0]
	settings := first.Settings()
	for i, s := range shards {
		switch {
		case s.RunID != first.RunID:
			return fmt.Errorf("run_id differs: %q and %q", first.RunID, s.RunID)
		case s.Shards != first.Shards:
			return fmt.Errorf("shards differs: shard %d says %d, shard %d says %d", first.Shard, first.Shards, s.Shard, s.Shards)
		case i > 0 && s.Shard == shards[i-1].Shard:
			return fmt.Errorf("shard %d is there twice", s.Shard)
		case len(s.Rounds) != len(first.Rounds):
			return fmt.Errorf("rounds differs: shard %d has %d, shard %d has %d", first.Shard, len(first.Rounds), s.Shard, len(s.Rounds))
		}
		for k, theirs := range s.Settings() {
			if ours := settings[k]; !ours.PerShard && ours.Value != theirs.Value {
				return fmt.Errorf("%s differs: %q in shard %d, %q in shard %d", ours.Name, ours.Value, first.Shard, theirs.Value, s.Shard)
			}
		}
	}
	for i := range first.Shards {
		if i >= len(shards) || shards[i].Shard != i {
			return fmt.Errorf("shard %d of %d is missing", i, first.Shards)
		}
	}
	return nil
}

// mergeRound merges results without a look at their rounds.
func mergeRound(shards []*Result) (*Result, error) {
	whole := *shards[0]
	whole.Shard, whole.Shards, whole.Verdict, whole.Rounds = 0, 1, Verdict{}, nil
	whole.Ledger, whole.Events, whole.Workers, whole.Interrupted = Ledger{}, Events{}, nil, ""
	// What a file does not hold whole cannot be merged, and one shard's is not the whole's: how samples came one after the other, and which
	// stamps belong to which packet.
	whole.Precision, whole.Segments, whole.Departures, whole.Spreads = nil, nil, nil, nil
	for _, s := range shards {
		if s.Started.Before(whole.Started) {
			whole.Started = s.Started
		}
		whole.Ledger.Add(&s.Ledger)
		for name, n := range s.Events {
			whole.Events[name] += n
		}
		whole.Workers = append(whole.Workers, s.Workers...)
		if s.Interrupted != "" && whole.Interrupted == "" {
			whole.Interrupted = s.Interrupted
		}
	}
	var err error
	for i, h := range whole.histograms() {
		sum := &Hist{}
		for _, s := range shards {
			part, err := s.histograms()[i].sum.Hist()
			if err != nil {
				return nil, fmt.Errorf("shard %d: %s: %w", s.Shard, h.name, err)
			}
			sum.Add(part)
		}
		*h.sum = sum.Summary()
	}
	if whole.Corrected, err = mergeCorrected(shards); err != nil {
		return nil, err
	}
	whole.Rate = mergeRates(shards)
	whole.Config, whole.Host = mergeSetup(shards)
	whole.Timeline = mergeTimelines(shards)
	whole.Counters = mergeCounters(shards)
	whole.Calibration = mergeCalibrations(shards, whole.Rate.TargetPPS)
	whole.Little = mergeLittles(&whole, shards)
	whole.Normalize()
	return &whole, nil
}

// mergeRates turns each rate back into the count it was and divides by the longest measured time.
func mergeRates(shards []*Result) Rate {
	var sum Rate
	for _, s := range shards {
		sum.ElapsedNS = max(sum.ElapsedNS, s.Rate.ElapsedNS)
	}
	if sum.ElapsedNS <= 0 {
		return sum
	}
	for _, s := range shards {
		share := float64(s.Rate.ElapsedNS) / float64(sum.ElapsedNS)
		sum.TargetPPS += s.Rate.TargetPPS
		sum.AchievedPPS += s.Rate.AchievedPPS * share
		sum.RepliedPPS += s.Rate.RepliedPPS * share
		sum.L1BPS += s.Rate.L1BPS * share
		sum.L2BPS += s.Rate.L2BPS * share
		sum.IPBPS += s.Rate.IPBPS * share
		sum.PayloadBPS += s.Rate.PayloadBPS * share
	}
	return sum
}

// mergeSetup adds up what each shard had its own of, and lists what differs.
func mergeSetup(shards []*Result) (Config, Host) {
	c, h := shards[0].Config, shards[0].Host
	c.Targets, c.CPUs, c.Flows, c.Workers = nil, nil, 0, 0
	hosts := map[string]bool{}
	h.Cores, h.Queues, h.IRQBalance = 0, 0, false
	text := func(get func(*Host) *string) {
		var all []string
		for _, s := range shards {
			if v := *get(&s.Host); !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
		*get(&h) = strings.Join(all, " + ")
	}
	for _, get := range []func(*Host) *string{
		func(h *Host) *string { return &h.Hostname }, func(h *Host) *string { return &h.Kernel }, func(h *Host) *string { return &h.CPU },
		func(h *Host) *string { return &h.NIC }, func(h *Host) *string { return &h.Driver }, func(h *Host) *string { return &h.Clocksource },
		func(h *Host) *string { return &h.Governor }, func(h *Host) *string { return &h.Virt },
	} {
		text(get)
	}
	for _, s := range shards {
		for _, t := range s.Config.Targets {
			if !slices.Contains(c.Targets, t) {
				c.Targets = append(c.Targets, t)
			}
		}
		c.CPUs = append(c.CPUs, s.Config.CPUs...)
		c.Flows += s.Config.Flows
		c.Workers += s.Config.Workers
		if !hosts[s.Host.Hostname] {
			hosts[s.Host.Hostname] = true
			h.Cores += s.Host.Cores
			h.Queues += s.Host.Queues
		}
		h.IRQBalance = h.IRQBalance || s.Host.IRQBalance
		if s.Host.NICNode != h.NICNode {
			h.NICNode = -1
		}
	}
	return c, h
}

// mergeCounters takes the largest of the shards on one host, who all read the same counter, and sums over hosts.
func mergeCounters(shards []*Result) []Counter {
	type key struct{ host, name string }
	largest := map[key]int64{}
	var order []string
	for _, s := range shards {
		for _, c := range s.Counters {
			k := key{s.Host.Hostname, c.Name}
			if old, ok := largest[k]; !ok || c.Delta > old {
				largest[k] = c.Delta
			}
			if !slices.Contains(order, c.Name) {
				order = append(order, c.Name)
			}
		}
	}
	sums := map[string]int64{}
	for k, delta := range largest {
		sums[k.name] += delta
	}
	var out []Counter
	for _, name := range order {
		out = append(out, Counter{Name: name, Delta: sums[name]})
	}
	return out
}

// mergeCalibrations judges each host's ceiling against that host's share of the rate; the whole has the smallest margin. It is nil
// unless all shards have one.
func mergeCalibrations(shards []*Result, target float64) *Calibration {
	targets, ceilings := map[string]float64{}, map[string]float64{}
	whole := Calibration{Margin: math.Inf(1), PayloadBytes: shards[0].Config.PayloadBytes}
	var ids []string
	for _, s := range shards {
		if s.Calibration == nil {
			return nil
		}
		host := s.Host.Hostname
		targets[host] += s.Rate.TargetPPS
		if old, ok := ceilings[host]; !ok || s.Calibration.CeilingPPS < old {
			ceilings[host] = s.Calibration.CeilingPPS
		}
		if !slices.Contains(ids, s.Calibration.ID) {
			ids = append(ids, s.Calibration.ID)
		}
		whole.Workers += s.Calibration.Workers
	}
	for host, t := range targets {
		if t > 0 {
			whole.Margin = min(whole.Margin, ceilings[host]/t)
		}
	}
	if math.IsInf(whole.Margin, 1) { // no plan
		whole.Margin = 0
	}
	whole.ID, whole.CeilingPPS = strings.Join(ids, " + "), whole.Margin*target
	return &whole
}

// mergeTimelines merges interval by interval. Where shards have intervals of different lengths, it joins them up to the next
// end that all have; what is left after the last such end becomes one.
func mergeTimelines(shards []*Result) []Second {
	at := func(s Second) time.Duration { return time.Duration(s.T*1e3) * time.Millisecond }
	ends := map[time.Duration]int{}
	for _, s := range shards {
		for _, e := range s.Timeline {
			ends[at(e)]++
		}
	}
	merged := map[time.Duration]*Second{}
	for _, s := range shards {
		var open []Second
		for i, e := range s.Timeline {
			open = append(open, e)
			end := at(e)
			if ends[end] != len(shards) {
				if i < len(s.Timeline)-1 {
					continue
				}
				end = math.MaxInt64
			}
			if merged[end] == nil {
				merged[end] = &Second{}
			}
			for _, e := range open {
				merged[end].join(e)
			}
			open = open[:0]
		}
	}
	var out []Second
	for _, s := range merged {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Second) int {
		if a.T < b.T {
			return -1
		}
		return 1
	})
	return out
}

// join adds the counts of e and keeps the worse of what cannot be added.
func (s *Second) join(e Second) {
	s.T = max(s.T, e.T)
	s.Planned += e.Planned
	s.Sent += e.Sent
	s.Replied += e.Replied
	s.LagP50NS, s.LagP99NS = max(s.LagP50NS, e.LagP50NS), max(s.LagP99NS, e.LagP99NS)
	s.LatencyP99NS = max(s.LatencyP99NS, e.LatencyP99NS)
	s.Steal = max(s.Steal, e.Steal)
}
