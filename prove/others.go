package prove

import (
	"fmt"
	"strings"

	"blast/stats"
)

// target is control 3: an idle target and a rate below the plan mean that the generator is the wall, a full core or full buffers that the
// target is.
func target(e *Evidence) stats.Control {
	f := &finding{stats.Control{Name: stats.ControlTarget, Use: e.Target}}
	if e.Target == nil {
		f.say("unknown%s", because(e.TargetWhy))
		return f.done()
	}
	if e.Run == nil {
		f.say("nothing was sent to the target")
		return f.done()
	}
	l := loadOf(e.Run)
	if l.full() {
		f.decide(stats.PointsNeither, "it answered %s of what was sent", stats.FormatPercent(l.share))
	}
	arrived(f, e, l)
	targetCores(f, e, l)
	clocks(f, e.Target)
	return f.done()
}

// arrived follows the packets into the target's host by its counters.
func arrived(f *finding, e *Evidence, l load) {
	u := e.Target
	if u.SharedCounters {
		f.say("%s counts for the generator's own network namespace: its losses cannot be told from the generator's", u.Source)
		return
	}
	var in, dropped int64
	var names []string
	for _, c := range u.Counters {
		switch name := counterField(c.Name); {
		case name == "InDatagrams" && strings.HasPrefix(c.Name, "udp"):
			in += c.Delta
		case name == "RcvbufErrors", name == "rx_dropped", c.Name == "softnet.dropped":
			dropped += c.Delta
			if c.Delta > 0 {
				names = append(names, fmt.Sprintf("%s %s", c.Name, stats.FormatCount(uint64(c.Delta))))
			}
		}
	}
	sent := float64(e.Run.Ledger.Sent)
	answered := float64(e.Run.Ledger.Replied + e.Run.Ledger.Late)
	switch {
	case float64(dropped) > few*sent && !l.full():
		f.decide(stats.PointsTarget, "its host dropped packets on their way to the application: %s of %s sent", strings.Join(names, ", "), stats.FormatCount(e.Run.Ledger.Sent))
	case dropped > 0:
		f.say("its host dropped few packets: %s", strings.Join(names, ", "))
	case float64(in) < answered:
		f.say("its UDP counters did not move with the load (an XDP program takes it, or another namespace)")
	case float64(in) < keeps*sent && l.share < keeps:
		f.decide(stats.PointsUnknown, "only %s of %s packets sent came to UDP there, and none was counted as dropped: the path between the hosts loses them", stats.FormatCount(uint64(in)),
			stats.FormatCount(e.Run.Ledger.Sent))
	default:
		f.say("%s packets came to UDP on its host, of %s sent; none dropped", stats.FormatCount(uint64(in)), stats.FormatCount(e.Run.Ledger.Sent))
	}
}

// targetCores looks at the hottest core.
func targetCores(f *finding, e *Evidence, l load) {
	u := e.Target
	var hot stats.CoreUse
	steal := 0.0
	for _, c := range u.Cores {
		if c.Busy >= hot.Busy {
			hot = c
		}
		steal = max(steal, c.Steal)
	}
	says := fmt.Sprintf("its busiest core, CPU %d of %d, was at %s (softirq %s, stolen %s)", hot.CPU, len(u.Cores), stats.FormatPercent(hot.Busy), stats.FormatPercent(hot.Softirq),
		stats.FormatPercent(steal))
	short := !l.full()
	switch {
	case len(u.Cores) == 0:
		f.decide(stats.PointsUnknown, "its cores could not be read")
	case u.SharedCores:
		f.decide(stats.PointsUnknown, "it is the generator's own host: who kept a core busy cannot be told")
	case short && steal > taken:
		f.decide(stats.PointsTarget, "%s: the hypervisor takes its CPU", says)
	case short && hot.Busy >= busy:
		f.decide(stats.PointsTarget, "%s: that core is full", says)
	case short && hot.Busy < fair && !l.kept:
		f.decide(stats.PointsGenerator, "%s: an idle target and a rate below the plan", says)
	case short && hot.Busy < fair:
		f.decide(stats.PointsUnknown, "%s: CPU is not what it lacks. It waits for something (a lock, a pool, a service behind it), or packets are lost on the way", says)
	case short:
		f.decide(stats.PointsUnknown, "%s: neither idle nor full", says)
	default:
		f.say("%s", says)
	}
}

// clocksApart is the difference of wall clocks from which records of the two hosts are hard to lay side by side, ns.
const clocksApart = 100e6

func clocks(f *finding, u *stats.HostUse) {
	off := u.ClockOffsetNS
	if off < 0 {
		off = -off
	}
	if off-u.ClockWithinNS > clocksApart {
		f.say("warning: its clock is %s away from this host's (known to %s): lay records of the two side by side with care; chronyc makestep on both", stats.FormatNS(off),
			stats.FormatNS(u.ClockWithinNS))
	}
}

