package ladder_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"blast/ladder"
	"blast/stats"
)

func TestKnees(t *testing.T) {
	for _, c := range []struct {
		name    string
		why     string
		target  simulated
		config  func(*ladder.Config)
		because string
		pps     float64
		says    string
	}{
		{name: "queue", why: "a queueing target answers at its capacity, however much it is asked", target: simulated{capacity: 3200},
			because: stats.OutcomeSaturated, pps: 3200, says: "target saturated at 3.20 kpps"},
		{name: "drops", why: "a target that drops shows loss instead of a queue", target: simulated{capacity: 3200, drops: true},
			because: stats.OutcomeSaturated, pps: 3200, says: "lost"},
		{name: "collapse", why: "where throughput falls under overload the highest rate that held is the limit", target: simulated{capacity: 20000, collapse: 0.8},
			because: stats.OutcomeSaturated, pps: 20000},
		{name: "below the first rate", why: "--from above what the target can do: the search goes down", target: simulated{capacity: 137},
			because: stats.OutcomeSaturated, pps: 137},
		{name: "far below", why: "many halvings below the first rate", target: simulated{capacity: 60, step: time.Minute},
			config: func(c *ladder.Config) { c.From, c.Floor = 20000, 1 }, because: stats.OutcomeSaturated, pps: 60},
		{name: "lossy", why: "a path that loses 3 % at any rate is not a limit", target: simulated{capacity: 50000, lossy: 0.03},
			because: stats.OutcomeSaturated, pps: 50000, says: "target saturated"},
		{name: "very lossy", why: "not even when it loses most", target: simulated{lossy: 0.6, full: 30000}, because: stats.OutcomeVoid, pps: 30000},
		{name: "lossy, and an objective below", why: "what is lost anyway hides an objective that breaks between the first two rates", target: simulated{lossy: 0.05, capacity: 2000, base: 1e6, slo: 1.6e6},
			because: stats.OutcomeSLO, pps: 750},
		{name: "lossy, and an objective far below", why: "or one that both of them miss", target: simulated{lossy: 0.05, capacity: 2000, base: 1e6, slo: 1.2e6}, because: stats.OutcomeSLO, pps: 333},
		{name: "generator", why: "the target has no limit, the generator does", target: simulated{full: 170e3}, because: stats.OutcomeVoid, pps: 170e3, says: "generator full at"},
		{name: "ceiling", why: "a calibrated ceiling is where to look first", target: simulated{full: 200e3, ceiling: 168e3}, because: stats.OutcomeVoid, pps: 168e3},
		{name: "target behind the wall", why: "the first rate that gives is the generator's, and the target gives before it", target: simulated{capacity: 100e3, full: 120e3},
			because: stats.OutcomeSaturated, pps: 100e3},
		{name: "slo", why: "base/(1-load) reaches 4 x base at three quarters of the capacity", target: simulated{capacity: 40000, base: 1e6, slo: 4e6},
			because: stats.OutcomeSLO, pps: 30000, says: "SLO broken at"},
		{name: "slo in stages", why: "+1k as stride", target: simulated{capacity: 40000, base: 1e6, slo: 4e6},
			config: func(c *ladder.Config) { c.Factor, c.Add = 0, 1000 }, because: stats.OutcomeSLO, pps: 30000},
		{name: "top", why: "--to reached", target: simulated{capacity: 1e6}, config: func(c *ladder.Config) { c.To = 5000 }, because: stats.KneeTop, pps: 5000,
			says: "nothing gave up to 5.00 kpps"},
		{name: "small stride", why: "a climb that ends because it is long is not at its top", target: simulated{}, config: func(c *ladder.Config) { c.Factor, c.Add = 0, 1000 },
			because: stats.KneeTop, pps: 64000, says: "nothing gave up to 64.0 kpps, after 64 rates, the most that a climb has"},
		{name: "one rate", why: "--from is --to", target: simulated{}, config: func(c *ladder.Config) { c.To = 1000 }, because: stats.KneeTop, pps: 1000},
		{name: "oneway", why: "nothing comes back: only the generator can be found", target: simulated{oneway: true, full: 10e3, capacity: 1}, because: stats.OutcomeVoid, pps: 10e3},
		{name: "silent", why: "nothing comes back though it should", target: simulated{lossy: 1}, because: stats.KneeNone, says: "no reply came"},
		{name: "slo never", why: "an objective that not even the lowest rate meets", target: simulated{base: 5e6, slo: 4e6}, because: stats.KneeNone, says: "an SLO was missed"},
		{name: "weak generator", why: "a generator that is full below the first rate", target: simulated{full: 300}, because: stats.OutcomeVoid, pps: 300},
		{name: "always disturbed", why: "stalls prove no limit of anything", target: simulated{disturbed: 1}, because: stats.KneeNone, says: "generator disturbed at 1.00 kpps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.target
			l := climb(t, &s, c.config)
			if l.Knee.Because != c.because {
				t.Fatalf("%s: because %q, want %q: %s", c.why, l.Knee.Because, c.because, l.Knee.Detail)
			}
			if c.pps > 0 {
				within(t, c.why+": knee", l.Knee.PPS, c.pps, 0.03)
			}
			if !strings.Contains(l.Knee.Detail, c.says) {
				t.Errorf("%s: %q does not say %q", c.why, l.Knee.Detail, c.says)
			}
			found := c.because == stats.OutcomeSaturated || c.because == stats.OutcomeSLO || c.because == stats.KneeTop || c.name == "slo never"
			if l.Verdict.Valid != found {
				t.Errorf("valid is %v", l.Verdict.Valid)
			}
		})
	}
}

