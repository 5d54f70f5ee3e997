package report

import (
	"fmt"
	"strconv"
	"strings"

	"blast/stats"
)

// runDocument is the page of one result.
func runDocument(r *stats.Result) (*document, error) {
	d := &document{
		Kind: "run", Subject: subject(r.Config.Targets), Circumstance: circumstance(r),
		Verdicts: []banner{verdictBanner("", r)}, Headlines: headlines(r), Foot: foot(&r.Host),
	}
	if r.Interrupted != "" {
		d.Circumstance += "; ended early: " + r.Interrupted
	}
	distribution, err := distributionSection(r)
	if err != nil {
		return nil, err
	}
	d.add(distribution)
	d.add(courseSection(r))
	d.add(ledgerSection(r))
	d.add(segmentSection(r))
	d.add(departureSection(r))
	d.add(roundSection(r))
	d.add(placementSection(r))
	d.add(setupSection(r))
	d.add(hostSection(r))
	return d, nil
}

func subject(targets []string) string {
	if len(targets) == 0 {
		return "no target"
	}
	return strings.Join(targets, ", ")
}

func circumstance(r *stats.Result) string {
	return fmt.Sprintf("%s, %s, measured for %s from %s on %s", r.Config.Mode, r.Backend.Name, stats.FormatNS(r.Rate.ElapsedNS), r.Host.Hostname, day(r.Started))
}

// headlines are the figures that people quote: rate, latency (lag in oneway mode), loss.
func headlines(r *stats.Result) []headlineFigure {
	rate := headlineFigure{Label: "sent", Invalid: !r.Verdict.Valid}.of(stats.FormatPPS(r.Rate.AchievedPPS))
	switch {
	case r.Config.Paced:
		rate.Notes = append(rate.Notes, "of "+stats.FormatPPS(r.Rate.TargetPPS)+" asked")
	case r.Config.Model == stats.ModelClosed:
		rate.Notes = append(rate.Notes, "as "+plural(r.Config.Clients, "client")+" can")
	default:
		rate.Notes = append(rate.Notes, "as fast as possible")
	}
	rate.Notes = append(rate.Notes, "L1 "+stats.FormatBPS(r.Rate.L1BPS))
	out := []headlineFigure{rate}
	name, of, hist := "latency", "latency", &r.Latency
	if r.Config.Mode == stats.ModeOneway {
		name, of, hist = "lag", "lag", &r.Lag
	}
	missing := uint64(0)
	if of == "latency" {
		missing = r.Unanswered(hist.Count)
	}
	for _, q := range []struct {
		name  string
		at    float64
		value int64
	}{{"p50", 0.5, hist.P50}, {"p99", 0.99, hist.P99}, {"p99.9", 0.999, hist.P999}, {"max", 1, hist.Max}} {
		h := headlineFigure{Label: name + " " + q.name, Invalid: !r.Verdict.Valid}
		if hist.Count == 0 {
			h.Number, h.Notes = "-", []string{"no samples"}
			if missing > 0 {
				h.Notes = []string{"no reply ever came"}
			}
		} else {
			h = h.of(stats.FormatNS(q.value))
			h.Notes = append(confidence(r, of, q.at), countingLost(hist, q.at, missing)...)
		}
		out = append(out, h)
	}
	if r.Config.Mode == stats.ModeEcho {
		loss := headlineFigure{Label: "loss", Invalid: !r.Verdict.Valid}.of(lossText(r))
		loss.Notes = []string{stats.FormatCount(r.Ledger.Lost) + " of " + stats.FormatCount(r.Ledger.Sent-min(r.Ledger.InFlight, r.Ledger.Sent))}
		if r.Ledger.Late > 0 {
			loss.Notes = append(loss.Notes, stats.FormatCount(r.Ledger.Late)+" late")
		}
		out = append(out, loss)
	}
	return out
}

// confidence is the interval of a quantile, where there is one.
func confidence(r *stats.Result, of string, quantile float64) []string {
	if r.Precision == nil {
		return nil
	}
	for _, i := range r.Precision.Intervals {
		if i.Of == of && i.Quantile == quantile {
			if i.Open {
				return []string{fmt.Sprintf("%.0f %%: above %s", i.Level*100, stats.FormatNS(i.LowNS))}
			}
			return []string{fmt.Sprintf("%.0f %%: %s to %s", i.Level*100, stats.FormatNS(i.LowNS), stats.FormatNS(i.HighNS))}
		}
	}
	return nil
}

