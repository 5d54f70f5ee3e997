//blast:hot

package udpsock

import (
	"sync/atomic"

	"blast/backend"
)

// stampRoom is the number of stamps that wait to be taken; more are lost. A power of two.
const stampRoom = 1024

// foundStamp is an entry of an error queue: the stamp of one packet of a flow, under the id that the kernel gave.
type foundStamp struct {
	at   int64 // ns of CLOCK_MONOTONIC
	id   uint32
	flow int32
	kind backend.StampKind
}

// StampRing hands stamps from the thread that drains error queues to the Sender. The zero value is ready; one thread puts, one takes.
type StampRing struct {
	items [stampRoom]foundStamp
	given atomic.Uint64
	taken atomic.Uint64
}

func (r *StampRing) put(s foundStamp) {
	n := r.given.Load()
	if n-r.taken.Load() == stampRoom {
		return
	}
	r.items[n%stampRoom] = s
	r.given.Store(n + 1)
}

func (r *StampRing) take() (s foundStamp, ok bool) {
	n := r.taken.Load()
	if n == r.given.Load() {
		return s, false
	}
	s = r.items[n%stampRoom]
	r.taken.Store(n + 1)
	return s, true
}