// TestNoise: voids and stalls that come and go do not move the knee.
func TestNoise(t *testing.T) {
	for seed := range uint64(40) {
		s := simulated{capacity: 3200, disturbed: 0.2, stalled: 0.3, random: rand.New(rand.NewPCG(seed, 1))}
		l := climb(t, &s, nil)
		if l.Knee.Because != stats.OutcomeSaturated {
			t.Errorf("seed %d: %s", seed, l.Knee.Detail)
			continue
		}
		within(t, "knee", l.Knee.PPS, 3200, 0.03)
	}
}

// TestCliff: a target that is fine up to a rate and dead beyond it.
func TestCliff(t *testing.T) {
	s := simulated{capacity: 12345, collapse: 1000}
	l := climb(t, &s, nil)
	within(t, "knee", l.Knee.PPS, 12345, 0.03)
	if l.Knee.Because != stats.OutcomeSaturated || !hasWarning(l, ladder.WarnCollapse) {
		t.Errorf("%+v, warnings %v", l.Knee, l.Verdict.Warnings)
	}
}

// TestNonMonotonic: a target that fails at some rates below others that it holds. The climb meets the first that fails, and the bracket
// is one of a rate that held and one that did not.
func TestNonMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		good := rapid.SliceOfN(rapid.Bool(), 40, 40).Draw(t, "good")
		cfg := ladder.Config{From: 100, Factor: 1.7, To: 1e5, Floor: 10}
		cfg.Run = func(ctx context.Context, pps float64) (*stats.Result, error) {
			s := simulated{}
			if !good[int(math.Log2(pps)*3)%40] {
				s.capacity = pps / 2
			}
			return s.run(ctx, pps)
		}
		l, err := ladder.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, cfg, l)
	})
}

