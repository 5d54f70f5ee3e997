//blast:hot

package udpsock

import (
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

const (
	// owedRoom is the number of sockets remembered for having stamps to come. Those beyond are found by the Sweep.
	owedRoom = 64
	// owedLooks is the number of Reaps for which a socket is looked at; a stamp that takes longer is found by the Sweep, or is lost.
	owedLooks = 32
	// recentRoom is the number of packets whose ids are remembered where the kernel counts.
	recentRoom = 1024
)

// Stamps asks for transmit stamps of single packets of a Sender and gathers what the error queues bring back. nil is the absence of it.
// Used by the Sender's thread.
type Stamps struct {
	flags   uint32 // SOF_TIMESTAMPING_TX_*
	each    int    // stamps a packet
	named   bool   // the kernel takes our ids (Linux 6.13), else it counts the packets of each socket that asked
	control []byte // one request for each message of a call

	own, other *StampRing // what the Sender and the Receiver came upon
	waiting    int        // stamps still to come, as far as known
	owed       [owedRoom]owedSocket
	first      int
	owing      int

	counts []uint32 // by flow: what the kernel has counted; nil where it takes our ids
	lost   []bool   // by flow: it may have counted a packet that it then refused
	recent [recentRoom]countedPacket
	noted  uint64
}

// owedSocket is a flow whose socket has stamps to come.
type owedSocket struct {
	flow  int32
	looks int32
}

// countedPacket is a packet that asked for stamps under the kernel's count.
type countedPacket struct {
	flow      int32
	count, id uint32
}

// Wants reports whether the slot is to be asked for.
func (s *Stamps) Wants(slot *backend.Slot) bool {
	return s != nil && slot.Stamp != 0 && (s.named || !s.lost[slot.Flow])
}

// Request is the control message for message m of a call, whose packet has the given id.
func (s *Stamps) Request(m int, id uint32) []byte {
	b := s.control[m*sys.StampRequestBytes:][:sys.StampRequestBytes]
	return b[:sys.PutStampRequest(b, s.flags, id, s.named)]
}

// Sent notes that the kernel took a packet that asked.
func (s *Stamps) Sent(slot *backend.Slot) {
	flow := int32(slot.Flow)
	if !s.named {
		s.recent[s.noted%recentRoom] = countedPacket{flow, s.counts[flow], slot.Stamp}
		s.noted++
		s.counts[flow]++
	}
	s.waiting += s.each
	s.owe(owedSocket{flow: flow})
}

// Refused notes that the kernel did not take a packet that asked. Where it counts, nobody knows whether it has counted this one.
func (s *Stamps) Refused(slot *backend.Slot) {
	if !s.named {
		s.lost[slot.Flow] = true
	}
}

func (s *Stamps) owe(o owedSocket) {
	if s.owing == owedRoom || s.owing > 0 && s.owed[(s.first+s.owing-1)%owedRoom].flow == o.flow {
		return
	}
	s.owed[(s.first+s.owing)%owedRoom] = o
	s.owing++
}

// Round looks at sockets that have stamps to come. It is called once per Reap.
func (s *Stamps) Round(events *Events, fds []int) {
	if s == nil || s.owing == 0 {
		return
	}
	if s.waiting <= 0 {
		s.owing, s.waiting = 0, 0
		return
	}
	for range s.owing {
		o := s.owed[s.first]
		s.first = (s.first + 1) % owedRoom
		s.owing--
		events.Drain(fds[o.flow], int(o.flow))
		if o.looks++; o.looks < owedLooks {
			s.owe(o)
		}
	}
}

// Take implements backend.Stamper.
func (s *Stamps) Take(into []backend.Stamp) (n int) {
	if s == nil {
		return 0
	}
	for n < len(into) {
		f, ok := s.own.take()
		if !ok {
			if f, ok = s.other.take(); !ok {
				return n
			}
		}
		s.waiting--
		if !s.named {
			if f.id, ok = s.lookUp(f.flow, f.id); !ok {
				continue
			}
		}
		into[n] = backend.Stamp{ID: f.id, Kind: f.kind, At: f.at}
		n++
	}
	return n
}

// lookUp finds the id of a packet by its count, the youngest first.
func (s *Stamps) lookUp(flow int32, count uint32) (id uint32, ok bool) {
	for k := s.noted; k > 0 && s.noted-k < recentRoom; k-- {
		if c := &s.recent[(k-1)%recentRoom]; c.flow == flow && c.count == count {
			return c.id, true
		}
	}
	return 0, false
}

// stampFlags are the TX flags of a set of kinds.
func stampFlags(kinds backend.StampKinds) (flags uint32, each int) {
	for kind, flag := range [backend.NumStampKinds]uint32{
		unix.SOF_TIMESTAMPING_TX_SCHED, unix.SOF_TIMESTAMPING_TX_SOFTWARE, unix.SOF_TIMESTAMPING_TX_HARDWARE,
	} {
		if kinds.Has(backend.StampKind(kind)) {
			flags |= flag
			each++
		}
	}
	return flags, each
}
