package ladder

import (
	"fmt"
	"strings"

	"blast/stats"
)

const (
	// shortfall is the share of what was sent that may stay unanswered, for as long as a step looks, beyond what does so at any rate.
	shortfall = 0.01
	// fewest unanswered packets that mean anything in half a window.
	fewest = 3
	// dutyLimit is the default of verdict.Limits.Duty, above which a run is INVALID.
	dutyLimit = 0.70
)

// flow is what came back in the settled part of a step: after what the first packets need to come back, and before the end, from where on
// replies come to what was sent before. The two halves of that part are counted apart.
type flow struct {
	seconds       float64
	sent, replied [2]float64
}

// flowOf reads the timeline. The drain's replies stand in its last interval, so that one is left out; without enough intervals the ledger,
// which holds the drain's replies too, must do.
func flowOf(r *stats.Result) flow {
	t := r.Timeline
	if len(t) < 4 {
		half := float64(r.Ledger.Sent) / 2
		back := float64(r.Ledger.Replied+r.Ledger.Late) / 2
		return flow{float64(r.Rate.ElapsedNS) / 1e9, [2]float64{half, half}, [2]float64{back, back}}
	}
	length, first := t[len(t)-1].T, 1
	begin := max(0.2*length, min(1.5*float64(r.Latency.Min)/1e9, 0.5*length))
	for first < len(t)-3 && t[first-1].T < begin-1e-9 {
		first++
	}
	var f flow
	last := len(t) - 1 // left out
	middle := (t[first-1].T + t[last-1].T) / 2
	for i := first; i < last; i++ {
		half := 0
		if (t[i-1].T+t[i].T)/2 > middle {
			half = 1
		}
		f.sent[half] += float64(t[i].Sent)
		f.replied[half] += float64(t[i].Replied)
	}
	f.seconds = t[last-1].T - t[first-1].T
	return f
}

// throughput is the rate at which replies came, packets a second.
func (f *flow) throughput() float64 {
	if f.seconds <= 0 {
		return 0
	}
	return (f.replied[0] + f.replied[1]) / f.seconds
}

// share of what was sent that was answered meanwhile.
func (f *flow) share() float64 {
	if sent := f.sent[0] + f.sent[1]; sent > 0 {
		return (f.replied[0] + f.replied[1]) / sent
	}
	return 0
}

// keptUp reports whether answers kept pace with packets. A target that is too slow falls behind all the time, so both halves must show it:
// one stall does not, for what it holds up comes back in the other half or is made up by the end. usual is the share that comes back at any rate.
func (f *flow) keptUp(usual float64) bool {
	for h := range f.sent {
		missing := usual*f.sent[h] - f.replied[h]
		if missing < fewest || missing <= shortfall*f.sent[h] {
			return true
		}
	}
	return false
}

// judge decides the outcome of a step; usual is the share of packets that is answered at any rate, 1 for all.
func judge(s *stats.Step, usual float64) {
	r := &s.Result
	f := flowOf(r)
	s.ThroughputPPS = f.throughput()
	s.Water, s.WaterOf = water(r)
	s.Outcome, s.Why = stats.OutcomeHeld, ""
	switch {
	case !r.Verdict.Valid:
		s.Outcome, s.Why = stats.OutcomeVoid, void(r)
		return
	case r.Config.Mode != stats.ModeOneway && !f.keptUp(usual):
		s.Outcome, s.Why = stats.OutcomeSaturated, behind(r, &f)
		return
	}
	for _, slo := range r.Verdict.SLOs {
		if !slo.Met {
			s.Outcome, s.Why = stats.OutcomeSLO, slo.Text+" "+slo.Detail
			return
		}
	}
}

// void says in a phrase why a step is.
func void(r *stats.Result) string {
	if len(r.Verdict.Reasons) == 0 {
		return "nobody has judged it"
	}
	short, _, _ := strings.Cut(r.Verdict.Reasons[0].Detail, ";")
	return strings.Join(codes(r), ", ") + ": " + short
}

// codes are the distinct codes of the reasons.
func codes(r *stats.Result) []string {
	var list []string
	seen := map[string]bool{}
	for _, reason := range r.Verdict.Reasons {
		if !seen[reason.Code] {
			seen[reason.Code] = true
			list = append(list, reason.Code)
		}
	}
	return list
}

// behind says in a phrase how the target did not keep up.
func behind(r *stats.Result, f *flow) string {
	l := &r.Ledger
	text := fmt.Sprintf("replies came at %s while %s were sent", stats.FormatPPS(f.throughput()), stats.FormatPPS(f.throughput()/max(f.share(), 1e-9)))
	if f.share() <= 0 {
		text = fmt.Sprintf("no reply came to %s packets", stats.FormatCount(l.Sent))
	}
	known := float64(l.Sent - min(l.InFlight, l.Sent))
	if l.Lost > 0 && known > 0 {
		text += fmt.Sprintf(", %s lost", stats.FormatPercent(float64(l.Lost)/known))
	}
	if f.share() > 0 && r.Latency.Max > 0 {
		text += fmt.Sprintf(", latency up to %s", stats.FormatNS(r.Latency.Max))
	}
	return text
}

// water is the generator's own level: the largest share of a limit that it used, 1 being full, and the name of that limit.
func water(r *stats.Result) (level float64, of string) {
	level, of = busiest(r)/dutyLimit, "duty"
	if limit := r.Config.MaxLagNS; limit > 0 {
		if lag := float64(r.Lag.P999) / float64(limit); lag > level {
			level, of = lag, "lag"
		}
	}
	if c := r.Calibration; c != nil && c.CeilingPPS > 0 {
		if share := r.Rate.TargetPPS / c.CeilingPPS; share > level {
			level, of = share, "ceiling"
		}
	}
	return level, of
}

// busiest is the largest duty of a worker.
func busiest(r *stats.Result) (duty float64) {
	for i := range r.Workers {
		duty = max(duty, r.Workers[i].Duty)
	}
	return duty
}