// TestAnyTarget: whatever target, generator and noise, the number of steps is bounded, the climb rises, and the knee lies in its bracket.
func TestAnyTarget(t *testing.T) {
	rate := func(name string) *rapid.Generator[float64] {
		return rapid.Map(rapid.Float64Range(0, 7), func(x float64) float64 { return math.Pow(10, x) })
	}
	rapid.Check(t, func(t *rapid.T) {
		s := simulated{
			capacity: rate("capacity").Draw(t, "capacity"), full: rate("full").Draw(t, "full"), drops: rapid.Bool().Draw(t, "drops"),
			collapse: rapid.SampledFrom([]float64{0, 0, 0.5, 2}).Draw(t, "collapse"), lossy: rapid.SampledFrom([]float64{0, 0, 0.01, 0.05, 0.5}).Draw(t, "lossy"),
			disturbed: rapid.Float64Range(0, 0.6).Draw(t, "disturbed"), stalled: rapid.Float64Range(0, 0.6).Draw(t, "stalled"),
			base: 1e6, slo: rapid.SampledFrom([]float64{0, 1.1e6, 5e6}).Draw(t, "slo"), ceiling: rapid.SampledFrom([]float64{0, 0, 5000}).Draw(t, "ceiling"),
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)),
		}
		cfg := ladder.Config{Run: s.run, From: rate("from").Draw(t, "from"), Ceiling: s.ceiling, Resolution: rapid.Float64Range(0.005, 0.5).Draw(t, "resolution")}
		cfg.Floor = rapid.Float64Range(0.001, cfg.From).Draw(t, "floor")
		if rapid.Bool().Draw(t, "times") {
			cfg.Factor = rapid.Float64Range(1.05, 10).Draw(t, "factor")
		} else {
			cfg.Add = cfg.From * rapid.Float64Range(0.2, 5).Draw(t, "add")
		}
		if rapid.Bool().Draw(t, "bounded") {
			cfg.To = min(cfg.From*rapid.Float64Range(1, 8).Draw(t, "to"), ladder.MaxRate)
		}
		if cfg.Check() != nil {
			return // not a ladder
		}
		l, err := ladder.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, cfg, l)
		for _, pps := range s.asked {
			if pps < cfg.Floor*(1-1e-9) {
				t.Errorf("asked for %g, below the floor of %g", pps, cfg.Floor)
			}
		}
	})
}

func hasWarning(l *stats.Ladder, code string) bool {
	return slices.ContainsFunc(l.Verdict.Warnings, func(w stats.Reason) bool { return w.Code == code })
}

func TestCheck(t *testing.T) {
	s := simulated{}
	for _, c := range []struct {
		why    string
		config ladder.Config
		says   string
	}{
		{"goes nowhere", ladder.Config{From: 1000, Factor: 1}, "--by x1: would never end"},
		{"goes down", ladder.Config{From: 1000, Factor: 0.5}, "--by x0.5: goes down"},
		{"no stride", ladder.Config{From: 1000}, "--by: want one of"},
		{"two strides", ladder.Config{From: 1000, Factor: 2, Add: 5}, "--by: want one of"},
		{"ends before it begins", ladder.Config{From: 1000, To: 500, Factor: 2}, "--to 500 pps: lies below --from 1.00 kpps"},
		{"too many steps", ladder.Config{From: 1000, To: 1e6, Add: 1000}, "would take"},
		{"no first rate", ladder.Config{Factor: 2}, "--from 0 pps"},
		{"beyond any plan", ladder.Config{From: 1e9, Factor: 2}, "at most 100 Mpps"},
		{"not a number", ladder.Config{From: math.NaN(), Factor: 2}, "--from"},
		{"too fine", ladder.Config{From: 1000, Factor: 2, Resolution: 1e-9}, "--resolution"},
	} {
		c.config.Run = s.run
		if _, err := ladder.Run(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.why, err, c.says)
		}
	}
}

