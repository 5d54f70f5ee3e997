package serve

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"blast/packet"
)

const (
	// flowIdle is how long a flow must have been silent before its place may go to another, ns.
	flowIdle = 60e9
	// flowSweep is how many places are looked at per batch once the table is nearly full.
	flowSweep = 64
	// flowRestart is how long a flow must have been silent before a packet that looks older than it begins it anew, ns.
	flowRestart = 2e9
)

// key tells flows apart: the peer, its worker, and which of the worker's flows it is, since several may share a source port.
type key struct {
	addr               [16]byte
	port, worker, lane uint16
}

// flow is what the server knows of one sender's flow: 64 bytes, one cache line. A zero count is a free place.
type flow struct {
	key
	epoch   uint8
	newest  uint64 // index within the flow
	window  uint64 // bit k: packet newest-k has come
	count   uint64
	planned int64 // of the newest, ns of the sender's clock
	seen    int64 // ns of the server's clock
}

// flows is a bounded hash table of flows, linear probing over a power of two of places that is never more than half full. One
// worker owns it; it never grows and never allocates.
type flows struct {
	place []flow
	shift uint // 64 minus log2(len(place))
	mask  uint64
	seed  uint64
	live  int
	limit int
	sweep uint64 // next place to look at
}

func newFlows(limit int, seed uint64) *flows {
	log := bits.Len(uint(2*limit - 1))
	return &flows{place: make([]flow, 1<<log), shift: uint(64 - log), mask: 1<<log - 1, seed: seed | 1, limit: limit}
}

// home is where a flow is looked for first. The seed keeps peers from choosing collisions.
func (t *flows) home(k *key) uint64 {
	hi, lo := bits.Mul64(binary.NativeEndian.Uint64(k.addr[:])^t.seed, binary.NativeEndian.Uint64(k.addr[8:])^0x9E3779B97F4A7C15)
	rest := uint64(k.port)<<32 | uint64(k.worker)<<16 | uint64(k.lane)
	hi, lo = bits.Mul64(hi^lo^rest, t.seed*0xBF58476D1CE4E5B9|1)
	return (hi ^ lo) * 0x94D049BB133111EB >> t.shift
}

// observe records that a packet came and returns the report for its reply: the distinct packets of its flow so far, and the window
// when the packet is the flow's newest. A count of 0 is no report.
func (t *flows) observe(peer netip.AddrPort, s *packet.Stamp, now int64, c *Counts) (count, window uint64) {
	k := key{addr: peer.Addr().As16(), port: peer.Port(), worker: s.Worker}
	index := uint64(0)
	if stride := uint64(s.Stride); stride != 0 {
		index = s.Seq / stride
		k.lane = uint16(s.Seq % stride)
	}
	at := t.home(&k)
	f := &t.place[at]
	for f.count != 0 {
		if f.key == k {
			return f.observe(s, index, now, c)
		}
		at = (at + 1) & t.mask
		f = &t.place[at]
	}
	if t.live >= t.limit {
		c.Unreported++
		return 0, 0
	}
	t.live++
	f.key = k
	return f.begin(s, index, now)
}

// begin makes the packet the first of its flow.
func (f *flow) begin(s *packet.Stamp, index uint64, now int64) (count, window uint64) {
	f.epoch, f.count, f.planned, f.seen = s.Epoch, 1, s.Planned, now
	f.newest, f.window = index, 0
	if s.Stride != 0 {
		f.window = 1
	}
	return f.count, f.window
}

// observe adds a packet to its flow. Within one run the plan never runs backwards: a later packet of a flow is planned no earlier.
// So one that is planned later than the newest, and yet is of another epoch or has no greater index, is of a new phase or run; one
// of another epoch that is planned earlier is a straggler, unless the flow had fallen silent (the sender's clock began anew).
func (f *flow) observe(s *packet.Stamp, index uint64, now int64, c *Counts) (count, window uint64) {
	later := s.Planned > f.planned
	if s.Epoch != f.epoch {
		if !later && now-f.seen < flowRestart {
			c.Stale++
			return 0, 0
		}
		c.Restarted++
		return f.begin(s, index, now)
	}
	if s.Stride == 0 {
		f.count++
		f.seen, f.planned, f.window = now, max(f.planned, s.Planned), 0
		return f.count, 0
	}
	switch {
	case index > f.newest:
		// A shift of 64 or more gives 0 in Go.
		f.window = f.window<<(index-f.newest) | 1
		f.newest, f.planned = index, max(f.planned, s.Planned)
		f.count++
		f.seen = now
		return f.count, f.window
	case later:
		c.Restarted++
		return f.begin(s, index, now)
	}
	f.seen = now
	age := f.newest - index
	switch {
	case age >= 64:
		c.Beyond++
		c.Reordered++
		f.count++
	case f.window>>age&1 != 0:
		c.Duplicate++
	default:
		c.Reordered++
		f.window |= 1 << age
		f.count++
	}
	return f.count, 0
}

// expire frees some places of flows that have been silent, once the table is three quarters full. It is called once per batch.
func (t *flows) expire(now int64) {
	if t.live < t.limit-t.limit/4 {
		return
	}
	for range flowSweep {
		at := t.sweep & t.mask
		if f := &t.place[at]; f.count != 0 && now-f.seen > flowIdle {
			t.remove(at) // and look at the place again: another flow may have moved in
			continue
		}
		t.sweep++
	}
}

// remove frees a place and moves up the flows behind it that would otherwise no longer be found.
func (t *flows) remove(hole uint64) {
	t.live--
	for at := (hole + 1) & t.mask; t.place[at].count != 0; at = (at + 1) & t.mask {
		f := &t.place[at]
		home := t.home(&f.key)
		if (at-home)&t.mask >= (at-hole)&t.mask {
			t.place[hole] = *f
			hole = at
		}
	}
	t.place[hole] = flow{}
}
