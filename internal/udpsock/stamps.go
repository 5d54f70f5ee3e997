//blast:hot

package udpsock

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
)

const (
	// stampRoom is the number of stamps that wait to be taken; more are lost.
	stampRoom = 1024
	// owedRoom is the number of sockets remembered for having stamps to come, a power of two.
	owedRoom = 256
	// owedLooks is the number of Reaps for which a socket is looked at; a stamp that takes longer is found when the next packet of the flow asks.
	owedLooks = 64
	// recentRoom is the number of packets whose ids are remembered where the kernel counts.
	recentRoom = 1024
)

// Stamps sends the packets that ask for transmit stamps and gathers what comes back. nil is the absence of it. Used by the Sender's thread.
//
// Each flow has a twin for them: a second socket on the same address and port, connected to another port of the peer, so that replies and ICMP
// errors go to the first one, and strangers find neither. A stamp wakes whoever waits for the socket (sock_def_error_report), in the middle of the send path; nobody waits for a twin, so
// following a packet does not change what becomes of its reply.
type Stamps struct {
	kinds   backend.StampKinds
	flags   uint32 // SOF_TIMESTAMPING_TX_*
	each    int    // stamps a packet
	named   bool   // the kernel takes our ids (Linux 6.13), else it counts the packets of each socket that asked
	control []byte // one request for each message of a call
	twins   []int  // by flow
	peers   []netip.AddrPort
	names   [][]byte // the same as the kernel has them

	queue sys.ErrorQueue
	clock clock.Realtime
	now   func() int64

	device   *clock.Device // nil where the device does not stamp
	phc      *clock.PHC    // what keeps it true, nil when closed
	arrivals bool          // it stamps every packet that arrives

	found   [stampRoom]backend.Stamp
	first   int
	finds   int
	waiting int // stamps still to come, as far as known
	owed    [owedRoom]owedSocket
	oldest  int
	owing   int

	// What follows is used where it does not take our ids.
	counts []uint32 // by flow: what it has counted
	lost   []bool   // by flow: it may have counted a packet that it then refused
	recent [recentRoom]countedPacket
	noted  uint64
}

// owedSocket is a flow whose twin has stamps to come.
type owedSocket struct {
	flow  int32
	looks int32
}

// countedPacket is a packet that asked for stamps under the kernel's count.
type countedPacket struct {
	flow      int32
	count, id uint32
}

// Wants reports whether the slot asks, and so leaves by its flow's twin.
func (s *Stamps) Wants(slot *backend.Slot) bool {
	return s != nil && slot.Stamp != 0 && (s.named || !s.lost[slot.Flow])
}

// Twins are the descriptors, by flow; none without stamps.
func (s *Stamps) Twins() []int {
	if s == nil {
		return nil
	}
	return s.twins
}

// Peer is the destination of a flow, with its zone as a number.
func (s *Stamps) Peer(flow int) netip.AddrPort { return s.peers[flow] }

// Request is the control data of message m of a call, whose packet has the given id.
func (s *Stamps) Request(m int, id uint32) []byte {
	b := s.control[m*sys.StampRequestBytes:][:sys.StampRequestBytes]
	return b[:sys.PutStampRequest(b, s.flags, id, s.named)]
}

// Address writes destination and request of the slot into the header of message m of a call.
func (s *Stamps) Address(h *unix.Msghdr, m int, slot *backend.Slot) {
	name, request := s.names[slot.Flow], s.Request(m, slot.Stamp)
	h.Name, h.Namelen = &name[0], uint32(len(name))
	h.Control = &request[0]
	h.SetControllen(len(request))
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
	if s.owing == owedRoom || s.owing > 0 && s.owed[(s.oldest+s.owing-1)%owedRoom].flow == o.flow {
		return
	}
	s.owed[(s.oldest+s.owing)%owedRoom] = o
	s.owing++
}

// Round looks at twins that have stamps to come. It is called once per Reap.
func (s *Stamps) Round() {
	if s == nil || s.owing == 0 {
		return
	}
	for range s.owing {
		if s.waiting <= 0 {
			s.owing, s.waiting = 0, 0
			return
		}
		o := s.owed[s.oldest]
		s.oldest = (s.oldest + 1) % owedRoom
		s.owing--
		s.drain(o.flow)
		if o.looks++; o.looks < owedLooks {
			s.owe(o)
		}
	}
}

// drain empties the error queue of a twin, into which stamps come.
func (s *Stamps) drain(flow int32) {
	for range stampRoom {
		entry, errno := s.queue.Next(s.twins[flow])
		if errno != 0 {
			return
		}
		if entry.Origin == unix.SO_EE_ORIGIN_TIMESTAMPING {
			s.stamp(&entry, flow)
		}
	}
}

// stamp keeps one stamp.
func (s *Stamps) stamp(entry *sys.SocketError, flow int32) {
	software, hardware := s.queue.Stamps()
	kind := backend.StampSoftware
	switch {
	case software == 0 && hardware != 0 && s.device != nil && entry.Info == sys.StampSent:
		kind = backend.StampHardware
	case software == 0:
		return
	case entry.Info == sys.StampScheduled:
		kind = backend.StampSched
	case entry.Info != sys.StampSent:
		return
	}
	s.waiting--
	id, ok := entry.Data, true
	if !s.named {
		id, ok = s.lookUp(flow, id)
	}
	if !ok || s.finds == stampRoom {
		return
	}
	s.found[(s.first+s.finds)%stampRoom] = backend.Stamp{ID: id, Kind: kind, At: s.monotonic(kind, software, hardware)}
	s.finds++
}

func (s *Stamps) monotonic(kind backend.StampKind, software, hardware int64) int64 {
	if kind == backend.StampHardware {
		return s.device.Monotonic(hardware)
	}
	s.clock.Renew(s.now(), s.now)
	return s.clock.Monotonic(software)
}

// Take implements backend.Stamper.
func (s *Stamps) Take(into []backend.Stamp) (n int) {
	if s == nil {
		return 0
	}
	for n < len(into) && s.finds > 0 {
		into[n] = s.found[s.first]
		s.first = (s.first + 1) % stampRoom
		s.finds--
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
