package pace

import (
	"fmt"
	"sort"
	"time"
)

// Plan is a schedule put together from pieces on each of which the rate is constant or changes linearly: constant, step, ramp, burst
// and tick profiles. It is immutable.
type Plan struct {
	pieces []piece // in order of time and of slots; at least one; a piece may have no slots
	slots  uint64
	length time.Duration
	text   string
}

// piece covers slots first .. first+slots-1. On a straight piece (curve nil) slot first+k is due at
//
//	start + ceil((phase + floor(k/each) * per) / num)   ns
//
// where num/per is the rate of instants per ns, each the slots sharing one instant, and phase the part of a period by which the
// first slot comes after start: a rate change must not lose or invent a fraction of a packet.
type piece struct {
	first, slots uint64
	start        int64
	phase        uint64
	per, num     uint64
	each         uint64
	curve        *curve
}

// at returns the planned offset of slot first+k, ns.
func (p *piece) at(k uint64) int64 {
	if p.curve != nil {
		return p.curve.at(k)
	}
	if p.each > 1 {
		k /= p.each
	}
	return p.start + int64(min(mulAddDivCeil(k, p.per, p.phase, p.num), maxTerm))
}

// due returns how many slots of the piece are due at t >= start, without regard to where the piece ends.
func (p *piece) due(t int64) uint64 {
	if p.curve != nil {
		return p.curve.due(t)
	}
	// phase + k*per <= (t-start)*num
	budget := mul64(uint64(t-p.start), p.num)
	if budget.hi == 0 && budget.lo < p.phase {
		return 0
	}
	budget = budget.sub(u128{0, p.phase})
	return saturatingMul(divFloor(budget, p.per)+1, p.each)
}

// newPlan closes the list of pieces at length: the last piece gets the slots that are due before it.
func newPlan(pieces []piece, length time.Duration, text string) (*Plan, error) {
	last := &pieces[len(pieces)-1]
	last.slots = last.due(int64(length) - 1)
	slots := last.first + last.slots
	if last.slots > maxTerm || slots > maxTerm {
		return nil, fmt.Errorf("%s for %v: more than 2^62 packets", text, length)
	}
	return &Plan{pieces: pieces, slots: slots, length: length, text: text}, nil
}

// At returns the planned offset of slot i; see Schedule.
func (p *Plan) At(i uint64) time.Duration {
	pc := p.pieceOf(i)
	return time.Duration(pc.at(i - pc.first))
}

// pieceOf returns the piece that holds slot i: the last one that starts at or before it.
func (p *Plan) pieceOf(i uint64) *piece {
	n := sort.Search(len(p.pieces), func(j int) bool { return p.pieces[j].first > i })
	return &p.pieces[max(n-1, 0)]
}

// Due returns how many slots are planned at or before elapsed; see Schedule.
func (p *Plan) Due(elapsed time.Duration) uint64 {
	t := int64(elapsed)
	if t < 0 {
		return 0
	}
	n := sort.Search(len(p.pieces), func(j int) bool { return p.pieces[j].start > t })
	pc := &p.pieces[n-1]
	return pc.first + min(pc.due(t), pc.slots)
}

// Slots returns the number of slots.
func (p *Plan) Slots() uint64 { return p.slots }

// Length returns the configured duration.
func (p *Plan) Length() time.Duration { return p.length }

// MeanPPS returns Slots / Length in packets per second.
func (p *Plan) MeanPPS() float64 { return meanPPS(p.slots, p.length) }

// String returns the canonical text of the profile.
func (p *Plan) String() string { return p.text }

var _ Schedule = (*Plan)(nil)
