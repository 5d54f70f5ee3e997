package backend

import (
	"fmt"
	"syscall"
)

// Cause says why the kernel refused a packet for good. It is an error so that Commit can return it without allocating.
type Cause uint8

// The causes, in the order of the report.
const (
	// CauseNoBuffers: ENOBUFS or ENOMEM; on sockets with IP_RECVERR, the queueing discipline dropped the packet.
	CauseNoBuffers Cause = iota
	// CausePermission: EPERM or EACCES; a local firewall or a full conntrack table.
	CausePermission
	// CauseMessageSize: EMSGSIZE; larger than the path MTU with DF set.
	CauseMessageSize
	// CauseUnreachable: ENETUNREACH, EHOSTUNREACH; no route.
	CauseUnreachable
	// CauseDown: ENETDOWN, ENODEV; the interface went down or away.
	CauseDown
	// CauseInvalid: EINVAL, EIO, EOPNOTSUPP for one packet, such as a train that the device cannot segment.
	CauseInvalid
	// CauseFull: a ring or socket buffer was full and the backend cannot offer the packet again.
	CauseFull
	NumCauses
)

var causeNames = [NumCauses]string{"no_buffers", "permission", "message_size", "unreachable", "down", "invalid", "full"}

// String is the cause's name in JSON.
func (c Cause) String() string {
	if c < NumCauses {
		return causeNames[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// Error implements error.
func (c Cause) Error() string { return "refused by the kernel: " + c.String() }

// Answer is what a send errno means for the packet in hand.
type Answer uint8

// The answers.
const (
	// AnswerAgain: not taken, offer it again later (back-pressure).
	AnswerAgain Answer = iota
	// AnswerRetry: not taken, offer it again now (a signal, or the error of an earlier packet).
	AnswerRetry
	// AnswerRefused: refused for good, for the Cause that comes with it.
	AnswerRefused
	// AnswerFatal: a bug or a lost descriptor; the run ends.
	AnswerFatal
)

// Classify answers what a send errno means on a UDP socket or ring: the one place where errnos are judged.
// Sources: udp(7), ip(7), send(2), and net/ipv4/udp.c udp_send_skb for ENOBUFS under IP_RECVERR.
func Classify(e syscall.Errno) (Answer, Cause) {
	switch e {
	case syscall.EAGAIN:
		return AnswerAgain, 0
	case syscall.EINTR, syscall.ECONNREFUSED,
		// What else icmp_err_convert (net/ipv4/icmp.c) and icmpv6_err_convert (net/ipv6/icmp.c) make of an ICMP error and no send makes itself.
		syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENONET:
		return AnswerRetry, 0
	case syscall.ENOBUFS, syscall.ENOMEM:
		return AnswerRefused, CauseNoBuffers
	case syscall.EPERM, syscall.EACCES:
		return AnswerRefused, CausePermission
	case syscall.EMSGSIZE:
		return AnswerRefused, CauseMessageSize
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		return AnswerRefused, CauseUnreachable
	case syscall.ENETDOWN, syscall.ENODEV:
		return AnswerRefused, CauseDown
	case syscall.EINVAL, syscall.EIO, syscall.EOPNOTSUPP:
		return AnswerRefused, CauseInvalid
	}
	return AnswerFatal, 0
}
