package calib

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"blast/stats"
	"blast/verdict"
)

// TestSearchFindsCeiling: where a packet costs c ns, the ceiling is dutyLimit/c; the search may be some percent below and never above.
func TestSearchFindsCeiling(t *testing.T) {
	for _, cost := range []float64{100, 138, 680, 2250, 3300, 50_000, 3e6} {
		m := newMachine(cost)
		f, err := m.search(6 * time.Second).run()
		if err != nil {
			t.Errorf("%g ns a packet: %v", cost, err)
			continue
		}
		want := dutyLimit * 1e9 / cost
		if got := float64(f.ceiling); got > want || got < 0.90*want {
			t.Errorf("%g ns a packet: ceiling %g pps, want at most %g and at least 90 %% of it", cost, got, want)
		}
		if f.wall == nil || float64(f.wall.target) < float64(f.ceiling) || float64(f.wall.target) > 1.2*float64(f.ceiling) {
			t.Errorf("%g ns a packet: the wall is %+v, want an INVALID trial just above %d pps", cost, f.wall, f.ceiling)
		}
		if code, _ := wall(f.wall); code != verdict.CodeDuty {
			t.Errorf("%g ns a packet: wall %q, want duty", cost, code)
		}
		if len(f.rounds) != defaultRounds {
			t.Errorf("%g ns a packet: %d rounds, want %d", cost, len(f.rounds), defaultRounds)
		}
	}
}

// TestSearchOtherWall: a ceiling that no duty points to is found by halving.
func TestSearchOtherWall(t *testing.T) {
	m := newMachine(1000)
	m.cap = 123_000
	f, err := m.search(10 * time.Second).run()
	if err != nil {
		t.Fatal(err)
	}
	if f.ceiling > m.cap || float64(f.ceiling) < 0.85*float64(m.cap) {
		t.Errorf("ceiling %d pps, want 85 to 100 %% of %d", f.ceiling, m.cap)
	}
	if code, words := wall(f.wall); code != verdict.CodeLag || !strings.HasPrefix(words, "lag p99.9 3.00 ms: ") {
		t.Errorf("wall %q %q, want lag p99.9 3.00 ms", code, words)
	}
}

// TestSearchNoise: on a machine whose speed differs by 10 % from trial to trial the ceiling is one that mostly passes, and 90 % of it
// always does.
func TestSearchNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(float64(rapid.IntRange(100, 100_000).Draw(t, "cost")))
		m.noise = 0.1
		for range rapid.IntRange(0, 1000).Draw(t, "seed") {
			m.rand.Uint64()
		}
		f, err := m.search(6 * time.Second).run()
		if err != nil {
			t.Fatal(err)
		}
		best := dutyLimit * 1e9 / m.cost
		if got := float64(f.ceiling); got > best*1.08 || got < best*0.75 {
			t.Errorf("ceiling %g pps of %g", got, best)
		}
		if f.wall != nil && f.wall.target <= f.ceiling {
			t.Errorf("the wall at %d pps is not above the ceiling of %d", f.wall.target, f.ceiling)
		}
		good := 0
		for _, o := range f.rounds {
			if o.valid {
				good++
			}
		}
		if 2*good <= len(f.rounds) {
			t.Errorf("%d of %d rounds VALID", good, len(f.rounds))
		}
	})
}

// TestSearchBadLuck: one trial in six that is interrupted from outside is tried again and does not lower the ceiling by much.
func TestSearchBadLuck(t *testing.T) {
	for phase := range 6 {
		m := newMachine(2250)
		m.unlucky = func(trial int) bool { return trial%6 == phase }
		f, err := m.search(8 * time.Second).run()
		if err != nil {
			t.Errorf("phase %d: %v", phase, err)
			continue
		}
		if want := dutyLimit * 1e9 / m.cost; float64(f.ceiling) < 0.75*want || float64(f.ceiling) > want {
			t.Errorf("phase %d: ceiling %d pps, want 75 to 100 %% of %.0f", phase, f.ceiling, want)
		}
	}
}

// TestSearchHopeless: where no rate is VALID there is no ceiling, and the error says what stopped the lowest.
func TestSearchHopeless(t *testing.T) {
	m := newMachine(2250)
	m.unlucky = func(int) bool { return true }
	_, err := m.search(6 * time.Second).run()
	if err == nil || !strings.Contains(err.Error(), "ended VALID: lag p99.9 3.00 ms") {
		t.Errorf("error %v, want that no rate ended VALID for its lag", err)
	}
	m.fail = errors.New("device gone")
	if _, err := m.search(6 * time.Second).run(); !errors.Is(err, m.fail) {
		t.Errorf("error %v, want the trial's", err)
	}
}