// noop is control 4. A no-op that gets through where the target does not shows that the target was the wall; one that gets no further
// shows that it was not.
func noop(e *Evidence) stats.Control {
	f := &finding{stats.Control{Name: stats.ControlNoop}}
	f.keep(e.Noop.Run)
	if e.Noop.Run == nil || e.Run == nil {
		f.say("not measured%s", because(e.Noop.Why))
		return f.done()
	}
	was, is := loadOf(e.Run), loadOf(e.Noop.Run)
	where := "on loopback"
	if e.Noop.OnTarget {
		where = "on the target's host, " + e.Noop.Where + ","
	}
	says := fmt.Sprintf("a no-op %s answered %s where the target answered %s", where, stats.FormatPPS(is.answered), stats.FormatPPS(was.answered))
	switch ratio := was.ratio(is); {
	case is.answered == 0:
		f.decide(stats.PointsUnknown, "a no-op %s answered nothing: is UDP to it open?", where)
	case was.full():
		f.decide(stats.PointsNeither, "%s: nothing to rise", says)
	case was.share < keeps && ratio >= rises:
		f.decide(stats.PointsTarget, "%s (%.2f times): the target was the wall", says, ratio)
	case ratio <= stays && !is.kept && !was.kept:
		f.decide(stats.PointsGenerator, "%s: it does no better, and of %s asked only %s was sent to the one and %s to the other", says, stats.FormatPPS(is.asked),
			stats.FormatPPS(is.sent), stats.FormatPPS(was.sent))
	case ratio <= stays && e.Noop.OnTarget && is.share < keeps && is.kept:
		f.decide(stats.PointsUnknown, "%s although all of it was sent: almost unchanged. The path, or the network stack of that host, loses packets whatever serves there", says)
	default:
		f.decide(stats.PointsUnknown, "%s (%.2f times): it says nothing", says, ratio)
	}
	if !e.Noop.OnTarget {
		f.say("weaker evidence: loopback leaves out the path and the target's host; a no-op there (--noop, or --agent, which has one) would be in their place")
	}
	return f.done()
}

// ratio is the throughput of another run over this one's.
func (l load) ratio(other load) float64 {
	if l.answered <= 0 {
		return doubles // nothing to divide by: anything is more
	}
	return other.answered / l.answered
}

// two is control 5, the hardest to argue with, where the second generator does add load. That a target doubles which one generator did not
// fill is no sign: then the question is only whether it held the double.
func two(e *Evidence) stats.Control {
	f := &finding{stats.Control{Name: stats.ControlTwo}}
	for i := range e.Two.Parts {
		f.keep(&e.Two.Parts[i])
	}
	if len(e.Two.Parts) < 2 || e.Run == nil {
		f.say("not measured%s", because(e.Two.Why))
		return f.done()
	}
	// With the answers of the drain, in all of them: the two do not begin at the same moment, and parts of runs would be of different times.
	one := wholeOf(e.Run)
	var both load
	added := true
	for i := range e.Two.Parts {
		l := wholeOf(&e.Two.Parts[i])
		both.asked, both.sent, both.answered = both.asked+l.asked, both.sent+l.sent, both.answered+l.answered
		added = added && l.sent >= nearly*l.asked && float64(e.Two.Parts[i].Ledger.SelfLost) <= few*float64(e.Two.Parts[i].Ledger.Sent)
	}
	ratio := one.ratio(both)
	says := fmt.Sprintf("two generators sent %s and got %s answered, one sent %s and got %s (%.2f times, answers of the drain included)", stats.FormatPPS(both.sent), stats.FormatPPS(both.answered),
		stats.FormatPPS(one.sent), stats.FormatPPS(one.answered), ratio)
	switch {
	case one.full() && ratio >= doubles:
		f.decide(stats.PointsNeither, "%s: the target holds twice the rate", says)
	case one.full() && added && ratio <= stays:
		f.decide(stats.PointsNeither, "%s: the target is full between this rate and twice that, not at it", says)
	case one.full():
		f.decide(stats.PointsNeither, "%s: the rate itself was reached by one", says)
	case ratio >= doubles:
		f.decide(stats.PointsGenerator, "%s: the total doubles, so one generator was the wall", says)
	case ratio <= stays && added:
		f.decide(stats.PointsTarget, "%s: twice the load and no more answers, so the target is full", says)
	case ratio <= stays:
		f.decide(stats.PointsUnknown, "%s: they did not send what was asked, or lost replies themselves, so that nothing rose says nothing", says)
	default:
		f.decide(stats.PointsUnknown, "%s: neither the same nor the double", says)
	}
	if e.Two.Shared != "" {
		f.say("%s", e.Two.Shared)
	}
	return f.done()
}
