package engine

import (
	"fmt"

	"blast/backend"
)

// told collects the names of slots whose replies an in-kernel receiver takes: it tells each reply that did not fare well, and its window says which
// slots had none. nil when nobody asked for names.
type told struct {
	workers []names
	missed  uint64 // replies that the kernel had no room to tell
	unsent  []map[uint64]struct{}
	hidden  []uint64 // slots that were not sent, and nobody can say which they are
}

// toldKinds is what has a name.
const toldKinds = backend.ReplyLate | backend.ReplyDuplicate | backend.ReplyReordered

// newTold asks for names where they are wanted.
func newTold(wanted *Names, workers int, cfg *backend.ReceiverConfig) *told {
	if wanted == nil {
		return nil
	}
	cfg.Tell = toldKinds
	return &told{workers: make([]names, workers), unsent: make([]map[uint64]struct{}, workers), hidden: make([]uint64, workers)}
}

// readUnsent takes worker i's slots that were found not to be sent since it was last called.
func (t *told) readUnsent(i int, from backend.Offload) error {
	if t == nil {
		return nil
	}
	if t.unsent[i] == nil {
		t.unsent[i] = map[uint64]struct{}{}
	}
	_, err := from.Unsent(func(seq uint64) {
		if len(t.unsent[i]) < namesMost {
			t.unsent[i][seq] = struct{}{}
		}
	})
	return err
}

// wasUnsent reports whether worker i told that it did not send a slot.
func (t *told) wasUnsent(i int) func(seq uint64) bool {
	return func(seq uint64) bool {
		_, ok := t.unsent[i][seq]
		return ok
	}
}

// unsentFrom counts the slots from seq on of which worker i told that it did not send them.
func (t *told) unsentFrom(i int, seq uint64) (n uint64) {
	if t == nil {
		return 0
	}
	for slot := range t.unsent[i] {
		if slot >= seq {
			n++
		}
	}
	return n
}

// read takes what has been told since it was last called.
func (t *told) read(from backend.OffloadReceiver) error {
	if t == nil {
		return nil
	}
	missed, err := from.Told(func(p *backend.Reply) {
		if int(p.Worker) >= len(t.workers) {
			return
		}
		n := &t.workers[p.Worker]
		for _, kind := range []struct {
			is   backend.ReplyKinds
			list *[]uint64
		}{{backend.ReplyLate, &n.Late}, {backend.ReplyDuplicate, &n.Duplicate}, {backend.ReplyReordered, &n.Reordered}} {
			if p.Kinds&kind.is != 0 {
				n.add(kind.list, p.Seq)
			}
		}
	})
	t.missed = missed
	return err
}

// unreplied names worker i's slots [from, to) without a reply: lost below cut, else in flight. unsent says which of
// them were not sent. hidden is the number of slots that were not sent either, and of which nobody can say which they are.
func (t *told) unreplied(from backend.OffloadReceiver, i int, first, cut, to uint64, unsent func(seq uint64) bool, hidden uint64) error {
	if t == nil || first >= to {
		return nil
	}
	n := &t.workers[i]
	t.hidden[i] = hidden
	_, err := from.Unseen(i, first, to, func(seq uint64) {
		switch {
		case unsent(seq):
		case seq < cut:
			n.add(&n.Lost, seq)
		default:
			n.add(&n.InFlight, seq)
		}
	})
	return err
}

// give fills in the names, and returns notes for the report.
func (t *told) give(to *Names) (notes []string) {
	if t == nil {
		return nil
	}
	for i := range t.workers {
		to.take(uint16(i), &t.workers[i])
		if n := t.hidden[i]; n > 0 {
			notes = append(notes, fmt.Sprintf("names: among the lost of worker %d are %d packets that never left; the kernel does not say which", i, n))
		}
	}
	to.Unnamed += t.missed
	return notes
}
