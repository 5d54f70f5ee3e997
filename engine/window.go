//blast:hot

package engine

import "math/bits"

// window remembers what became of each slot of one worker, a bit a slot for the last size slots. It is exact for runs of up to
// that many; in longer ones a slot's fate is fixed when it leaves the window. The receiving thread owns it.
type window struct {
	seen bitRing // replied
	up   bitRing // our server said that it had not received the slot
	dark bitRing // no report of our server covers the slot
	// first is the first slot that counts: those before it are warm-up.
	first uint64
	gone  fates
	// Per flow: the newest slot replied to; the newest one with a report, and how many packets the server had counted then.
	newest   []int64
	reported []int64
	count    []uint64
	// stride is the number of flows when slots go round them one by one, and then flow = seq%stride; 0 = otherwise, reports are not used.
	stride uint64
	// marked is true once any up bit was set: only then do reports need more than a look.
	marked bool
}

// fates counts slots without a reply.
type fates struct{ unseen, up, dark uint64 }

// windowSlots bounds a window's memory to 3 x 8 MiB a worker, touched only as far as slots go: 67 s of history at 1 M packets/s.
const windowSlots = 1 << 26

// newWindow makes a window for the slots slots from first on; those before it are warm-up.
func newWindow(first, slots uint64, flows int, stride uint64) *window {
	w := &window{seen: newBitRing(first, slots), up: newBitRing(first, slots), dark: newBitRing(first, slots), first: first, stride: stride,

		newest: make([]int64, flows), reported: make([]int64, flows), count: make([]uint64, flows)}
	for f := range w.newest {
		w.newest[f], w.reported[f] = -1, -1
	}
	return w
}

// mark notes a reply for seq. It reports whether it is the first, and whether seq had left the window.
func (w *window) mark(seq uint64) (first, gone bool) {
	if seq < w.seen.base {
		return false, true
	}
	if end := w.seen.base + w.seen.size(); seq >= end {
		w.slide(seq + 1 - w.seen.size())
	}
	if w.seen.has(seq) {
		return false, false
	}
	w.seen.set(seq)
	return true, false
}

// slide moves the base up to at least to, fixing the fate of what leaves.
func (w *window) slide(to uint64) {
	for base := w.seen.base; base < to; base += 64 {
		unseen := ^w.seen.word(base) & w.measured(base)
		dark := unseen & w.dark.word(base)
		w.gone.unseen += uint64(bits.OnesCount64(unseen))
		w.gone.dark += uint64(bits.OnesCount64(dark))
		w.gone.up += uint64(bits.OnesCount64(unseen & w.up.word(base) &^ dark))
		w.seen.drop()
		w.up.drop()
		w.dark.drop()
	}
}

// measured masks the slots of the word at base that are not warm-up.
func (w *window) measured(base uint64) uint64 {
	switch {
	case base >= w.first:
		return ^uint64(0)
	case base+64 <= w.first:
		return 0
	}
	return ^uint64(0) << (w.first - base)
}

// replied keeps the newest reply of a flow and reports whether seq came behind a newer one.
func (w *window) replied(seq uint64, flow int) (reordered bool) {
	if int64(seq) < w.newest[flow] {
		return true
	}
	w.newest[flow] = int64(seq)
	return false
}

// report takes our server's word on the flow of seq: how many packets of it had come, and which of the 64 up to this one
// (bit k = the k-th before it). Cheap while nothing is missing.
func (w *window) report(seq uint64, flow int, count, bitmap uint64) {
	index, last := seq/w.stride, w.reported[flow]
	if int64(seq) <= last {
		return
	}
	w.reported[flow] = int64(seq)
	from := uint64(0) // first packet of the flow that this report covers
	if index >= 63 {
		from = index - 63
	}
	next := uint64(0) // first packet of the flow after the last report
	if last >= 0 {
		next = uint64(last)/w.stride + 1
	}
	if next < from {
		w.gap(flow, next, from, count-w.count[flow]-uint64(bits.OnesCount64(bitmap)))
	}
	w.count[flow] = count
	missing := ^bitmap
	if index < 63 {
		missing &= 1<<(index+1) - 1
	}
	if missing == 0 && !w.marked {
		return
	}
	for k := uint64(1); k <= min(index, 63); k++ {
		slot := (index-k)*w.stride + uint64(flow)
		if missing>>k&1 != 0 {
			w.up.set(slot)
			w.marked = true
		} else {
			w.up.clear(slot)
		}
	}
}

