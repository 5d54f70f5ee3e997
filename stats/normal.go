package stats

// Normalize makes r fit to be written: the schema is named, a whole run is shard 0 of 1, and no list or table is nil, for
// those would be null in JSON.
func (r *Result) Normalize() {
	r.Schema = ResultSchema
	r.Shards = max(r.Shards, 1)
	filled(&r.Command)
	filled(&r.Config.Given)
	filled(&r.Config.Targets)
	filled(&r.Config.CPUs)
	filled(&r.Config.SLOs)
	filled(&r.Backend.Notes)
	filled(&r.Verdict.Reasons)
	filled(&r.Verdict.Warnings)
	filled(&r.Verdict.SLOs)
	filled(&r.Timeline)
	filled(&r.Workers)
	filled(&r.Counters)
	if r.Segments != nil {
		filled(&r.Segments.Parts)
	}
	if r.Precision != nil {
		filled(&r.Precision.Intervals)
	}
	if r.Ledger.Refused == nil {
		r.Ledger.Refused = map[string]uint64{}
	}
	if r.Events == nil {
		r.Events = Events{}
	}
	for i := range r.Rounds {
		r.Rounds[i].Normalize()
	}
}

func filled[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}
