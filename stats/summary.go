package stats

import (
	"encoding/json"
	"fmt"
	"math/big"
	"time"
)

// Summary is h as it stands in a Result.
func (h *Hist) Summary() Histogram {
	s := h.Figures()
	s.HDR = h.Encode()
	return s
}

// Figures is the Summary without the encoded buckets.
func (h *Hist) Figures() Histogram {
	return Histogram{
		Count: h.Count(), Min: h.min, Max: h.max, Sum: json.Number(h.Sum().String()), Mean: h.Mean(),
		P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), P999: h.Quantile(0.999), P9999: h.Quantile(0.9999),
		Refused: h.refused,
		Over: Over{
			Ms1: h.Over(int64(time.Millisecond)), Ms10: h.Over(int64(10 * time.Millisecond)),
			Ms100: h.Over(int64(100 * time.Millisecond)), S1: h.Over(int64(time.Second)),
		},
	}
}

// Hist rebuilds the histogram, exactly: its Summary equals s. It refuses an s whose parts disagree. The zero Histogram is
// an empty one.
func (s *Histogram) Hist() (*Hist, error) {
	h := &Hist{}
	if s.HDR == "" {
		if s.Count != 0 {
			return nil, fmt.Errorf("histogram: count %d without buckets", s.Count)
		}
		h.refused = s.Refused
		return h, nil
	}
	counts, err := decodeCounts(s.HDR)
	if err != nil {
		return nil, err
	}
	sum, ok := new(big.Int).SetString(s.Sum.String(), 10)
	if !ok || sum.Sign() < 0 || sum.BitLen() > 128 {
		return nil, fmt.Errorf("histogram: sum %q is not a count of ns", s.Sum)
	}
	lo := new(big.Int).And(sum, new(big.Int).SetUint64(^uint64(0))).Uint64()
	hi := new(big.Int).Rsh(sum, 64).Uint64()
	if err := h.AddBuckets(Buckets{Counts: counts, Min: s.Min, Max: s.Max, SumLo: lo, SumHi: hi, Refused: s.Refused}); err != nil {
		return nil, err
	}
	return h, s.agrees(h)
}

// agrees says whether the figures people read are those of the buckets.
func (s *Histogram) agrees(h *Hist) error {
	got := h.Figures()
	got.HDR = s.HDR
	if got.Sum == "0" && s.Sum == "" {
		got.Sum = ""
	}
	if got != *s {
		return fmt.Errorf("histogram: figures (n %d, min %d, p50 %d, p99 %d, max %d ns) are not those of its buckets (n %d, min %d, p50 %d, p99 %d, max %d ns)",
			s.Count, s.Min, s.P50, s.P99, s.Max, got.Count, got.Min, got.P50, got.P99, got.Max)
	}
	return nil
}
