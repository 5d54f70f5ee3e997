package stats

import "math"

// intervalLevel is the probability that an Interval covers the quantile.
const intervalLevel = 0.95

// intervalBatches is the least number of batches from which intervals are told: fewer know nothing of how far the run moves by itself.
const intervalBatches = 5

// Interval is the confidence interval of quantile q of all samples, whole being the histogram of those in b. Load-test latencies resemble
// their neighbours, so that order statistics alone, which take each sample for an independent one, claim far too much. So:
//
//  1. x is about the value at q, F the share of samples at most x. Each batch has its own share; how far those scatter gives the variance of F
//     (neighbours are merged first while one still tells of the next).
//  2. Effective = F(1-F) / variance is the number of independent samples that would scatter as much; never more than there are.
//  3. The interval is the one of order statistics for that many samples: exact binomial where few lie beyond the quantile, with the
//     number made smaller by (z/t)^2, since a variance from k batches is itself uncertain (Student's t with k-1 degrees of freedom).
//
// It reports false without enough batches to tell.
func (b *Batches) Interval(of string, whole *Hist, q float64) (Interval, bool) {
	n := whole.Count()
	if n == 0 {
		return Interval{}, false
	}
	v := Interval{Of: of, Quantile: q, ValueNS: whole.Quantile(q), Level: intervalLevel, Samples: n}
	bucket := whole.bucketNear(q)
	list := clustersOf(b.list, func(x *batch) float64 { return float64(x.atMost(bucket)) })
	if len(list) < intervalBatches {
		return Interval{}, false
	}
	list = independent(list)
	share, variance := ratio(list)
	v.Effective = float64(n)
	if variance > 0 {
		v.Effective = min(share*(1-share)/variance, v.Effective)
	}
	shrink := normal975 / studentPoint((1-intervalLevel)/2, float64(len(list)-1))
	low, high := quantileShares(max(v.Effective*shrink*shrink, 1), q)
	v.LowNS = max(BucketLow(BucketIndex(whole.valueAt(max(uint64(low*float64(n)), 1)))), whole.Min())
	switch rank := math.Ceil(high * float64(n)); {
	case high >= 1 || rank >= float64(n):
		v.HighNS, v.Open = whole.Max(), high >= 1
	default:
		v.HighNS = whole.valueAt(uint64(rank))
	}
	return v, true
}

// bucketNear is the bucket up to which the share of samples is nearest to q, but some lie above where that can be: at the end of the top
// bucket every share is 1, and nothing scatters.
func (h *Hist) bucketNear(q float64) int {
	i := BucketIndex(h.Quantile(q))
	n := float64(h.Count())
	upTo := n
	for k := i + 1; k < h.hi; k++ {
		upTo -= float64(h.counts[k])
	}
	before := upTo - float64(h.counts[i])
	if before > 0 && (upTo == n || q*n-before < upTo-q*n) {
		return i - 1
	}
	return i
}

// binomialMost is the expected number beyond the quantile up to which the binomial distribution is summed; above it the normal one is as good.
const binomialMost = 500

// quantileShares are the ranks, as shares of all samples, of the order statistics between which quantile q lies with 95 %, for n
// independent samples; n need not be whole. high is 1 where no sample is rare enough to bound it.
func quantileShares(n, q float64) (low, high float64) {
	beyond := 1 - q
	if n*min(beyond, q) > binomialMost {
		d := normal975 * math.Sqrt(q*beyond/n)
		return q - d, q + d
	}
	// The number of samples above the true quantile is binomial. The order statistic with e samples above it lies below the quantile where
	// that number is at most e, and above it where it is more than e.
	const tail = (1 - intervalLevel) / 2
	term := math.Exp(n * math.Log1p(-beyond)) // probability of none
	below := 0.0
	fewest, most := -1.0, math.Inf(1)
	for e := 0.0; e <= n+1; e++ {
		if below += term; below <= tail {
			fewest = e
		}
		if below >= 1-tail {
			most = e
			break
		}
		term *= max(n-e, 0) / (e + 1) * beyond / q
	}
	high = 1.0
	if fewest >= 0 {
		high = 1 - fewest/n
		if fewest == 0 {
			high = math.Nextafter(1, 0) // the maximum itself bounds it
		}
	}
	return max(1-most/n, 0), high
}
