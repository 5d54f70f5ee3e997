package lab

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"blast/backend"
	"blast/backend/backendtest"
)

// The closed forms give the figures of the design, and those of the article where its service took 6 ms.
func TestClosedForms(t *testing.T) {
	o := openStall{1000, 16, 5 * time.Millisecond, 2 * time.Second}
	if n := o.slow(slow); math.Abs(n-2776) > 1 {
		t.Errorf("open: %.1f slow, want 2776", n)
	}
	if p := o.quantile(0.99, 12_000); (p - 1926*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("open: p99 %v, want 1.926 s", p)
	}
	if m := o.max(); m != 2005*time.Millisecond {
		t.Errorf("open: max %v, want 2.005 s", m)
	}
	if n := (openStall{1000, 16, 6 * time.Millisecond, 2 * time.Second}).slow(slow); math.Abs(n-3055) > 2 {
		t.Errorf("open, 6 ms: %.1f slow, want 3055", n)
	}
	if n := blockingSlow(100, 5*time.Millisecond, 2*time.Second, slow); math.Abs(n-381) > 1 {
		t.Errorf("blocking: %.1f slow, want 381", n)
	}
}

// What needs no run passes anywhere, and at the first attempt.
func TestComputed(t *testing.T) {
	all, err := Run(t.Context(), Config{Open: (&backendtest.Fake{}).Open, Only: []string{"computed"}})
	if err != nil || len(all) != 1 || !all[0].OK() || all[0].Attempts != 1 || !all[0].Done {
		t.Fatalf("%v, %+v", err, all[0])
	}
}

// A check that is out of bounds fails its experiment, which is tried as often as allowed and no more; an unknown name is refused, and an
// experiment that cannot be run says why.
func TestFailuresShow(t *testing.T) {
	if _, err := Run(t.Context(), Config{Only: []string{"everything"}}); err == nil || !strings.Contains(err.Error(), "closed-20s") {
		t.Errorf("unknown experiment: %v", err)
	}
	broken := func(backend.Config) (backend.Sender, backend.Receiver, error) {
		return nil, nil, context.DeadlineExceeded
	}
	calls := 0
	all, err := Run(t.Context(), Config{Open: broken, Only: []string{"little"}, Attempts: 2, Progress: func(*Experiment) { calls++ }})
	if err != nil || all[0].OK() || all[0].Err == nil || all[0].Attempts != 2 || calls != 3 {
		t.Errorf("%v, %+v after %d calls: want two attempts and the reason", err, all[0], calls)
	}
	var b bench
	b.exactly("count", 9, 10)
	b.share("share", 1.1, 1, 0.05, "")
	b.near("time", int64(12*time.Millisecond), 10*time.Millisecond, time.Millisecond)
	b.share("nothing", math.NaN(), 1, 0.05, "")
	for _, c := range b.checks {
		if c.OK {
			t.Errorf("passed: %+v", c)
		}
	}
}
