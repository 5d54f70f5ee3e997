package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// erlangSample is n gaps of a Poisson process of rate 1, each the sum of shape exponentials.
func erlangSample(draw *rand.Rand, n, shape int, scale float64) []float64 {
	gaps := make([]float64, n)
	for i := range gaps {
		for range shape {
			gaps[i] += draw.ExpFloat64() * scale
		}
	}
	return gaps
}

func TestAndersonDarlingTable(t *testing.T) {
	// Upper tail points of A2 with all parameters known: Stephens 1974, table 1A case 0, from simulation. They are right to 4 % of p:
	// 3.857 is in truth p = 0.01024, as the exact distribution below says.
	for _, c := range []struct{ a2, p float64 }{
		{1.248, 0.25}, {1.610, 0.15}, {1.933, 0.10}, {2.492, 0.05}, {3.070, 0.025}, {3.857, 0.01}, {4.500, 0.005}, {6.000, 0.001},
	} {
		if p := andersonDarlingP(1_000_000, c.a2); math.Abs(p-c.p) > 0.04*c.p {
			t.Errorf("A2 = %v: p = %v, published %v", c.a2, p, c.p)
		}
	}
	for _, a2 := range []float64{0.3, 0.5, 0.8, 1.248, 1.610, 1.933, 2, 2.492, 3.070, 3.857, 4.5, 6, 8} {
		if p, want := andersonDarlingP(1_000_000_000, a2), imhof(a2); math.Abs(p-want) > 2e-5 {
			t.Errorf("A2 = %v: p = %v, exact %v", a2, p, want)
		}
	}
	if p := andersonDarlingP(100, 0); p != 1 {
		t.Errorf("A2 = 0: p = %v, want 1", p)
	}
	last := 1.0
	for z := 0.01; z < 100; z += 0.01 {
		p := andersonDarlingP(1_000_000, z)
		if p > last+1e-5 || p < 0 || math.IsNaN(p) {
			t.Fatalf("A2 = %v: p = %v rises from %v", z, p, last)
		}
		last = p
	}
}

// imhof is the exact probability of an A2 above x with endless samples: A2 is then the sum of Z_j^2/(j(j+1)) over independent normal Z_j
// (Anderson & Darling 1952), whose tail Imhof, Biometrika 48, 1961, eq. 3.2 gives as an integral. Terms beyond the 150th stand in with
// their mean.
func imhof(x float64) float64 {
	const terms, steps = 150, 6000
	x -= 1.0 / (terms + 1)
	low, high := math.Log(1e-8), math.Log(400.0)
	h, sum := (high-low)/steps, 0.0
	for i := range steps + 1 { // Simpson over ln u
		u := math.Exp(low + float64(i)*h)
		theta, rho := -0.5*x*u, 0.0
		for j := 1.0; j <= terms; j++ {
			l := u / (j * (j + 1))
			theta += 0.5 * math.Atan(l)
			rho += 0.25 * math.Log1p(l*l)
		}
		weight := 2.0 + 2*float64(i%2)
		if i == 0 || i == steps {
			weight = 1
		}
		sum += weight * math.Sin(theta) / math.Exp(rho)
	}
	return 0.5 + sum*h/3/math.Pi
}

func TestErlangKnown(t *testing.T) {
	// By hand: 1-e^-x, 1-e^-x(1+x), 1-e^-x(1+x+x^2/2), and tails whose complement alone would round to 0 or 1.
	for _, c := range []struct {
		x     float64
		shape int
		below float64
		above float64
	}{
		{math.Ln2, 1, 0.5, 0.5},
		{1, 2, 1 - 2/math.E, 2 / math.E},
		{2, 3, 1 - 5*math.Exp(-2), 5 * math.Exp(-2)},
		{1e-20, 1, 1e-20, 1},
		{1e-10, 2, 0.5e-20, 1},
		{100, 1, 1, math.Exp(-100)},
		{100, 2, 1, 101 * math.Exp(-100)},
		{-1, 3, 0, 1}, {0, 1, 0, 1}, {math.Inf(1), 4, 1, 0},
	} {
		got := erlang(c.x, c.shape)
		if math.Abs(got.below-c.below) > 1e-9*c.below || math.Abs(got.above-c.above) > 1e-9*c.above {
			t.Errorf("erlang(%v, %d) = %v, want %v %v", c.x, c.shape, got, c.below, c.above)
		}
	}
	// The branches meet, also where e^-x alone would be 0.
	for _, shape := range []int{1, 2, 7, 64, 2000} {
		k := float64(shape)
		l, h := erlang(math.Nextafter(k, 0), shape), erlang(k, shape)
		if math.Abs(l.below-h.below) > 1e-9 || math.Abs(l.below-0.5) > 0.14 {
			t.Errorf("shape %d: %v below its mean, %v at it", shape, l, h)
		}
	}
}

