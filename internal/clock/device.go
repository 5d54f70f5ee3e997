package clock

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// deviceEvery is how often a device's clock is compared with ours once the two are known well, ns.
	deviceEvery = int64(time.Second)
	// deviceFirst is the time between the first two readings. Each later one waits as long as all before it took together, up to
	// deviceEvery, so that no conversion looks much further ahead than it could look back.
	deviceFirst = int64(25 * time.Millisecond)
	// deviceMost is the number of readings kept.
	deviceMost = 16
	// deviceSkew is the largest difference in rate taken for one: beyond it somebody has set the device's clock. Crystals are within 1e-4.
	deviceSkew = 1e-3
)

// Reading says that a device's clock showed Device when CLOCK_MONOTONIC was At, to within Error; all in ns.
type Reading struct{ Device, At, Error int64 }

// Device converts ns of a network device's clock (PTP hardware clock, PHC) to ns of CLOCK_MONOTONIC: a straight line through two readings, the
// newest and one about as long ago as the next is ahead. One thread adds readings, any number convert. The zero value converts nothing until
// it has two.
type Device struct {
	readings []Reading // oldest first
	line     atomic.Pointer[line]
	worst    atomic.Int64
}

// line is mono = at + (dev - device) * (1 + skew).
type line struct {
	device, at int64
	skew       float64
}

func (l *line) monotonic(stamp int64) int64 {
	ahead := stamp - l.device
	return l.at + ahead + int64(math.Round(float64(ahead)*l.skew))
}

// Add takes a newer reading and returns how long after it the next one is due.
func (d *Device) Add(r Reading) time.Duration {
	if l := d.line.Load(); l != nil { // how wrong the line has become shows now
		d.raise(abs(l.monotonic(r.Device)-r.At) + r.Error)
	}
	if d.readings = append(d.readings, r); len(d.readings) > deviceMost {
		d.readings = append(d.readings[:0], d.readings[1:]...)
	}
	next := deviceFirst
	if span := r.At - d.readings[0].At; span > 0 {
		next = min(deviceEvery, span)
	}
	if len(d.readings) > 1 {
		d.draw(next)
	}
	return time.Duration(next)
}

// draw puts the line through the newest reading and the youngest of those that are at least next older, or the oldest.
func (d *Device) draw(next int64) {
	r, base := d.readings[len(d.readings)-1], d.readings[0]
	for _, older := range d.readings[:len(d.readings)-1] {
		if r.At-older.At >= next {
			base = older
		}
	}
	l := &line{device: r.Device, at: r.At}
	span := r.Device - base.Device
	if span > 0 {
		l.skew = float64(r.At-base.At-span) / float64(span)
	}
	if span <= 0 || math.Abs(l.skew) > deviceSkew { // set: what was before tells nothing
		d.readings = append(d.readings[:0], r)
		if l.skew = 0; d.line.Load() != nil {
			l.skew = d.line.Load().skew
		}
	} else {
		d.raise(r.Error + (r.Error+base.Error)*next/max(r.At-base.At, 1))
	}
	d.line.Store(l)
}

func (d *Device) raise(bound int64) {
	if bound > d.worst.Load() {
		d.worst.Store(bound)
	}
}

// Monotonic converts a time of the device's clock; 0, which is none, stays 0, and everything is before there are two readings.
func (d *Device) Monotonic(stamp int64) int64 {
	l := d.line.Load()
	if l == nil || stamp == 0 {
		return 0
	}
	return l.monotonic(stamp)
}

// Error is the largest bound of a conversion's error so far, ns: that of the newest reading, and of the rate over the time until the next, or what
// the next one then showed.
func (d *Device) Error() int64 { return d.worst.Load() }

func abs(v int64) int64 { return max(v, -v) }
