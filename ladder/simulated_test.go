package ladder_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"blast/ladder"
	"blast/stats"
)

// simulated is a target and a generator made of formulas.
type simulated struct {
	// capacity of the target in packets a second; 0 = without limit. What is beyond waits in its queue, or is dropped when drops is set.
	capacity float64
	drops    bool
	// collapse is how much throughput a target loses for each packet a second beyond its capacity.
	collapse float64
	// lossy is the share of packets that get lost at any rate.
	lossy float64
	// full is the rate at which the generator is as busy as it may be; 0 = 1 Gpps.
	full float64
	// disturbed is the chance that a step is void by a stall, stalled that the target stalls for half a second.
	disturbed, stalled float64
	// ceiling is the calibrated ceiling, 0 = none.
	ceiling float64
	// slo is the objective's limit on the median latency, which rises as base/(1-load); 0 = none.
	slo, base float64
	oneway    bool
	step      time.Duration
	random    *rand.Rand
	asked     []float64
}

// tb is what the checks need of a test or a property.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

const sloText = "p50<limit"

// run is one step.
func (s *simulated) run(_ context.Context, pps float64) (*stats.Result, error) {
	s.asked = append(s.asked, pps)
	if s.step == 0 {
		s.step = 10 * time.Second
	}
	if s.random == nil {
		s.random = rand.New(rand.NewPCG(1, 2))
	}
	r := &stats.Result{}
	r.Config.Mode, r.Config.Paced, r.Config.MaxLagNS = stats.ModeEcho, true, 1e6
	if s.oneway {
		r.Config.Mode = stats.ModeOneway
	}
	r.Rate.TargetPPS, r.Rate.AchievedPPS = pps, pps
	s.generator(r, pps)
	s.target(r, pps)
	return r, nil
}

func (s *simulated) generator(r *stats.Result, pps float64) {
	full := s.full
	if full == 0 {
		full = 1e9
	}
	duty := 0.7 * pps / full
	r.Workers = []stats.Worker{{Duty: min(duty, 1)}}
	r.Lag.P999 = 50_000
	void := func(code, detail string) {
		r.Verdict.Reasons = append(r.Verdict.Reasons, stats.Reason{Code: code, Detail: detail})
	}
	if duty > 0.7 {
		void("duty", "busy")
	}
	if s.random.Float64() < s.disturbed {
		r.Lag.P999 = 20e6
		void("lag", "late")
	}
	if s.ceiling > 0 {
		r.Calibration = &stats.Calibration{CeilingPPS: s.ceiling}
		if pps > s.ceiling {
			void("ceiling", "above")
		}
	}
	r.Verdict.Valid = len(r.Verdict.Reasons) == 0
}

// target fills what came back: ten intervals, the queue's answers beyond the end in the last.
func (s *simulated) target(r *stats.Result, pps float64) {
	seconds := s.step.Seconds()
	done := pps * (1 - s.lossy)
	if s.capacity > 0 && done > s.capacity {
		done = max(s.capacity-s.collapse*(done-s.capacity), 0)
	}
	stall := -1
	if s.random.Float64() < s.stalled {
		stall = 1 + s.random.IntN(9)
	}
	held, sent, replied := 0.0, 0.0, 0.0
	for i := range 10 {
		per := seconds / 10
		n, back := math.Round(pps*per), math.Floor(done*per)
		if i == stall { // half of what was due now comes later
			held = math.Floor(back / 2)
			back -= held
		} else if held > 0 { // as quickly as the target can
			more := held
			if s.capacity > 0 {
				more = min(held, max(math.Floor(s.capacity*per)-back, 0))
			}
			back, held = back+more, held-more
		}
		if i == 9 && !s.drops {
			back += math.Floor(s.capacity) // the drain's
		}
		sent, replied = sent+n, replied+back
		r.Timeline = append(r.Timeline, stats.Second{T: float64(i+1) * per, Planned: uint64(n), Sent: uint64(n), Replied: uint64(back)})
	}
	r.Ledger.Sent = uint64(sent)
	r.Ledger.Replied = min(uint64(replied), r.Ledger.Sent)
	r.Ledger.Lost = r.Ledger.Sent - r.Ledger.Replied
	r.Rate.ElapsedNS = int64(s.step)
	r.Latency.Min, r.Latency.Max, r.Latency.Count = 1e5, 1e6, r.Ledger.Replied
	if s.slo > 0 {
		load := 0.0
		if s.capacity > 0 {
			load = min(pps/s.capacity, 1)
		}
		got := s.base / max(1-load, 1e-9)
		r.Verdict.SLOs = []stats.SLO{{Text: sloText, Met: got < s.slo, Detail: "as computed"}}
	}
}

// climb runs a ladder by x2 over s and checks what holds for every ladder.
func climb(t *testing.T, s *simulated, change func(*ladder.Config)) *stats.Ladder {
	t.Helper()
	cfg := ladder.Config{From: 1000, Factor: 2, Run: s.run, Ceiling: s.ceiling, Floor: 10}
	if change != nil {
		change(&cfg)
	}
	begun, ended := 0, 0
	cfg.Progress = func(p ladder.Progress) {
		if p.Step == nil {
			begun++
		} else if ended++; p.Step.AskedPPS != p.PPS || p.Step.Outcome == "" {
			t.Errorf("progress of %g: %+v", p.PPS, p.Step)
		}
		if p.N != begun || p.N > p.Most {
			t.Errorf("step %d of at most %d is the %dth that began", p.N, p.Most, begun)
		}
	}
	l, err := ladder.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if begun != len(l.Steps) || ended != begun {
		t.Errorf("%d steps, of which %d were told to begin and %d to end", len(l.Steps), begun, ended)
	}
	sound(t, cfg, l)
	return l
}

// sound checks what holds for every ladder, whatever the target and the noise.
func sound(t tb, cfg ladder.Config, l *stats.Ladder) {
	t.Helper()
	if most := cfg.MostSteps(); len(l.Steps) > most {
		t.Fatalf("%d steps, announced at most %d", len(l.Steps), most)
	}
	k := l.Knee
	if k.Because == "" || k.Detail == "" {
		t.Errorf("a ladder without a sentence: %+v", k)
	}
	if k.HeldPPS > 0 && k.BreaksPPS > 0 && (k.HeldPPS >= k.BreaksPPS || k.PPS < k.HeldPPS || k.PPS > k.BreaksPPS) {
		t.Errorf("knee %g outside of its bracket: %g held, %g broke", k.PPS, k.HeldPPS, k.BreaksPPS)
	}
	last, again := 0.0, 0.0
	for i := range l.Steps {
		s := &l.Steps[i]
		if s.Phase == ladder.PhaseClimb {
			if s.Try == 1 && s.AskedPPS <= last {
				t.Errorf("step %d climbs from %g to %g", i+1, last, s.AskedPPS)
			}
			last = s.AskedPPS
		}
		if s.Try > 1 && s.AskedPPS != again {
			t.Errorf("step %d repeats %g after %g", i+1, s.AskedPPS, again)
		}
		again = s.AskedPPS
		if (s.Outcome == stats.OutcomeVoid) == s.Result.Verdict.Valid {
			t.Errorf("step %d: valid %v, outcome %s", i+1, s.Result.Verdict.Valid, s.Outcome)
		}
	}
}

// within fails unless got lies so near to want, as a share.
func within(t tb, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got/want-1) > share {
		t.Errorf("%s is %g, want %g within %g", what, got, want, share)
	}
}
