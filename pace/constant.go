package pace

import (
	"fmt"
	"time"
)

// Constant plans rate for total: At(i) = ceil(i Per / Packets).
func Constant(rate Rate, total time.Duration) (*Plan, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("const: %w", err)
	}
	rate, err := rate.finite()
	if err != nil {
		return nil, fmt.Errorf("const: %w", err)
	}
	return newPlan([]piece{{per: uint64(rate.Per), num: rate.Packets, each: 1}}, total, "const")
}

// Burst plans n packets at once every gap, the first burst at 0, for total.
func Burst(n uint64, gap, total time.Duration) (*Plan, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("burst: %w", err)
	}
	if n == 0 || n > maxEach {
		return nil, fmt.Errorf("burst: %d packets: want 1 to %d", n, uint64(maxEach))
	}
	if err := checkLength(gap); err != nil {
		return nil, fmt.Errorf("burst: gap: %w", err)
	}
	return newPlan([]piece{{per: uint64(gap), num: 1, each: n}}, total, fmt.Sprintf("burst:%d@%v", n, gap))
}

// Tick plans every one of sessions once per tick, all at the instant of the tick, for total: slot i is session i mod sessions, and
// hz is ticks per period (Rate.Packets counts ticks here).
func Tick(hz Rate, sessions int, total time.Duration) (*Plan, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("tick: %w", err)
	}
	hz, err := hz.finite()
	if err != nil {
		return nil, fmt.Errorf("tick: %w", err)
	}
	if sessions < 1 || sessions > maxEach {
		return nil, fmt.Errorf("tick: %d sessions: want 1 to %d", sessions, uint64(maxEach))
	}
	return newPlan([]piece{{per: uint64(hz.Per), num: hz.Packets, each: uint64(sessions)}}, total, "tick:"+hz.String())
}

// maxEach bounds how many slots may share one instant.
const maxEach = 1<<31 - 1
