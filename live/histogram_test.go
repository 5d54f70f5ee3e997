package live

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"blast/stats"
)

// Every sample is in the native bucket that holds the largest value of its own bucket, which is what quantiles are quoted as: nothing
// is lost, nothing counted twice, and a bucket is less than 1 % wide.
func TestConvert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(rapid.Int64Range(0, 3000), rapid.Int64Range(0, stats.HistMax))).Draw(t, "values")
		split := rapid.IntRange(0, len(values)).Draw(t, "split")
		var hists [2]stats.Hist
		sum := int64(0)
		for i, v := range values {
			hists[min(i/max(split, 1), 1)].Record(v)
			sum += v
		}
		c := convert(bounds(), &hists[0], &hists[1])
		n := c.zero
		for _, k := range c.native {
			n += uint64(k)
		}
		if c.count != uint64(len(values)) || n != c.count || c.sum.Int64() != sum {
			t.Fatalf("%d counted, %d in buckets, sum %v: want %d and %d", c.count, n, &c.sum, len(values), sum)
		}
		for _, v := range values {
			high := seconds(stats.BucketLow(stats.BucketIndex(v)+1) - 1)
			if high == 0 {
				continue
			}
			i := nativeIndex(high)
			if c.native[i] == 0 || high > math.Exp2(float64(i)/(1<<schema)) || high <= math.Exp2(float64(i-1)/(1<<schema)) {
				t.Fatalf("%v s is not in bucket %d", high, i)
			}
		}
	})
	if width := math.Exp2(1./(1<<schema)) - 1; width > 0.01 {
		t.Errorf("buckets are %v wide: want at most 1 %%", width)
	}
}

// Bounds of buckets, by hand: powers of two are upper ends, and what lies just above belongs to the next.
func TestNativeIndex(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want int
	}{
		{1, 0}, {math.Nextafter(1, 2), 1}, {2, 128}, {math.Nextafter(2, 1), 128}, {math.Nextafter(2, 3), 129}, {0.5, -128}, {1. / 1024, -1280},
		{math.Nextafter(1./1024, 1), -1279}, {1.5, 75}, // 128 log2 1.5 = 74.87
	} {
		if got := nativeIndex(c.v); got != c.want {
			t.Errorf("bucket of %v: %d, want %d", c.v, got, c.want)
		}
	}
}

// The classic buckets by hand: a value on a bound belongs to it.
func TestClassic(t *testing.T) {
	h := &stats.Hist{}
	for _, v := range []int64{0, 1000, 1001, 2000, 5e9, 20e9} { // 5 s falls into a bucket that ends a little above: 10 s
		h.Record(v)
	}
	b := bounds()
	got := convert(b, h).classicBuckets(b)
	want := map[float64]uint64{1e-6: 2, 2e-6: 4, 5e-6: 4, 2: 4, 5: 4, 10: 5}
	for _, k := range got {
		if n, ok := want[k.GetUpperBound()]; ok && n != k.GetCumulativeCount() {
			t.Errorf("up to %v s: %d, want %d", k.GetUpperBound(), k.GetCumulativeCount(), n)
		}
	}
	if len(got) != 22 {
		t.Errorf("%d buckets: want 22, 1-2-5 from 1 us to 10 s", len(got))
	}
}
