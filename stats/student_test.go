package stats

import (
	"math"
	"testing"
)

func TestStudentPoints(t *testing.T) {
	// Abramowitz & Stegun, table 26.10, and closed forms: df 1 is Cauchy, 0.5 - atan(t)/pi; df 2 is 0.5 - t/(2 sqrt(2+t^2)).
	for _, c := range []struct{ above, df, t float64 }{
		{0.025, 1, 12.706}, {0.025, 2, 4.303}, {0.025, 4, 2.776}, {0.025, 10, 2.228}, {0.025, 31, 2.040}, {0.005, 20, 2.845}, {0.05, 120, 1.658},
		{0.025, 1e7, normal975},
	} {
		if got := studentPoint(c.above, c.df); math.Abs(got-c.t) > 0.0006 {
			t.Errorf("t of %v above with %v degrees: %v, want %v", c.above, c.df, got, c.t)
		}
	}
	for _, x := range []float64{0, 0.1, 1, 3, 50, 1e6} {
		for df, want := range map[float64]float64{1: 0.5 - math.Atan(x)/math.Pi, 2: 0.5 - x/(2*math.Sqrt(2+x*x))} {
			if got := studentAbove(x, df); math.Abs(got-want) > 1e-12 {
				t.Errorf("above %v with %v degrees: %v, want %v", x, df, got, want)
			}
		}
	}
	if got := studentAbove(math.Inf(1), 3); got != 0 {
		t.Errorf("above endless: %v", got)
	}
	// Degrees that are not whole lie between their neighbours.
	if a, b, c := studentPoint(0.025, 5), studentPoint(0.025, 5.5), studentPoint(0.025, 6); !(a > b && b > c) {
		t.Errorf("points %v %v %v do not fall", a, b, c)
	}
}
