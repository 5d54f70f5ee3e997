package sys

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Stamp is when the kernel took datagram i in, ns of CLOCK_REALTIME; 0 without SO_TIMESTAMPNS on the socket or without room for control
// messages (socket(7), struct timespec of a 64-bit kernel).
func (m *Mailbox) Stamp(i int) int64 {
	data := m.find(i, unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS)
	if len(data) < 16 {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
}
