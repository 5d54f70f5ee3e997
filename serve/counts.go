package serve

import (
	"fmt"
	"sync/atomic"
)

// Counts is what a server saw, in datagrams unless said otherwise. A train received in one piece counts as its segments.
type Counts struct {
	// Received came from allowed peers; Bytes is their UDP payload.
	Received uint64 `json:"received"`
	Bytes    uint64 `json:"bytes"`
	// Denied came from peers outside the allow list, or from the server's own address and port. They are in no other count and are
	// never answered.
	Denied uint64 `json:"denied"`
	// Replied replies were taken by the kernel, ReplyRefused were not. A reply that a queueing discipline drops counts as
	// replied: the kernel does not tell (udp_send_skb).
	Replied      uint64 `json:"replied"`
	ReplyRefused uint64 `json:"reply_refused"`
	// Malformed begin as our stamp does but carry none (cut short, other version). They are echoed unchanged. Echo only.
	Malformed uint64 `json:"malformed"`
	// Flows are those that the server reports on, Restarted how often one began anew (next epoch, next run from the same port).
	Flows     uint64 `json:"flows"`
	Restarted uint64 `json:"restarted"`
	// Unreported stamped datagrams were answered without a report because the flow table was full.
	Unreported uint64 `json:"unreported"`
	// Duplicate, Reordered and Stale tell how flows arrived: the same packet again, one older than the newest, one of an epoch that
	// is over. Beyond were older than the window, where a duplicate cannot be told from a latecomer: they count as new.
	Duplicate uint64 `json:"duplicate"`
	Reordered uint64 `json:"reordered"`
	Beyond    uint64 `json:"beyond"`
	Stale     uint64 `json:"stale"`
	// Drops were lost by the kernel for this server's own sockets, most often because a receive buffer was full: losses of the
	// target, not of the path.
	Drops uint64 `json:"drops"`
	// Batches is the number of receive calls that brought something.
	Batches uint64 `json:"batches"`
	// Workers are the parts, in the order of Config.Listen and within it of the workers. Empty in a part.
	Workers []Counts `json:"workers,omitempty"`
}

func (c *Counts) add(o *Counts) {
	c.Received += o.Received
	c.Bytes += o.Bytes
	c.Denied += o.Denied
	c.Replied += o.Replied
	c.ReplyRefused += o.ReplyRefused
	c.Malformed += o.Malformed
	c.Flows += o.Flows
	c.Restarted += o.Restarted
	c.Unreported += o.Unreported
	c.Duplicate += o.Duplicate
	c.Reordered += o.Reordered
	c.Beyond += o.Beyond
	c.Stale += o.Stale
	c.Drops += o.Drops
	c.Batches += o.Batches
}

// String is one line of "name number" pairs, always the same names in the same order; workers are left out.
func (c Counts) String() string {
	return fmt.Sprintf("received %d packets %d bytes, denied %d, replied %d, reply refused %d, malformed %d, drops %d, "+
		"flows %d, restarted %d, unreported %d, duplicate %d, reordered %d, beyond window %d, stale %d, batches %d",
		c.Received, c.Bytes, c.Denied, c.Replied, c.ReplyRefused, c.Malformed, c.Drops,
		c.Flows, c.Restarted, c.Unreported, c.Duplicate, c.Reordered, c.Beyond, c.Stale, c.Batches)
}

// counters is one worker's running Counts. The worker counts a batch in plain numbers and publishes them once per batch.
type counters struct {
	_                                                    [64]byte // keeps neighbours off the line
	received, bytes, denied, replied, refused, malformed atomic.Uint64
	flows, restarted, unreported, duplicate, reordered   atomic.Uint64
	beyond, stale, batches                               atomic.Uint64
	_                                                    [64]byte
}

// publish adds a batch and clears it.
func (p *counters) publish(b *Counts) {
	add(&p.received, b.Received)
	add(&p.bytes, b.Bytes)
	add(&p.denied, b.Denied)
	add(&p.replied, b.Replied)
	add(&p.refused, b.ReplyRefused)
	add(&p.malformed, b.Malformed)
	add(&p.restarted, b.Restarted)
	add(&p.unreported, b.Unreported)
	add(&p.duplicate, b.Duplicate)
	add(&p.reordered, b.Reordered)
	add(&p.beyond, b.Beyond)
	add(&p.stale, b.Stale)
	add(&p.batches, b.Batches)
	*b = Counts{}
}

func add(to *atomic.Uint64, n uint64) {
	if n != 0 {
		to.Add(n)
	}
}

func (p *counters) read() Counts {
	return Counts{
		Received: p.received.Load(), Bytes: p.bytes.Load(), Denied: p.denied.Load(),
		Replied: p.replied.Load(), ReplyRefused: p.refused.Load(), Malformed: p.malformed.Load(),
		Flows: p.flows.Load(), Restarted: p.restarted.Load(), Unreported: p.unreported.Load(),
		Duplicate: p.duplicate.Load(), Reordered: p.reordered.Load(), Beyond: p.beyond.Load(), Stale: p.stale.Load(),
		Batches: p.batches.Load(),
	}
}
