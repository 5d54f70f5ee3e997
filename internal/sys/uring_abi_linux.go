package sys

// Constants and structures of include/uapi/linux/io_uring.h, under the kernel's names. Comments give the first release.
// Only what package uring uses is here.

// io_uring_setup(2) flags.
const (
	IORING_SETUP_SQPOLL        = 1 << 1  // 5.1; without privilege from 5.13
	IORING_SETUP_SQ_AFF        = 1 << 2  // 5.1
	IORING_SETUP_CQSIZE        = 1 << 3  // 5.5
	IORING_SETUP_SUBMIT_ALL    = 1 << 7  // 5.18
	IORING_SETUP_COOP_TASKRUN  = 1 << 8  // 5.19
	IORING_SETUP_SINGLE_ISSUER = 1 << 12 // 6.0
	IORING_SETUP_DEFER_TASKRUN = 1 << 13 // 6.1
	IORING_SETUP_NO_SQARRAY    = 1 << 16 // 6.6
)

// Features that io_uring_setup(2) reports.
const (
	IORING_FEAT_SINGLE_MMAP     = 1 << 0  // 5.4
	IORING_FEAT_NODROP          = 1 << 1  // 5.5
	IORING_FEAT_SUBMIT_STABLE   = 1 << 2  // 5.5
	IORING_FEAT_FAST_POLL       = 1 << 5  // 5.7
	IORING_FEAT_SQPOLL_NONFIXED = 1 << 7  // 5.11
	IORING_FEAT_EXT_ARG         = 1 << 8  // 5.11
	IORING_FEAT_NATIVE_WORKERS  = 1 << 9  // 5.12
	IORING_FEAT_CQE_SKIP        = 1 << 11 // 5.17
	IORING_FEAT_REG_REG_RING    = 1 << 13 // 6.3
)

// io_uring_enter(2) flags.
const (
	IORING_ENTER_GETEVENTS       = 1 << 0
	IORING_ENTER_SQ_WAKEUP       = 1 << 1
	IORING_ENTER_SQ_WAIT         = 1 << 2
	IORING_ENTER_EXT_ARG         = 1 << 3 // 5.11
	IORING_ENTER_REGISTERED_RING = 1 << 4 // 5.18
)

// Bits of the flag word in the submission ring.
const (
	IORING_SQ_NEED_WAKEUP = 1 << 0
	IORING_SQ_CQ_OVERFLOW = 1 << 1 // 5.8
	IORING_SQ_TASKRUN     = 1 << 2 // 5.19
)

// Offsets for mmap(2) of the ring descriptor.
const (
	IORING_OFF_SQ_RING = 0
	IORING_OFF_SQES    = 0x10000000
)

// io_uring_register(2) operations.
const (
	IORING_REGISTER_BUFFERS      = 0
	IORING_UNREGISTER_BUFFERS    = 1
	IORING_REGISTER_FILES        = 2
	IORING_UNREGISTER_FILES      = 3
	IORING_REGISTER_FILES_UPDATE = 6  // 5.5
	IORING_REGISTER_PROBE        = 8  // 5.6
	IORING_REGISTER_RING_FDS     = 20 // 5.18
	IORING_UNREGISTER_RING_FDS   = 21 // 5.18
	IORING_REGISTER_PBUF_RING    = 22 // 5.19
	IORING_UNREGISTER_PBUF_RING  = 23 // 5.19
	IORING_REGISTER_SYNC_CANCEL  = 24 // 6.0
	IORING_REGISTER_NAPI         = 27 // 6.9
	IORING_UNREGISTER_NAPI       = 28 // 6.9
)

// ASYNC_CANCEL flags, also taken by the synchronous form.
const (
	IORING_ASYNC_CANCEL_ALL      = 1 << 0 // 5.19
	IORING_ASYNC_CANCEL_FD       = 1 << 1 // 5.19
	IORING_ASYNC_CANCEL_ANY      = 1 << 2 // 5.19
	IORING_ASYNC_CANCEL_FD_FIXED = 1 << 3 // 5.19
)

// IO_URING_OP_SUPPORTED marks an opcode the running kernel knows in URingProbe.
const IO_URING_OP_SUPPORTED = 1 << 0

// URingSQOffsets is struct io_sqring_offsets: byte offsets into the ring mapping.
type URingSQOffsets struct {
	Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, Resv1 uint32
	UserAddr                                                        uint64
}

// URingCQOffsets is struct io_cqring_offsets.
type URingCQOffsets struct {
	Head, Tail, RingMask, RingEntries, Overflow, CQEs, Flags, Resv1 uint32
	UserAddr                                                        uint64
}

// URingParams is struct io_uring_params.
type URingParams struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFD uint32

	Resv  [3]uint32
	SQOff URingSQOffsets
	CQOff URingCQOffsets
}

// URingGetEventsArg is struct io_uring_getevents_arg. Ts is the address of a Timespec64, so the struct and what it points
// at belong in mapped memory.
type URingGetEventsArg struct {
	Sigmask     uint64
	SigmaskSize uint32
	MinWaitUsec uint32
	Ts          uint64
}

// Timespec64 is struct __kernel_timespec.
type Timespec64 struct{ Sec, Nsec int64 }

// URingProbeOp is struct io_uring_probe_op.
type URingProbeOp struct {
	Op, Resv uint8
	Flags    uint16
	Resv2    uint32
}

// URingProbe is struct io_uring_probe with room for every opcode that fits its index.
type URingProbe struct {
	LastOp, OpsLen uint8
	Resv           uint16
	Resv2          [3]uint32
	Ops            [256]URingProbeOp
}

// URingRsrcUpdate is struct io_uring_rsrc_update (and io_uring_files_update).
type URingRsrcUpdate struct {
	Offset, Resv uint32
	Data         uint64
}

// URingIovec is struct iovec with the address as a number, because it points into mapped memory.
type URingIovec struct{ Base, Len uint64 }

// URingBufReg is struct io_uring_buf_reg.
type URingBufReg struct {
	RingAddr    uint64
	RingEntries uint32
	Group       uint16
	Flags       uint16
	Resv        [3]uint64
}

// URingNAPI is struct io_uring_napi.
type URingNAPI struct {
	BusyPollMicros uint32
	PreferBusyPoll uint8
	Opcode         uint8 // 6.13
	Pad            [2]uint8
	OpParam        uint32 // 6.13
	Resv           uint32
}

// URingSyncCancel is struct io_uring_sync_cancel_reg.
type URingSyncCancel struct {
	Addr    uint64
	FD      int32
	Flags   uint32
	Timeout Timespec64
	Opcode  uint8
	Pad     [7]uint8
	Pad2    [3]uint64
}
