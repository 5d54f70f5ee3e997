package stats

import (
	"math"
	"strconv"
	"time"
)

// The Format functions write figures for people, the same way in verdicts and reports: three significant digits and a unit.
// Counts stay exact.

// FormatNS writes a time in ns: "812 ns", "45.1 us", "1.23 ms", "30.0 s".
func FormatNS(ns int64) string { return scaled(float64(ns), 1000, "ns", "us", "ms", "s") }

// FormatDuration is FormatNS for a time.Duration.
func FormatDuration(d time.Duration) string { return FormatNS(int64(d)) }

// FormatPPS writes a packet rate: "50.0 kpps".
func FormatPPS(pps float64) string { return scaled(pps, 1000, "pps", "kpps", "Mpps", "Gpps") }

// FormatBPS writes a bit rate: "1.23 Gbit/s".
func FormatBPS(bps float64) string {
	return scaled(bps, 1000, "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
}

// FormatPercent writes a share, 1 for all, with as many digits as small shares need: "99.98 %", "0.013 %".
func FormatPercent(share float64) string {
	p := share * 100
	places := 2
	if a := math.Abs(p); a > 0 && a < 0.1 {
		places = min(1-int(math.Floor(math.Log10(a))), 9)
	}
	return strconv.FormatFloat(p, 'f', places, 64) + " %"
}

// FormatCount writes a count with commas between thousands: "1,500,000".
func FormatCount(n uint64) string {
	s := strconv.FormatUint(n, 10)
	out := make([]byte, 0, len(s)+len(s)/3)
	for i := range len(s) {
		if i > 0 && (len(s)-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, s[i])
	}
	return string(out)
}

// scaled writes v with three significant digits in the unit that leaves one to three before the point. Values below the
// smallest unit's thousand that are whole are written whole.
func scaled(v, step float64, units ...string) string {
	i := 0
	for a := math.Abs(v); i < len(units)-1 && a >= step*(1-0.0005); i++ {
		a /= step
		v /= step
	}
	places := 0
	switch a := math.Abs(v); {
	case i == 0 && v == math.Trunc(v):
	case a < 9.995:
		places = 2
	case a < 99.95:
		places = 1
	}
	return strconv.FormatFloat(v, 'f', places, 64) + " " + units[i]
}
