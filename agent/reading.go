package agent

import (
	"net/netip"
	"time"

	"blast/tuning"
)

// Reading is what a host said about itself at one moment.
type Reading struct {
	// Source says who was asked, for people.
	Source string
	Sample tuning.Sample
	// BootID and NetNS tell whether it is this host and network namespace; empty when not told.
	BootID, NetNS string
	// BootTime, in seconds since 1970, and Hostname tell it less surely; 0 and empty when not told.
	BootTime uint64
	Hostname string
	// Noop is the address of a no-op echo on UDP there; not valid when there is none.
	Noop netip.AddrPort
	// Offset is the host's wall clock minus this one's, known to Within: half of the round trip of the question.
	Offset, Within time.Duration
}

// SameHost says whether a reading is of the host whose facts r reads, as far as can be told.
func (a *Reading) SameHost(r tuning.Reader) bool {
	if a.BootID != "" {
		return a.BootID == r.BootID()
	}
	// The start of the kernel is worked out from the wall clock and may move by a second when that is slewed.
	own := r.BootTime()
	return a.BootTime != 0 && a.BootTime+1 >= own && a.BootTime <= own+1 && a.Hostname == r.Host("").Hostname
}

// SameNetwork says whether a reading is of the calling thread's network namespace as well.
func (a *Reading) SameNetwork(r tuning.Reader) bool {
	return a.SameHost(r) && (a.NetNS == "" || a.NetNS == r.NetNS())
}

// setClock works out the offset: the host read its clock at some time between asked and answered, most likely in the middle.
func (a *Reading) setClock(asked, answered time.Time) {
	a.Within = answered.Sub(asked) / 2
	a.Offset = time.Duration(a.Sample.WallNS - asked.Add(a.Within).UnixNano())
}