// TestSearchStepsDown: a rate that passed once and never again is left for a lower one.
func TestSearchStepsDown(t *testing.T) {
	m := newMachine(1000)
	slow := func(pps uint64, length time.Duration) (outcome, error) {
		if length > trialLength(20*time.Second) {
			m.cost = 1300 // longer trials are dearer: the search was too hopeful
		}
		return m.trial(pps, length)
	}
	s := m.search(20 * time.Second)
	s.trial = slow
	f, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	if want := dutyLimit * 1e9 / 1300; float64(f.ceiling) > want || float64(f.ceiling) < 0.85*want {
		t.Errorf("ceiling %d pps, want 85 to 100 %% of %.0f", f.ceiling, want)
	}
	if f.wall == nil || f.wall.target <= f.ceiling {
		t.Errorf("wall %+v, want one above the ceiling of %d", f.wall, f.ceiling)
	}
}

// TestSearchTime: a search ends within its share, but for the trial in hand and the sets of rounds that are always tried.
func TestSearchTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(float64(rapid.IntRange(100, 100_000).Draw(t, "cost")))
		m.noise = 0.3
		m.overhead = time.Duration(rapid.IntRange(5, 150).Draw(t, "overhead")) * time.Millisecond
		share := time.Duration(rapid.IntRange(600, 10_000).Draw(t, "share")) * time.Millisecond
		s := m.search(share)
		begun := m.t
		s.run() // whether it finds something is not the question
		round := s.roundLength() + m.overhead
		if took := m.t.Sub(begun); took > share+time.Duration(leastSets*s.rounds)*round+s.length+m.overhead {
			t.Errorf("share %v: took %v with trials of %v", share, took, s.length)
		}
	})
}

func TestTidy(t *testing.T) {
	for in, want := range map[float64]uint64{0.3: 1, 1: 1, 999.9: 999, 1000: 1000, 1239: 1230, 12_399: 12_300, 300_000: 300_000, 299_999: 299_000, 7_219_000: 7_210_000} {
		if got := tidy(in); got != want {
			t.Errorf("tidy(%g) = %d, want %d", in, got, want)
		}
	}
}

// TestWall: of several reasons the one that explains the others is named, and its short form fits the table's column.
func TestWall(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     *outcome
		code  string
		short string
	}{
		{"nothing was INVALID", nil, "", "none met"},
		{"a busy worker is late too", &outcome{duty: 0.83, reasons: reasons(verdict.CodeRate, verdict.CodeLag, verdict.CodeDuty)}, verdict.CodeDuty, "duty 0.83 > 0.70"},
		{"full buffers keep it busy", &outcome{refused: "message_size", reasons: reasons(verdict.CodeDuty, verdict.CodeRefused)}, verdict.CodeRefused, "refused message_size"},
		{"abandoned only", &outcome{reasons: reasons(verdict.CodeRefused)}, verdict.CodeRefused, "refused"},
		{"abandoned, and known why", &outcome{lagP999: 3e6, reasons: reasons(verdict.CodeRefused, verdict.CodeLag)}, verdict.CodeLag, "lag p99.9 3.00 ms"},
		{"interrupted", &outcome{lagP999: 3e6, reasons: reasons(verdict.CodeLag)}, verdict.CodeLag, "lag p99.9 3.00 ms"},
		{"too slow for no visible reason", &outcome{target: 1000, rate: stats.Rate{AchievedPPS: 931}, reasons: reasons(verdict.CodeRate)}, verdict.CodeRate, "rate 93.1 %"},
		{"a code of later", &outcome{reasons: reasons("queue-loss")}, "queue-loss", "queue-loss"},
	} {
		code, words := wall(c.o)
		short, because, ok := strings.Cut(words, ": ")
		if code != c.code || !strings.HasPrefix(short, c.short) || len(short) > 20 || ok != (because != "") {
			t.Errorf("%s: %q %q, want %q and %q", c.name, code, words, c.code, c.short)
		}
	}
}

func reasons(codes ...string) (out []stats.Reason) {
	for _, c := range codes {
		out = append(out, stats.Reason{Code: c, Detail: fmt.Sprintf("about %s", c)})
	}
	return out
}

// TestDutyLimit: the limit that trials are judged by is the one of runs.
func TestDutyLimit(t *testing.T) {
	for duty, want := range map[float64]bool{dutyLimit - 0.001: false, dutyLimit + 0.001: true} {
		r := &stats.Result{Config: stats.Config{Mode: stats.ModeOneway, Paced: true}, Ledger: stats.Ledger{Planned: 1000, Sent: 1000},
			Rate: stats.Rate{TargetPPS: 1000, AchievedPPS: 1000, ElapsedNS: 1e9}, Workers: []stats.Worker{{Duty: duty}}}
		got := false
		for _, reason := range verdict.Judge(r, verdict.Limits{}).Reasons {
			got = got || reason.Code == verdict.CodeDuty
		}
		if got != want {
			t.Errorf("duty %.3f: INVALID for it %v, want %v", duty, got, want)
		}
	}
}
