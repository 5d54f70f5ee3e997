package main

import (
	"fmt"
	"strings"

	"blast/stats"
	"blast/verdict"
)

// explained says how to read the report of a first run, with its own figures: those of a VALID run speak, those of an INVALID one are
// the occasion to say what INVALID is for.
func explained(r *stats.Result) string {
	if !r.Verdict.Valid {
		return explainedInvalid(r)
	}
	var b strings.Builder
	item := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("How to read it\n")
	item("VALID", "blast was on time: in 999 of 1,000 packets the send came at most %s after the moment planned for it", stats.FormatNS(r.Lag.P999))
	item("", "(lag; the limit is %s). So what the other figures show is the target.", stats.FormatNS(r.Config.MaxLagNS))
	item("latency", "from the planned moment to the reply: half of the packets took at most %s, 1 in 100 more than %s.", stats.FormatNS(r.Latency.P50), stats.FormatNS(r.Latency.P99))
	item("", "Service time begins when the packet really left; if blast had been late, only latency would show it.")
	item("packets", "both lines add up: every planned packet was sent or has a reason, every sent one was answered or is named.")
	if lost := r.Ledger.Lost + r.Ledger.Late; lost > 0 {
		item("", "Here %s were lost or late on the way or at the target: what blast itself drops has a line of its own.", stats.FormatCount(lost))
	}
	if c := r.Calibration; c != nil && c.Margin > 0 {
		item("margin", "this machine could have sent %.1f times as much. From 3 on a run is to be trusted.", c.Margin)
	}
	return b.String()
}

// explainedInvalid is kind: nothing is broken.
func explainedInvalid(r *stats.Result) string {
	var b strings.Builder
	b.WriteString("What INVALID means\n" +
		"  Nothing is broken. blast could not keep its own plan, and says so rather than pass its own delay off as the target's:\n" +
		"  the latencies above measure this machine at this moment. Most often something else was running on it.\n\n" +
		"What to do\n")
	for _, reason := range r.Verdict.Reasons {
		fmt.Fprintf(&b, "  %s\n", remedyOf(reason.Code))
	}
	b.WriteString("  Then once more: blast quickstart\n")
	return b.String()
}

// remedyOf is what helps a first run against a reason of the verdict.
func remedyOf(code string) string {
	switch code {
	case verdict.CodeLag, verdict.CodeLagTrend:
		return "lag: close what else takes CPU time (top shows it); builds, browsers and other virtual machines are the usual ones"
	case verdict.CodeRate, verdict.CodeDuty, verdict.CodeCeiling:
		return code + ": ask for less, or give it a machine that does nothing else; the reason above says what would have passed"
	case verdict.CodeSteal:
		return "steal: the CPU went to other virtual machines, or a quota took it (blast tune check); another time, or a larger share"
	case verdict.CodeSelfLoss, verdict.CodeRefused:
		return code + ": buffers ran over while something else had the CPU; blast tune check says which can be larger"
	}
	return code + ": this should not happen on loopback; the page has the details, and they are worth a report"
}
