//blast:hot

package engine

import (
	"sync/atomic"

	"blast/backend"
)

// A follower follows the sampled packets of one worker on one of its threads, and hands what it sees to the collector (trace.go), which joins
// both threads' halves. nil is the absence of it.
type follower struct {
	sampler sampler
	marks   marks

	// Of the sending thread.
	stamper backend.Stamper // nil where packets have no stamps on their way out
	each    uint64          // stamps a packet
	asked   uint64          // packets that the kernel took
	came    uint64          // stamps
	since   int             // packets since the stamps were last taken
	looks   int             // of a spinning worker at the backend, since the last packet that asked
	stamps  [64]backend.Stamp
}

const (
	// followLooks bounds those looks: stamps that do not come soon are found in the next pause.
	followLooks = 4
	// followRoom is the time before the next slot that such a look needs, ns.
	followRoom = 5000
	// followMost is the number of packets that ask until stamps are taken whatever else there is to do: backends keep about a thousand stamps.
	followMost = 128
)

// sent notes the accepted slots of a Commit that began at now.
func (f *follower) sent(slots []slot, now int64, unpaced bool) {
	for k := range slots {
		id := f.sampler.pick(slots[k].seq)
		if id == 0 {
			continue
		}
		f.asked++
		f.since++
		f.looks = followLooks
		if m := f.marks.next(); m != nil {
			m.id, m.kind, m.planned, m.sent = id, markSent, slots[k].planned, now
			if unpaced {
				m.planned = now
			}
			f.marks.give()
		}
	}
}

// collect takes the stamps that the backend has.
func (f *follower) collect() {
	f.since = 0
	for f.stamper != nil {
		n := f.stamper.TakeStamps(f.stamps[:])
		f.came += uint64(n)
		for _, s := range f.stamps[:n] {
			if m := f.marks.next(); m != nil {
				m.id, m.kind, m.at = s.ID, markKind(s.Kind), s.At
				f.marks.give()
			}
		}
		if n < len(f.stamps) {
			return
		}
	}
}

// waiting says whether stamps are still to come.
func (f *follower) waiting() bool { return f.came < f.asked*f.each }

// full says that stamps are to be taken now.
func (f *follower) full() bool { return f.since >= followMost }

// look says whether a spinning worker should look for stamps with so much time left.
func (f *follower) look(left int64) bool {
	if f.looks == 0 || left < followRoom || !f.waiting() {
		return false
	}
	f.looks--
	return true
}

// replied notes the first reply to a slot.
func (f *follower) replied(id uint32, p *backend.Packet, serverReceived, serverSent int64) {
	if m := f.marks.next(); m != nil {
		m.id, m.kind = id, markReply
		m.serverReceived, m.serverSent, m.kernel, m.asked, m.at = serverReceived, serverSent, p.Kernel, p.Asked, p.At
		f.marks.give()
	}
}

// markKind says what a mark tells: up to markSent a stamp of that kind.
type markKind uint8

const (
	markSent  = markKind(backend.NumStampKinds)
	markReply = markSent + 1
)

// mark is one thing that a thread saw of a sampled packet. Times are ns of CLOCK_MONOTONIC, the server's of its own clock.
type mark struct {
	id                         uint32
	kind                       markKind
	planned, sent              int64 // markSent
	at                         int64 // a stamp; markReply: when the reply was received
	serverReceived, serverSent int64 // markReply; 0 where no server stamps
	kernel, asked              int64 // markReply: the reply is in our kernel, and the thread asks for it
}

// marks hands marks from one thread to the collector.
type marks struct {
	items []mark // a power of two
	given atomic.Uint64
	taken atomic.Uint64
}

// next is the place of the next mark, to be filled and then given; nil where the collector is behind: the mark is lost.
func (m *marks) next() *mark {
	n := m.given.Load()
	if n-m.taken.Load() == uint64(len(m.items)) {
		return nil
	}
	return &m.items[n&uint64(len(m.items)-1)]
}

func (m *marks) give() { m.given.Store(m.given.Load() + 1) }

// take calls fn with every mark given. Collector only.
func (m *marks) take(fn func(*mark)) {
	n := m.taken.Load()
	for given := m.given.Load(); n != given; n++ {
		fn(&m.items[n&uint64(len(m.items)-1)])
	}
	m.taken.Store(n)
}