// gap judges packets [from, to) of a flow, which no bitmap covers, by how many of them the server counted: all, none, or else nobody knows which.
func (w *window) gap(flow int, from, to, counted uint64) {
	if counted == to-from {
		return
	}
	ring := &w.dark
	if counted == 0 {
		ring, w.marked = &w.up, true
	}
	for from = max(from, ring.base/w.stride); from < to; from++ {
		ring.set(from*w.stride + uint64(flow))
	}
}

// unreplied counts the slots below to that have no reply, and calls each, which may be nil, for those still in the window.
func (w *window) unreplied(to uint64, each func(seq uint64)) fates {
	f := w.gone
	for base := w.seen.base; base < to; base += 64 {
		mask := w.measured(base)
		if base+64 > to {
			mask &= 1<<(to-base) - 1
		}
		for left := mask &^ w.seen.word(base); left != 0; left &= left - 1 {
			seq := base + uint64(bits.TrailingZeros64(left))
			f.unseen++
			switch {
			case w.stride == 0 || w.dark.has(seq) || int64(seq) > w.reported[seq%w.stride]:
				f.dark++
			case w.up.has(seq):
				f.up++
			}
			if each != nil {
				each(seq)
			}
		}
	}
	return f
}

// bitRing holds one bit for each of the last size slots from base on; slots outside read as clear and cannot be set.
type bitRing struct {
	words []uint64 // a power of two
	base  uint64   // a multiple of 64
}

// newBitRing makes a ring from first on for slots slots, or for the last windowSlots of them.
func newBitRing(first, slots uint64) bitRing {
	words := uint64(2) // first need not begin a word
	for words < windowSlots/64 && (words-1)*64 < slots {
		words <<= 1
	}
	return bitRing{words: make([]uint64, words), base: first &^ 63}
}

func (b *bitRing) size() uint64 { return uint64(len(b.words)) * 64 }

func (b *bitRing) at(slot uint64) *uint64 { return &b.words[slot/64&uint64(len(b.words)-1)] }

func (b *bitRing) holds(slot uint64) bool { return slot-b.base < b.size() }

func (b *bitRing) has(slot uint64) bool { return b.holds(slot) && *b.at(slot)>>(slot%64)&1 != 0 }

func (b *bitRing) set(slot uint64) {
	if b.holds(slot) {
		*b.at(slot) |= 1 << (slot % 64)
	}
}

func (b *bitRing) clear(slot uint64) {
	if b.holds(slot) {
		*b.at(slot) &^= 1 << (slot % 64)
	}
}

// word is the 64 slots from base, a multiple of 64, on.
func (b *bitRing) word(base uint64) uint64 {
	if !b.holds(base) {
		return 0
	}
	return *b.at(base)
}

// drop moves the base up by one word and returns what it held.
func (b *bitRing) drop() uint64 {
	p := b.at(b.base)
	word := *p
	*p = 0
	b.base += 64
	return word
}

// unsent remembers the slots that the sending thread refused or abandoned: nobody can reply to them. The sending thread owns it.
type unsent struct {
	ring  bitRing
	first uint64 // slots before it are warm-up and not remembered
	gone  uint64
}

func (u *unsent) add(slot uint64) {
	if slot < u.first {
		return
	}
	for !u.ring.holds(slot) {
		u.gone += uint64(bits.OnesCount64(u.ring.drop()))
	}
	u.ring.set(slot)
}

// before counts the slots remembered below to.
func (u *unsent) before(to uint64) uint64 {
	n := u.gone
	for base := u.ring.base; base < to; base += 64 {
		mask := ^uint64(0)
		if base+64 > to {
			mask = 1<<(to-base) - 1
		}
		n += uint64(bits.OnesCount64(mask & u.ring.word(base)))
	}
	return n
}