// countingLost is the quantile when lost packets count as slower than any, where that is another one.
func countingLost(s *stats.Histogram, quantile float64, missing uint64) []string {
	h, err := s.Hist()
	if missing == 0 || err != nil {
		return nil
	}
	v, ok := h.QuantileAmong(quantile, missing)
	if !ok || quantile == 1 {
		return []string{"lost counted: lost"}
	}
	if stats.FormatNS(v) == stats.FormatNS(h.Quantile(quantile)) {
		return nil // so few are lost that the figure stands
	}
	return []string{"lost counted: " + stats.FormatNS(v)}
}

// distributionSection is latency by percentile: picture, table, and what the rows are.
func distributionSection(r *stats.Result) (section, error) {
	s := section{ID: "distribution", Title: "Latency by percentile"}
	if r.Config.Mode == stats.ModeOneway {
		s.Title = "Lag by percentile"
	}
	p, err := percentilePicture(r)
	if err != nil {
		return s, err
	}
	s.Parts = pictures(p)
	quantile := &table{Left: 1, Head: append(append([]string{"", "samples"}, quantileNames...), "max")}
	above := &table{Left: 1, Caption: "Samples above", Head: []string{"", "1 ms", "10 ms", "100 ms", "1 s"}}
	for _, x := range seriesOf(r) {
		if x.hist.Count > 0 || x.name == "lag" {
			bad := x.speaks && !r.Verdict.Valid
			quantile.Rows = append(quantile.Rows, row{Invalid: bad, Cells: append([]string{x.name}, quantileCells(x.hist)...)})
			above.Rows = append(above.Rows, row{Invalid: bad, Cells: append([]string{x.name}, aboveCells(x.hist)...)})
		}
		if x.lost && (x.hist.Count > 0 || x.hist == &r.Latency) {
			for _, cells := range withLost(r, series{hist: x.hist}) {
				cells[0] = strings.TrimSpace(cells[0])
				quantile.Rows = append(quantile.Rows, row{Cells: cells, Sub: true, Invalid: !r.Verdict.Valid})
			}
		}
	}
	s.Parts = append(s.Parts, part{Table: quantile}, part{Table: above}, part{Table: precisionTable(r)}, part{Facts: definitionFacts(r)})
	return s, nil
}

// definitionFacts are the text report's definitions, and what the statistics are worth.
func definitionFacts(r *stats.Result) []fact {
	var facts []fact
	for _, l := range definitionsOf(r) {
		if l.label == "" && len(facts) > 0 {
			facts[len(facts)-1].Lines = append(facts[len(facts)-1].Lines, l.text)
			continue
		}
		facts = append(facts, fact{l.label, []string{l.text}})
	}
	if p := r.Precision; p != nil && p.Stationary != nil {
		facts = append(facts, fact{"halves", []string{steadiness(p.Stationary) + ": " + p.Stationary.Detail}})
	}
	if r.Little != nil {
		facts = append(facts, fact{"Little's law", []string{littleSentence(r)}})
	}
	return facts
}

// precisionTable has the confidence intervals of the quantiles; nil where there are none.
func precisionTable(r *stats.Result) *table {
	if r.Precision == nil || len(r.Precision.Intervals) == 0 {
		return nil
	}
	t := &table{Left: 1, Caption: fmt.Sprintf("Confidence of the quantiles, %.3g %%", 100*r.Precision.Intervals[0].Level), Head: []string{"", "value", "from", "to", "samples", "worth"},
		Note: "From the scatter among stretches of the run; worth: the independent samples that would scatter as much."}
	for i := range r.Precision.Intervals {
		x := &r.Precision.Intervals[i]
		if x.Open {
			t.Note = "From the scatter among stretches of the run; worth: the independent samples that would scatter as much; open: too few samples lie beyond the quantile to bound it."
		}
		t.Rows = append(t.Rows, row{Invalid: invalidLatency(r, x.Of) != "", Cells: append([]string{x.Of + " " + quantileName(x.Quantile)}, intervalCells(x)...)})
	}
	return t
}

// quantileName is "p99.9" for 0.999.
func quantileName(q float64) string { return "p" + strconv.FormatFloat(q*100, 'g', 8, 64) }