// TestInterruptedEarly: before a rate is settled nothing is known, and it says so.
func TestInterruptedEarly(t *testing.T) {
	for steps, says := range []string{"no step was finished", "not one rate was settled"} {
		ctx, cancel := context.WithCancel(t.Context())
		s := simulated{full: 300} // one void step settles nothing
		l, err := ladder.Run(ctx, ladder.Config{From: 1000, Factor: 2, Run: func(ctx context.Context, pps float64) (*stats.Result, error) {
			if len(s.asked) == steps {
				cancel()
			}
			return s.run(ctx, pps)
		}})
		if err != nil || l.Interrupted != "interrupt" || len(l.Steps) != steps || l.Knee.Because != stats.KneeNone || l.Verdict.Valid || !strings.Contains(l.Knee.Detail, says) {
			t.Errorf("%v: %+v, want %q", err, l.Knee, says)
		}
	}
}

// TestInterrupted: what was found until then stays, marked, and a half step decides nothing.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := simulated{}
	l, err := ladder.Run(ctx, ladder.Config{From: 1000, Factor: 2, Run: func(ctx context.Context, pps float64) (*stats.Result, error) {
		if pps > 3000 {
			cancel()
		}
		return s.run(ctx, pps)
	}})
	if err != nil || l.Interrupted != "interrupt" || len(l.Steps) != 2 || l.Knee.HeldPPS != 2000 || l.Verdict.Valid {
		t.Errorf("%v: %+v", err, l)
	}
}

// TestStepEndedEarly: a step that ended early by itself, as with --catch-up abort, is not decided on either.
func TestStepEndedEarly(t *testing.T) {
	s := simulated{}
	l, err := ladder.Run(t.Context(), ladder.Config{From: 1000, Factor: 2, Run: func(ctx context.Context, pps float64) (*stats.Result, error) {
		r, err := s.run(ctx, pps)
		if pps > 3000 {
			r.Interrupted = "aborted"
		}
		return r, err
	}})
	if err == nil || !strings.Contains(err.Error(), "step 3 at 4.00 kpps: aborted") || len(l.Steps) != 2 || l.Knee.HeldPPS != 2000 || l.Verdict.Valid {
		t.Errorf("%v: %+v", err, l.Knee)
	}
}

// TestUnconfirmed: a target that dies of a step leaves its knee behind, said to rest on one step.
func TestUnconfirmed(t *testing.T) {
	s := simulated{capacity: 3000}
	over := false
	l, err := ladder.Run(t.Context(), ladder.Config{From: 1000, Factor: 2, Run: func(ctx context.Context, pps float64) (*stats.Result, error) {
		over = over || pps > 3000
		return s.run(ctx, pps)
	}, Settle: func(context.Context) error {
		if over {
			return errors.New("silent")
		}
		return nil
	}})
	if err == nil || l.Knee.Because != stats.OutcomeSaturated || l.Knee.HeldPPS != 2000 || l.Knee.BreaksPPS != 4000 || l.Verdict.Valid || l.Verdict.Reasons[0].Code != ladder.CodeUnconfirmed {
		t.Errorf("%v: %+v, warnings %v", err, l.Knee, l.Verdict.Warnings)
	}
	within(t, "knee", l.Knee.PPS, 3000, 0.03)
}

// TestErrors: a step that fails, or a target that does not become idle, ends the ladder with what there is.
func TestErrors(t *testing.T) {
	gone := errors.New("gone")
	s := simulated{}
	n := 0
	for name, cfg := range map[string]ladder.Config{
		"step": {From: 1000, Factor: 2, Run: func(ctx context.Context, pps float64) (*stats.Result, error) {
			if pps > 3000 {
				return nil, gone
			}
			return s.run(ctx, pps)
		}},
		"settle": {From: 1000, Factor: 2, Run: s.run, Settle: func(context.Context) error {
			if n++; n > 2 {
				return gone
			}
			return nil
		}},
	} {
		l, err := ladder.Run(t.Context(), cfg)
		if !errors.Is(err, gone) || len(l.Steps) != 2 || l.Interrupted == "" || !strings.Contains(err.Error(), "kpps") {
			t.Errorf("%s: %v: %+v", name, err, l)
		}
	}
}
