package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SocketError is struct sock_extended_err of ip(7): one entry of a socket's error queue.
type SocketError struct {
	Errno              uint32
	Origin, Type, Code uint8
	_                  uint8
	Info, Data         uint32
}

// ErrorQueue reads the error queues of sockets into memory of its own. The zero value is ready; it must not be copied after use.
type ErrorQueue struct {
	control [256]byte
	msg     unix.Msghdr
}

// Next takes one entry off the error queue of a socket with IP_RECVERR or IPV6_RECVERR. It does not wait: EAGAIN says that the queue
// is empty. A transmit timestamp comes back with the origin SO_EE_ORIGIN_TIMESTAMPING: see Stamps. Taking the last ICMP entry
// also clears the socket's pending error (net/core/skbuff.c sock_dequeue_err_skb).
func (q *ErrorQueue) Next(fd int) (SocketError, syscall.Errno) {
	q.msg = unix.Msghdr{Control: &q.control[0]}
	q.msg.SetControllen(len(q.control))
	_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&q.msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return SocketError{}, errno
	}
	for rest := q.control[:q.msg.Controllen]; ; {
		level, typ, data, next, ok := NextControl(rest)
		if !ok {
			return SocketError{}, 0
		}
		v4 := level == unix.IPPROTO_IP && typ == unix.IP_RECVERR
		v6 := level == unix.IPPROTO_IPV6 && typ == unix.IPV6_RECVERR
		if (v4 || v6) && len(data) >= int(unsafe.Sizeof(SocketError{})) {
			return *(*SocketError)(unsafe.Pointer(unsafe.SliceData(data))), 0
		}
		rest = next
	}
}
