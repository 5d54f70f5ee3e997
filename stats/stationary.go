package stats

import (
	"fmt"
	"math"
	"strings"
)

const (
	// stationaryBatches is the least number of batches that two halves can be told apart by.
	stationaryBatches = 10
	// stationaryLevel is the probability at which a run that did not change is said to have changed, in each of the three tests.
	stationaryLevel = 0.01 / 3
	// stationaryBody and stationaryTail are the changes of mean and p50, and of p99, that matter: long runs show ever smaller ones for certain.
	stationaryBody, stationaryTail = 0.05, 0.10
)

// Stationary compares the first half of the batches with the second: mean, p50 and p99. Two things must hold for a change: batches
// scatter too little to explain it (Welch's t, with 1 % of false alarms for all three), and it is large enough to matter: 5 % of mean or
// p50, or 10 % of the p99. For quantiles the test is of the share of samples above the whole run's (or about it, where many share that value):
// a share is bounded, so that a second half that is wild as well as slow does not hide behind its own scatter, as it may in the mean.
// It is nil with fewer than 10 batches.
func (b *Batches) Stationary(of string) *Stationary {
	n := len(b.list)
	first, second := b.list[:n/2], b.list[n-n/2:]
	if min(holding(first), holding(second)) < stationaryBatches/2 {
		return nil
	}
	s := &Stationary{Of: of, First: halfOf(first), Second: halfOf(second)}
	whole := together(b.list)
	above := func(q float64) func(*batch) float64 {
		bucket := whole.bucketNear(q)
		return func(x *batch) float64 { return float64(x.count - x.atMost(bucket)) }
	}
	var changes, changed []string
	compare := func(name string, from, to, least float64, part func(*batch) float64) (hidden float64) {
		p, hidden := welch(clustersOf(first, part), clustersOf(second, part))
		share := change(from, to)
		changes = append(changes, name+" "+changeText(share))
		if p < stationaryLevel && math.Abs(share) >= least {
			changed = append(changed, name)
		}
		return hidden
	}
	hidden := compare("mean", s.First.MeanNS, s.Second.MeanNS, stationaryBody, sumOf)
	compare("p50", float64(s.First.P50NS), float64(s.Second.P50NS), stationaryBody, above(0.5))
	compare("p99", float64(s.First.P99NS), float64(s.Second.P99NS), stationaryTail, above(0.99))
	if s.First.MeanNS > 0 {
		s.Hides = hidden / s.First.MeanNS
	}
	s.Holds = len(changed) == 0
	says := fmt.Sprintf("no change that matters beyond the scatter within the halves, which hides up to %.1f %% of the mean", 100*s.Hides)
	if !s.Holds {
		says = strings.Join(changed, " and ") + " changed by more than the scatter within the halves explains"
	}
	s.Detail = fmt.Sprintf("%s from the first half to the second: %s: %s", of, strings.Join(changes, ", "), says)
	return s
}

// change is b / a - 1; 0 where a is 0.
func change(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return b/a - 1
}

// changeText writes a change: "+3.4 %", "12.6 times".
func changeText(share float64) string {
	if share >= 9 {
		return fmt.Sprintf("%.3g times", 1+share)
	}
	return fmt.Sprintf("%+.1f %%", 100*share)
}

func sumOf(x *batch) float64 { return x.sum }

// holding counts the batches with samples.
func holding(list []batch) int {
	n := 0
	for i := range list {
		if list[i].count > 0 {
			n++
		}
	}
	return n
}

// clustersOf are the batches with samples, each with its part of something.
func clustersOf(list []batch, part func(*batch) float64) []cluster {
	var out []cluster
	for i := range list {
		if x := &list[i]; x.count > 0 {
			out = append(out, cluster{part(x), float64(x.count)})
		}
	}
	return out
}

// welch is the probability p of a difference between the ratios of a and b as large as theirs when the true ones are equal: Welch's t with
// the degrees of freedom of Welch and Satterthwaite (Biometrika 34, 1947), on batches made independent first. hidden is the difference
// at which p is stationaryLevel.
func welch(a, b []cluster) (p, hidden float64) {
	a, b = independent(a), independent(b)
	m, v := ratio(a)
	n, w := ratio(b)
	switch {
	case v+w == 0 && m == n:
		return 1, 0
	case v+w == 0:
		return 0, 0
	}
	df := (v + w) * (v + w) / (v*v/float64(len(a)-1) + w*w/float64(len(b)-1))
	se := math.Sqrt(v + w)
	return 2 * studentAbove(math.Abs(n-m)/se, df), studentPoint(stationaryLevel/2, df) * se
}

// halfOf is what a Result says of one half.
func halfOf(list []batch) Half {
	h := together(list)
	n := h.Count()
	mean := 0.0
	for i := range list {
		mean += list[i].sum / float64(max(n, 1))
	}
	return Half{Samples: n, MeanNS: mean, P50NS: h.Quantile(0.5), P99NS: h.Quantile(0.99)}
}

// together is the histogram of all batches; its extremes and sum are only those of its buckets.
func together(list []batch) *Hist {
	h := &Hist{}
	for i := range list {
		for next := unpack(list[i].packed); ; {
			bucket, n := next()
			if n == 0 {
				break
			}
			h.RecordN(BucketLow(bucket), n)
		}
	}
	if h.hi > 0 {
		h.max = BucketLow(h.hi) - 1
	}
	return h
}
