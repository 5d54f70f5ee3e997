// Package backend is the contract between the rate scheduler and whatever puts packets on the wire.
//
// It is a leaf: it holds the vocabulary, the two thread-bound interfaces Sender and Receiver, and the one place that
// classifies kernel refusals. A backend never paces and never decides what is sent; the engine never knows which
// backend it drives. The conformance suite in backendtest says in code what this file says in words.
package backend

import (
	"fmt"
	"net/netip"
	"time"
)

// Flow is one (source, destination) pair. A zero source address or port leaves the choice to the kernel or, for
// backends below the socket layer, to the route and the backend.
type Flow struct {
	Src, Dst netip.AddrPort
}

// Slot is one place for a payload, owned by the backend. The caller writes Payload[:Len], sets Len and Flow, and must
// not touch any of it after the next Commit.
type Slot struct {
	// Payload has Config.PayloadBytes bytes of memory that belongs to the backend (plain, registered or mapped).
	Payload []byte
	// Len is the number of payload bytes to send.
	Len int
	// Flow indexes Config.Flows.
	Flow int
	// Stamp, if not 0, asks for transmit stamps of this packet and names it in them; see Stamper. It is left alone by the backend, so that
	// a caller that asks for some sets it for every slot.
	Stamp uint32
}

// Sender sends payloads for one worker. Every method is called by the one locked thread that opened it.
type Sender interface {
	// Reserve returns up to n slots to write into; fewer means full, none means that Reap has to make room first.
	// It advances nothing: calling it again returns the same slots.
	Reserve(n int) []Slot
	// Commit offers the first n reserved slots to the kernel in order, gives the rest back and ends the reservation.
	// It returns how many were accepted. Fewer than n with a nil error is back-pressure: offer them again later.
	// An error that is a Cause says that the slot after the accepted ones was refused for good: it is not to be
	// offered again, and the slots behind it were not offered at all. ECONNREFUSED (an ICMP error for an earlier packet) is never a Cause here: the
	// backend counts the event and offers the packet again. Any other error ends the run.
	Commit(n int) (accepted int, err error)
	// Reap returns what has been learned since the last call. For asynchronous backends it is also what makes room.
	Reap() Completions
	// Limits is what was really granted, read back from the kernel. It does not change while the Sender is open, but for
	// Notes: a fallback taken on the way adds one.
	Limits() Limits
	// Close releases everything and leaves nothing attached to the host. It is idempotent.
	Close() error
}

// KernelThread is implemented by a Sender for which a thread of the kernel may work beside the one that calls it.
type KernelThread interface {
	// KernelTime is what that thread has used since Open: all its CPU time, and the part in which it did more than spin in search of
	// work (all of it where the kernel does not tell). Both are 0 without such a thread. It is called on the Sender's thread and may be slow.
	KernelTime() (cpu, busy time.Duration)
}

// Receiver takes replies for one worker. Poll and Close are called by one locked thread, which need not be the
// Sender's; a Receiver binds thread-bound kernel objects in its first Poll.
type Receiver interface {
	// Poll waits at most wait for packets and calls fn for each one at hand. The packet and its payload are valid only inside
	// the call. It returns how many packets fn saw; a wait that ended empty is not an error.
	Poll(wait time.Duration, fn func(*Packet)) (int, error)
	// Drops is the number of packets that this receiver's own path lost since it was opened (socket buffer or ring full).
	// These are the generator's losses, not the target's. Safe to call from any thread.
	Drops() uint64
	// Close is idempotent. It is called after the Sender's Close where both share sockets.
	Close() error
}

// Packet is one received payload.
type Packet struct {
	Payload []byte
	// Flow indexes Config.Flows: the flow whose socket or port the packet came to.
	Flow int
	// At is the receive time in ns of CLOCK_MONOTONIC (Config.Now, or the kernel's stamp converted to it).
	At int64
	// Source is the sender's address.
	Source netip.AddrPort
	// Kernel is when the kernel took the packet in and Asked when the thread made the call that brought it, both in ns of CLOCK_MONOTONIC; 0
	// without Config.Stamps, or where nobody stamped it.
	Kernel, Asked int64
}

