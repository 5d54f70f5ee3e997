package pace

import (
	"fmt"
	"math/bits"
	"time"
)

// Process is a Poisson process: independent arrivals at a constant mean rate, with exponential gaps between them. It is immutable
// and takes a few words of memory however long it runs.
//
// It is not drawn gap by gap, for then the count of a long run and the time of its last slot would be known only at its end.
// Instead time is a binary tree over 2^span ns. The root draws how many arrivals the whole has (Poisson, mean rate 2^span); a node
// splits its count between its halves (binomial, 1/2); a node with at most leafSize arrivals throws each on a uniform nanosecond of
// its own and sorts them. Given its count, a Poisson process is a set of independent uniform points, so this is the process itself and no
// approximation, except that arrivals are on whole ns. The random numbers of a node depend on the seed and the node's place only, so
// any slot can be found in span steps, from anywhere, always the same.
type Process struct {
	key    uint64 // the mixed seed
	span   uint   // the tree covers 2^span ns, at least length
	root   uint64 // arrivals in the whole tree
	slots  uint64 // arrivals before length
	length time.Duration
}

// leafSize is how many arrivals a node may have to be drawn one by one. It is part of what a seed means.
const leafSize = 16

// Poisson plans a Poisson process with mean rate for total. The same rate, seed and total give the same plan (on machines of the same
// architecture: the last bit of a logarithm may decide where a count of thousands is split).
func Poisson(rate Rate, seed uint64, total time.Duration) (*Process, error) {
	if err := checkLength(total); err != nil {
		return nil, fmt.Errorf("poisson: %w", err)
	}
	rate, err := rate.finite()
	if err != nil {
		return nil, fmt.Errorf("poisson: %w", err)
	}
	p := &Process{key: mix(seed + golden), span: uint(bits.Len64(uint64(total) - 1)), length: total}
	mean := float64(rate.Packets) / float64(rate.Per) * float64(uint64(1)<<p.span)
	if mean > maxMean {
		return nil, fmt.Errorf("poisson: %w: %v for %v is more than 2^49 packets", ErrRate, rate, total)
	}
	src := random{state: mix(p.key)}
	p.root = src.poisson(mean)
	p.slots = p.Due(total - 1)
	return p, nil
}

// maxMean keeps every count an integer that a float64 holds exactly.
const maxMean = 1 << 50

// At returns the planned offset of slot i < Slots; see Schedule. It takes about a microsecond: a Cursor is the way to walk.
func (p *Process) At(i uint64) time.Duration {
	w := newWalk(p)
	return time.Duration(w.at(p, i))
}

// Due returns how many slots are planned at or before elapsed; see Schedule.
func (p *Process) Due(elapsed time.Duration) uint64 {
	if elapsed < 0 {
		return 0
	}
	t := min(uint64(elapsed), uint64(p.length)-1)
	n := node{width: p.span, count: p.root}
	var due uint64
	for !n.leaf() {
		left, right := p.split(n)
		if t < right.start {
			n = left
		} else {
			due += left.count
			n = right
		}
	}
	var times [leafSize]uint64
	if n.width == 0 {
		return due + n.count
	}
	p.draw(n, &times)
	for _, at := range times[:n.count] {
		if at <= t {
			due++
		}
	}
	return due
}

// Slots returns the number of arrivals before Length; it may be 0 when few are expected.
func (p *Process) Slots() uint64 { return p.slots }

// Length returns the configured duration.
func (p *Process) Length() time.Duration { return p.length }

// MeanPPS returns Slots / Length in packets per second: the mean of this plan, not of the process it was drawn from.
func (p *Process) MeanPPS() float64 { return meanPPS(p.slots, p.length) }

// String returns "poisson".
func (p *Process) String() string { return "poisson" }

var _ Schedule = (*Process)(nil)

// node is an interval of 2^width ns from start, with its number of arrivals.
type node struct {
	start uint64
	width uint
	count uint64
}

// leaf says whether the arrivals of n are drawn one by one; those within a single ns need no drawing.
func (n node) leaf() bool { return n.count <= leafSize || n.width == 0 }

// random returns the source of n's own random numbers.
func (p *Process) random(n node) random {
	id := (uint64(1)<<p.span | n.start) >> n.width // its number when the tree is a heap
	return random{state: mix(mix(id) ^ p.key)}
}

// split shares the arrivals of n between its halves.
func (p *Process) split(n node) (left, right node) {
	src := p.random(n)
	left = node{start: n.start, width: n.width - 1, count: src.half(n.count)}
	right = node{start: n.start + 1<<left.width, width: left.width, count: n.count - left.count}
	return left, right
}

// draw sets times to the arrivals of leaf n of width > 0, in order.
func (p *Process) draw(n node, times *[leafSize]uint64) {
	src := p.random(n)
	for i := range int(n.count) {
		at := n.start + src.next()>>(64-n.width)
		j := i
		for ; j > 0 && times[j-1] > at; j-- {
			times[j] = times[j-1]
		}
		times[j] = at
	}
}

// walk is a place in the tree of a Process, moving only forward. Nodes still to come are the right halves on the way down to the
// current leaf: at most one of each width, the narrowest first, each starting where the one before it ends.
type walk struct {
	waiting uint64     // bit w: counts[w] is a node still to come
	counts  [64]uint64 // by width
	next    uint64     // where the first of them starts, ns
	before  uint64     // slots before next

	first, n uint64 // slots of the current leaf
	flat     bool   // its slots all fall on times[0]
	times    [leafSize]uint64
}

func newWalk(p *Process) walk {
	w := walk{waiting: 1 << p.span}
	w.counts[p.span] = p.root
	return w
}

// at returns the time of slot i, ns. i must not go down from call to call and must be below p.root.
func (w *walk) at(p *Process, i uint64) int64 {
	if i >= w.first+w.n {
		w.seek(p, i)
	}
	if w.flat {
		return int64(w.times[0])
	}
	return int64(w.times[i-w.first])
}

// seek moves to the leaf that holds slot i, at or past next, and draws it.
func (w *walk) seek(p *Process, i uint64) {
	n := w.pop()
	for i >= w.before+n.count {
		w.pass(n)
		n = w.pop()
	}
	for !n.leaf() {
		left, right := p.split(n)
		if i >= w.before+left.count {
			w.pass(left)
			n = right
			continue
		}
		w.waiting |= 1 << right.width
		w.counts[right.width] = right.count
		n = left
	}
	w.first, w.n = w.before, n.count
	w.flat = n.width == 0
	if w.flat {
		w.times[0] = n.start
	} else {
		p.draw(n, &w.times)
	}
	w.pass(n)
}

// pop takes the first node still to come.
func (w *walk) pop() node {
	width := uint(bits.TrailingZeros64(w.waiting))
	w.waiting &^= 1 << width
	return node{start: w.next, width: width, count: w.counts[width&63]}
}

// pass moves beyond n.
func (w *walk) pass(n node) {
	w.before += n.count
	w.next = n.start + 1<<n.width
}
