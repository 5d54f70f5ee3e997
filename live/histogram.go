package live

import (
	"math"
	"math/big"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"blast/stats"
)

const (
	// schema is the resolution of the native histograms: 2^7 buckets an octave, each 0.54 % wide. Those of stats.Hist are 0.1 % wide, so
	// nearly all lie in one bucket; the finer schema 8 would double the series' size for a precision that nobody reads off a graph.
	schema = 7
	// zeroThreshold is the upper end of the zero bucket, s: only 0 ns is below it. It is not 0, by which an empty native histogram could not
	// be told from a classic one.
	zeroThreshold = 0.5e-9
)

// bounds are the upper ends of the classic buckets in ns, 1-2-5 from 1 us to 10 s, for scrapers without native histograms.
func bounds() []int64 {
	var out []int64
	for decade := int64(1000); decade < 10e9; decade *= 10 {
		out = append(out, decade, 2*decade, 5*decade)
	}
	return append(out, 10e9)
}

// nativeIndex is the bucket of v seconds > 0: (2^((i-1)/2^schema), 2^(i/2^schema)] has index i.
func nativeIndex(v float64) int {
	const per = 1 << schema
	upper := func(i int) float64 { return math.Exp2(float64(i) / per) }
	i := int(math.Ceil(math.Log2(v) * per))
	for v > upper(i) { // Log2 and Exp2 round
		i++
	}
	for v <= upper(i-1) {
		i--
	}
	return i
}

// converted is one or several Hists as Prometheus has them. A bucket of a Hist that lies across a bound goes to the upper side whole, by
// its largest value, which is also the one that Hist.Quantile reports. So no count ever moves from one bucket to another.
type converted struct {
	count   uint64
	zero    uint64
	native  map[int]int64
	classic []uint64 // by bounds, not cumulated
	sum     big.Int  // ns
}

func convert(bounds []int64, hists ...*stats.Hist) *converted {
	c := &converted{native: map[int]int64{}, classic: make([]uint64, len(bounds))}
	for _, h := range hists {
		at := 0
		h.Each(func(_, high int64, n uint64) {
			c.count += n
			if high == 0 {
				c.zero += n
			} else {
				c.native[nativeIndex(seconds(high))] += int64(n)
			}
			for at < len(bounds) && high > bounds[at] {
				at++
			}
			if at < len(bounds) {
				c.classic[at] += n
			}
		})
		c.sum.Add(&c.sum, h.Sum())
	}
	return c
}

// seconds is ns in s, rounded once.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// sumSeconds is the exact sum, rounded once.
func (c *converted) sumSeconds() float64 {
	s, _ := new(big.Rat).SetFrac(&c.sum, big.NewInt(1e9)).Float64()
	return s
}

// withClassic adds classic buckets to a native histogram. Scrapers that know both take the native one.
type withClassic struct {
	prometheus.Metric
	buckets []*dto.Bucket
}

// Write implements prometheus.Metric.
func (m withClassic) Write(out *dto.Metric) error {
	err := m.Metric.Write(out)
	if err == nil {
		out.Histogram.Bucket = m.buckets
	}
	return err
}

// classicBuckets are the cumulated buckets.
func (c *converted) classicBuckets(bounds []int64) []*dto.Bucket {
	var out []*dto.Bucket
	var upTo uint64
	for i, n := range c.classic {
		upTo += n
		out = append(out, &dto.Bucket{UpperBound: new(seconds(bounds[i])), CumulativeCount: new(upTo)})
	}
	return out
}
