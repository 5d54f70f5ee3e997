package stats

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What a file holds must be the whole histogram: through JSON and back, every bit of it.
func TestSummaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &Hist{}
		for _, v := range rapid.SliceOfN(rapid.OneOf(value(), rapid.Just(int64(-1))), 0, 60).Draw(t, "values") {
			h.RecordN(v, rapid.Uint64Range(1, 1<<30).Draw(t, "n"))
		}
		b, err := json.Marshal(h.Summary())
		if err != nil {
			t.Fatal(err)
		}
		var s Histogram
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		back, err := s.Hist()
		if err != nil {
			t.Fatal(err)
		}
		if *back != *h {
			t.Fatalf("back: n %d min %d max %d sum %v, want n %d min %d max %d sum %v",
				back.Count(), back.min, back.max, back.Sum(), h.Count(), h.min, h.max, h.Sum())
		}
	})
}

// The base64 string must read as the same histogram in hdrhistogram-go, and HDR must be lossless.
func TestEncodeIsHdrHistogramV2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, ref := recorded(rapid.SliceOfN(value(), 0, 200).Draw(t, "values"))
		got, err := hdrhistogram.Decode([]byte(h.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equals(ref) || !h.HDR().Equals(ref) {
			t.Fatal("differs from hdrhistogram-go's own recording")
		}
	})
}

func TestZeroHistogramIsEmpty(t *testing.T) {
	h, err := new(Histogram).Hist()
	if err != nil || *h != (Hist{}) {
		t.Errorf("%v", err)
	}
}

func TestHistRefusesWhatDisagrees(t *testing.T) {
	h, _ := recorded([]int64{1000, 2000, 3000, 50e6})
	coarse := hdrhistogram.New(1, HistMax, 2)
	if err := coarse.RecordValue(1000); err != nil {
		t.Fatal(err)
	}
	coarseHDR, err := coarse.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why    string
		change func(*Histogram)
		want   string
	}{
		{"a count without buckets", func(s *Histogram) { s.HDR = "" }, "count 4 without buckets"},
		{"base64 cut short", func(s *Histogram) { s.HDR = s.HDR[:len(s.HDR)/2] }, "histogram: "},
		{"not base64", func(s *Histogram) { s.HDR = "!" }, "histogram: "},
		{"another precision", func(s *Histogram) { s.HDR = string(coarseHDR) }, "2 digits"},
		{"an edited percentile", func(s *Histogram) { s.P99 = 5 }, "not those of its buckets"},
		{"an edited count above", func(s *Histogram) { s.Over.Ms10 = 0 }, "not those of its buckets"},
		{"a maximum outside its bucket", func(s *Histogram) { s.Max = 60e6 }, "extremes"},
		{"a minimum outside its bucket", func(s *Histogram) { s.Min = 0 }, "extremes"},
		{"a sum that the buckets cannot have", func(s *Histogram) { s.Sum = "1" }, "sum 1 ns lies outside"},
		{"a sum that is no integer", func(s *Histogram) { s.Sum = "1e9" }, "not a count of ns"},
		{"a negative sum", func(s *Histogram) { s.Sum = "-1" }, "not a count of ns"},
		{"a sum past 128 bits", func(s *Histogram) { s.Sum = json.Number(new(big.Int).Lsh(big.NewInt(1), 128).String()) }, "not a count of ns"},
	} {
		s := h.Summary()
		c.change(&s)
		if _, err := s.Hist(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
}

// The in-kernel engine fills buckets itself; adding them must equal recording.
func TestAddBuckets(t *testing.T) {
	want, _ := recorded([]int64{100, 100, 5000, 7e6})
	want.Record(-1)
	counts := make([]uint64, BucketIndex(7e6)+1)
	for _, v := range []int64{100, 100, 5000, 7e6} {
		counts[BucketIndex(v)]++
	}
	got := &Hist{}
	if err := got.AddBuckets(Buckets{Counts: counts, Min: 100, Max: 7e6, SumLo: 7005200, Refused: 1}); err != nil {
		t.Fatal(err)
	}
	if *got != *want {
		t.Error("differs from recording")
	}
	before := *got
	for _, bad := range []Buckets{
		{Counts: make([]uint64, HistBuckets+1)},
		{Counts: counts, Min: 99, Max: 7e6, SumLo: 7005200},
		{Counts: counts, Min: 100, Max: 7e6, SumLo: 1},
	} {
		if err := got.AddBuckets(bad); err == nil {
			t.Error("impossible buckets were taken")
		}
	}
	if *got != before {
		t.Error("refused buckets left a trace")
	}
	if err := got.AddBuckets(Buckets{Refused: 2}); err != nil || got.Refused() != 3 {
		t.Errorf("empty buckets: %v, refused %d", err, got.Refused())
	}
}

// Percentiles never average: shard A p99 10 ms, shard B p99 100 ms; the merged p99 is that of all samples (measurement.md 3).
func TestMergedPercentileIsNoAverage(t *testing.T) {
	a, b := &Hist{}, &Hist{}
	a.RecordN(int64(time.Millisecond), 9890)
	a.RecordN(int64(10*time.Millisecond), 110)
	b.RecordN(int64(time.Millisecond), 980)
	b.RecordN(int64(100*time.Millisecond), 20)
	round := func(h *Hist) int64 { return h.Quantile(0.99) / int64(time.Millisecond) }
	if round(a) != 10 || round(b) != 100 {
		t.Fatalf("p99 of A %d ms, of B %d ms", round(a), round(b))
	}
	a.Add(b)
	if round(a) != 10 { // 11,000 samples: rank 10,890 lies among the 10 ms; the average would be 55 ms
		t.Errorf("merged p99 %d ms, want 10 ms", round(a))
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FormatNS(0), "0 ns"}, {FormatNS(812), "812 ns"}, {FormatNS(999), "999 ns"}, {FormatNS(1000), "1.00 us"}, {FormatNS(45123), "45.1 us"},
		{FormatNS(999499), "999 us"}, {FormatNS(999600), "1.00 ms"}, {FormatNS(1234567), "1.23 ms"}, {FormatNS(30e9), "30.0 s"}, {FormatNS(3600e9), "3600 s"},
		{FormatNS(-1500), "-1.50 us"}, {FormatDuration(5 * time.Millisecond), "5.00 ms"},
		{FormatNS(9996), "10.0 us"}, {FormatNS(99960), "100 us"},
		{FormatPPS(50000), "50.0 kpps"}, {FormatPPS(0.5), "0.50 pps"}, {FormatPPS(12.34), "12.3 pps"}, {FormatPPS(1.5e6), "1.50 Mpps"}, {FormatPPS(100), "100 pps"},
		{FormatBPS(1e10), "10.0 Gbit/s"}, {FormatBPS(0), "0 bit/s"},
		{FormatPercent(0.9998), "99.98 %"}, {FormatPercent(0.001), "0.10 %"}, {FormatPercent(0.00013), "0.013 %"}, {FormatPercent(0), "0.00 %"}, {FormatPercent(1e-7), "0.000010 %"},
		{FormatCount(0), "0"}, {FormatCount(999), "999"}, {FormatCount(1000), "1,000"}, {FormatCount(1500000), "1,500,000"}, {FormatCount(^uint64(0)), "18,446,744,073,709,551,615"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Error(diff)
		}
	}
}
