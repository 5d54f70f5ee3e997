package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Kinds is what a reply is, a set.
type Kinds uint32

// The kinds of a reply.
const (
	Fresh     Kinds = 1 << iota // the first one of its slot
	Late                        // after the timeout
	Duplicate                   // not the first one of its slot
	Reordered                   // behind the reply to a later slot of its flow
)

// Event is one reply that is told by itself. Times are ns of CLOCK_MONOTONIC; Received is the one that the histograms were given.
type Event struct {
	Seq                     uint64
	Planned, Sent, Received int64
	Worker                  uint32
	Kinds                   Kinds
}

const (
	// toldBytes is the room for events between two readings, less a byte. An event takes 48 bytes with its header: 349,525 of them.
	toldBytes  = 1 << 24
	eventBytes = 40
	// recordHeader and recordAlign are BPF_RINGBUF_HDR_SZ and the alignment of records (kernel/bpf/ringbuf.c).
	recordHeader, recordAlign = 8, 8
)

// decode is struct event of receive.c.
func (e *Event) decode(b []byte) error {
	if len(b) < eventBytes {
		return fmt.Errorf("event of %d bytes: want %d", len(b), eventBytes)
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	*e = Event{Seq: word(0), Planned: int64(word(8)), Sent: int64(word(16)), Received: int64(word(24)),
		Worker: binary.NativeEndian.Uint32(b[32:]), Kinds: Kinds(binary.NativeEndian.Uint32(b[36:]))}
	return nil
}

// ring is a BPF ring buffer that is looked into now and then; its writer wakes nobody.
type ring struct {
	reader *ringbuf.Reader
	record ringbuf.Record
}

func newRing(m *ebpf.Map) (*ring, error) {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	reader.SetDeadline(time.Unix(1, 0)) // never wait
	return &ring{reader: reader}, nil
}

// drain calls fn for each record that is there when it begins, so that it ends however fast the ring is written. A record is valid only inside the call.
func (r *ring) drain(fn func(raw []byte) error) error {
	for left := r.reader.AvailableBytes(); left > 0; {
		switch err := r.reader.ReadInto(&r.record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		}
		if err := fn(r.record.RawSample); err != nil {
			return err
		}
		left -= recordHeader + (len(r.record.RawSample)+recordAlign-1)&^(recordAlign-1)
	}
	return nil
}

func (r *ring) close() error {
	if r == nil {
		return nil
	}
	return r.reader.Close()
}

// Told calls fn for each reply of the kinds in Tell that has come since the last call, in the order of their coming on one CPU. missed is how
// many there was no room for so far: 349,525 fit between two calls.
func (r *Receiver) Told(fn func(*Event)) (missed uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil || r.closed {
		return 0, nil
	}
	err = r.told.drain(func(raw []byte) error {
		var e Event
		if err := e.decode(raw); err != nil {
			return err
		}
		fn(&e)
		return nil
	})
	for w := range r.cfg.Shares {
		var perCPU []receiveCounts
		if lookupErr := r.objects.Tallies.Lookup(uint32(w), &perCPU); lookupErr != nil {
			return missed, errors.Join(err, fmt.Errorf("read counts of worker %d: %w", w, lookupErr))
		}
		for _, c := range perCPU {
			missed += c.Untold
		}
	}
	return missed, err
}

// Unsent calls fn for each measured slot that was found not to be sent since the last call, whether the plan gave it up or the device did not take
// it. missed is how many there was no room for so far: 1,048,575 fit between two calls.
func (s *Sender) Unsent(fn func(seq uint64)) (missed uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsent == nil || s.closed {
		return 0, nil
	}
	err = s.unsent.drain(func(b []byte) error {
		if len(b) < 8 {
			return fmt.Errorf("slot of %d bytes: want 8", len(b))
		}
		fn(binary.NativeEndian.Uint64(b))
		return nil
	})
	var q sendQueue
	if lookupErr := s.objects.Queues.Lookup(uint32(0), &q); lookupErr != nil {
		return 0, errors.Join(err, fmt.Errorf("read slots: %w", lookupErr))
	}
	return q.Untold, err
}
