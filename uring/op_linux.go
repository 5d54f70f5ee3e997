//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"strconv"
	"strings"

	"blast/internal/sys"
)

// Op is an operation code of a submission entry.
type Op uint8

// The operations with a Prep method; numbers of enum io_uring_op.
const (
	OpNop       Op = 0
	OpSendMsg   Op = 9
	OpRecvMsg   Op = 10
	OpTimeout   Op = 11
	OpCancel    Op = 14
	OpSend      Op = 26
	OpRecv      Op = 27
	OpSendZC    Op = 47 // 6.0
	OpSendMsgZC Op = 48 // 6.1
)

// String is the kernel's name of the operation.
func (o Op) String() string {
	switch o {
	case OpNop:
		return "NOP"
	case OpSendMsg:
		return "SENDMSG"
	case OpRecvMsg:
		return "RECVMSG"
	case OpTimeout:
		return "TIMEOUT"
	case OpCancel:
		return "ASYNC_CANCEL"
	case OpSend:
		return "SEND"
	case OpRecv:
		return "RECV"
	case OpSendZC:
		return "SEND_ZC"
	case OpSendMsgZC:
		return "SENDMSG_ZC"
	default:
		return "op " + strconv.Itoa(int(o))
	}
}

// OpSet is the set of operations the running kernel knows.
type OpSet [4]uint64

// Has tells whether the kernel knows the operation.
func (s OpSet) Has(o Op) bool { return s[o>>6]>>(o&63)&1 != 0 }

// HasMultishot tells whether RECV and RECVMSG can be multishot. The kernel does not report that by itself; it came in the
// same release (6.0) as SEND_ZC.
func (s OpSet) HasMultishot() bool { return s.Has(OpSendZC) }

// HasSendTo tells whether a plain SEND takes an address (SQE.To). It came in the same release (6.1) as SENDMSG_ZC.
func (s OpSet) HasSendTo() bool { return s.Has(OpSendMsgZC) }

// String lists those of the operations with a Prep method that the kernel knows.
func (s OpSet) String() string {
	var b strings.Builder
	for _, o := range []Op{OpNop, OpSend, OpSendMsg, OpSendZC, OpSendMsgZC, OpRecv, OpRecvMsg, OpTimeout, OpCancel} {
		if s.Has(o) {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(o.String())
		}
	}
	return b.String()
}

func probeOps(fd int) (OpSet, error) {
	var p sys.URingProbe
	var s OpSet
	if err := sys.URingProbeOps(fd, &p); err != nil {
		return s, err
	}
	for _, o := range p.Ops[:p.OpsLen] {
		if o.Flags&sys.IO_URING_OP_SUPPORTED != 0 {
			s[o.Op>>6] |= 1 << (o.Op & 63)
		}
	}
	return s, nil
}
