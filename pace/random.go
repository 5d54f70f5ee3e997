package pace

import (
	"math"
	"math/bits"
)

// random is the generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
type random struct{ state uint64 }

const golden = 0x9e3779b97f4a7c15

// mix is the output function of SplitMix64, a bijection that scatters every bit (Stafford's variant 13).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) next() uint64 {
	r.state += golden
	return mix(r.state)
}

// uniform returns a number in (0, 1), a multiple of 2^-53 plus half of it.
func (r *random) uniform() float64 { return (float64(r.next()>>11) + 0.5) * 0x1p-53 }

// coins is the count up to which half tosses real coins.
const coins = 1024

// half returns a binomial variate: heads among n fair coins.
//
// Large counts use BTRS, transformed rejection with squeeze (W. Hörmann, "The generation of binomial random variates", J. Statist. Comput.
// Simul. 46, 1993), whose constants for probability 1/2 are below; logarithms of ratios are taken as log1p of differences, which
// keeps them exact to 1e-8 at 2^50 coins.
func (r *random) half(n uint64) uint64 {
	if n <= coins {
		var heads int
		for ; n >= 64; n -= 64 {
			heads += bits.OnesCount64(r.next())
		}
		if n > 0 {
			heads += bits.OnesCount64(r.next() >> (64 - n))
		}
		return uint64(heads)
	}
	count := float64(n)
	dev := math.Sqrt(count) / 2
	b := 1.15 + 2.53*dev
	a := -0.0873 + 0.0248*b + 0.01*0.5
	c := count/2 + 0.5
	alpha := (2.83 + 5.1/b) * dev
	squeeze := 0.92 - 4.2/b
	m := math.Floor((count + 1) / 2)
	for {
		u, v := r.uniform()-0.5, r.uniform()
		us := 0.5 - math.Abs(u)
		k := math.Floor((2*a/us+b)*u + c)
		if us >= 0.07 && v <= squeeze {
			return uint64(k)
		}
		if k < 0 || k > count {
			continue
		}
		bound := (m+0.5)*math.Log1p((2*m-count)/(count-m+1)) +
			(count+1)*math.Log1p((k-m)/(count-k+1)) +
			(k+0.5)*math.Log1p((count-2*k)/(k+1)) +
			stirling(m) + stirling(count-m) - stirling(k) - stirling(count-k)
		if math.Log(v*alpha/(a/(us*us)+b)) <= bound {
			return uint64(k)
		}
	}
}

// poisson returns a Poisson variate. Small means multiply uniforms until the product falls below exp(-mean); large ones use PTRS,
// transformed rejection with squeeze (W. Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance:
// Mathematics and Economics 12, 1993).
func (r *random) poisson(mean float64) uint64 {
	if mean < 10 {
		var k uint64
		for limit, product := math.Exp(-mean), r.uniform(); product > limit; k++ {
			product *= r.uniform()
		}
		return k
	}
	b := 0.931 + 2.53*math.Sqrt(mean)
	a := -0.059 + 0.02483*b
	invAlpha := 1.1239 + 1.1328/(b-3.4)
	squeeze := 0.9277 - 3.6224/(b-2)
	for {
		u, v := r.uniform()-0.5, r.uniform()
		us := 0.5 - math.Abs(u)
		k := math.Floor((2*a/us+b)*u + mean + 0.43)
		if us >= 0.07 && v <= squeeze {
			return uint64(k)
		}
		if k < 0 || (us < 0.013 && v > us) {
			continue
		}
		// log of the probability of k: k log(mean) - mean - log(k!), by Stirling for k! = (k+1)! / (k+1).
		logP := (k+0.5)*math.Log1p((mean-k-1)/(k+1)) + (k + 1 - mean) - 0.5*math.Log(2*math.Pi*mean) - stirling(k)
		if math.Log(v*invAlpha/(a/(us*us)+b)) <= logP {
			return uint64(k)
		}
	}
}

// stirling returns log(k!) - ((k+1/2) log(k+1) - (k+1) + log(2 pi)/2), the tail of Stirling's series, to 1e-9 for every whole k >= 0.
func stirling(k float64) float64 {
	if k < 10 {
		f, _ := math.Lgamma(k + 1)
		return f - ((k+0.5)*math.Log(k+1) - (k + 1) + 0.5*math.Log(2*math.Pi))
	}
	q := 1 / ((k + 1) * (k + 1))
	return (1.0/12 - (1.0/360-q/1260)*q) / (k + 1)
}
