package engine

import (
	"sync/atomic"

	"blast/packet"
)

// Templated is the Source for targets that do not know our stamp: a template with varied fields, and a table from the key that
// comes back to the slot it went out with. A key may be used again once its slot has had its timeout.
type Templated struct {
	template *packet.Template
	mask     uint64
	sent     []sentKey
}

// sentKey is what the sending thread leaves for the receiving one. seq is stored last and read first and last, so a torn entry is seen.
type sentKey struct {
	seq           atomic.Uint64 // 1 + seq; 0 = never used
	planned, sent atomic.Int64
}

// NewTemplated makes the table: one entry a distinct key, 2^20 at most.
func NewTemplated(t *packet.Template) *Templated {
	size := uint64(1 << 20)
	if keys := t.Keys(); keys > 0 && keys < size {
		size = 1
		for size < keys {
			size <<= 1
		}
	}
	return &Templated{template: t, mask: size - 1, sent: make([]sentKey, size)}
}

// Fill writes the template with its varied fields and remembers the slot under its key.
func (s *Templated) Fill(st *packet.Stamp, flow int, buf []byte) int {
	n := s.template.Fill(buf, st.Seq, flow, st.Sent)
	if key, ok := s.template.Key(buf[:n]); ok {
		e := &s.sent[s.template.Index(key)&s.mask]
		e.seq.Store(0)
		e.planned.Store(st.Planned)
		e.sent.Store(st.Sent)
		e.seq.Store(st.Seq + 1)
	}
	return n
}

// Match looks the key of a reply up.
func (s *Templated) Match(payload []byte, _ int64, st *packet.Stamp) bool {
	key, ok := s.template.Key(payload)
	if !ok {
		return false
	}
	e := &s.sent[s.template.Index(key)&s.mask]
	seq := e.seq.Load()
	*st = packet.Stamp{Seq: seq - 1, Planned: e.planned.Load(), Sent: e.sent.Load()}
	return seq != 0 && e.seq.Load() == seq && s.template.KeyOf(seq-1) == key
}
