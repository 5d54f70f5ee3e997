// Package ladder finds the knee: it asks a target for rising rates until something gives, and narrows down where.
//
// It is a search and nothing else. What runs a step is handed in, and returns a whole, judged stats.Result; from those alone it is decided
// whether the target kept up, whether an SLO broke, or whether the generator was the wall, in which case the step says nothing about the target.
// There is no clock, no socket and no randomness here, so that every rule is tried on simulated targets. It needs no privilege and no kernel.
//
// The search shares its idea with that of package calib (climb, then halve the gap on a log scale, beginning where an estimate points to, and
// trust no single bad trial), but not its code: calib steers by duty and by a time budget, and knows one kind of wall.
package ladder
