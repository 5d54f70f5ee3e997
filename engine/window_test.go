package engine

import (
	"testing"

	"pgregory.net/rapid"
)

// The window agrees with a map of the same events for any order of replies, as long as the slots fit in it.
func TestWindowAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(0, 200).Draw(t, "first")
		slots := rapid.Uint64Range(1, 2000).Draw(t, "slots")
		w := newWindow(first, slots, 1, 1)
		seen := map[uint64]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "replies") {
			seq := first + rapid.Uint64Range(0, slots-1).Draw(t, "seq")
			isFirst, gone := w.mark(seq)
			if gone || isFirst == seen[seq] {
				t.Fatalf("slot %d: first %v, gone %v: want first %v", seq, isFirst, gone, !seen[seq])
			}
			seen[seq] = true
		}
		to := first + rapid.Uint64Range(0, slots).Draw(t, "to")
		var want, each uint64
		for seq := first; seq < to; seq++ {
			if !seen[seq] {
				want++
			}
		}
		got := w.unreplied(to, func(seq uint64) {
			if each++; seen[seq] || seq < first {
				t.Fatalf("slot %d named as without a reply", seq)
			}
		})
		if got.unseen != want || each != want {
			t.Fatalf("%d without a reply, %d named: want %d", got.unseen, each, want)
		}
	})
}

// A ring that is smaller than the run fixes fates as slots leave, and loses none.
func TestWindowSlides(t *testing.T) {
	const slots = windowSlots + 5000
	w := newWindow(100, slots, 1, 0)
	var unseen uint64
	for seq := uint64(100); seq < slots; seq++ {
		if seq%1000 == 999 {
			unseen++
			continue
		}
		if first, gone := w.mark(seq); !first || gone {
			t.Fatalf("slot %d: first %v gone %v", seq, first, gone)
		}
	}
	if w.seen.base == 64 {
		t.Fatal("the window did not slide")
	}
	if _, gone := w.mark(200); !gone {
		t.Error("slot 200 left the window and was taken again")
	}
	if got := w.unreplied(slots, nil); got.unseen != unseen || got.dark != unseen-w.gone.unseen {
		t.Errorf("%+v without a reply: want %d", got, unseen)
	}
}

// Slots given up by the sender are counted once, warm-up ones not at all, also beyond the ring.
func TestUnsent(t *testing.T) {
	u := unsent{ring: newBitRing(10, 64), first: 10}
	for _, seq := range []uint64{3, 10, 11, 90, 500, 501} {
		u.add(seq)
	}
	for _, c := range []struct{ to, want uint64 }{{502, 5}, {501, 4}, {500, 3}} {
		if n := u.before(c.to); n != c.want {
			t.Errorf("%d below %d: want %d", n, c.to, c.want)
		}
	}
}

// A gap in the replies longer than the server's bitmap is judged by its count: all came, none came, or unknown.
func TestReportGap(t *testing.T) {
	for _, c := range []struct {
		name           string
		counted        uint64
		up, dark, down uint64
	}{
		{"all of the gap reached the server", 136, 0, 0, 136},
		{"none did", 0, 136, 0, 0},
		{"some did: nobody knows which", 50, 0, 136, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWindow(0, 400, 1, 1)
			reply := func(seq, count uint64) {
				w.report(seq, 0, count, ^uint64(0))
				w.mark(seq)
			}
			reply(99, 100)
			reply(299, 100+64+c.counted)
			for seq := range uint64(300) {
				if seq < 99 || seq > 235 {
					w.mark(seq)
				}
			}
			f := w.unreplied(300, nil)
			if f.unseen != 136 || f.up != c.up || f.dark != c.dark || f.unseen-f.up-f.dark != c.down {
				t.Errorf("%+v: want 136 without a reply, %d up, %d unknown", f, c.up, c.dark)
			}
		})
	}
}
