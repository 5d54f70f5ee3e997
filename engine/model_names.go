package engine

// Name is one slot: its worker, and its number there, as in the stamp.
type Name struct {
	Worker uint16 `json:"worker"`
	Seq    uint64 `json:"seq"`
}

// Names lists, by fate, the slots that did not just get one reply in time and in order. The caller owns it; Run fills it at its end. The
// fates are those of the ledger: a slot may be both late and reordered, or duplicate and either.
type Names struct {
	// Lost had no reply by their timeout; InFlight had neither when the drain ended. Slots of more than 2^26 ago in a worker's share are
	// counted in the ledger and not named.
	Lost, InFlight []Name
	// Late had their reply after the timeout, Duplicate had more than one (and are named once for each that was too many), Reordered had it behind that
	// of a later slot of their flow.
	Late, Duplicate, Reordered []Name
	// Unnamed is the number of names beyond a million of each worker and fate, and of replies that an in-kernel receiver had no room to tell.
	Unnamed uint64
}

// namesMost bounds each list of one worker.
const namesMost = 1 << 20

// names is what one receiving thread collects.
type names struct {
	Late, Duplicate, Reordered, Lost, InFlight []uint64
	unnamed                                    uint64
}

func (n *names) add(list *[]uint64, seq uint64) {
	if len(*list) == namesMost {
		n.unnamed++
		return
	}
	*list = append(*list, seq)
}

// unreplied returns what sorts a slot without a reply of w: below cut it is lost. nil when nobody asked.
func (n *names) unreplied(w *worker, cut uint64) func(seq uint64) {
	if n == nil {
		return nil
	}
	return func(seq uint64) {
		switch {
		case w.unsent.ring.has(seq):
		case seq < cut:
			n.add(&n.Lost, seq)
		default:
			n.add(&n.InFlight, seq)
		}
	}
}

// take adds a worker's names to n.
func (n *Names) take(worker uint16, from *names) {
	for _, l := range []struct {
		to   *[]Name
		from []uint64
	}{{&n.Lost, from.Lost}, {&n.InFlight, from.InFlight}, {&n.Late, from.Late}, {&n.Duplicate, from.Duplicate}, {&n.Reordered, from.Reordered}} {
		for _, seq := range l.from {
			*l.to = append(*l.to, Name{worker, seq})
		}
	}
	n.Unnamed += from.unnamed
}
