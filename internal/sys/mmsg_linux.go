package sys

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sendmmsg offers messages without waiting (MSG_DONTWAIT is added) and returns how many the kernel took. An error that came after
// the first message is not reported (sendmmsg(2), BUGS): the next call starts with the message it belongs to. A pending socket
// error that was eaten that way is lost, except for its copy in the error queue.
//
// The headers' pointers are ordinary Go pointers: what they point at stays alive and, being on the heap, in place.
//
// It is a raw call: it cannot block, and the caller bounds the vector, so the scheduler need not know.
func Sendmmsg(fd int, msgs []unix.Mmsghdr) (int, syscall.Errno) {
	if len(msgs) == 0 {
		return 0, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(msgs))), uintptr(len(msgs)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Recvmmsg takes waiting messages without waiting for more (MSG_DONTWAIT is added) and returns how many there were. It is a raw
// call for the same reason as Sendmmsg.
func Recvmmsg(fd int, msgs []unix.Mmsghdr) (int, syscall.Errno) {
	if len(msgs) == 0 {
		return 0, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(msgs))), uintptr(len(msgs)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// ControlSpace is the room in bytes that one control message with n bytes of data takes (CMSG_SPACE).
func ControlSpace(n int) int { return unix.CmsgSpace(n) }

// PutSegment writes a UDP_SEGMENT control message (udp(7)) into b, which has ControlSpace(2) bytes and is word aligned.
func PutSegment(b []byte, size int) {
	_ = b[unix.CmsgSpace(2)-1]
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
}

// NextControl takes the first control message off b, which is word aligned. ok is false at the end and for a malformed rest.
func NextControl(b []byte) (level, typ int32, data, rest []byte, ok bool) {
	if len(b) < unix.SizeofCmsghdr {
		return 0, 0, nil, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	head := unix.CmsgLen(0)
	if uint64(h.Len) < uint64(head) || uint64(h.Len) > uint64(len(b)) {
		return 0, 0, nil, nil, false
	}
	data = b[head:h.Len]
	return h.Level, h.Type, data, b[min(unix.CmsgSpace(len(data)), len(b)):], true
}
