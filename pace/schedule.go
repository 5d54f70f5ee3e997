package pace

import (
	"fmt"
	"math"
	"time"
)

// Schedule is the planned send time of every slot, fixed before the run. Implementations are immutable and may be shared by
// any number of goroutines.
type Schedule interface {
	// At returns the planned offset of slot i from the start of the run. It is monotonic and meaningful for i < Slots().
	At(i uint64) time.Duration
	// Due returns how many slots have At(i) <= elapsed: Due(At(i)) >= i+1, and 0 for a negative elapsed.
	Due(elapsed time.Duration) uint64
	// Slots returns how many slots the plan has.
	Slots() uint64
	// Length returns the configured duration of the plan; every slot has At(i) < Length().
	Length() time.Duration
	// MeanPPS returns Slots divided by Length, in packets per second.
	MeanPPS() float64
	// String returns the canonical text of the profile, for the report.
	String() string
}

// Unpaced is the schedule that is none: every slot is due at once and the run ends by its length alone. An engine recognises it
// by its type.
type Unpaced struct {
	length time.Duration
}

// Max returns the schedule of a run that sends as fast as the kernel accepts for total.
func Max(total time.Duration) (Unpaced, error) {
	if err := checkLength(total); err != nil {
		return Unpaced{}, fmt.Errorf("max: %w", err)
	}
	return Unpaced{length: total}, nil
}

// At returns 0: every slot is due at the start.
func (Unpaced) At(uint64) time.Duration { return 0 }

// Due returns math.MaxUint64, or 0 before the start.
func (Unpaced) Due(elapsed time.Duration) uint64 {
	if elapsed < 0 {
		return 0
	}
	return math.MaxUint64
}

// Slots returns math.MaxUint64: there is always another slot.
func (Unpaced) Slots() uint64 { return math.MaxUint64 }

// Length returns how long the run may last.
func (u Unpaced) Length() time.Duration { return u.length }

// MeanPPS returns 0: nothing was planned that a mean could describe, and a report must print the word max instead.
func (Unpaced) MeanPPS() float64 { return 0 }

// String returns "max".
func (Unpaced) String() string { return "max" }

// maxTerm bounds every number a plan multiplies (lengths and periods in ns, packets per period), so that the widest product, that
// of a ramp, fits 192 bits.
const maxTerm = 1 << 62

func checkLength(total time.Duration) error {
	if total <= 0 || total > maxTerm {
		return fmt.Errorf("length %v: want more than 0 and at most %v", total, time.Duration(maxTerm))
	}
	return nil
}

func meanPPS(slots uint64, length time.Duration) float64 {
	return float64(slots) * 1e9 / float64(length)
}

var _ Schedule = Unpaced{}
