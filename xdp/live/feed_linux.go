package live

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// feeder fills the ring of planned times ahead of the program, for plans that have no segments: each slot's time is exactly what the
// schedule says. When it falls behind, the program waits for it, and that shows as lag.
type feeder struct {
	s      *Sender
	ring   *ebpf.Memory
	filled uint64
	chunk  []byte
	err    error
}

const feedChunk = 4096

// feed makes a feeder and fills the ring for the first time.
func (s *Sender) feed() (*feeder, error) {
	ring, err := s.objects.Times.Memory()
	if err != nil {
		return nil, fmt.Errorf("map the ring of times: %w", err)
	}
	f := &feeder{s: s, ring: ring, chunk: make([]byte, 8*feedChunk)}
	f.fill(ringSlots)
	return f, f.err
}

// fill goes on up to the given slot.
func (f *feeder) fill(to uint64) {
	for to = min(to, f.s.cfg.Slots); f.err == nil && f.filled < to; {
		at := f.filled % ringSlots
		n := min(to-f.filled, feedChunk, ringSlots-at)
		for k := range n {
			binary.NativeEndian.PutUint64(f.chunk[8*k:], uint64(f.s.cfg.Times()))
		}
		if _, f.err = f.ring.WriteAt(f.chunk[:8*n], int64(8*at)); f.err != nil {
			return
		}
		// The system call orders the count behind the times.
		f.filled += n
		f.err = f.s.objects.Feeds.Put(uint32(0), &sendFeed{Filled: f.filled, Total: f.s.cfg.Slots})
	}
}

// run keeps the ring full until Run has ended.
func (f *feeder) run(ended <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for f.err == nil && f.filled < f.s.cfg.Slots {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		st, err := f.s.state()
		if err != nil {
			return
		}
		f.fill(st.Seq + ringSlots)
	}
}
