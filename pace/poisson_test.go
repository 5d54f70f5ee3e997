package pace

import (
	"math"
	"sort"
	"testing"
	"time"
)

func poisson(t testing.TB, rate Rate, seed uint64, total time.Duration) *Process {
	t.Helper()
	p, err := Poisson(rate, seed, total)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gapsOf walks the plan and returns the gaps between slots, in units of the mean gap.
func gapsOf(p *Process, meanNS float64) []float64 {
	c := NewCursor(p, 0, 1, 1)
	var (
		gaps []float64
		last int64
	)
	for {
		_, _, at, ok := c.Next()
		if !ok {
			return gaps
		}
		gaps = append(gaps, float64(at-last)/meanNS)
		last = at
	}
}

// The gaps are exponential (Anderson-Darling, known parameters) and do not depend on the gap before. The seeds are fixed, so that the test cannot
// fail by chance; 3.857 is the 1 % point of the statistic (Stephens, JASA 69, 1974) and not one of 20 seeds may pass 6 (0.1 %).
func TestPoissonGaps(t *testing.T) {
	const mean = 1e6 // ns: whole nanoseconds are far below what the test can see
	above := 0
	for seed := range uint64(20) {
		gaps := gapsOf(poisson(t, Rate{Packets: 1000, Per: time.Second}, seed, 40*time.Second), mean)
		n := float64(len(gaps))
		var lag, mid float64
		for i, g := range gaps {
			mid += g / n
			if i > 0 {
				lag += (g - 1) * (gaps[i-1] - 1) / n
			}
		}
		if math.Abs(lag)*math.Sqrt(n) > 4 {
			t.Errorf("seed %d: successive gaps correlate: %.4f over %v gaps", seed, lag, n)
		}
		sort.Float64s(gaps)
		var sum float64
		for i, g := range gaps {
			low := -math.Expm1(-max(g, 1e-12))
			high := gaps[len(gaps)-1-i] // -log(1 - F(high))
			sum += (2*float64(i) + 1) * (math.Log(low) - high)
		}
		a2 := -n - sum/n
		if a2 > 6 {
			t.Errorf("seed %d: Anderson-Darling %.2f over %v gaps, mean %.4f", seed, a2, n, mid)
		}
		if a2 > 3.857 {
			above++
		}
	}
	if above > 2 {
		t.Errorf("%d of 20 seeds above the 1%% point", above)
	}
}

// The number of slots is Poisson: over 2000 seeds its mean and its variance are rate times length.
func TestPoissonCounts(t *testing.T) {
	for _, test := range []struct {
		why    string
		mean   float64
		length time.Duration
	}{
		{"a few, with an odd length", 3, 3 * time.Second},
		{"hundreds", 700, 700 * time.Second},
		{"many thousands, split by rejection", 50_000, 50_000 * time.Second},
		{"ten days at 100 M/s in one number", 8.64e13, 0},
	} {
		rate := Rate{Packets: 1, Per: time.Second}
		if test.length == 0 {
			rate, test.length = Rate{Packets: 1, Per: 10}, 240*time.Hour
		}
		const seeds = 2000
		var sum, squares float64
		for seed := range uint64(seeds) {
			d := float64(poisson(t, rate, seed, test.length).Slots()) - test.mean
			sum += d
			squares += d * d
		}
		dev := sum / seeds / math.Sqrt(test.mean/seeds)
		ratio := squares / seeds / test.mean
		if math.Abs(dev) > 4 || math.Abs(ratio-1) > 4*math.Sqrt((2+1/test.mean)/seeds) {
			t.Errorf("%s: mean off by %.2f deviations, variance/mean %.3f", test.why, dev, ratio)
		}
	}
}

// Counts in disjoint windows of one long plan vary as Poisson counts do, whatever the width of the window against the tree's.
func TestPoissonWindows(t *testing.T) {
	p := poisson(t, Rate{Packets: 1_000_000, Per: time.Second}, 7, time.Hour)
	for _, width := range []time.Duration{17 * time.Microsecond, 1024 * time.Microsecond, 100 * time.Millisecond} {
		const windows = 4000
		mean := width.Seconds() * 1e6
		var squares float64
		for i := range windows {
			at := time.Duration(i) * 800 * time.Millisecond
			n := float64(p.Due(at+width) - p.Due(at))
			squares += (n - mean) * (n - mean)
		}
		if ratio := squares / windows / mean; math.Abs(ratio-1) > 5*math.Sqrt((2+1/mean)/windows) {
			t.Errorf("windows of %v: variance/mean %.3f", width, ratio)
		}
	}
}

// The same seed gives the same plan, another seed another.
func TestPoissonSeed(t *testing.T) {
	rate := Rate{Packets: 1000, Per: time.Second}
	a, b, other := poisson(t, rate, 1, time.Minute), poisson(t, rate, 1, time.Minute), poisson(t, rate, 2, time.Minute)
	same := 0
	for i := range min(a.Slots(), other.Slots()) {
		if a.At(i) != b.At(i) {
			t.Fatalf("slot %d: %v and %v from one seed", i, a.At(i), b.At(i))
		}
		if a.At(i) == other.At(i) {
			same++
		}
	}
	if a.Slots() != b.Slots() || same > 10 {
		t.Errorf("%d and %d slots from one seed; %d equal times from two", a.Slots(), b.Slots(), same)
	}
	// What a seed means may not change unnoticed: a stored command line must give the same run.
	first, second, last := a.At(0), a.At(1), a.At(a.Slots()-1)
	if a.Slots() != 60_179 || first != 904_159 || second != 3_672_597 || last != 59_999_819_698 {
		t.Errorf("seed 1 now means %d slots at %d, %d ... %d", a.Slots(), first, second, last)
	}
}

// At, Due and cursors agree at any place of a plan far too long to be drawn, and at rates where many slots share a nanosecond.
func TestPoissonFarPlaces(t *testing.T) {
	for _, test := range []struct {
		rate   Rate
		length time.Duration
	}{
		{Rate{Packets: 100_000_000, Per: time.Second}, 240 * time.Hour},
		{Rate{Packets: 1, Per: 1}, time.Second},
		{Rate{Packets: 1, Per: time.Hour}, maxTerm},
	} {
		p := poisson(t, test.rate, 3, test.length)
		for _, place := range []uint64{0, p.Slots() / 7, p.Slots()/2 + 1, p.Slots() - 3001} {
			c := NewCursor(p, place, 3, 1)
			for range 1000 {
				slot, _, at, ok := c.Next()
				if want := int64(p.At(slot)); !ok || at != want {
					t.Fatalf("%v: slot %d at %d (%v), want %d", test.rate, slot, at, ok, want)
				}
				if p.Due(time.Duration(at)) <= slot || p.Due(time.Duration(at)-1) > slot {
					t.Fatalf("%v: Due around slot %d at %d: %d, %d", test.rate, slot, at, p.Due(time.Duration(at)-1), p.Due(time.Duration(at)))
				}
			}
		}
		if p.At(p.Slots()-1) >= p.Length() || p.Due(p.Length()) != p.Slots() {
			t.Errorf("%v: last slot at %v of %v", test.rate, p.At(p.Slots()-1), p.Length())
		}
	}
}

// half is binomial on both sides of where it changes its method: chi-square over the middle of the distribution.
func TestHalf(t *testing.T) {
	for _, n := range []uint64{1, 5, 63, 64, 65, 1000, coins, coins + 1, 5000, 1 << 20} {
		const draws = 200_000
		src := random{state: n}
		dev := math.Sqrt(float64(n)) / 2
		var cells [9]int // by deviations from the middle, half a deviation each
		for range draws {
			z := (float64(src.half(n)) - float64(n)/2) / dev
			cells[int(min(max(math.Floor(z*2)+4, 0), 8))]++
		}
		want := [9]float64{}
		for k := uint64(0); k <= n; k++ {
			z := (float64(k) - float64(n)/2) / dev
			want[int(min(max(math.Floor(z*2)+4, 0), 8))] += math.Exp(logBinomial(n, k)) * draws
		}
		var chi float64
		for i, w := range want {
			if w > 0 {
				chi += (float64(cells[i]) - w) * (float64(cells[i]) - w) / w
			}
		}
		if chi > 30 { // 8 degrees of freedom: 0.02 %
			t.Errorf("%d coins: chi-square %.1f, cells %v want %.0f", n, chi, cells, want)
		}
	}
}

func logBinomial(n, k uint64) float64 {
	a, _ := math.Lgamma(float64(n) + 1)
	b, _ := math.Lgamma(float64(k) + 1)
	c, _ := math.Lgamma(float64(n-k) + 1)
	return a - b - c - float64(n)*math.Ln2
}

func TestPoissonRefuses(t *testing.T) {
	for _, test := range []struct {
		why    string
		rate   Rate
		length time.Duration
	}{
		{"no rate", Rate{}, time.Second},
		{"max has no mean", MaxRate(), time.Second},
		{"no length", Rate{Packets: 1, Per: 1}, 0},
		{"more arrivals than a float64 counts", Rate{Packets: 1, Per: 1}, 1 << 51},
	} {
		if p, err := Poisson(test.rate, 0, test.length); err == nil || p != nil {
			t.Errorf("%s: got %v", test.why, p)
		}
	}
}
