//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"math"

	"blast/internal/ring"
	"blast/internal/sys"
)

// SQE is one submission entry, exactly as the kernel reads it (struct io_uring_sqe, 64 bytes). Fields that the kernel names
// differently per operation have one name here.
type SQE struct {
	Op          Op
	Flags       SQEFlags
	IOPrio      uint16 // SEND and RECV: POLL_FIRST, MULTISHOT, FIXED_BUF, ZC_REPORT_USAGE
	FD          int32  // descriptor, or slot of the registered files with FixedFile
	Off         uint64 // second address: the socket address of SEND; count of TIMEOUT
	Addr        uint64
	Len         uint32
	OpFlags     uint32 // msg_flags, timeout_flags, cancel_flags
	UserData    uint64 // comes back in the CQE
	BufIndex    uint16 // registered buffer, or group of provided buffers
	Personality uint16
	AddrLen     uint16 // length of the socket address of SEND
	Pad         uint16
	Addr3       uint64
	Pad2        uint64
}

// SQEFlags are modifiers that every operation takes.
type SQEFlags uint8

// Modifiers (IOSQE_...).
const (
	FixedFile      SQEFlags = 1 << 0 // FD is a slot of the registered files
	Drain          SQEFlags = 1 << 1 // start only after everything before completed
	Link           SQEFlags = 1 << 2 // the next entry starts when this one completed well
	HardLink       SQEFlags = 1 << 3 // the next entry starts when this one completed
	Async          SQEFlags = 1 << 4 // hand to a kernel worker at once
	BufferSelect   SQEFlags = 1 << 5 // take a buffer of group BufIndex
	CQESkipSuccess SQEFlags = 1 << 6 // no completion unless it fails (5.17); not for zero-copy sends
)

// IOPrio bits of socket operations.
const (
	pollFirst      = 1 << 0
	recvMultishot  = 1 << 1
	fixedBuffer    = 1 << 2
	zcReportUsage  = 1 << 3
	timespecBytes  = 16
	msghdrBytes    = 56
	maxEntryLength = math.MaxInt32 // the kernel caps one transfer there (MAX_RW_COUNT)
)

// Every Prep method writes the whole entry: nothing of an earlier use survives. Set UserData and Flags afterwards.
// Memory comes from the ring's Arena and must stay untouched until the completion for which CQE.Done is true; what a Message,
// Sockaddr or Timespec describes is read at Submit (with SQPoll: when the kernel thread took the entry).

// PrepNop prepares an operation that only completes.
func (s *SQE) PrepNop() { *s = SQE{FD: -1} }

// PrepSend prepares send(2) of b. flags are MSG_ flags; MSG_DONTWAIT turns a full socket buffer into EAGAIN where the kernel
// would otherwise wait in the background and reorder.
func (s *SQE) PrepSend(fd int, b []byte, flags uint32) {
	*s = SQE{Op: OpSend, FD: int32(fd), Addr: ring.Addr(b), Len: length(b), OpFlags: flags}
}

// PrepSendZC is PrepSend without copying the payload (6.0). It completes twice: first the result, with CQE.More set when a
// notification follows, then the notification (CQE.Notification), after which b may be reused. With report set (6.2) the
// notification says whether the kernel had to copy after all, as it does on loopback. Below about 1500 bytes copying is faster.
func (s *SQE) PrepSendZC(fd int, b []byte, flags uint32, report bool) {
	*s = SQE{Op: OpSendZC, FD: int32(fd), Addr: ring.Addr(b), Len: length(b), OpFlags: flags, IOPrio: reportBit(report)}
}

// PrepSendMsg prepares sendmsg(2).
func (s *SQE) PrepSendMsg(fd int, m *Message, flags uint32) {
	*s = SQE{Op: OpSendMsg, FD: int32(fd), Addr: ring.AddrOf(&m.hdr), Len: 1, OpFlags: flags}
}

// PrepSendMsgZC is PrepSendMsg without copying the payload (6.1); see PrepSendZC.
func (s *SQE) PrepSendMsgZC(fd int, m *Message, flags uint32, report bool) {
	*s = SQE{Op: OpSendMsgZC, FD: int32(fd), Addr: ring.AddrOf(&m.hdr), Len: 1, OpFlags: flags, IOPrio: reportBit(report)}
}

// PrepRecv prepares recv(2) into b.
func (s *SQE) PrepRecv(fd int, b []byte, flags uint32) {
	*s = SQE{Op: OpRecv, FD: int32(fd), Addr: ring.Addr(b), Len: length(b), OpFlags: flags}
}

// PrepRecvMsg prepares recvmsg(2) as m says.
func (s *SQE) PrepRecvMsg(fd int, m *Message, flags uint32) {
	*s = SQE{Op: OpRecvMsg, FD: int32(fd), Addr: ring.AddrOf(&m.hdr), Len: 1, OpFlags: flags}
}

