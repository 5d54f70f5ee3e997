package verdict

import (
	"fmt"

	"blast/stats"
)

func (j *judge) warning(code, format string, args ...any) {
	j.warnings = append(j.warnings, stats.Reason{Code: code, Detail: fmt.Sprintf(format, args...)})
}

// warn looks for what makes figures worse or less certain without making them wrong. Each says what to do about it.
func (j *judge) warn() {
	j.warnSilent()
	j.warnPlan()
	j.warnStationary()
	j.warnBackend()
	j.warnHost()
	j.warnPlacement()
	if j.r.Interrupted != "" {
		j.warning(WarnInterrupted, "the run ended before its plan did (%s): the figures cover %s of %s", j.r.Interrupted,
			stats.FormatNS(j.r.Rate.ElapsedNS), stats.FormatNS(j.r.Config.DurationNS))
	}
}

// warnSilent says it plainly when nobody answered at all: a first run is more often pointed at the wrong port than at a target that
// loses everything.
func (j *judge) warnSilent() {
	l := &j.r.Ledger
	if j.r.Config.Mode != stats.ModeEcho || l.Sent == 0 || l.Replied+l.Late+l.SelfLost > 0 || l.Lost < l.Sent {
		return
	}
	why := "check the address and port, what is in the way, and whether this target replies at all (--mode oneway is for those that do not)"
	switch refused, unreachable := j.r.Events["conn_refused"], j.r.Events["unreachable"]; {
	case refused > 0:
		why = fmt.Sprintf("nobody listens on that port, its host said so %s times (ICMP port unreachable); start the target first", stats.FormatCount(refused))
	case unreachable > 0:
		why = fmt.Sprintf("there is no way to it, somebody on the way said so %s times (ICMP unreachable)", stats.FormatCount(unreachable))
	case l.Stray > 0:
		why = fmt.Sprintf("%s packets came that match none that was sent: for a foreign target --match has to name the bytes that it sends back", stats.FormatCount(l.Stray))
	}
	j.warning(WarnSilent, "not one of %s packets was answered: %s", stats.FormatCount(l.Sent), why)
}

func (j *judge) warnPlan() {
	if l := j.r.Little; l != nil && l.Suspect != "" {
		j.warning(WarnLittle, "%.4g packets in flight on average, but rate x mean latency = %s x %s = %.4g (%+.1f %%): suspect %s", l.InFlight,
			stats.FormatPPS(l.RatePPS), stats.FormatNS(l.LatencyNS), l.Product(), 100*l.Off, l.Suspect)
	}
	c := j.r.Calibration
	switch {
	case j.r.Config.Model == stats.ModelClosed:
		j.warning(WarnClosed, "a closed load slows down with its target: each of the %d clients sees a stall of any length once, so percentiles say little about stalls, and the rate is a result",
			j.r.Config.Clients)
	case !j.r.Config.Paced:
		j.warning(WarnNoPlan, "--rate max has no plan: lag, rate, duty and ceiling were not judged, and no packet has a planned time to be late for")
	case c == nil:
		j.warning(WarnNoCalibration, "this host has no calibration for this backend and size: nothing shows how far %s is from its ceiling; run blast calibrate",
			stats.FormatPPS(j.r.Rate.TargetPPS))
	case c.CeilingPPS > 0 && j.r.Rate.TargetPPS > 0 && j.r.Rate.TargetPPS <= c.CeilingPPS:
		if margin := c.CeilingPPS / j.r.Rate.TargetPPS; margin < j.l.Margin {
			j.warning(WarnMargin, "the ceiling of %s is only %.1f times the target (3 to 5 is the rule); below %s the margin is %g",
				stats.FormatPPS(c.CeilingPPS), margin, stats.FormatPPS(c.CeilingPPS/j.l.Margin), j.l.Margin)
		}
	}
}

// warnStationary says that the run was not one thing all through, so that its percentiles are those of a mixture: no fault of the generator.
func (j *judge) warnStationary() {
	if j.r.Precision == nil || j.r.Precision.Stationary == nil || j.r.Precision.Stationary.Holds {
		return
	}
	s, figures := j.r.Precision.Stationary, ""
	if len(j.reasons) == 0 { // of an INVALID run no latency is quoted
		figures = fmt.Sprintf(" (mean %s and then %s, p99 %s and then %s)", stats.FormatNS(int64(s.First.MeanNS)), stats.FormatNS(int64(s.Second.MeanNS)),
			stats.FormatNS(s.First.P99NS), stats.FormatNS(s.Second.P99NS))
	}
	j.warning(WarnNonStationary, "the run was not one thing all through: %s%s; percentiles of the whole mix both: a longer warm-up or run, or the course, tells more", s.Detail, figures)
}

func (j *judge) warnBackend() {
	b := &j.r.Backend
	if b.Name == "af_xdp" && !b.ZeroCopy {
		j.warning(WarnCopyMode, "af_xdp runs in copy mode (%s): the kernel copies each packet. That may still be faster than sockets (blast calibrate compares them), but not what a driver with zero-copy would give", b.Mode)
	}
	if n := j.r.Events["copied"]; n > 0 {
		j.warning(WarnCopyMode, "zero-copy was asked for, and the kernel copied %s packets all the same", stats.FormatCount(n))
	}
	if b.GSO > 1 {
		j.warning(WarnGSO, "trains of %d packets share one planned time: gaps inside a train are the device's, not the plan's; use --gso 1 for even gaps", b.GSO)
	}
}

func (j *judge) warnHost() {
	h := &j.r.Host
	if h.IRQBalance {
		j.warning(WarnIRQBalance, "irqbalance is running and may move interrupts onto a worker's core; stop it: systemctl stop irqbalance")
	}
	if stats.Known(h.Governor) && h.Governor != "performance" {
		j.warning(WarnGovernor, "the CPU frequency governor is %s: speed changes during the run; blast tune sets performance", h.Governor)
	}
	// arch_sys_counter is on ARM what tsc is on x86: read without entering the kernel.
	if stats.Known(h.Clocksource) && h.Clocksource != "tsc" && h.Clocksource != "arch_sys_counter" {
		j.warning(WarnClocksource, "the clocksource is %s, not tsc: each reading of the time may cost a system call", h.Clocksource)
	}
}

func (j *judge) warnPlacement() {
	queues, away := map[int]bool{}, 0
	for i := range j.r.Workers {
		w := &j.r.Workers[i]
		if w.Queue >= 0 {
			queues[w.Queue] = true
		}
		if w.CPU >= 0 && w.Node >= 0 && w.Node != j.r.Host.NICNode {
			away++
		}
	}
	if n := max(len(queues), j.r.Host.Queues); j.r.Config.Flows > 0 && j.r.Config.Flows < n {
		j.warning(WarnFlows, "%d flows for %d queues: a flow always takes the same queue, so some stay idle; use --flows %d or more", j.r.Config.Flows, n, n)
	}
	if stats.Known(j.r.Host.NIC) && j.r.Host.NICNode >= 0 && away > 0 {
		j.warning(WarnNUMA, "%d of %d workers run off NUMA node %d, where %s is: each packet crosses between nodes; choose --cpus of that node",
			away, len(j.r.Workers), j.r.Host.NICNode, j.r.Host.NIC)
	}
}