// Config opens one worker's share of a backend. Fields that a backend has no use for are refused by Open when set to
// something it cannot honour, never ignored.
type Config struct {
	// Flows are this worker's flows; at least one. All have the same address family as far as a backend cares per flow.
	Flows []Flow
	// PayloadBytes is the largest payload, 0..65507.
	PayloadBytes int
	// Batch is the largest number of slots of one Commit; 0 means the backend's default.
	Batch int
	// GSO is the number of segments of one UDP_SEGMENT train; 0 and 1 mean no trains.
	GSO int
	// GRO asks for UDP_GRO on receive. It is independent of GSO.
	GRO bool
	// Receive asks Open for a Receiver as well.
	Receive bool
	// KernelStamp asks for kernel receive times instead of Config.Now.
	KernelStamp bool
	// Stamps asks for transmit stamps of the slots that ask for them (Stamper), and for Packet.Kernel and Packet.Asked. It wants Now. Where less
	// is to be had, Limits.Stamps and Limits.Notes say so; it is an error only for a backend that knows no stamps.
	Stamps bool
	// SendBuffer and ReceiveBuffer are SO_SNDBUF and SO_RCVBUF in bytes; 0 leaves the default (send) or asks for 4 MiB (receive).
	SendBuffer, ReceiveBuffer int
	// Fragment lets the kernel fragment payloads above the path MTU. Off, the DF bit is set and too large is an error.
	Fragment bool
	// Interface names the device for backends below the socket layer; empty means: by route.
	Interface string
	// Queue is the first device queue for such backends; the worker with number Worker takes the queue that far behind it.
	Queue, Worker int
	// SQPoll, ZeroCopy are switches of the io_uring backend; ZeroCopy also of AF_XDP (false means: as granted).
	SQPoll, ZeroCopy bool
	// Now reads CLOCK_MONOTONIC in ns; required when Receive or Stamps is set. The engine's clock.
	Now func() int64
}

// Limits is what a Sender was granted.
type Limits struct {
	// Batch is the largest number of slots that Reserve ever returns.
	Batch int
	// PayloadBytes is the largest payload that fits in one packet without fragments (or with, where Fragment was asked for).
	PayloadBytes int
	// Async says that Commit only queues and that Reap says what was sent.
	Async bool
	// GSO is the number of segments of a train; 1 without trains.
	GSO int
	// ZeroCopy says that the kernel sends from the backend's memory.
	ZeroCopy bool
	// Stamps are the transmit stamps that a slot may ask for; none without Config.Stamps.
	Stamps StampKinds
	// Arrivals says that Packet.Kernel is set although Stamps may be empty.
	Arrivals bool
	// HardwareArrivals says that Packet.Kernel is when the device had the packet, by the device's own clock; packets without such a time have none.
	HardwareArrivals bool
	// ClockErrorNS bounds the error of converting a device's times to CLOCK_MONOTONIC, as far as it has shown; 0 where no stamp is a device's.
	ClockErrorNS int64
	// Mode is one line for the report: "connected sockets", "copy, generic", ...
	Mode string
	// SendBuffer and ReceiveBuffer are the effective socket buffers in bytes, as the kernel reports them (doubled); 0 where there is none.
	SendBuffer, ReceiveBuffer int
	// Sources are the local addresses and ports of the flows, as bound.
	Sources []netip.AddrPort
	// Notes are fallbacks taken and other things that a reader of the report must know, one sentence each.
	Notes []string
}

// Completions is what a Sender learned since it was last asked.
type Completions struct {
	// Sent is the number of slots completed without a drop. Asynchronous backends only: elsewhere accepted means sent.
	Sent uint64
	// Dropped is the number of slots that the kernel took and then dropped.
	Dropped uint64
	// Refused counts slots refused after Commit had accepted them, by cause. Asynchronous backends only.
	Refused [NumCauses]uint64
	// Events counts what is no slot's fate but explains one.
	Events [NumEvents]uint64
}

// Event is something the kernel told that is not the fate of the slot in hand.
type Event uint8

// The events.
const (
	// EventPushback: a call took fewer slots than offered (EAGAIN, ring full); they are offered again.
	EventPushback Event = iota
	// EventConnRefused: ICMP port unreachable came back for an earlier packet.
	EventConnRefused
	// EventUnreachable: another ICMP error came back for an earlier packet.
	EventUnreachable
	// EventTooBig: ICMP fragmentation needed or packet too big came back.
	EventTooBig
	// EventCopied: zero-copy was asked for and the kernel copied anyway.
	EventCopied
	NumEvents
)

var eventNames = [NumEvents]string{"pushback", "conn_refused", "unreachable", "too_big", "copied"}

// String is the event's name in JSON.
func (e Event) String() string {
	if e < NumEvents {
		return eventNames[e]
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// Open opens one worker's share. It is called on the worker's locked thread. The Receiver is nil unless Config.Receive.
type Open func(Config) (Sender, Receiver, error)

// Entry is one row of the table of backends that cmd/blast holds.
type Entry struct {
	// Name is the value of --backend.
	Name string
	// Open opens one worker's share.
	Open Open
	// Probe says whether the backend works here: nil, it will; wrapping errors.ErrUnsupported, it will not, and the text says
	// what is missing and the command that fixes it; any other error, it could not tell.
	Probe func() error
	// Stamps says that the backend takes Config.Stamps.
	Stamps bool
}
