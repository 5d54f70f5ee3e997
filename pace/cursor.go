package pace

import (
	"math"
	"time"
)

// Cursor walks one worker's share of a schedule. It is a value: a copy walks on by itself. It belongs to one goroutine. Make it with
// NewCursor.
type Cursor struct {
	slot uint64 // first slot of the next train
	left uint64 // trains left before turn must be asked
	at   int64  // planned offset of the next train, ns
	acc  uint64 // remainder carried by at, in 1/den ns
	quot uint64 // at moves by quot + rem/den per train ...
	rem  uint64
	den  uint64
	off  uint64 // place of slot within the slots that share its instant; 0 when each is 1
	step uint64 // off moves by step per train ...
	each uint64 // ... and when it passes each, at moves by one more instant:
	quo1 uint64
	rem1 uint64

	hop   uint64 // global slots from one train of the share to the next
	group uint64 // slots per train
	end   uint64 // slots of the whole schedule
	first uint64 // number of the share's first train
	skip  uint64 // trains from one of the share to the next

	kind kind
	plan *Plan
	next int // the piece that turn looks at next
	bend *curve

	schedule Schedule
	process  *Process
	tree     walk
}

type kind uint8

const (
	straight kind = iota // at moves by quotient and remainder
	bent                 // on a ramp
	drawn                // by walking the tree of a Poisson process
	asked                // by asking the schedule
)

// NewCursor returns a cursor over trains first, first+stride, first+2*stride ... of s. A train is group consecutive slots that share the
// planned time of the first of them (group 1: every slot alone); the last train of the schedule may be shorter. Over
// first = 0 .. stride-1 the shares are the whole schedule, each slot once. It panics when stride or group is 0.
func NewCursor(s Schedule, first, stride, group uint64) Cursor {
	if stride == 0 || group == 0 {
		panic("pace: NewCursor: stride and group must be at least 1")
	}
	c := Cursor{schedule: s, hop: saturatingMul(stride, group), group: group, end: s.Slots(), first: first, skip: stride}
	c.slot = saturatingMul(first, group)
	if c.slot >= c.end {
		c.slot = c.end
		return c
	}
	switch s := s.(type) {
	case *Plan:
		c.plan = s
		c.hop = min(c.hop, maxTerm) // no plan is longer, and slot + hop must not wrap
	case Unpaced:
		c.left, c.den = trains(c.end-c.slot, c.hop), 1
	case *Process:
		c.kind, c.process, c.tree = drawn, s, newWalk(s)
		c.left = trains(c.end-c.slot, c.hop)
		c.at = c.tree.at(s, c.slot)
	default:
		c.kind = asked
		c.left = trains(c.end-c.slot, c.hop)
		c.at = int64(s.At(c.slot))
	}
	return c
}

// trains returns how many trains, hop slots apart, begin within the next slots.
func trains(slots, hop uint64) uint64 { return (slots-1)/hop + 1 }

// Next gives the first slot of the next train, its number of slots (group, or fewer for the last train of the schedule) and its
// planned offset in ns. ok is false at the end. It does not allocate.
func (c *Cursor) Next() (slot uint64, n int, at int64, ok bool) {
	if c.left == 0 && !c.turn() {
		return 0, 0, 0, false
	}
	slot, at = c.slot, c.at
	n = int(min(c.group, c.end-slot))
	c.left--
	c.slot += c.hop
	if c.kind != straight {
		c.move()
		return slot, n, at, true
	}
	c.at += int64(c.quot)
	c.acc += c.rem
	if c.acc >= c.den {
		c.acc -= c.den
		c.at++
	}
	if c.each > 1 {
		c.off += c.step
		if c.off >= c.each {
			c.off -= c.each
			c.at += int64(c.quo1)
			c.acc += c.rem1
			if c.acc >= c.den {
				c.acc -= c.den
				c.at++
			}
		}
	}
	return slot, n, at, true
}

// move finds the planned time of the train at slot on kinds that have no fixed period.
func (c *Cursor) move() {
	if c.left == 0 {
		return
	}
	switch c.kind {
	case bent:
		c.at = c.bend.at(c.slot) // a ramp is the first piece of its plan
	case drawn:
		c.at = c.tree.at(c.process, c.slot)
	case asked:
		c.at = int64(c.schedule.At(c.slot))
	}
}

// turn sets the cursor on the piece that holds slot; false when there is none. It is the only place that divides.
func (c *Cursor) turn() bool {
	if c.plan == nil {
		return false
	}
	for ; c.next < len(c.plan.pieces); c.next++ {
		p := &c.plan.pieces[c.next]
		if c.slot >= p.first+p.slots {
			continue
		}
		c.left = trains(p.first+p.slots-c.slot, c.hop)
		k := c.slot - p.first
		if p.curve != nil {
			c.kind, c.bend, c.at = bent, p.curve, p.curve.at(k)
		} else {
			c.straighten(p, k)
		}
		c.next++
		return true
	}
	return false
}

// straighten sets quotients, remainders and the state at slot k of a straight piece.
func (c *Cursor) straighten(p *piece, k uint64) {
	c.kind, c.each, c.den = straight, p.each, p.num
	c.off, c.step = k%p.each, c.hop%p.each
	c.quot, c.rem = divMod(c.hop/p.each, p.per, p.num)
	c.quo1, c.rem1 = divMod(1, p.per, p.num)
	at, acc := p.state(k / p.each)
	c.at, c.acc = at, acc
}

// state returns the time of instant j of a straight piece as at + acc/num - (num-1)/num, so that the planned time is at and adding
// periods to acc carries exactly when the rounded-up time moves.
func (p *piece) state(j uint64) (at int64, acc uint64) {
	exact := mul64(j, p.per).add(u128{0, p.phase}).add(u128{0, p.num - 1})
	q, acc := exact.divMod(p.num)
	return p.start + int64(min(q, math.MaxInt64-uint64(p.start))), acc
}

// Slots returns how many slots the whole share has, walked or not.
func (c *Cursor) Slots() uint64 { return c.share(c.end) }

// DueBy returns how many slots of the whole share, walked or not, belong to trains planned at or before elapsed ns. It does not disturb
// the walk.
func (c *Cursor) DueBy(elapsed int64) uint64 {
	return c.share(c.schedule.Due(time.Duration(elapsed)))
}

// share returns how many slots of the share belong to trains whose first slot is below bound.
func (c *Cursor) share(bound uint64) uint64 {
	if bound == 0 {
		return 0
	}
	count := (bound-1)/c.group + 1 // trains of the schedule that begin below bound
	if count <= c.first {
		return 0
	}
	more := (count - 1 - c.first) / c.skip // trains of the share after its first
	last := (c.first + more*c.skip) * c.group
	return more*c.group + min(c.group, c.end-last)
}
