package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrCorrupt is wrapped by Check when the indices of a ring contradict each other: more entries are full than exist.
var ErrCorrupt = errors.New("ring indices out of range")

func checkRing(producer, consumer *atomic.Uint32, size uint32) error {
	if producer == nil || consumer == nil {
		return errors.New("ring: index word missing")
	}
	if size == 0 || size&(size-1) != 0 {
		return fmt.Errorf("ring: size %d is not a power of two", size)
	}
	return nil
}

// Producer is the writing end of a ring: it owns the producer index and only reads the consumer index.
//
// The steps are: ask for [Producer.Room], write that many entries from [Producer.Index] on, [Producer.Publish] as many as
// were written. Asking reserves nothing, so a short write just publishes less. Used by one thread.
type Producer struct {
	mine *atomic.Uint32 // producer index, written here
	peer *atomic.Uint32 // consumer index, written by the peer
	size uint32
	next uint32 // equals *mine: saves a load of a line the peer reads
	seen uint32 // last value loaded from peer; may be stale, never ahead
}

// NewProducer takes over the writing end of a ring of size entries (a power of two) at the index the producer word has now.
func NewProducer(producer, consumer *atomic.Uint32, size uint32) (Producer, error) {
	if err := checkRing(producer, consumer, size); err != nil {
		return Producer{}, err
	}
	return Producer{mine: producer, peer: consumer, size: size, next: producer.Load(), seen: consumer.Load()}, nil
}

// Size is the number of entries in the ring.
func (p *Producer) Size() uint32 { return p.size }

// Index is the free-running index of the next entry to write. Entry k of a batch is at (Index()+k) & Mask().
func (p *Producer) Index() uint32 { return p.next }

// Mask turns a free-running index into a position in the ring.
func (p *Producer) Mask() uint32 { return p.size - 1 }

// Room returns how many of want entries may be written now. It touches the shared cache line only when what it knew
// before does not suffice, so the answer may be short of the truth but never beyond it, and is never stale when it is
// smaller than want.
func (p *Producer) Room(want uint32) uint32 {
	room := p.known()
	if room < want {
		room = p.Free()
	}
	return min(room, want)
}

// Free returns how many entries may be written now, always read afresh: for counting and for waiting.
func (p *Producer) Free() uint32 {
	p.seen = p.peer.Load()
	return p.known()
}

// Used returns how many published entries the peer has not released yet, always read afresh.
func (p *Producer) Used() uint32 { return p.size - p.Free() }

func (p *Producer) known() uint32 {
	used := p.next - p.seen
	if used > p.size { // impossible unless the memory was overwritten; hand out nothing, let Check explain
		return 0
	}
	return p.size - used
}

// Publish makes the first n entries from Index visible to the peer. n may not exceed the last Room or Free; more is
// a bug in the caller and panics, because the peer would read entries that were never written.
func (p *Producer) Publish(n uint32) {
	if n > p.known() {
		panic("ring: published more entries than there is room for")
	}
	p.next += n
	p.mine.Store(p.next)
}

// Check reports an ErrCorrupt when the indices contradict each other. For watchdogs, not for the hot path.
func (p *Producer) Check() error { return check(p.mine.Load(), p.peer.Load(), p.size) }

// Consumer is the reading end of a ring: it owns the consumer index and only reads the producer index.
//
// The steps are: ask how many are ready by [Consumer.Peek], read them from [Consumer.Index] on, [Consumer.Release] as many
// as were read. Used by one thread.
type Consumer struct {
	mine *atomic.Uint32 // consumer index, written here
	peer *atomic.Uint32 // producer index, written by the peer
	size uint32
	next uint32 // equals *mine
	seen uint32 // last value loaded from peer; may be stale, never ahead
}

// NewConsumer takes over the reading end of a ring of size entries (a power of two) at the index the consumer word has now.
func NewConsumer(producer, consumer *atomic.Uint32, size uint32) (Consumer, error) {
	if err := checkRing(producer, consumer, size); err != nil {
		return Consumer{}, err
	}
	return Consumer{mine: consumer, peer: producer, size: size, next: consumer.Load(), seen: producer.Load()}, nil
}

// Size is the number of entries in the ring.
func (c *Consumer) Size() uint32 { return c.size }

// Index is the free-running index of the next entry to read. Entry k of a batch is at (Index()+k) & Mask().
func (c *Consumer) Index() uint32 { return c.next }

// Mask turns a free-running index into a position in the ring.
func (c *Consumer) Mask() uint32 { return c.size - 1 }

// Peek returns how many of want entries may be read now. Like Producer.Room it spares the shared cache line when what it
// knew before suffices, and an answer smaller than want is fresh.
func (c *Consumer) Peek(want uint32) uint32 {
	ready := c.known()
	if ready < want {
		ready = c.Ready()
	}
	return min(ready, want)
}

// Ready returns how many entries may be read now, always read afresh: for counting and for waiting.
func (c *Consumer) Ready() uint32 {
	c.seen = c.peer.Load()
	return c.known()
}

func (c *Consumer) known() uint32 {
	ready := c.seen - c.next
	if ready > c.size { // see Producer.known
		return 0
	}
	return ready
}

// Release gives the first n entries from Index back to the peer. n may not exceed the last Peek or Ready; more is a bug in
// the caller and panics.
func (c *Consumer) Release(n uint32) {
	if n > c.known() {
		panic("ring: released more entries than were ready")
	}
	c.next += n
	c.mine.Store(c.next)
}

// Check reports an ErrCorrupt when the indices contradict each other. For watchdogs, not for the hot path.
func (c *Consumer) Check() error { return check(c.peer.Load(), c.mine.Load(), c.size) }

func check(producer, consumer, size uint32) error {
	if used := producer - consumer; used > size {
		return fmt.Errorf("%w: producer %d, consumer %d, size %d", ErrCorrupt, producer, consumer, size)
	}
	return nil
}
