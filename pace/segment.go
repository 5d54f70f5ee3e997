package pace

import (
	"errors"
	"fmt"
	"time"
)

// Segment is a stretch of a schedule, or of one worker's share, that an engine elsewhere (a program in the kernel) can walk exactly with
// additions only. Slots come in trains of Group consecutive slots; Trains trains share one instant. The instants are
//
//	next = Start; acc = Acc
//	after each instant: next += Quot; acc += Rem; if acc >= Den { acc -= Den; next++ }
//
// in ns, that is instant p is at Start + floor((Acc + p (Quot Den + Rem)) / Den). Rounding up, which makes slots never early, is already
// in Acc: a plan that begins a whole number of packets after its start has Acc = Den-1. The k-th slot of the segment, k < Slots, is slot
//
//	First + floor(k/Group) Stride + k mod Group
//
// of the schedule, and it is due at instant floor(k / (Group Trains)).
type Segment struct {
	Start        time.Duration // planned offset of the first slot
	First, Slots uint64        // slot number of the first slot; how many slots, of which the last train may lack some
	Acc          uint64        // remainder at Start, in 1/Den ns, below Den
	Quot, Rem    uint64        // instants are Quot + Rem/Den ns apart; Rem < Den
	Den          uint64        // at least 1, at most 2^62
	Group        uint64        // consecutive slots of one train
	Stride       uint64        // slots from the start of one train to the start of the next
	Trains       uint64        // trains at one instant
}

// Slot returns which slot of the schedule the k-th of the segment is.
func (s Segment) Slot(k uint64) uint64 { return s.First + k/s.Group*s.Stride + k%s.Group }

// At returns the planned offset of the k-th slot of the segment.
func (s Segment) At(k uint64) time.Duration {
	instant := k / s.Group / s.Trains
	carried, _ := mul64(instant, s.Rem).add(u128{0, s.Acc}).divMod(s.Den)
	return s.Start + time.Duration(instant*s.Quot+carried)
}

// maxSegments bounds the segments of a share whose trains fall irregularly on the instants of a burst or tick profile.
const maxSegments = 1 << 16

// Segments returns s as segments, in order of time. Every one has Group and Stride 1, so that its k-th slot is First+k. Constant, step,
// burst, tick and max are exact. What cannot be expressed exactly (ramp, poisson, recorded) is refused with an error that wraps
// errors.ErrUnsupported.
func Segments(s Schedule) ([]Segment, error) { return SegmentsShare(s, 0, 1, 1) }

// SegmentsShare returns the segments of the share that NewCursor(s, first, stride, group) walks. On top of what Segments refuses,
// it refuses a share that would need more than 65536 segments because its trains and the bursts do not divide each other. It
// panics when stride or group is 0.
func SegmentsShare(s Schedule, first, stride, group uint64) ([]Segment, error) {
	c := NewCursor(s, first, stride, group)
	switch s := s.(type) {
	case Unpaced:
		if c.left == 0 {
			return nil, nil
		}
		return []Segment{{First: c.slot, Slots: c.Slots(), Den: 1, Group: group, Stride: c.hop, Trains: 1}}, nil
	case *Plan:
		for i := range s.pieces {
			if s.pieces[i].curve != nil {
				return nil, fmt.Errorf("%v as segments: its period changes with every packet: %w", s, errors.ErrUnsupported)
			}
		}
		return c.segments()
	default:
		return nil, fmt.Errorf("%v as segments: it has no period: %w", s, errors.ErrUnsupported)
	}
}

// segments turns the walk of a cursor over straight pieces into segments.
func (c *Cursor) segments() ([]Segment, error) {
	var all []Segment
	for c.turn() {
		p := &c.plan.pieces[c.next-1]
		s := Segment{Start: time.Duration(c.at), First: c.slot, Acc: c.acc, Quot: c.quot, Rem: c.rem, Den: c.den,
			Group: c.group, Stride: c.hop, Trains: 1}
		switch {
		case c.step == 0: // every train is a whole number of instants after the one before
			all = append(all, c.take(s, c.left))
		case p.each%c.hop == 0 && c.off < c.hop: // every instant has the same number of trains
			s.Trains = p.each / c.hop
			s.Quot, s.Rem = c.quo1, c.rem1
			all = append(all, c.take(s, c.left))
		default:
			for c.left > 0 {
				if len(all) == maxSegments {
					return nil, fmt.Errorf("%v as segments: more than %d, since %d slots at once do not divide into shares of %d: %w",
						c.plan, maxSegments, p.each, c.hop, errors.ErrUnsupported)
				}
				k := c.slot - p.first
				s = Segment{Start: time.Duration(p.at(k)), First: c.slot, Den: 1, Group: c.group, Stride: c.hop}
				s.Trains = min(trains(p.each-k%p.each, c.hop), c.left)
				all = append(all, c.take(s, s.Trains))
			}
		}
	}
	return all, nil
}

// take gives s the next n trains of the cursor, n > 0, and moves past them.
func (c *Cursor) take(s Segment, n uint64) Segment {
	last := c.slot + (n-1)*c.hop
	s.Slots = (n-1)*c.group + min(c.group, c.end-last)
	c.left -= n
	c.slot = last + c.hop
	return s
}
