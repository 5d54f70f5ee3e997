//blast:hot

package afxdp

import (
	"encoding/binary"
	"net/netip"
)

// table finds the flow of a reply by its four addresses and ports: open addressing, at most half full. It does not change.
type table struct {
	entries []tableEntry
	mask    uint64
}

type tableEntry struct {
	local, remote netip.AddrPort // without zones
	peer          netip.AddrPort // as given, with its zone
	flow          int
	used          bool
}

func newTable(l *link) table {
	size := 2
	for size < 2*len(l.sources) {
		size *= 2
	}
	t := table{entries: make([]tableEntry, size), mask: uint64(size - 1)}
	for flow, f := range l.flows {
		h := f.Headers()
		i := hash(h.Src, h.Dst) & t.mask
		for t.entries[i].used {
			i = (i + 1) & t.mask
		}
		t.entries[i] = tableEntry{h.Src, h.Dst, l.socks.Peers[flow], flow, true}
	}
	return t
}

// find is the flow of a packet to local from remote, and its destination as it was given.
func (t *table) find(local, remote netip.AddrPort) (flow int, peer netip.AddrPort, ok bool) {
	for i := hash(local, remote) & t.mask; t.entries[i].used; i = (i + 1) & t.mask {
		if e := &t.entries[i]; e.local == local && e.remote == remote {
			return e.flow, e.peer, true
		}
	}
	return 0, netip.AddrPort{}, false
}

// hash mixes what differs between the flows of a run: the local port, and the target. The constant is 2^64 over the golden ratio
// (Knuth, TAOCP 3, 6.4).
func hash(local, remote netip.AddrPort) uint64 {
	const golden = 0x9e3779b97f4a7c15
	a := remote.Addr().As16()
	h := binary.BigEndian.Uint64(a[:]) ^ uint64(local.Port())<<16 ^ uint64(remote.Port())
	h = (h*golden ^ binary.BigEndian.Uint64(a[8:])) * golden
	return h ^ h>>32
}