// courseSection is the timeline.
func courseSection(r *stats.Result) section {
	s := section{ID: "timeline", Title: "Course of the run", Parts: pictures(ratePicture(r), delayPicture(r), unansweredPicture(r), stealPicture(r))}
	if len(r.Timeline) == 0 {
		return s
	}
	s.Lead = "One point for each interval of " + seconds(r.Timeline[len(r.Timeline)-1].T/float64(len(r.Timeline))) + " on average. A percentile here is that of its interval alone; those of the run are above."
	steal := 0.0
	for i := range r.Timeline {
		steal = max(steal, r.Timeline[i].Steal)
	}
	var quiet []string
	if l := &r.Ledger; r.Config.Mode == stats.ModeEcho && l.Lost+l.Late+l.InFlight == 0 {
		quiet = append(quiet, "No packet was lost, late or still in flight at the end.")
	}
	if steal == 0 {
		quiet = append(quiet, "No CPU time was stolen by a hypervisor or a cgroup quota in any interval.")
	}
	if len(quiet) > 0 {
		s.Parts = append(s.Parts, part{Text: strings.Join(quiet, " ")})
	}
	return s
}

// ledgerSection is the conservation lines.
func ledgerSection(r *stats.Result) section {
	l, n := &r.Ledger, stats.FormatCount
	planned := equation{Whole: term{"planned", n(l.Planned)}, Terms: []term{{"sent", n(l.Sent)}, {"refused", n(l.RefusedTotal())}, {"abandoned", n(l.Abandoned)},
		{"kernel dropped", n(l.KernelDropped)}}}
	if l.RefusedTotal() > 0 {
		planned.Note = "Refused, by cause: " + counts(l.Refused) + "."
	}
	lines := []equation{planned}
	lead := "Every planned packet has one fate; the line adds up."
	if r.Config.Mode == stats.ModeEcho {
		sent := equation{Whole: term{"sent", n(l.Sent)}, Terms: []term{{"replied", n(l.Replied)}, {"late", n(l.Late)}, {"lost", n(l.Lost)}, {"in flight at the end", n(l.InFlight)}},
			Note: "Late: replied after the timeout of " + stats.FormatNS(r.Config.TimeoutNS) + inFlight(l) + "."}
		lost := equation{Whole: term{"lost", n(l.Lost)}, Terms: []term{{"on the way up", n(l.LostUp)}, {"on the way down", n(l.LostDown)}, {"unknown", n(l.LostUnknown)}},
			Note: fmt.Sprintf("Dropped by our own receive path %s; duplicate %s, reordered %s, stray %s.", n(l.SelfLost), n(l.Duplicate), n(l.Reordered), n(l.Stray))}
		lines = append(lines, sent, lost)
		lead = "Every planned packet has one fate, and every sent packet another; all lines add up."
	} else {
		lines[0].Note = strings.TrimSpace(lines[0].Note + " Nothing is known of packets after they were sent: oneway.")
	}
	if err := l.Check(r.Config.Mode); err != nil {
		lead = "The ledger does not add up: " + err.Error() + "."
	}
	s := section{ID: "ledger", Title: "What became of the packets", Lead: lead, Parts: []part{{Ledger: lines}}}
	if len(r.Events) > 0 {
		s.Parts = append(s.Parts, part{Text: "Events: " + counts(r.Events) + "."})
	}
	return s
}

