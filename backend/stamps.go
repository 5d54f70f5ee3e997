package backend

// StampKind is a place on a packet's way out where the kernel, or the device, reads a clock.
type StampKind uint8

// The places, in the order of a packet's way.
const (
	// StampSched: the packet scheduler is handed the packet (SOF_TIMESTAMPING_TX_SCHED, __dev_queue_xmit).
	StampSched StampKind = iota
	// StampSoftware: the driver has the packet and is about to tell the device (SOF_TIMESTAMPING_TX_SOFTWARE, skb_tx_timestamp).
	StampSoftware
	// StampHardware: the device put it on the wire (SOF_TIMESTAMPING_TX_HARDWARE).
	StampHardware
	// NumStampKinds is the number of kinds.
	NumStampKinds
)

// StampKinds is a set of kinds.
type StampKinds uint8

// Has reports whether kind is in the set.
func (s StampKinds) Has(kind StampKind) bool { return s>>kind&1 != 0 }

// With is the set and kind.
func (s StampKinds) With(kind StampKind) StampKinds { return s | 1<<kind }

// Without is the set but for kind.
func (s StampKinds) Without(kind StampKind) StampKinds { return s &^ (1 << kind) }

// Stamp is when one packet passed one place.
type Stamp struct {
	// ID is Slot.Stamp of the packet.
	ID uint32
	// Kind is the place.
	Kind StampKind
	// At is in ns of CLOCK_MONOTONIC, converted where the kernel stamps by another clock.
	At int64
}

// Stamper is implemented by a Sender that can have single packets stamped on their way out, when Config.Stamps asks for it and
// Limits.Stamps says what came of that. Stamps come some time after Commit, in any order, and some may be lost.
type Stamper interface {
	// TakeStamps moves stamps that have come since the last call into the given array and returns how many; as many as fit means
	// that there may be more. It is called after Reap, on the Sender's thread.
	TakeStamps(into []Stamp) int
}
