package sys

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kernel timestamps of packets, after Documentation/networking/timestamping.rst and include/uapi/linux/{net_tstamp,errqueue}.h.

// Values of SocketError.Info where SocketError.Origin is SO_EE_ORIGIN_TIMESTAMPING (SCM_TSTAMP_*): what was stamped. SocketError.Data
// is the packet's id then.
const (
	StampSent      = 0 // by the driver, or by the device
	StampScheduled = 1
)

// scmStampID is SCM_TS_OPT_ID of asm-generic/socket.h (Linux 6.13).
const scmStampID = 81

// stampWord is the size of a control message of four bytes on a 64-bit kernel: cmsghdr of 16, aligned to 8.
const stampWord = 24

// StampRequestBytes is the room that PutStampRequest wants.
const StampRequestBytes = 2 * stampWord

// PutStampRequest writes the control messages that ask for transmit stamps of one packet (SO_TIMESTAMPING, flags SOF_TIMESTAMPING_TX_*)
// under an id of the caller's (SCM_TS_OPT_ID; named says whether the kernel has it, else it counts itself) into b, which has
// StampRequestBytes and is word aligned. It returns their length.
func PutStampRequest(b []byte, flags, id uint32, named bool) int {
	_ = b[2*stampWord-1]
	putWord(b, unix.SO_TIMESTAMPING, flags)
	if !named {
		return stampWord
	}
	putWord(b[stampWord:], scmStampID, id)
	return 2 * stampWord
}

func putWord(b []byte, kind int32, value uint32) {
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	h.Level, h.Type = unix.SOL_SOCKET, kind
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], value)
}

// ParseStamps reads the data of an SCM_TIMESTAMPING control message (struct scm_timestamping: three struct timespec of a 64-bit kernel, of
// which the second is no longer used): ns of CLOCK_REALTIME by software and ns of the device's clock by hardware, 0 = none.
func ParseStamps(data []byte) (software, hardware int64) {
	if len(data) < 48 {
		return 0, 0
	}
	at := func(i int) int64 {
		return int64(binary.NativeEndian.Uint64(data[16*i:]))*1e9 + int64(binary.NativeEndian.Uint64(data[16*i+8:]))
	}
	return at(0), at(2)
}

// Stamps are the times in the entry that Next returned last; see ParseStamps.
func (q *ErrorQueue) Stamps() (software, hardware int64) {
	for rest := q.control[:q.msg.Controllen]; ; {
		level, typ, data, next, ok := NextControl(rest)
		if !ok {
			return 0, 0
		}
		if level == unix.SOL_SOCKET && typ == unix.SCM_TIMESTAMPING {
			return ParseStamps(data)
		}
		rest = next
	}
}
