package pace

import (
	"testing"
	"time"
)

func TestSteady(t *testing.T) {
	want := map[string]bool{"const": true, "burst": true, "tick": true, "poisson": true}
	for name, s := range kinds(t) {
		if got := Steady(s); got != want[name] {
			t.Errorf("%s: steady %v", name, got)
		}
	}
	flat, err := Ramp(Rate{Packets: 5, Per: time.Second}, Rate{Packets: 5, Per: time.Second}, time.Second, time.Minute)
	if err != nil || !Steady(flat) {
		t.Errorf("a ramp from a rate to itself: steady %v, %v", Steady(flat), err)
	}
	if free, err := Max(time.Second); err != nil || Steady(free) {
		t.Errorf("without a plan: steady %v, %v", Steady(free), err)
	}
	if Steady(nil) {
		t.Error("no schedule is steady")
	}
}
