package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/backend"
)

// tellingOffload tells slots that it did not send.
type tellingOffload struct {
	backend.Offload
	unsent []uint64
}

func (o *tellingOffload) Unsent(fn func(uint64)) (uint64, error) {
	for _, seq := range o.unsent {
		fn(seq)
	}
	return 0, nil
}

// tellingReplies tells replies, with some that it had no room for, and has none to some slots.
type tellingReplies struct {
	backend.OffloadReceiver
	told   []backend.Reply
	missed uint64
	unseen []uint64
}

func (r *tellingReplies) Told(fn func(*backend.Reply)) (uint64, error) {
	for i := range r.told {
		fn(&r.told[i])
	}
	r.told = nil
	return r.missed, nil
}

func (r *tellingReplies) Unseen(_ int, from, to uint64, each func(uint64)) (n uint64, err error) {
	for _, seq := range r.unseen {
		if seq >= from && seq < to {
			each(seq)
			n++
		}
	}
	return n, nil
}

// TestTold: each name is that of its fate; a slot that was not sent has none, and what cannot be named is counted or said.
func TestTold(t *testing.T) {
	cfg := backend.ReceiverConfig{}
	if newTold(nil, 2, &cfg) != nil || cfg.Tell != 0 {
		t.Error("names that nobody asked for")
	}
	var names Names
	told := newTold(&names, 2, &cfg)
	if cfg.Tell != toldKinds {
		t.Errorf("asked for replies of the kinds %b", cfg.Tell)
	}
	from := &tellingReplies{missed: 3, unseen: []uint64{4, 5, 6, 7, 8}, told: []backend.Reply{
		{Worker: 1, Seq: 20, Kinds: backend.ReplyFresh | backend.ReplyLate | backend.ReplyReordered}, {Worker: 0, Seq: 21, Kinds: backend.ReplyDuplicate},
		{Worker: 9, Seq: 22, Kinds: backend.ReplyLate}, // no worker of ours
	}}
	for range 2 { // the second reading brings nothing new
		if err := told.read(from); err != nil {
			t.Fatal(err)
		}
	}
	if err := told.readUnsent(1, &tellingOffload{unsent: []uint64{5, 7}}); err != nil {
		t.Fatal(err)
	}
	if err := told.unreplied(from, 1, 4, 7, 9, told.wasUnsent(1), 2); err != nil {
		t.Fatal(err)
	}
	notes := told.give(&names)
	want := Names{Lost: []Name{{1, 4}, {1, 6}}, InFlight: []Name{{1, 8}}, Late: []Name{{1, 20}}, Duplicate: []Name{{0, 21}}, Reordered: []Name{{1, 20}}, Unnamed: 3}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "of worker 1 are 2 packets that never left") }) || len(notes) != 1 {
		t.Errorf("notes %q", notes)
	}
}
