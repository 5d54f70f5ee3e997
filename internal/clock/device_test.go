package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakePHC is a device's clock: ahead at CLOCK_MONOTONIC 0, and faster by skew.
type fakePHC struct {
	ahead int64
	skew  float64
}

func (f *fakePHC) at(mono int64) int64 { return f.ahead + mono + int64(float64(mono)*f.skew) }

// Whatever the lead, the rate and the brackets of the readings, a stamp converts to the time it was made within the stated bound, and the
// bound stays within a few brackets.
func TestDeviceConverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		phc := fakePHC{rapid.Int64Range(-1<<60, 1<<60).Draw(t, "ahead"), rapid.Float64Range(-1e-4, 1e-4).Draw(t, "skew")}
		bracket := rapid.Int64Range(2, 20_000).Draw(t, "bracket")
		var d Device
		now, worst := rapid.Int64Range(0, 1<<50).Draw(t, "now"), int64(0)
		if d.Monotonic(phc.at(now)) != 0 {
			t.Fatal("converts before it knows anything")
		}
		for i := range 20 {
			off := rapid.Int64Range(-bracket/2, bracket/2).Draw(t, "off")
			wait := int64(d.Add(Reading{Device: phc.at(now), At: now + off, Error: bracket / 2}))
			if wait < deviceFirst-bracket || wait > deviceEvery {
				t.Fatalf("reading %d: the next after %d ns", i, wait)
			}
			for k := range 4 {
				at := now + wait*int64(k)/4
				if i > 0 {
					worst = max(worst, abs(d.Monotonic(phc.at(at))-at))
				}
			}
			now += wait
		}
		const rounding = 16
		if worst > d.Error()+rounding || d.Error() > 5*bracket+rounding {
			t.Fatalf("off by %d ns, %d stated, brackets of %d", worst, d.Error(), bracket)
		}
	})
}

// A clock that somebody sets is followed from the next reading on, by the rate known before, and the stated bound tells of it for ever.
func TestDeviceSet(t *testing.T) {
	phc := fakePHC{37 * int64(time.Second), 4e-5}
	var d Device
	now := int64(time.Second)
	for range 10 {
		now += int64(d.Add(Reading{phc.at(now), now, 500}))
	}
	if d.Error() > 2600 {
		t.Errorf("error %d ns before anything has happened", d.Error())
	}
	phc.ahead -= int64(time.Hour)
	for range 3 {
		wait := int64(d.Add(Reading{phc.at(now), now, 500}))
		if at := now + wait; abs(d.Monotonic(phc.at(at))-at) > 2600 {
			t.Errorf("off by %d ns after the clock was set", abs(d.Monotonic(phc.at(at))-at))
		}
		now += wait
	}
	if d.Error() < int64(time.Hour)-int64(time.Second) {
		t.Errorf("error %d ns: want the hour by which stamps before the first reading after it were off", d.Error())
	}
}

// Of several brackets the narrowest counts, and those that the setting of the clock turned round do not.
func TestTightest(t *testing.T) {
	at := func(ns int64) unix.PtpClockTime { return unix.PtpClockTime{Sec: ns / 1e9, Nsec: uint32(ns % 1e9)} }
	const base = 5_000_000_000
	r, err := tightest([][3]unix.PtpClockTime{
		{at(base), at(100), at(base + 9000)},
		{at(base + 10_000), at(10_100), at(base + 11_001)},
		{at(base + 20_000), at(20_100), at(base + 19_999)},
		{at(base + 30_000), at(30_100), at(base + 32_000)},
	})
	if want := (Reading{10_100, base + 10_500, 501}); r != want || err != nil {
		t.Errorf("%+v, %v: want %+v", r, err, want)
	}
	if _, err := tightest([][3]unix.PtpClockTime{{at(base), at(1), at(base - 1)}}); err == nil {
		t.Error("a reading out of a bracket that ends before it begins")
	}
}

// A conversion costs no memory: it is made for every stamp.
func TestDeviceAllocs(t *testing.T) {
	var d Device
	d.Add(Reading{0, 0, 1})
	d.Add(Reading{1e9, 1e9, 1})
	if n := testing.AllocsPerRun(100, func() { d.Monotonic(3e9) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
