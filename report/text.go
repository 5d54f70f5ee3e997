package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"blast/stats"
)

// Text writes the report that people read first: the verdict, then what was asked and done, the ledger, the distributions,
// and last the circumstances. Errors are the writer's.
func Text(w io.Writer, r *stats.Result, o Options) error {
	p := newPage(o)
	p.verdict(r)
	p.blank()
	p.plan(r)
	p.blank()
	p.ledger(r)
	p.little(r)
	p.blank()
	p.distributions(r)
	p.blank()
	p.segments(r)
	p.precision(r)
	p.rounds(r)
	p.workers(r)
	p.circumstances(r)
	return p.flush(w)
}

// verdict is the first thing on the page.
func (p *page) verdict(r *stats.Result) {
	v := &r.Verdict
	word, color := "VALID", green
	if !v.Valid {
		word, color = "INVALID", red
	}
	p.first(word, color, headline(r))
	for _, reason := range v.Reasons {
		p.line("", "%s: %s", reason.Code, reason.Detail)
	}
	for _, s := range v.SLOs {
		p.line("SLO", "%s%s  %s", mark(r), s.Text, s.Detail)
	}
	for _, reason := range v.Warnings {
		p.line("warning", "%s: %s", reason.Code, reason.Detail)
	}
}

// headline is the verdict in one sentence.
func headline(r *stats.Result) string {
	v := &r.Verdict
	missed := 0
	for _, s := range v.SLOs {
		if !s.Met {
			missed++
		}
	}
	says := "the generator kept its plan: these figures speak about the target"
	switch {
	case !v.Valid && len(v.Reasons) == 0:
		return "nobody has judged this result"
	case !v.Valid:
		return strings.Join(stats.Codes(v.Reasons), ", ") + ": these figures measure the generator, not the target"
	case r.Config.Model == stats.ModelClosed:
		says = "the generator kept no client waiting: these figures speak about the target under a load that waits for it"
	case !r.Config.Paced:
		says = "the counts add up; without a plan (--rate max) nothing more was judged"
	}
	if missed > 0 {
		says += fmt.Sprintf("; %d of %s not met", missed, plural(len(v.SLOs), "SLO"))
	}
	return says
}

// plan says what was asked, how, and what rates came of it.
func (p *page) plan(r *stats.Result) {
	c, rate := &r.Config, &r.Rate
	p.line("target", "%s, %s", strings.Join(c.Targets, ", "), c.Mode)
	p.line("model", "%s", model(c))
	p.line("measured", "%s of %s asked, %s", stats.FormatNS(rate.ElapsedNS), stats.FormatNS(c.DurationNS), warmup(c.WarmupNS))
	asked, share := "as many as possible", ""
	if c.Model == stats.ModelClosed {
		asked = "what " + plural(c.Clients, "client") + " can"
	}
	if c.Paced {
		asked = stats.FormatPPS(rate.TargetPPS)
		if rate.TargetPPS > 0 {
			share = " (" + stats.FormatPercent(rate.AchievedPPS/rate.TargetPPS) + ")"
		}
	}
	replied := ""
	if c.Mode == stats.ModeEcho {
		replied = ", replied " + stats.FormatPPS(rate.RepliedPPS)
	}
	p.line("rate", "asked %s, sent %s%s%s", asked, stats.FormatPPS(rate.AchievedPPS), share, replied)
	p.line("bits sent", "L1 %s, L2 %s, IP %s, payload %s", stats.FormatBPS(rate.L1BPS), stats.FormatBPS(rate.L2BPS),
		stats.FormatBPS(rate.IPBPS), stats.FormatBPS(rate.PayloadBPS))
	p.line("", "(bytes: IP = UDP payload + 28, IPv6 48; L2 = IP + 18, at least 64; L1 = L2 + 20)")
	p.margin(r)
	p.course(r)
}

func warmup(ns int64) string {
	if ns == 0 {
		return "without warm-up"
	}
	return "after " + stats.FormatNS(ns) + " of warm-up, which is left out of all figures"
}

