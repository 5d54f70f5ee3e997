package report

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// axis is one axis of a figure. Its label names the unit, or each of its ticks has one.
type axis struct {
	label     string
	low, high float64
	log       bool
	// marks are the ticks for an axis that has room for about room labels.
	marks func(low, high float64, room int) []plot.Tick
}

// plainAxis is linear from 0, for values whose unit is in the label.
func plainAxis(label string, high float64) axis {
	if !(high > 0) {
		high = 1
	}
	return axis{label: label, high: high, marks: linearTicks(plainTick)}
}

// rateAxis is linear from 0 in packets a second.
func rateAxis(label string, high float64) axis {
	a := plainAxis(label, high)
	a.marks = linearTicks(siTick)
	return a
}

// timeAxis is logarithmic in ns; each tick has its unit. low and high are widened to at least a factor of 4, and low is at least 1 ns.
func timeAxis(label string, low, high float64) axis {
	low, high = max(low, 1), max(high, 1)
	low, high = low/1.1, high*1.1
	if high < 4*low {
		middle := math.Sqrt(low * high)
		low, high = middle/2, middle*2
	}
	return axis{label: label, low: low, high: high, log: true, marks: logTicks}
}

// nineAxis shows the share of samples below a value as 1/(1-share), so that each further nine takes as much room as the one before.
func nineAxis(label string, high float64) axis {
	return axis{label: label, low: 1, high: max(high, 10), log: true, marks: nineTicks}
}

// elapsed is an axis of seconds since the start, in the unit that suits its length, and what to divide seconds by.
func elapsed(length float64) (axis, float64) {
	unit, by := "s", 1.0
	switch {
	case length > 5*3600:
		unit, by = "h", 3600
	case length > 300:
		unit, by = "min", 60
	}
	return plainAxis("time since the start of the measured part, "+unit, length/by), by
}

// linearTicks are multiples of 1, 2 or 5 times a power of ten.
func linearTicks(write func(v, step float64) string) func(low, high float64, room int) []plot.Tick {
	return func(low, high float64, room int) []plot.Tick {
		step := niceStep((high - low) / float64(max(room, 2)))
		var ticks []plot.Tick
		for k := math.Ceil(low/step-1e-9) + 0; k*step <= high*(1+1e-9); k++ {
			ticks = append(ticks, plot.Tick{Value: k * step, Label: write(k*step, step)}) // + 0: no minus zero
		}
		return ticks
	}
}

// niceStep is the smallest of 1, 2, 5 times a power of ten that is not below least.
func niceStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func plainTick(v, step float64) string {
	return strconv.FormatFloat(v, 'f', max(0, -int(math.Floor(math.Log10(step)+1e-9))), 64)
}

// siTick writes thousands as k and millions as M.
func siTick(v, step float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{" G", 1e9}, {" M", 1e6}, {" k", 1e3}} {
		if v >= u.size {
			return plainTick(v/u.size, min(step/u.size, 1)) + u.name
		}
	}
	return plainTick(v, step)
}

// timeTick writes a time in ns as short as it can be: "50 us", "1.5 ms".
func timeTick(ns float64) string {
	units := []string{"ns", "us", "ms", "s"}
	i := 0
	for ; i < len(units)-1 && ns >= 1000*(1-1e-9); i++ {
		ns /= 1000
	}
	return strconv.FormatFloat(ns, 'g', 4, 64) + " " + units[i]
}

// logTicks labels powers of ten, every further one where they are too many, or 1, 2, 5 times them where they are few. The other
// multiples are ticks without a label.
func logTicks(low, high float64, room int) []plot.Tick {
	decades := math.Log10(high / low)
	every := max(1, int(math.Ceil(decades/float64(max(room, 1)))))
	labelled := []int{1}
	switch {
	case decades*3 <= float64(room) && decades > 0.8:
		labelled = []int{1, 2, 5}
	case decades*5 <= float64(room):
		labelled = []int{1, 2, 3, 5, 7}
	case decades*2 <= float64(room) || decades < 1.4:
		labelled = []int{1, 3}
	}
	var ticks []plot.Tick
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow(10, float64(e))
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			for _, l := range labelled {
				if l == m && e%every == 0 {
					t.Label = timeTick(v)
				}
			}
			if t.Label != "" || every == 1 {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// nineTicks labels 0, 50 and then each further nine, every further one where they are too many.
func nineTicks(_, high float64, room int) []plot.Tick {
	nines := int(math.Floor(math.Log10(high) + 1e-9))
	every := max(1, int(math.Ceil(0.6*float64(nines+1)/float64(max(room, 2))))) // most of them are shorter than other labels
	ticks := []plot.Tick{{Value: 1, Label: "0"}}
	if every == 1 {
		ticks = append(ticks, plot.Tick{Value: 2, Label: "50"})
	}
	for k := 1; k <= nines; k++ {
		t := plot.Tick{Value: math.Pow(10, float64(k))}
		if k%every == 0 || every == 1 {
			t.Label = nineLabel(k)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// nineLabel is 90, 99, 99.9, 99.99 ...
func nineLabel(nines int) string {
	s := strings.Repeat("9", max(nines, 2))
	if nines == 1 {
		return "90"
	}
	if nines == 2 {
		return s
	}
	return s[:2] + "." + s[2:]
}