// roundSection shows each round and how far they are apart.
func roundSection(r *stats.Result) section {
	s := section{ID: "rounds", Title: "Rounds"}
	if len(r.Rounds) < 2 {
		return s
	}
	s.Lead = fmt.Sprintf("All other figures on this page are of round %d of %d, the %s.", r.Round, len(r.Rounds), stats.MedianRule(r.Config.Mode))
	bad := !r.Verdict.Valid
	rounds := &table{Left: 2, Head: []string{"round", "verdict", "sent", "replied", "lost", "latency p50", "p99", "p99.9", "max", "lag p99.9"}}
	for i := range r.Rounds {
		x := &r.Rounds[i]
		name, word := strconv.Itoa(i+1), "VALID"
		if i+1 == r.Round {
			name += " (median)"
		}
		if !x.Verdict.Valid {
			word, bad = strings.Join(stats.Codes(x.Verdict.Reasons), ", "), true
		}
		rounds.Rows = append(rounds.Rows, row{Invalid: !x.Verdict.Valid, Cells: []string{name, word, stats.FormatPPS(x.Rate.AchievedPPS), stats.FormatPPS(x.Rate.RepliedPPS),
			stats.FormatCount(x.Ledger.Lost)}})
		cells := &rounds.Rows[i].Cells
		*cells = append(append(*cells, tailCells(&x.Latency)...), stats.FormatNS(x.Lag.P999))
	}
	s.Parts = append(s.Parts, part{Table: rounds})
	if len(r.Spreads) > 0 {
		spreads := &table{Left: 1, Caption: "Spread over the rounds", Head: []string{"", "median", "least", "most", "(most - least) / median"}}
		for _, x := range r.Spreads {
			write := writerOf(x.Name)
			spreads.Rows = append(spreads.Rows, row{Invalid: bad && speaks(x.Name), Cells: []string{spreadName(x.Name), write(x.Median), write(x.Min), write(x.Max), stats.FormatPercent(x.Relative)}})
		}
		s.Parts = append(s.Parts, part{Table: spreads})
	}
	return s
}

// writerOf knows the unit of a figure from its path in a Result.
func writerOf(path string) func(float64) string {
	switch {
	case strings.Contains(path, "_pps"):
		return stats.FormatPPS
	case strings.Contains(path, "_bps"):
		return stats.FormatBPS
	case strings.Contains(path, "_ns"):
		return func(v float64) string { return stats.FormatNS(int64(v)) }
	case strings.Contains(path, "loss"), strings.Contains(path, "duty"), strings.Contains(path, "share"):
		return stats.FormatPercent
	}
	return func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
}

// spreadName is "latency p99.9" for "latency_ns.p999".
func spreadName(path string) string {
	for _, cut := range []string{"_ns", "_pps", "_bps"} {
		path = strings.Replace(path, cut, "", 1)
	}
	return strings.NewReplacer(".", " ", "_", " ", "p9999", "p99.99", "p999", "p99.9").Replace(path)
}