func (p *page) margin(r *stats.Result) { p.line("margin", "%s", marginSentence(r)) }

func marginSentence(r *stats.Result) string {
	c := r.Calibration
	if c == nil {
		return ceilingSentence(r)
	}
	text := "ceiling " + ceilingSentence(r)
	if r.Config.Paced && r.Rate.TargetPPS > 0 {
		text = fmt.Sprintf("%.1f times the target (3 to 5 is the rule): %s", c.CeilingPPS/r.Rate.TargetPPS, text)
	}
	return text
}

// ceilingSentence is the rate that this host was found to reach, and by which calibration.
func ceilingSentence(r *stats.Result) string {
	c := r.Calibration
	if c == nil {
		return "unknown: no calibration of this host for this backend and size"
	}
	return fmt.Sprintf("%s, calibration %s (%d B, %s)", stats.FormatPPS(c.CeilingPPS), c.ID, c.PayloadBytes, plural(c.Workers, "worker"))
}

// course is the timeline in a sentence: what varied most.
func (p *page) course(r *stats.Result) {
	if len(r.Timeline) < 2 {
		return
	}
	first, before := true, 0.0
	var low, high, steal float64
	var worst stats.Second
	for _, s := range r.Timeline {
		if length := s.T - before; length > 0 {
			pps := float64(s.Sent) / length
			if first {
				low, high, first = pps, pps, false
			}
			low, high = min(low, pps), max(high, pps)
		}
		before = s.T
		steal = max(steal, s.Steal)
		if worstOf(r, s) > worstOf(r, worst) {
			worst = s
		}
	}
	what := "latency"
	if r.Config.Mode == stats.ModeOneway {
		what = "lag"
	}
	p.line("course", "%d intervals: sent %s to %s; CPU time stolen at most %s", len(r.Timeline),
		stats.FormatPPS(low), stats.FormatPPS(high), stats.FormatPercent(steal))
	if worst.T == 0 {
		return
	}
	p.line("", "%sworst %s p99 of an interval %s, the one that ended at %s", mark(r), what, stats.FormatNS(worstOf(r, worst)), seconds(worst.T))
}

// mark goes before figures that are not to be quoted.
func mark(r *stats.Result) string {
	if r.Verdict.Valid {
		return ""
	}
	return "INVALID: "
}

func worstOf(r *stats.Result, s stats.Second) int64 {
	if r.Config.Mode == stats.ModeOneway {
		return s.LagP99NS
	}
	return s.LatencyP99NS
}

