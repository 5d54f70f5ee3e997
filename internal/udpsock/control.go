package udpsock

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// Source is the sender's address; the flow's own destination as it was given, with its zone's name, in the usual case.
func Source(name []byte, peer netip.AddrPort) netip.AddrPort {
	from, ok := sys.ParseSockaddr(name)
	if !ok || from.Port() == peer.Port() && from.Addr().WithZone("") == peer.Addr().WithZone("") {
		return peer
	}
	return from
}

// ParseControl finds the kernel's receive time (ns of CLOCK_REALTIME), the device's (ns of its own clock) and the segment size of an
// aggregate; 0 = none.
func ParseControl(control []byte) (stamp, hardware int64, segment int) {
	for {
		level, typ, data, rest, ok := sys.NextControl(control)
		if !ok {
			return stamp, hardware, segment
		}
		switch {
		case level == unix.SOL_SOCKET && typ == unix.SCM_TIMESTAMPNS && len(data) >= 16:
			stamp = int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
		case level == unix.SOL_SOCKET && typ == unix.SCM_TIMESTAMPING:
			stamp, hardware = sys.ParseStamps(data)
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(data) >= 4:
			segment = int(int32(binary.NativeEndian.Uint32(data)))
		}
		control = rest
	}
}