// PrepRecvMultishot prepares a receive that completes once per datagram, each in a buffer of the group (6.0). It lives until a
// CQE without More: then arm it again. Receiver does that.
func (s *SQE) PrepRecvMultishot(fd int, group uint16, flags uint32) {
	*s = SQE{Op: OpRecv, Flags: BufferSelect, FD: int32(fd), OpFlags: flags, IOPrio: recvMultishot, BufIndex: group}
}

// PrepRecvMsgMultishot is PrepRecvMultishot with source address and control data, as much as m.ForMultishot reserved (6.0).
// m must stay as it is while the receive lives.
func (s *SQE) PrepRecvMsgMultishot(fd int, m *Message, group uint16, flags uint32) {
	*s = SQE{Op: OpRecvMsg, Flags: BufferSelect, FD: int32(fd), Addr: ring.AddrOf(&m.hdr), Len: 1, OpFlags: flags, IOPrio: recvMultishot, BufIndex: group}
}

// TimeoutFlags modify a TIMEOUT.
type TimeoutFlags uint32

// Modifiers of PrepTimeout (IORING_TIMEOUT_...).
const (
	TimeoutAbs       TimeoutFlags = 1 << 0 // t is a time of CLOCK_MONOTONIC, not a duration
	TimeoutBoottime  TimeoutFlags = 1 << 2 // CLOCK_BOOTTIME (5.15)
	TimeoutRealtime  TimeoutFlags = 1 << 3 // CLOCK_REALTIME (5.15)
	TimeoutEtimeOK   TimeoutFlags = 1 << 5 // expiry does not break a Link chain (5.16)
	TimeoutMultishot TimeoutFlags = 1 << 6 // fire again and again (6.4)
)

// PrepTimeout prepares a completion with ETIME when t has passed, or with 0 once count other requests completed (0: only
// the time counts).
func (s *SQE) PrepTimeout(t *Timespec, count uint64, flags TimeoutFlags) {
	*s = SQE{Op: OpTimeout, FD: -1, Addr: ring.AddrOf(t), Len: 1, Off: count, OpFlags: uint32(flags)}
}

// PrepCancel prepares the cancellation of one request by its UserData. It completes with 0 (the request will complete with
// ECANCELED), ENOENT (none found) or EALREADY (too late).
func (s *SQE) PrepCancel(userData uint64) { *s = SQE{Op: OpCancel, FD: -1, Addr: userData} }

// PrepCancelFD prepares the cancellation of every request on a descriptor, or slot when fixed (5.19). It completes with the
// number cancelled.
func (s *SQE) PrepCancelFD(fd int, fixed bool) {
	*s = SQE{Op: OpCancel, FD: int32(fd), OpFlags: sys.IORING_ASYNC_CANCEL_FD | sys.IORING_ASYNC_CANCEL_ALL}
	if fixed {
		s.OpFlags |= sys.IORING_ASYNC_CANCEL_FD_FIXED
	}
}

// PrepCancelAll prepares the cancellation of every request of the ring (5.19). It completes with the number cancelled.
func (s *SQE) PrepCancelAll() {
	*s = SQE{Op: OpCancel, FD: -1, OpFlags: sys.IORING_ASYNC_CANCEL_ANY | sys.IORING_ASYNC_CANCEL_ALL}
}

// To gives a prepared SEND or SEND_ZC a destination (6.1; SEND_ZC 6.0), which saves the import of a msghdr.
func (s *SQE) To(a *Sockaddr) {
	s.Off, s.AddrLen = ring.AddrOf(a), uint16(a.n)
}

// FixedBuffer tells a prepared SEND_ZC that its payload lies in registered buffer index: its pages are pinned already.
func (s *SQE) FixedBuffer(index uint16) {
	s.IOPrio |= fixedBuffer
	s.BufIndex = index
}

// PollFirst tells a prepared socket operation not to try at once but to wait for readiness first (5.19).
func (s *SQE) PollFirst() { s.IOPrio |= pollFirst }

func length(b []byte) uint32 { return uint32(min(len(b), maxEntryLength)) }

func reportBit(report bool) uint16 {
	if report {
		return zcReportUsage
	}
	return 0
}

// reaches tells whether everything the entry points at lies in mem. Operations without a Prep method are not judged.
func (s *SQE) reaches(start, size uint64) bool {
	switch s.Op {
	case OpSend, OpSendZC, OpRecv:
		if s.Flags&BufferSelect == 0 && s.Len > 0 && !within(start, size, s.Addr, uint64(s.Len)) {
			return false
		}
		return s.AddrLen == 0 || within(start, size, s.Off, uint64(s.AddrLen))
	case OpSendMsg, OpSendMsgZC, OpRecvMsg:
		return within(start, size, s.Addr, msghdrBytes)
	case OpTimeout:
		return within(start, size, s.Addr, timespecBytes)
	default:
		return true
	}
}

func within(start, size, at, n uint64) bool {
	off := at - start // wraps to something large when at is below start
	return off <= size && n <= size-off
}