func seconds(t float64) string { return fmt.Sprintf("%.4g s", t) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// counted is plural for counts of packets and samples.
func counted(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return stats.FormatCount(n) + " " + what + "s"
}

// ledger is the conservation line, in exact counts.
func (p *page) ledger(r *stats.Result) {
	l, n := &r.Ledger, stats.FormatCount
	p.planned(l)
	if l.RefusedTotal() > 0 {
		p.line("", "refused: %s", counts(l.Refused))
	}
	if r.Config.Mode == stats.ModeEcho {
		p.became(l)
		p.line("", "late: replied after the timeout of %s%s", stats.FormatNS(r.Config.TimeoutNS), inFlight(l))
		p.line("", "lost %s = on the way up %s + on the way down %s + unknown %s", n(l.Lost), n(l.LostUp), n(l.LostDown), n(l.LostUnknown))
		p.line("", "dropped by our own receive path %s; duplicate %s, reordered %s, stray %s", n(l.SelfLost), n(l.Duplicate), n(l.Reordered), n(l.Stray))
	} else {
		p.line("", "oneway: nothing is known of packets after they were sent; stray %s", n(l.Stray))
	}
	if len(r.Events) > 0 {
		p.line("events", "%s", counts(r.Events))
	}
}

// planned is what became of the plan, and became what became of the packets that were sent.
func (p *page) planned(l *stats.Ledger) {
	n := stats.FormatCount
	p.line("packets", "planned %s = sent %s + refused %s + abandoned %s + kernel dropped %s",
		n(l.Planned), n(l.Sent), n(l.RefusedTotal()), n(l.Abandoned), n(l.KernelDropped))
}

func (p *page) became(l *stats.Ledger) {
	n := stats.FormatCount
	p.line("", "sent %s = replied %s + late %s + lost %s + in flight %s", n(l.Sent), n(l.Replied), n(l.Late), n(l.Lost), n(l.InFlight))
}

func inFlight(l *stats.Ledger) string {
	if l.InFlight == 0 {
		return ""
	}
	return fmt.Sprintf("; in flight at the end, waiting for at least %s", stats.FormatNS(l.InFlightAtLeastNS))
}

// counts lists named counts, the largest first.
func counts(m map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		switch {
		case m[a] > m[b]:
			return -1
		case m[a] < m[b]:
			return 1
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = name + " " + stats.FormatCount(m[name])
	}
	return strings.Join(names, ", ")
}

// circumstances are what a reader needs to believe or repeat the run.
func (p *page) circumstances(r *stats.Result) {
	c, b, h := &r.Config, &r.Backend, &r.Host
	backend := b.Name
	if b.Mode != "" {
		backend += ": " + b.Mode
	}
	p.line("backend", "%s; batch %d, GSO %d, GRO %s, zero-copy %s; send buffer %s B, receive buffer %s B", backend, b.Batch, b.GSO, onOff(b.GRO),
		onOff(b.ZeroCopy), stats.FormatCount(uint64(max(b.SendBuffer, 0))), stats.FormatCount(uint64(max(b.ReceiveBuffer, 0))))
	if b.Auto != "" {
		p.line("", "chosen by auto: %s", b.Auto)
	}
	for _, note := range b.Notes {
		p.line("note", "%s", note)
	}
	p.line("flows", "%s, kept open for the whole run (UDP: no connection to set up or reuse)", stats.FormatCount(uint64(max(c.Flows, 0))))
	p.line("payload", "%d B, %s", c.PayloadBytes, c.Payload)
	p.line("sending", "wait %s, catch-up %s, seed %d; max lag %s", c.Wait, c.CatchUp, c.Seed, stats.FormatNS(c.MaxLagNS))
	p.line("host", "%s", hostLine(h))
	p.line("run", "%s, started %s", r.RunID, r.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	var moved []string
	for _, k := range r.Counters {
		if k.Delta != 0 {
			moved = append(moved, fmt.Sprintf("%s %+d", k.Name, k.Delta))
		}
	}
	if len(moved) > 0 {
		p.line("counters", "of the whole host, as far as they moved: %s", strings.Join(moved, ", "))
	}
	if r.Shards > 1 {
		p.line("shard", "%d of %d (from 0) of run %s: merge all of them before reading percentiles", r.Shard, r.Shards, r.RunID)
	}
	p.line("command", "%s", strings.Join(r.Command, " "))
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func hostLine(h *stats.Host) string {
	parts := []string{fmt.Sprintf("%s: Linux %s, %d x %s", h.Hostname, h.Kernel, h.Cores, h.CPU)}
	if stats.Known(h.NIC) {
		nic := "NIC " + h.NIC
		if stats.Known(h.Driver) {
			nic += " (" + h.Driver
			if h.Queues > 0 {
				nic += ", " + plural(h.Queues, "queue")
			}
			nic += ")"
		}
		parts = append(parts, nic)
	}
	for _, kv := range [][2]string{{"clocksource", h.Clocksource}, {"governor", h.Governor}, {"virtualization", h.Virt}, {"blast", h.Blast}} {
		if stats.Known(kv[1]) {
			parts = append(parts, kv[0]+" "+kv[1])
		}
	}
	if h.IRQBalance {
		parts = append(parts, "irqbalance running")
	}
	if h.GoVersion != "" {
		parts = append(parts, h.GoVersion)
	}
	return strings.Join(parts, ", ")
}
