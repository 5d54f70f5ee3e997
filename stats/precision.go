package stats

// Precision says how far the quoted figures can be trusted as statistics: nothing about the generator, which is the verdict's part.
type Precision struct {
	// Intervals are the confidence intervals of the quoted quantiles.
	Intervals []Interval `json:"intervals"`
	// Stationary compares the first half of the run with the second; nil where the run was too short or its plan is not of one rate.
	Stationary *Stationary `json:"stationary,omitempty"`
}

// Interval is the confidence interval of one quantile.
type Interval struct {
	// Of is the histogram's field in a Result without its unit: "latency", "lag", ...
	Of       string  `json:"of"`
	Quantile float64 `json:"quantile"`
	ValueNS  int64   `json:"value_ns"`
	LowNS    int64   `json:"low_ns"`
	HighNS   int64   `json:"high_ns"`
	// Level is the probability covered, such as 0.95.
	Level float64 `json:"level"`
	// Samples is the number of samples; Effective that of independent ones that would tell as much.
	Samples   uint64  `json:"samples"`
	Effective float64 `json:"effective"`
	// Open says that the upper end is the maximum because there are too few samples beyond the quantile to bound it.
	Open bool `json:"open,omitempty"`
}

// Stationary compares the halves of a run.
type Stationary struct {
	// Holds is true where no change was shown, whatever the scatter hides.
	Holds bool `json:"holds"`
	// Hides is the largest change of the mean, as a share, that the scatter within the halves alone would explain.
	Hides float64 `json:"hides"`
	// Of is the histogram compared.
	Of     string `json:"of"`
	First  Half   `json:"first"`
	Second Half   `json:"second"`
	// Detail says in a sentence what changed and by what share, or that nothing did. It has no latencies, so that it can stand by itself in
	// an INVALID report.
	Detail string `json:"detail"`
}

// Clear reports whether a change that is not shown is a change that is not there: scatter hides at most a quarter.
func (s *Stationary) Clear() bool { return s.Hides <= 0.25 }

// Half is one half of a run.
type Half struct {
	Samples uint64  `json:"samples"`
	MeanNS  float64 `json:"mean_ns"`
	P50NS   int64   `json:"p50_ns"`
	P99NS   int64   `json:"p99_ns"`
}

// Spread is one figure over the rounds of a run.
type Spread struct {
	// Name is the figure's path in a Result, such as "latency_ns.p99" or "rate.achieved_pps".
	Name   string  `json:"name"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Relative is (max - min) / median; 0 where the median is 0.
	Relative float64 `json:"relative"`
}
