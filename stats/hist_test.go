package stats

import (
	"math/rand/v2"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// value draws ns over all octaves, with the edges of buckets more often than chance would have them.
func value() *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		v := int64(1) << rapid.IntRange(0, 41).Draw(t, "octave")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			v += rapid.Int64Range(-1, 1).Draw(t, "edge")
		default:
			v += rapid.Int64Range(0, v).Draw(t, "within")
		}
		return min(v, HistMax)
	})
}

func newHDR() *hdrhistogram.Histogram { return hdrhistogram.New(1, HistMax, digits) }

func recorded(values []int64) (*Hist, *hdrhistogram.Histogram) {
	h, ref := &Hist{}, newHDR()
	for _, v := range values {
		h.Record(v)
		if err := ref.RecordValue(v); err != nil {
			panic(err)
		}
	}
	return h, ref
}

// Every value must fall into the bucket where hdrhistogram-go counts it, and the bucket's ends must enclose it.
func TestBucketLayoutIsHdrHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value().Draw(t, "v")
		ref := newHDR()
		if err := ref.RecordValue(v); err != nil {
			t.Fatal(err)
		}
		counts := ref.Export().Counts
		if len(counts) != HistBuckets {
			t.Fatalf("hdrhistogram-go has %d buckets, we %d", len(counts), HistBuckets)
		}
		i := BucketIndex(v)
		if counts[i] != 1 {
			t.Fatalf("value %d: hdrhistogram-go does not count it in bucket %d", v, i)
		}
		if low, next := BucketLow(i), BucketLow(i+1); v < low || v >= next {
			t.Fatalf("value %d: bucket %d is %d to below %d", v, i, low, next)
		}
	})
}

func TestBucketEdges(t *testing.T) {
	for _, v := range []int64{0, 1, 2047, 2048, 2049, 4095, 4096, HistMax - 1, HistMax} {
		if i := BucketIndex(v); i < 0 || i >= HistBuckets || BucketLow(i) > v || BucketLow(i+1) <= v {
			t.Errorf("value %d: bucket %d, %d to below %d", v, i, BucketLow(i), BucketLow(i+1))
		}
	}
}

func TestQuantileIsHdrHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, ref := recorded(rapid.SliceOfN(value(), 1, 400).Draw(t, "values"))
		for _, p := range append([]float64{50, 75, 90, 95, 99, 99.9, 99.99, 100}, rapid.Float64Range(0.001, 100).Draw(t, "p")) {
			got, want := h.Quantile(p/100), min(ref.ValueAtPercentile(p), h.Max())
			if got != want {
				t.Fatalf("p%v of %d values: %d, hdrhistogram-go says %d", p, h.Count(), got, want)
			}
		}
	})
}

func TestRecordKeepsExactExtremesAndSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(value(), 1, 100).Draw(t, "values")
		h, _ := recorded(values)
		low, high, sum := values[0], values[0], 0.0
		for _, v := range values {
			low, high, sum = min(low, v), max(high, v), sum+float64(v)
		}
		if h.Min() != low || h.Max() != high || h.Count() != uint64(len(values)) {
			t.Fatalf("min %d max %d n %d, want %d %d %d", h.Min(), h.Max(), h.Count(), low, high, len(values))
		}
		if mean := sum / float64(len(values)); h.Mean() < mean*(1-1e-9) || h.Mean() > mean*(1+1e-9) {
			t.Fatalf("mean %v, want %v", h.Mean(), mean)
		}
		if err := h.check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSumPast64Bits(t *testing.T) {
	h := &Hist{}
	h.RecordN(HistMax, 1<<40)
	h.RecordN(HistMax, 1<<40)
	if h.Mean() != float64(HistMax) {
		t.Errorf("mean of 2^41 hours is %v ns, want %d", h.Mean(), HistMax)
	}
	if want := "7916483719987200000000000"; h.Sum().String() != want {
		t.Errorf("sum %v, want %s", h.Sum(), want)
	}
}

func TestRecordRefusesWhatDoesNotFit(t *testing.T) {
	h := &Hist{}
	h.Record(-1)
	h.RecordN(HistMax+1, 3)
	h.RecordN(5, 0) // no values: no trace
	if h.Refused() != 4 || h.Count() != 0 || h.Min() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Errorf("refused %d count %d min %d max %d", h.Refused(), h.Count(), h.Min(), h.Max())
	}
}