// placementSection is where the sending threads ran.
func placementSection(r *stats.Result) section {
	s := section{ID: "placement", Title: "Placement",
		Lead: "The sending threads. Duty is the share of the time not spent waiting for the next packet; preempted counts involuntary context switches; guard is how long before a planned moment sleeping ends and spinning begins."}
	if len(r.Workers) == 0 {
		return s
	}
	rows := workerRows(r)
	t := &table{Left: 1, Head: rows[0]}
	for _, cells := range rows[1:] {
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	s.Parts = append(s.Parts, part{Table: t})
	return s
}

// setupSection is what was asked for, whole.
func setupSection(r *stats.Result) section {
	c, b := &r.Config, &r.Backend
	asked := "no plan: as fast as possible"
	switch {
	case c.Model == stats.ModelClosed:
		asked = "what " + plural(c.Clients, "client") + " can"
	case c.Paced:
		asked = stats.FormatPPS(r.Rate.TargetPPS) + " (profile " + c.Profile + ")"
	}
	backend := b.Name
	if b.Mode != "" {
		backend += ": " + b.Mode
	}
	path := []string{backend, fmt.Sprintf("batch %d, GSO %d, GRO %s, zero-copy %s", b.Batch, b.GSO, onOff(b.GRO), onOff(b.ZeroCopy)),
		fmt.Sprintf("send buffer %s B, receive buffer %s B", stats.FormatCount(uint64(max(b.SendBuffer, 0))), stats.FormatCount(uint64(max(b.ReceiveBuffer, 0))))}
	if b.Auto != "" {
		path = append(path, "chosen by auto: "+b.Auto)
	}
	facts := []fact{
		{"targets", c.Targets},
		{"model", []string{model(c)}},
		{"rate", []string{"asked " + asked}},
		{"measured", []string{fmt.Sprintf("%s of %s asked, %s", stats.FormatNS(r.Rate.ElapsedNS), stats.FormatNS(c.DurationNS), warmup(c.WarmupNS))}},
		{"waiting", []string{fmt.Sprintf("timeout %s, drain %s", stats.FormatNS(c.TimeoutNS), drain(c.DrainNS))}},
		{"bits sent", []string{fmt.Sprintf("L1 %s, L2 %s, IP %s, payload %s", stats.FormatBPS(r.Rate.L1BPS), stats.FormatBPS(r.Rate.L2BPS), stats.FormatBPS(r.Rate.IPBPS), stats.FormatBPS(r.Rate.PayloadBPS)),
			"bytes: IP = UDP payload + 28, IPv6 48; L2 = IP + 18, at least 64; L1 = L2 + 20"}},
		{"payload", []string{fmt.Sprintf("%d B, %s", c.PayloadBytes, c.Payload)}},
		{"flows", []string{stats.FormatCount(uint64(max(c.Flows, 0))) + ", kept open for the whole run (UDP: no connection to set up or reuse)"}},
		{"workers", []string{fmt.Sprintf("%d, CPUs %s", c.Workers, orNone(strings.Trim(fmt.Sprint(c.CPUs), "[]")))}},
		{"sending", []string{fmt.Sprintf("wait %s, catch-up %s, seed %d, max lag %s, rounds %d", c.Wait, c.CatchUp, c.Seed, stats.FormatNS(c.MaxLagNS), max(c.Rounds, 1))}},
		{"backend", path},
	}
	if len(b.Notes) > 0 {
		facts = append(facts, fact{"backend notes", b.Notes})
	}
	facts = append(facts, fact{"ceiling", []string{marginSentence(r)}})
	if len(c.SLOs) > 0 {
		facts = append(facts, fact{"SLOs", []string{strings.Join(c.SLOs, ", ")}})
	}
	return section{ID: "setup", Title: "Setup", Parts: []part{{Facts: facts}, {Command: strings.Join(r.Command, " ")}}}
}

func drain(ns int64) string {
	if ns == 0 {
		return "3 x the largest round trip, at least 100 ms, at most the timeout"
	}
	return stats.FormatNS(ns)
}

// hostSection is the machine, and what its counters did.
func hostSection(r *stats.Result) section {
	facts := append(hostFacts(&r.Host), fact{"run", []string{r.RunID + ", started " + day(r.Started)}})
	if r.Shards > 1 {
		facts = append(facts, fact{"shard", []string{fmt.Sprintf("%d of %d (from 0) of run %s: merge all of them before reading percentiles", r.Shard, r.Shards, r.RunID)}})
	}
	s := section{ID: "host", Title: "Host", Parts: []part{{Facts: facts}}}
	if moved := movedTable(r.Counters); len(moved.Rows) > 0 {
		s.Parts = append(s.Parts, part{Table: moved})
	}
	return s
}

// movedTable lists the counters that moved.
func movedTable(counters []stats.Counter) *table {
	moved := &table{Left: 1, Caption: "Counters of the whole host that moved", Head: []string{"counter", "change"}}
	for _, k := range counters {
		if k.Delta != 0 {
			moved.Rows = append(moved.Rows, row{Cells: []string{k.Name, signed(k.Delta)}})
		}
	}
	return moved
}

func signed(n int64) string {
	if n < 0 {
		return "-" + stats.FormatCount(uint64(-n))
	}
	return "+" + stats.FormatCount(uint64(n))
}

func hostFacts(h *stats.Host) []fact {
	facts := []fact{{"host", []string{h.Hostname}}, {"kernel", []string{"Linux " + h.Kernel}}, {"CPU", []string{fmt.Sprintf("%d x %s", h.Cores, h.CPU)}}}
	if stats.Known(h.NIC) {
		nic := h.NIC
		if stats.Known(h.Driver) {
			nic += ", driver " + h.Driver
		}
		if h.Queues > 0 {
			nic += ", " + plural(h.Queues, "queue")
		}
		if h.NICNode >= 0 {
			nic += ", NUMA node " + strconv.Itoa(h.NICNode)
		}
		facts = append(facts, fact{"interface", []string{nic}})
	}
	for _, kv := range [][2]string{{"clocksource", h.Clocksource}, {"governor", h.Governor}, {"virtualization", h.Virt}, {"blast", h.Blast}, {"Go", h.GoVersion}} {
		if stats.Known(kv[1]) {
			facts = append(facts, fact{kv[0], []string{kv[1]}})
		}
	}
	if h.IRQBalance {
		facts = append(facts, fact{"irqbalance", []string{"running"}})
	}
	return facts
}
