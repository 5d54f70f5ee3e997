package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"blast/engine"
	"blast/serve"
	"blast/stats"
)

// faults injects every fault by seed and compares names: what the target says it touched, what the seed foretold, and what blast found.
func faults(ctx context.Context, b *bench) error {
	const packets, rate = 6000, 2000
	f := serve.Faults{Drop: 0.01, DropReply: 0.01, Reorder: 0.01, Duplicate: 0.01, Delay: 0.01, DelayBy: 1500 * time.Millisecond, Seed: 7}
	var names engine.Names
	// The drain outlasts the timeout, so that no packet's fate is left open.
	res, err := b.run(ctx, load{target: serve.QueueConfig{Servers: 64, Service: 2 * time.Millisecond, Faults: f}, users: 4, rate: rate, length: packets * time.Second / rate,
		timeout: time.Second, drain: 2500 * time.Millisecond, names: &names})
	if err != nil {
		return err
	}
	t := &res.truth
	b.exactly("dropped by full buffers, on either side", res.drops+t.Full.Count+t.Refused+res.Ledger.SelfLost, 0)
	foretold := map[serve.Fault][]engine.Name{}
	for seq := range uint64(packets) {
		fault := f.At(0, seq)
		foretold[fault] = append(foretold[fault], engine.Name{Seq: seq})
	}
	b.names("dropped on the way up: target and seed", named(t.Dropped), foretold[serve.FaultDrop])
	b.names("dropped on the way down: target and seed", named(t.DroppedReplies), foretold[serve.FaultDropReply])
	b.names("duplicated: target and seed", named(t.Duplicated), foretold[serve.FaultDuplicate])
	b.names("delayed: target and seed", named(t.Delayed), foretold[serve.FaultDelay])
	b.names("lost: blast and target", names.Lost, slices.Concat(named(t.Dropped), named(t.DroppedReplies)))
	b.names("duplicate: blast and target", names.Duplicate, named(t.Duplicated))
	b.names("late: blast and target's delayed", names.Late, named(t.Delayed))
	b.names("reordered: blast and target", names.Reordered, named(t.Reordered))
	l := &res.Ledger
	b.that("where they were lost", fmt.Sprintf("up %d, down %d, unknown %d", l.LostUp, l.LostDown, l.LostUnknown),
		fmt.Sprintf("up %d, down %d", t.Dropped.Count, t.DroppedReplies.Count), between(l.LostUp, t.Dropped.Count, l.LostUnknown) && between(l.LostDown, t.DroppedReplies.Count, l.LostUnknown))
	return nil
}

// between reports whether n is want but for at most unknown: the last packets of a flow, which no later report covers.
func between(n, want, unknown uint64) bool { return n <= want && want <= n+min(unknown, 8) }

func named(t serve.Touched) []engine.Name {
	var out []engine.Name
	for _, n := range t.Names {
		out = append(out, engine.Name(n))
	}
	return out
}

// names checks that two lists hold the same packets.
func (b *bench) names(what string, measured, told []engine.Name) {
	sorted := func(l []engine.Name) []engine.Name {
		return slices.SortedFunc(slices.Values(l), func(a, b engine.Name) int {
			return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Seq, b.Seq))
		})
	}
	m, t := sorted(measured), sorted(told)
	text := stats.FormatCount(uint64(len(m)))
	if !slices.Equal(m, t) {
		text += ", " + firstDifference(m, t)
	}
	b.checks = append(b.checks, Check{what, text, stats.FormatCount(uint64(len(t))), "each by name", slices.Equal(m, t)})
}

// firstDifference names the first packet that is in one of two sorted lists only.
func firstDifference(measured, told []engine.Name) string {
	for i := range max(len(measured), len(told)) {
		switch {
		case i >= len(told) || i < len(measured) && (measured[i].Worker < told[i].Worker || measured[i].Worker == told[i].Worker && measured[i].Seq < told[i].Seq):
			return fmt.Sprintf("%d of worker %d is too many", measured[i].Seq, measured[i].Worker)
		case i >= len(measured) || measured[i] != told[i]:
			return fmt.Sprintf("%d of worker %d is missing", told[i].Seq, told[i].Worker)
		}
	}
	return ""
}
