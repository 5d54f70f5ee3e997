package stats

// Settled is what came back in the settled part of a run, where answers come at the target's own pace: after what the first packets need to
// come back, and before the end, from where on replies come to what was sent before. The two halves of that part are counted apart.
type Settled struct {
	Seconds       float64
	Sent, Replied [2]float64
}

// Shortfall is the share of what was sent that may stay unanswered, for as long as a run looks, before a target counts as behind.
const Shortfall = 0.01

const (
	// settledFewest is the number of unanswered packets from which they mean anything in half of the settled part.
	settledFewest = 3
	// settledIntervals is the length from which a timeline is fine enough to leave its ends out.
	settledIntervals = 4
)

// Settled reads the timeline: without its first fifth (or one and a half times the shortest round trip, if that is more), and without its last
// interval, in which the drain's replies stand. ok is false where it has too few intervals; then the ledger, which holds the drain's replies
// too, must do.
func (r *Result) Settled() (s Settled, ok bool) {
	t := r.Timeline
	if len(t) < settledIntervals {
		half := float64(r.Ledger.Sent) / 2
		back := float64(r.Ledger.Replied+r.Ledger.Late) / 2
		return Settled{float64(r.Rate.ElapsedNS) / 1e9, [2]float64{half, half}, [2]float64{back, back}}, false
	}
	length, first, last := t[len(t)-1].T, 1, len(t)-1
	begin := max(0.2*length, min(1.5*float64(r.Latency.Min)/1e9, 0.5*length))
	for first < len(t)-3 && t[first-1].T < begin-1e-9 {
		first++
	}
	middle := (t[first-1].T + t[last-1].T) / 2
	for i := first; i < last; i++ {
		half := 0
		if (t[i-1].T+t[i].T)/2 > middle {
			half = 1
		}
		s.Sent[half] += float64(t[i].Sent)
		s.Replied[half] += float64(t[i].Replied)
	}
	s.Seconds = t[last-1].T - t[first-1].T
	return s, true
}

// Throughput is the rate at which replies came, packets per second.
func (s *Settled) Throughput() float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return (s.Replied[0] + s.Replied[1]) / s.Seconds
}

// Share of what was sent that was answered meanwhile.
func (s *Settled) Share() float64 {
	if sent := s.Sent[0] + s.Sent[1]; sent > 0 {
		return (s.Replied[0] + s.Replied[1]) / sent
	}
	return 0
}

// KeptUp reports whether answers kept pace with packets. A target that is too slow falls behind all the time, so both halves must show it:
// one stall does not, for what it holds up comes back in the other half or is made up by the end. usual is the share that comes back at any
// rate, 1 for all.
func (s *Settled) KeptUp(usual float64) bool {
	for h := range s.Sent {
		missing := usual*s.Sent[h] - s.Replied[h]
		if missing < settledFewest || missing <= Shortfall*s.Sent[h] {
			return true
		}
	}
	return false
}
