package stats

import "math/bits"

// The bucket layout is HdrHistogram's for 1 ns to 1 h at 3 significant digits, so that a Hist converts without loss and the
// in-kernel engine can fill the same buckets: values below 2048 have a bucket each, every further octave has 1024.
const (
	// HistMax is the largest value a Hist takes: 1 h in ns.
	HistMax = int64(3600e9)

	subBuckets     = 2048
	halfBuckets    = subBuckets / 2
	subBucketsLog2 = 11
	// HistBuckets is the number of buckets: 32 octaves and the lower half of the first.
	HistBuckets = (32 + 1) * halfBuckets
)

// Hist is a histogram of ns values for one writer. Recording costs two or three ns and never allocates; about 270 KB.
type Hist struct {
	counts   [HistBuckets]uint64
	refused  uint64 // values outside 0..HistMax
	min, max int64  // exact; meaningful when count > 0
	sumLo    uint64 // exact 128-bit sum
	sumHi    uint64
	lo, hi   int // touched bucket range, hi exclusive
}

// BucketIndex returns the bucket of v, 0 <= v <= HistMax: HdrHistogram's countsArrayIndex.
func BucketIndex(v int64) int {
	octave := 64 - subBucketsLog2 - bits.LeadingZeros64(uint64(v)|(subBuckets-1))
	return octave<<(subBucketsLog2-1) + int(uint64(v)>>uint(octave))
}

// BucketLow returns the smallest value of bucket i; its largest is BucketLow(i+1)-1.
func BucketLow(i int) int64 {
	if i < subBuckets {
		return int64(i)
	}
	octave := i>>(subBucketsLog2-1) - 1
	return int64(i&(halfBuckets-1)+halfBuckets) << uint(octave)
}

// Record counts one value in ns.
func (h *Hist) Record(v int64) { h.RecordN(v, 1) }

// RecordN counts n equal values in ns, such as the packets of a train that share one planned time. n = 0 does nothing.
func (h *Hist) RecordN(v int64, n uint64) {
	if uint64(v) > uint64(HistMax) {
		h.refused += n
		return
	}
	if n == 0 {
		return
	}
	i := BucketIndex(v)
	h.counts[i] += n
	if h.hi == 0 {
		h.min, h.max, h.lo, h.hi = v, v, i, i+1
	}
	if v < h.min {
		h.min, h.lo = v, i
	}
	if v > h.max {
		h.max, h.hi = v, i+1
	}
	hi, lo := bits.Mul64(uint64(v), n)
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, lo, 0)
	h.sumHi += hi + carry
}

// Add merges other into h, exactly.
func (h *Hist) Add(other *Hist) {
	h.refused += other.refused
	if other.hi == 0 {
		return
	}
	for i := other.lo; i < other.hi; i++ {
		h.counts[i] += other.counts[i]
	}
	if h.hi == 0 {
		h.min, h.max, h.lo, h.hi = other.min, other.max, other.lo, other.hi
	}
	h.min, h.max = min(h.min, other.min), max(h.max, other.max)
	h.lo, h.hi = min(h.lo, other.lo), max(h.hi, other.hi)
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, other.sumLo, 0)
	h.sumHi += other.sumHi + carry
}

// Reset empties h; it costs only what was touched.
func (h *Hist) Reset() {
	clear(h.counts[h.lo:h.hi])
	h.refused, h.min, h.max, h.sumLo, h.sumHi, h.lo, h.hi = 0, 0, 0, 0, 0, 0, 0
}

// Count is the number of values recorded, without the refused.
func (h *Hist) Count() uint64 {
	var n uint64
	for _, c := range h.counts[h.lo:h.hi] {
		n += c
	}
	return n
}

// Refused is the number of values outside the range; one is enough to make a run INVALID.
func (h *Hist) Refused() uint64 { return h.refused }

// Min is the smallest value recorded, exact, 0 when empty.
func (h *Hist) Min() int64 { return h.min }

// Max is the largest value recorded, exact, 0 when empty.
func (h *Hist) Max() int64 { return h.max }

// Mean is the exact sum divided by the count, in ns; 0 when empty.
func (h *Hist) Mean() float64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return (float64(h.sumHi)*(1<<64) + float64(h.sumLo)) / float64(n)
}

// Quantile returns the value at quantile q (0..1) in ns: the largest value of the bucket that holds the sample of rank
// floor(q*count + 1/2), at least 1, but never above the exact maximum. That rank is the one of HdrHistogram in Go, C and
// JavaScript, so that whoever opens our files elsewhere reads the same figures; rounding also keeps q*count = 999.0000001
// from meaning the 1000th sample.
func (h *Hist) Quantile(q float64) int64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return h.valueAt(rankOf(q, n))
}

// valueAt is the largest value of the bucket that holds the sample of a rank, 1..Count, but never above the exact maximum.
func (h *Hist) valueAt(rank uint64) int64 {
	var seen uint64
	for i := h.lo; i < h.hi; i++ {
		if seen += h.counts[i]; seen >= rank {
			return min(BucketLow(i+1)-1, h.max)
		}
	}
	return h.max
}

// QuantileAmong is Quantile with missing further samples that were slower than all of h: packets whose reply never came.
// It reports false where the quantile lies among those.
func (h *Hist) QuantileAmong(q float64, missing uint64) (int64, bool) {
	n := h.Count()
	if n+missing == 0 {
		return 0, true
	}
	rank := rankOf(q, n+missing)
	if rank > n {
		return 0, false
	}
	return h.valueAt(rank), true
}

// rankOf is the rank, 1..n, of the sample at quantile q of n > 0 samples. Bounds are tested before the conversion,
// because float64(n) may round above n.
func rankOf(q float64, n uint64) uint64 {
	switch rank := q*float64(n) + 0.5; {
	case !(rank >= 1): // also NaN
		return 1
	case rank >= float64(n):
		return n
	default:
		return uint64(rank)
	}
}

// Over is the number of values in buckets that lie wholly above v: at 3 digits, those above v but for the last permille.
func (h *Hist) Over(v int64) uint64 {
	var n uint64
	for i := max(h.lo, BucketIndex(min(max(v, 0), HistMax))+1); i < h.hi; i++ {
		n += h.counts[i]
	}
	return n
}

// Each calls fn for every non-empty bucket in rising order with its value range (both ends included) and count.
func (h *Hist) Each(fn func(low, high int64, count uint64)) {
	for i := h.lo; i < h.hi; i++ {
		if c := h.counts[i]; c > 0 {
			fn(BucketLow(i), BucketLow(i+1)-1, c)
		}
	}
}
