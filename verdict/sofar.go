package verdict

import "blast/stats"

// Codes are all codes that make a run INVALID, in the order of their rules.
func Codes() []string {
	return []string{CodeRate, CodeLag, CodeLagTrend, CodeDuty, CodeRefused, CodeSelfLoss, CodeCeiling, CodeLedger, CodeSteal, CodeRange}
}

// SoFar returns what makes a run in progress INVALID as it stands, by the rules of Judge that can be applied before the end: the
// ledger is open and a trend is not one yet. Most of it can still heal: a plan that fell behind may be caught up with.
func SoFar(r *stats.Result, limits Limits) []stats.Reason {
	if r.Ledger.Planned == 0 {
		return nil
	}
	j := &judge{r: r, l: limits.withDefaults(r)}
	for _, rule := range []func(){j.rate, j.lag, j.duty, j.refused, j.selfLoss, j.ceiling, j.steal, j.inRange} {
		rule()
	}
	return j.reasons
}
