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
	var asked uint64
	for i := range r.lanes {
		if f := r.lanes[i].trace.send; f != nil {
			asked += f.asked
		}
	}
	res.Gap = t.gap.Summary()
	if asked == 0 {
		return
	}
	if r.Echo {
		res.Segments = t.segments(r.StampEvery, asked)
	}
	if t.planned && t.gap.Count() > 0 {
		res.Departures = &stats.Departures{Source: "tx_" + t.source(), Error: t.gapError.Summary(), Test: r.fit()}
	}
}

// source is what makes the stamps of departures.
func (t *tracing) source() string {
	switch {
	case t.kinds == 0:
		return "xdp"
	case t.left == backend.StampHardware:
		return "hardware"
	}
	return "software"
}

// segments is where the time of the complete ones among asked packets went.
func (t *tracing) segments(every, asked uint64) *stats.Segments {
	s := &stats.Segments{
		Every: every, Complete: t.complete, Incomplete: asked - min(t.complete, asked), Latency: t.latency.Summary(),
		Stamps: t.source(), ResidualNS: t.residualWire,
	}
	for _, p := range t.shape(s) {
		s.Parts = append(s.Parts, stats.Segment{Name: partNames[p], NS: t.parts[p].Summary()})
	}
	if s.Incomplete > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d sampled packets had no reply, or lack a stamp, and are in no part", s.Incomplete, asked))
	}
	s.Notes = append(s.Notes, t.missing()...)
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
func (t *tracing) shape(s *stats.Segments) []part {
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
	case t.low <= clockSlack && t.high >= -clockSlack:
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
func (r *run) fit() *stats.FitTest {
	process, random := r.Schedule.(*pace.Process)
	if !random {
		return nil
	}
	test, ok := stats.FitErlang(r.tracing.gaps, r.Workers, process.MeanPPS()/1e9)
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
