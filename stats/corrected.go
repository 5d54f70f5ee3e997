package stats

import "fmt"

// RecordCorrected counts v and, where v is longer than interval, the samples that a client which waits for each reply missed in the
// meantime: v-interval, v-2*interval ... down to interval, ns. It is what HdrHistogram calls recordCorrectedValue: an estimate, to repair
// closed-loop data only. Latencies from planned times already hold those waits. With interval <= 0 nothing is added. It costs a
// Record for every sample added.
func (h *Hist) RecordCorrected(v, interval int64) {
	h.Record(v)
	if interval <= 0 || v > HistMax {
		return
	}
	for missing := v - interval; missing >= interval; missing -= interval {
		h.Record(missing)
	}
}

// mergeCorrected merges the estimates of shards, which all have one or none.
func mergeCorrected(shards []*Result) (*Histogram, error) {
	sum := &Hist{}
	for _, s := range shards {
		if s.Corrected == nil {
			return nil, nil
		}
		part, err := s.Corrected.Hist()
		if err != nil {
			return nil, fmt.Errorf("shard %d: corrected_ns: %w", s.Shard, err)
		}
		sum.Add(part)
	}
	whole := sum.Summary()
	return &whole, nil
}
