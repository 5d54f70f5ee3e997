package stats

// Buckets is h in the form that AddBuckets takes. It shares h's memory and is valid until h changes.
func (h *Hist) Buckets() Buckets {
	return Buckets{Counts: h.counts[:h.hi], Min: h.min, Max: h.max, SumLo: h.sumLo, SumHi: h.sumHi, Refused: h.refused}
}