// Merging parts must equal one histogram of all samples, bit for bit: the whole struct, not only its percentiles.
func TestAddEqualsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, merged := &Hist{}, &Hist{}
		for range rapid.IntRange(1, 5).Draw(t, "shards") {
			part := &Hist{}
			for _, v := range rapid.SliceOfN(rapid.OneOf(value(), rapid.Just(int64(-1))), 0, 50).Draw(t, "values") {
				part.Record(v)
				whole.Record(v)
			}
			merged.Add(part)
		}
		if *merged != *whole {
			t.Fatalf("merged n %d refused %d, whole n %d refused %d", merged.Count(), merged.Refused(), whole.Count(), whole.Refused())
		}
	})
}

func TestResetLeavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, _ := recorded(rapid.SliceOfN(value(), 0, 50).Draw(t, "values"))
		h.Record(-1)
		h.Reset()
		if *h != (Hist{}) {
			t.Fatal("something is left after Reset")
		}
	})
}

func TestOver(t *testing.T) {
	h := &Hist{}
	for _, v := range []int64{5, 1000, 1e6, 1e6 + 5000, 2e6, HistMax} {
		h.Record(v)
	}
	for _, c := range []struct {
		why  string
		v    int64
		want uint64
	}{
		{"all lie above a negative value, which reads as 0", -1, 6},
		{"a value of single-ns resolution is not above itself", 5, 5},
		{"the same bucket is not above", 1e6, 3},
		{"nothing lies above the range", HistMax, 0},
		{"nor above what the range cannot hold", HistMax * 2, 0},
	} {
		if got := h.Over(c.v); got != c.want {
			t.Errorf("%s: over %d ns: %d, want %d", c.why, c.v, got, c.want)
		}
	}
}

func TestEachCoversAllCounts(t *testing.T) {
	h, _ := recorded([]int64{0, 0, 3000, 3001, HistMax})
	var got [][3]int64
	h.Each(func(low, high int64, n uint64) { got = append(got, [3]int64{low, high, int64(n)}) })
	top := BucketIndex(HistMax)
	want := [][3]int64{{0, 0, 2}, {3000, 3001, 2}, {BucketLow(top), BucketLow(top+1) - 1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestQuantileAmongTheMissing(t *testing.T) {
	h := &Hist{}
	for v := range int64(90) {
		h.Record(v + 1)
	}
	for _, c := range []struct {
		why     string
		q       float64
		missing uint64
		want    int64
		ok      bool
	}{
		{"no missing: a plain quantile", 0.5, 0, 45, true},
		{"ten missing push the median up by five", 0.5, 10, 50, true},
		{"p90 of 100 is the slowest answered", 0.9, 10, 90, true},
		{"p99 of 100 lies among the missing", 0.99, 10, 0, false},
	} {
		if v, ok := h.QuantileAmong(c.q, c.missing); v != c.want || ok != c.ok {
			t.Errorf("%s: %d %v, want %d %v", c.why, v, ok, c.want, c.ok)
		}
	}
	if _, ok := new(Hist).QuantileAmong(0.5, 1); ok {
		t.Error("only missing samples have no median")
	}
	if v, ok := new(Hist).QuantileAmong(0.5, 0); v != 0 || !ok {
		t.Error("no samples at all: want 0, true")
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	h, other := &Hist{}, &Hist{}
	other.Record(12345)
	n := testing.AllocsPerRun(1000, func() {
		h.Record(1234567)
		h.RecordN(99, 16)
		h.Record(-1)
		h.Add(other)
		h.Reset()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// samples are log-normal around 50 us, as latencies are.
func samples() []int64 {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]int64, 4096)
	for i := range s {
		s[i] = int64(50e3 * (1 + r.ExpFloat64()*r.ExpFloat64()))
	}
	return s
}

func BenchmarkRecord(b *testing.B) {
	h, s := &Hist{}, samples()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Record(s[i&4095])
	}
}

// BenchmarkHDRRecordValue is what Record is measured against.
func BenchmarkHDRRecordValue(b *testing.B) {
	h, s := newHDR(), samples()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = h.RecordValue(s[i&4095])
	}
}

func BenchmarkSummary(b *testing.B) {
	h := &Hist{}
	for _, v := range samples() {
		h.Record(v)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = h.Summary()
	}
}
