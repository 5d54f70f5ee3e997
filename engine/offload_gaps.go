package engine

import (
	"fmt"

	"blast/stats"
)

// departures puts into res what the device saw of the plan: times that the sending program does not take. They are those of a bulk, so packets that
// leave together have gaps of 0.
func (r *offloading) departures(res *stats.Result) error {
	var gap, off stats.Hist
	for i := range r.workers {
		b := &r.workers[i].books
		if err := merge(b.Gap, &gap); err != nil {
			return fmt.Errorf("worker %d: gaps: %w", i, err)
		}
		if err := merge(b.GapError, &off); err != nil {
			return fmt.Errorf("worker %d: gaps off the plan: %w", i, err)
		}
	}
	res.Gap = gap.Summary()
	if off.Count() > 0 {
		res.Departures = &stats.Departures{Source: "xdp", Error: off.Summary()}
	}
	return nil
}
