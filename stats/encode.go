package stats

import (
	"fmt"
	"math/big"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const digits = 3 // significant digits of the HdrHistogram layout

// Buckets is the content of a Hist as it comes from elsewhere: the in-kernel engine, or a result file.
type Buckets struct {
	// Counts are by bucket, see BucketIndex; at most HistBuckets, fewer mean that the rest are empty.
	Counts []uint64
	// Min and Max are the exact extremes in ns; they lie in the lowest and highest bucket in use.
	Min, Max int64
	// SumLo and SumHi are the exact sum in ns, 128 bits.
	SumLo, SumHi uint64
	// Refused is the number of values outside 0..HistMax.
	Refused uint64
}

// AddBuckets merges b into h. It refuses buckets whose extremes or sum cannot be theirs, and leaves h alone then.
func (h *Hist) AddBuckets(b Buckets) error {
	if len(b.Counts) > HistBuckets {
		return fmt.Errorf("histogram: %d buckets, at most %d", len(b.Counts), HistBuckets)
	}
	lo, hi := 0, len(b.Counts)
	for lo < hi && b.Counts[lo] == 0 {
		lo++
	}
	for hi > lo && b.Counts[hi-1] == 0 {
		hi--
	}
	if lo == hi {
		h.refused += b.Refused
		return nil
	}
	other := &Hist{refused: b.Refused, min: b.Min, max: b.Max, sumLo: b.SumLo, sumHi: b.SumHi, lo: lo, hi: hi}
	copy(other.counts[lo:hi], b.Counts[lo:hi])
	if err := other.check(); err != nil {
		return err
	}
	h.Add(other)
	return nil
}

// check says whether the extremes and the sum of a non-empty h fit its buckets.
func (h *Hist) check() error {
	if h.min < 0 || h.max > HistMax || h.min > h.max || BucketIndex(h.min) != h.lo || BucketIndex(h.max) != h.hi-1 {
		return fmt.Errorf("histogram: extremes %d and %d ns lie outside the lowest or highest bucket in use (from %d to below %d ns)",
			h.min, h.max, BucketLow(h.lo), BucketLow(h.hi))
	}
	var low, high, count, term big.Int
	h.Each(func(l, u int64, n uint64) {
		count.SetUint64(n)
		low.Add(&low, term.Mul(&count, big.NewInt(l)))
		high.Add(&high, term.Mul(&count, big.NewInt(u)))
	})
	if sum := h.Sum(); sum.Cmp(&low) < 0 || sum.Cmp(&high) > 0 {
		return fmt.Errorf("histogram: sum %v ns lies outside what its buckets allow, %v to %v ns", sum, &low, &high)
	}
	return nil
}

// Sum is the sum of all values in ns, exact.
func (h *Hist) Sum() *big.Int {
	s := new(big.Int).SetUint64(h.sumHi)
	return s.Lsh(s, 64).Or(s, new(big.Int).SetUint64(h.sumLo))
}

// HDR converts h to hdrhistogram-go: the same buckets and counts. The exact extremes and sum have no place there.
func (h *Hist) HDR() *hdrhistogram.Histogram {
	counts := make([]int64, HistBuckets)
	for i := h.lo; i < h.hi; i++ {
		counts[i] = int64(h.counts[i])
	}
	return hdrhistogram.Import(&hdrhistogram.Snapshot{
		LowestTrackableValue: 1, HighestTrackableValue: HistMax, SignificantFigures: digits, Counts: counts,
	})
}

// Encode returns h as HdrHistogram V2, compressed and in base64: what every HdrHistogram library reads.
func (h *Hist) Encode() string {
	b, err := h.HDR().Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic("stats: encoding a histogram to memory: " + err.Error())
	}
	return string(b)
}

// decodeCounts reads the bucket counts of a V2 string of exactly our layout.
func decodeCounts(hdr string) ([]uint64, error) {
	d, err := hdrhistogram.Decode([]byte(hdr))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	if d.LowestTrackableValue() != 1 || d.HighestTrackableValue() != HistMax || d.SignificantFigures() != digits {
		return nil, fmt.Errorf("histogram: range %d to %d with %d digits, want 1 to %d ns with %d",
			d.LowestTrackableValue(), d.HighestTrackableValue(), d.SignificantFigures(), HistMax, digits)
	}
	counts := make([]uint64, HistBuckets)
	for i, c := range d.Export().Counts {
		if c < 0 {
			return nil, fmt.Errorf("histogram: negative count %d in bucket %d", c, i)
		}
		counts[i] = uint64(c)
	}
	return counts, nil
}
