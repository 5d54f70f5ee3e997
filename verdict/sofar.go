package verdict

import "blast/stats"

// Codes are all codes that make a run INVALID, in the order of their rules.
func Codes() []string {
	var all []string
	for _, x := range rules() {
		all = append(all, x.code)
	}
	return all
}

// SoFar returns what makes a run in progress INVALID as it stands, by the rules of Judge that can be applied before the end. Most of it can
// still heal: a plan that fell behind may be caught up with.
func SoFar(r *stats.Result, limits Limits) []stats.Reason {
	if r.Ledger.Planned == 0 {
		return nil
	}
	j := &judge{r: r, l: limits.withDefaults(r)}
	for _, x := range rules() {
		if x.early {
			x.check(j)
		}
	}
	return j.reasons
}
