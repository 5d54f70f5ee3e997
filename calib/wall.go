package calib

import (
	"fmt"
	"slices"

	"blast/stats"
	"blast/verdict"
)

// causes are the kinds of wall: the codes of the verdict by what explains the others first. A worker that is always busy falls behind,
// lags and misses its rate as well.
var causes = []struct{ code, because string }{
	{verdict.CodeRefused, "the kernel takes no more: a socket buffer, queue or ring is full"},
	{verdict.CodeDuty, "one core's system calls; more workers, or trains, go further"},
	{verdict.CodeRate, "the plan was not kept although the worker had time to spare"},
	{verdict.CodeLag, "sending is interrupted: another task, the sink or an interrupt on the same core"},
	{verdict.CodeLagTrend, "the backlog only ever grew"},
	{verdict.CodeSteal, "the hypervisor or a cgroup quota takes the CPU away"},
}

// explains says whether a code is what stopped the trial. Slots that were only abandoned, with nothing refused, count as refused in
// the verdict: they are what falling behind leaves, and whatever else is known comes first.
func (o *outcome) explains(code string) bool {
	return slices.ContainsFunc(o.reasons, func(r stats.Reason) bool { return r.Code == code }) && (code != verdict.CodeRefused || o.refused != "")
}

// wall tells what stopped an INVALID trial: the code that explains most, and in words "duty 0.83 > 0.70: one core's system calls".
// What stands before the colon is short enough for a column.
func wall(o *outcome) (code, words string) {
	if o == nil {
		return "", "none met: the time ended first"
	}
	for _, c := range causes {
		if o.explains(c.code) {
			return c.code, short(c.code, o) + ": " + c.because
		}
	}
	for _, r := range o.reasons {
		return r.Code, r.Code + ": " + r.Detail
	}
	return "", "none met"
}

func short(code string, o *outcome) string {
	switch code {
	case verdict.CodeRefused:
		return "refused " + o.refused
	case verdict.CodeDuty:
		return fmt.Sprintf("duty %.2f > %.2f", o.duty, dutyLimit)
	case verdict.CodeRate:
		return fmt.Sprintf("rate %.1f %%", 100*o.rate.AchievedPPS/float64(o.target))
	case verdict.CodeLag:
		return "lag p99.9 " + stats.FormatNS(o.lagP999)
	}
	return code
}
