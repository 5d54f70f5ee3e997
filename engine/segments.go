package engine

import (
	"fmt"

	"blast/backend"
	"blast/pace"
	"blast/stats"
)

// fillTrace adds to a result what stamps told.
func (r *run) fillTrace(res *stats.Result) {
	t := &r.tracing
	res.Gap = new(stats.Hist).Summary()
	var asked uint64
	var clockError int64
	for i := range r.lanes {
		if f := r.lanes[i].trace.send; f != nil {
			asked += f.asked
		}
		clockError = max(clockError, r.lanes[i].limits.ClockErrorNS)
	}
	if asked == 0 {
		return
	}
	best := t.best()
	res.Gap = best.gap.Summary()
	if r.Echo {
		res.Segments = t.segments(best, r.StampEvery, asked, clockError)
		if t.followed < r.Workers {
			res.Segments.Notes = append(res.Segments.Notes, fmt.Sprintf("packets of %d of %d workers are followed: the others were not granted stamps", t.followed, r.Workers))
		}
	}
	if t.planned && best.gap.Count() > 0 {
		res.Departures = &stats.Departures{Source: "tx_" + best.source(), Error: best.gapError.Summary(), Test: r.fit(best.gaps)}
	}
}

// source is what makes the stamps of departures.
func (t *tally) source() string {
	switch {
	case t.kinds == 0:
		return "xdp"
	case t.left == backend.StampHardware:
		return hardware
	}
	return "software"
}

// hardware is what Segments says of stamps that a device makes.
const hardware = "hardware"

// arrivals is what makes the times of replies.
func (t *tracing) arrivals() string {
	switch {
	case t.hardwareArrivals:
		return hardware
	case t.kinds == 0:
		return "xdp"
	}
	return "software"
}

// device says what is to be known of the device's stamps: by which clock they are, or why there are none.
func (t *tracing) device(best *tally, clockError int64) (notes []string) {
	came, of := t.came[backend.StampHardware], t.came[backend.StampSoftware]
	if best.left != backend.StampHardware && came > 0 {
		notes = append(notes, fmt.Sprintf("the device stamped %d of %d departures, too few to go by: many keep one stamp at a time, until it is read; follow fewer packets or send more slowly", came, of))
	}
	if best.left == backend.StampHardware || t.hardwareArrivals {
		notes = append(notes, fmt.Sprintf("times of the device are within %s of ours: half of the bracket of each comparison, and what its rate is not known for", stats.FormatNS(clockError)))
	}
	if best.early > clockError+clockSlack {
		notes = append(notes, fmt.Sprintf("the device stamped a packet %s before its driver had it: something sets its clock, or the driver stamps late", stats.FormatNS(best.early)))
	}
	return notes
}

// segments is where the time of the complete ones among asked packets went.
func (t *tracing) segments(best *tally, every, asked uint64, clockError int64) *stats.Segments {
	s := &stats.Segments{
		Every: every, Complete: best.complete, Incomplete: asked - min(best.complete, asked), Latency: best.latency.Summary(),
		Stamps: best.source(), Arrivals: t.arrivals(), ResidualNS: best.residualWire,
	}
	if s.Stamps == hardware || s.Arrivals == hardware {
		s.ClockErrorNS = clockError
	}
	for _, p := range best.shape(s) {
		s.Parts = append(s.Parts, stats.Segment{Name: partNames[p], NS: best.parts[p].Summary()})
	}
	if s.Incomplete > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d sampled packets had no reply, or lack a stamp, and are in no part", s.Incomplete, asked))
	}
	s.Notes = append(append(s.Notes, t.missing()...), t.device(best, clockError)...)
	return s
}

// missing names the stamps that this path turned out not to make.
func (t *tracing) missing() (notes []string) {
	for kind, name := range [backend.NumStampKinds]string{"TX_SCHED", "TX_SOFTWARE", "TX_HARDWARE"} {
		if t.kinds.Has(backend.StampKind(kind)) && t.came[kind] == 0 {
			notes = append(notes, "not one "+name+" stamp came, which the driver of the interface would make: ethtool -T tells whether it does")
		}
	}
	if t.replies > 0 && t.unreceived == t.replies {
		notes = append(notes, "not one reply had a time of receipt by the kernel")
	}
	return notes
}

// shape chooses the parts that can be told apart, and says in s why others cannot. The clock of a server that stamps is ours when no packet
// arrived there before it left here, nor left there after it arrived here; on another host the same bounds say how far it is ahead.
func (t *tally) shape(s *stats.Segments) []part {
	before := []part{partLag, partSendCall, partKernel}
	after := []part{partQueue, partUser}
	switch {
	case !t.kinds.Has(backend.StampSoftware) && !t.kinds.Has(backend.StampHardware):
		before = before[:1]
		s.Notes = append(s.Notes, "this send path has no stamps of its own: the part after lag includes the send call and the kernel")
	case !t.kinds.Has(backend.StampSched):
		before = before[:2]
		s.Notes = append(s.Notes, "no stamp of the packet scheduler: send_call includes the kernel")
	}
	middle := []part{partWire}
	switch {
	case t.complete == 0:
	case !t.served:
		s.Notes = append(s.Notes, "the target stamps nothing (its own servers do, in payloads of 48 bytes and more): wire includes its time")
	case t.low <= clockSlack+s.ClockErrorNS && t.high >= -clockSlack-s.ClockErrorNS:
		s.SameClock, s.ResidualNS = true, t.residual
		middle = []part{partUp, partServer, partDown}
	default:
		s.OffsetNS, s.OffsetErrorNS = t.low/2+t.high/2, abs(t.high/2-t.low/2)
		middle = []part{partWire, partServer}
		if t.low > t.high {
			s.Notes = append(s.Notes, "the two clocks do not run alike: the server's lead changed during the run by more than the bound of its estimate")
		}
	}
	return append(append(before[:len(before):len(before)], middle...), after...)
}

// fit tests the gaps of a Poisson plan: a worker of n has every n-th slot, and so Erlang gaps of shape n.
func (r *run) fit(gaps []float64) *stats.FitTest {
	process, random := r.Schedule.(*pace.Process)
	if !random {
		return nil
	}
	test, ok := stats.FitErlang(gaps, r.Workers, process.MeanPPS()/1e9)
	if !ok {
		return nil
	}
	mean := stats.FormatNS(int64(float64(r.Workers) * 1e9 / process.MeanPPS()))
	test.Against = "exponential gaps, mean " + mean
	if r.Workers > 1 {
		test.Against = fmt.Sprintf("Erlang gaps of shape %d, as every one of %d workers has, mean %s", r.Workers, r.Workers, mean)
	}
	return &test
}
