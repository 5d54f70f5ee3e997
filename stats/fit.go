package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fitFewest is the least number of gaps that a fit says something about.
const fitFewest = 50

// FitErlang tests gaps against the Erlang distribution of a shape (1 is the exponential; k is what every k-th packet of a Poisson
// plan leaves) and a rate per unit of the gaps: the Anderson-Darling test with both parameters known, which weighs the tails that
// Kolmogorov-Smirnov hardly sees. P is Marsaglia & Marsaglia, "Evaluating the Anderson-Darling Distribution", J. Stat. Software 9(2), 2004,
// with their correction for a finite number; below 1e-5 it only says that it is that small. Against is left to the caller, who knows the unit.
//
// A clock that counts in steps makes ties, which the test would take for a fault of the plan. Where gaps are equal, the step is taken to be
// the smallest difference between unequal ones, and each gap stands for a value from its own step, drawn by the distribution itself with
// a fixed seed: under the plan P stays exactly as uniform as without ties, and the same gaps have the same P. Gaps that are all equal keep
// their value. The gaps are independent of one another in the test; gaps are not changed. It reports false with fewer than 50 gaps, gaps
// that are no numbers, or a distribution that is none.
func FitErlang(gaps []float64, shape int, rate float64) (FitTest, bool) {
	if len(gaps) < fitFewest || shape < 1 || !(rate > 0) || math.IsInf(rate, 1) {
		return FitTest{}, false
	}
	for _, g := range gaps {
		if math.IsNaN(g) {
			return FitTest{}, false
		}
	}
	sorted := slices.Sorted(slices.Values(gaps))
	probs := erlangProbs(sorted, shape, rate)
	a2 := andersonDarling(probs)
	return FitTest{Name: "anderson-darling", Samples: uint64(len(gaps)), Statistic: a2, P: andersonDarlingP(len(gaps), a2)}, true
}

// prob is a probability and its complement, both to full precision: one of them is lost in the other's tail.
type prob struct{ below, above float64 }

// erlangProbs is the probability of each sorted gap, in rising order.
func erlangProbs(sorted []float64, shape int, rate float64) []prob {
	probs := make([]prob, len(sorted))
	step := clockStep(sorted)
	if step == 0 {
		for i, g := range sorted {
			probs[i] = erlang(g*rate, shape)
		}
		return probs
	}
	draw := rand.New(rand.NewPCG(uint64(len(sorted)), uint64(shape)))
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && sorted[to] == sorted[from] {
			to++
		}
		low, high := erlang((sorted[from]-step/2)*rate, shape), erlang((sorted[from]+step/2)*rate, shape)
		for i := from; i < to; i++ {
			u := draw.Float64()
			probs[i] = prob{low.below + u*(high.below-low.below), low.above - u*(low.above-high.above)}
		}
		from = to
	}
	// Within a step the draws are in no order, and where a step holds nothing the neighbours touch.
	slices.SortFunc(probs, func(a, b prob) int {
		switch {
		case a.below < b.below || a.below == b.below && a.above > b.above:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return probs
}

// clockStep is the smallest difference between unequal values of sorted; 0 without ties, or where all are equal.
func clockStep(sorted []float64) float64 {
	ties, step := false, math.Inf(1)
	for i := 1; i < len(sorted); i++ {
		if d := sorted[i] - sorted[i-1]; d == 0 {
			ties = true
		} else {
			step = min(step, d)
		}
	}
	if !ties || math.IsInf(step, 1) {
		return 0
	}
	return step
}

// erlang is the probability of a value at most x of the Erlang distribution of rate 1: 1 - e^-x (1 + x + ... + x^(k-1)/(k-1)!). Each
// half of the Poisson sum is taken where it is the smaller one, from its largest term on.
func erlang(x float64, shape int) prob {
	if !(x > 0) {
		return prob{0, 1}
	}
	if math.IsInf(x, 1) {
		return prob{1, 0}
	}
	k := float64(shape)
	lgamma, _ := math.Lgamma(k)
	if x < k {
		term := math.Exp(-x + k*math.Log(x) - lgamma - math.Log(k)) // of i = k
		below := 0.0
		for i := k; term > below*1e-17; {
			below += term
			i++
			term *= x / i
		}
		return prob{below, 1 - below}
	}
	term := math.Exp(-x + (k-1)*math.Log(x) - lgamma) // of i = k-1
	above := 0.0
	for i := k - 1; i >= 0 && term > above*1e-17; i-- {
		above += term
		term *= i / x
	}
	return prob{1 - above, above}
}

// andersonDarling is A2 = -n - 1/n sum (2i-1) (ln F(x_i) + ln(1 - F(x_(n+1-i)))). A value that the distribution cannot have counts as one
// of the least probability that a float64 holds, so that the statistic stays a number.
func andersonDarling(probs []prob) float64 {
	const least = 0x1p-1022
	n, sum, carry := len(probs), 0.0, 0.0
	for i, p := range probs {
		term := float64(2*i+1) * (math.Log(max(p.below, least)) + math.Log(max(probs[n-1-i].above, least)))
		y := term - carry // Kahan: the sum is near -n^2, of which n is taken off
		t := sum + y
		sum, carry = t, (t-sum)-y
	}
	return -float64(n) - sum/float64(n)
}

// andersonDarlingP is the probability of an A2 of at least z with n samples, both parameters known: adinf and errfix of Marsaglia &
// Marsaglia 2004, in the complement so that small values keep their digits.
func andersonDarlingP(n int, z float64) float64 {
	if !(z > 0) {
		return 1
	}
	var below, above float64
	if z < 2 {
		below = math.Exp(-1.2337141/z) / math.Sqrt(z) *
			(2.00012 + (.247105-(.0649821-(.0347962-(.011672-.00168691*z)*z)*z)*z)*z)
		above = 1 - below
	} else {
		above = -math.Expm1(-math.Exp(1.0776 - (2.30695-(.43424-(.082433-(.008056-.0003146*z)*z)*z)*z)*z))
		below = 1 - above
	}
	return min(max(above-finiteFix(float64(n), below), 0), 1)
}

// finiteFix is errfix: what n samples add to the distribution x of infinitely many.
func finiteFix(n, x float64) float64 {
	if x > .8 {
		return (-130.2137 + (745.2337-(1705.091-(1950.646-(1116.360-255.7844*x)*x)*x)*x)*x) / n
	}
	c := .01265 + .1757/n
	if x < c {
		v := x / c
		v = math.Sqrt(v) * (1 - v) * (49*v - 102)
		return v * (.0037/(n*n) + .00078/n + .00006) / n
	}
	v := (x - c) / (.8 - c)
	v = -.00022633 + (6.54034-(14.6538-(14.458-(8.259-1.91864*v)*v)*v)*v)*v
	return v * (.04213 + .01365/n) / n
}