func TestFitErlangByHand(t *testing.T) {
	// Gaps at the quantiles (i-1/2)/n have the least A2 there is; computed here from the definition, sums the other way round.
	const n = 60
	gaps := make([]float64, n)
	want := -float64(n)
	for i := range gaps {
		gaps[i] = -math.Log1p(-(float64(i)+0.5)/n) * 5
	}
	for i := 1; i <= n; i++ {
		u := (float64(i) - 0.5) / n
		want -= (float64(2*i-1)*math.Log(u) + float64(2*(n-i)+1)*math.Log(1-u)) / n
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { gaps[i], gaps[j] = gaps[j], gaps[i] })
	before := slices.Clone(gaps)
	fit, ok := FitErlang(gaps, 1, 0.2)
	if !ok || math.Abs(fit.Statistic-want) > 1e-9 || fit.P < 0.999 || fit.Samples != n {
		t.Errorf("fit = %+v %v, want A2 %v and P near 1", fit, ok, want)
	}
	if !slices.Equal(gaps, before) {
		t.Error("the gaps were changed")
	}
}

func TestFitErlangPower(t *testing.T) {
	draw := rand.New(rand.NewPCG(11, 3))
	constant := slices.Repeat([]float64{1}, 200)
	if fit, ok := FitErlang(constant, 1, 1); !ok || fit.P > 1e-4 {
		t.Errorf("constant gaps: %+v", fit)
	}
	jittered := make([]float64, 200)
	for i := range jittered {
		jittered[i] = 1000 + float64(draw.IntN(3)) // ns of a clock: ties, and a step of 1
	}
	if fit, _ := FitErlang(jittered, 1, 0.001); fit.P > 1e-4 {
		t.Errorf("constant gaps of a jittered clock: %+v", fit)
	}
	trains := erlangSample(draw, 400, 1, 1)
	for i := range trains {
		if i%4 != 0 {
			trains[i] = 0
		}
	}
	if fit, _ := FitErlang(trains, 1, 4); fit.P > 1e-4 {
		t.Errorf("trains of four: %+v", fit)
	}
	if fit, _ := FitErlang(erlangSample(draw, 1000, 2, 0.5), 1, 1); fit.P > 1e-4 {
		t.Errorf("Erlang gaps against an exponential: %+v", fit)
	}
	if fit, _ := FitErlang([]float64{49: -5}, 1, 1); fit.P > 1e-4 || math.IsInf(fit.Statistic, 0) || math.IsNaN(fit.Statistic) {
		t.Errorf("gaps that cannot be: %+v", fit)
	}
	// A rate that is 3 % wrong shifts F by at most 0.03/e = 0.011; with 30,000 gaps the standard error of F is 0.003.
	found, alarms := 0, 0
	const runs = 40
	for range runs {
		gaps := erlangSample(draw, 30_000, 1, 1)
		if fit, _ := FitErlang(gaps, 1, 1.03); fit.P < 0.01 {
			found++
		}
		if fit, _ := FitErlang(gaps, 1, 1); fit.P < 0.01 {
			alarms++
		}
	}
	if found < 38 || alarms > 3 {
		t.Errorf("of %d samples: a rate 3 %% wrong found in %d, the true rate refused in %d", runs, found, alarms)
	}
}

func TestFitErlangRefuses(t *testing.T) {
	good := make([]float64, 50)
	for _, c := range []struct {
		name  string
		gaps  []float64
		shape int
		rate  float64
	}{
		{"49 gaps", good[:49], 1, 1}, {"shape 0", good, 0, 1}, {"rate 0", good, 1, 0}, {"rate not a number", good, 1, math.NaN()},
		{"endless rate", good, 1, math.Inf(1)}, {"a gap that is no number", []float64{49: math.NaN()}, 1, 1},
	} {
		if _, ok := FitErlang(c.gaps, c.shape, c.rate); ok {
			t.Errorf("%s: a fit", c.name)
		}
	}
}
