package calib

import "blast/stats"

// Ceiling is the stored ceiling for a run: backend and gso (0 and 1 mean no trains) must be those of a row, and of such rows the
// nearest one that is not optimistic is taken:
//
//   - payload first: the smallest that is at least the run's, for a larger packet costs more; when all are smaller, the largest
//   - then workers: the most that are not more than the run's, for more workers send more
//
// A run of so many flows a worker that a batch hardly meets one twice is held against the row for many flows, where there is one: each
// packet has a socket of its own there, which costs system calls. It reports false when there is no such row. The row's payload and
// workers are in the answer, so that a reader sees how near it is; Margin is left to the caller.
func (p *Profile) Ceiling(backend string, gso, payload, workers, flows int) (*stats.Calibration, bool) {
	best := p.nearest(backend, gso, payload, workers, flows >= manyFlows*workers)
	if best == nil && flows >= manyFlows*workers {
		best = p.nearest(backend, gso, payload, workers, false)
	}
	if best == nil {
		return nil, false
	}
	return &stats.Calibration{ID: p.ID, CeilingPPS: best.CeilingPPS, PayloadBytes: best.PayloadBytes, Workers: best.Workers}, true
}

// manyFlows is the number of flows a worker from which a run counts as one of many flows: the slots of a batch.
const manyFlows = 64

func (p *Profile) nearest(backend string, gso, payload, workers int, many bool) *Row {
	var best *Row
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Backend != backend || r.GSO != max(gso, 1) || r.Workers > workers || r.manyFlows() != many {
			continue
		}
		if best == nil || nearer(r, best, payload) {
			best = r
		}
	}
	return best
}

// nearer says whether a is nearer than b to a run of payload.
func nearer(a, b *Row, payload int) bool {
	if a.PayloadBytes == b.PayloadBytes {
		return a.Workers > b.Workers
	}
	if covers := a.PayloadBytes >= payload; covers != (b.PayloadBytes >= payload) {
		return covers
	} else if covers {
		return a.PayloadBytes < b.PayloadBytes
	}
	return a.PayloadBytes > b.PayloadBytes
}
