package stats

import "math"

// normal975 is the 97.5 % point of the normal distribution.
const normal975 = 1.959963984540054

// studentAbove is the probability of a Student's t with df degrees of freedom, which need not be whole, above t >= 0: half the regularised
// incomplete beta function of df/(df+t^2) at df/2 and 1/2 (Abramowitz & Stegun 26.7.1).
func studentAbove(t, df float64) float64 {
	if math.IsInf(t, 1) {
		return 0
	}
	return incompleteBeta(df/(df+t*t), df/2, 0.5) / 2
}

// studentPoint is the t that is exceeded with probability above < 1/2.
func studentPoint(above, df float64) float64 {
	low, high := 0.0, 1.0
	for studentAbove(high, df) > above {
		high *= 2
	}
	for range 100 {
		if mid := (low + high) / 2; studentAbove(mid, df) > above {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// incompleteBeta is I_x(a, b) by its continued fraction (Abramowitz & Stegun 26.5.8), evaluated by Lentz's method.
func incompleteBeta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // the fraction converges fast below this only
		return 1 - incompleteBeta(1-x, b, a)
	}
	const tiny = 1e-300
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	f := d
	for m := 1.0; m < 10_000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d, c = 1/away(1+even*d), away(1+even/c)
		f *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d, c = 1/away(1+odd*d), away(1+odd/c)
		f *= d * c
		if math.Abs(d*c-1) < 1e-15 {
			break
		}
	}
	return front * f
}
