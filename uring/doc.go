// Package uring is io_uring in pure Go: rings, the UDP operations, registered resources, and honest reports of what the
// kernel granted. It needs Linux 5.11 on a 64-bit little-endian machine, no privilege and no cgo.
//
// It is a thin layer for programs that own a thread per ring. Who wants asynchronous files or a drop-in net.Conn should
// look elsewhere: nothing here starts a goroutine, and nothing may be shared between goroutines.
//
// # The one rule
//
// A ring belongs to the OS thread that made it. Call runtime.LockOSThread, then [New], use the ring and [Ring.Close] it there.
// The kernel binds the ring to that thread (SINGLE_ISSUER) and delivers completions only when that thread enters the
// kernel (DEFER_TASKRUN). Every call that enters the kernel checks the thread first and answers [ErrThread].
// Drain before unlocking: requests of a thread that has ended fail.
//
// # Memory
//
// The kernel reads an entry's addresses long after Go's escape analysis lost interest in them. Stacks move, and an object known
// only by a number is garbage. So everything an entry points at comes from the ring's [Arena], one mapping outside the Go heap,
// laid out once, alive until Close. Submit verifies it and answers [ErrForeign] for anything else.
//
//	user space                                     kernel
//	+-------------------------------+
//	| arena: payloads, Messages,    | <------ addresses in entries
//	| sockaddrs, timespecs, buffers |
//	+-------------------------------+
//	  Ring.SQE, Prep...                              consumes in order
//	       |                                              ^
//	       v            tail (we write)   head (kernel)   |
//	+------+------+------+------+------+------+------+----+-+
//	| SQE  | SQE  |      |      |      |      | SQE  | SQE  |  64 bytes each, Entries of them
//	+------+------+------+------+------+------+------+------+
//	              submission queue: Submit publishes the tail and enters
//
//	              completion queue: every enter of ours lets the kernel post
//	+------+------+------+------+------+------+------+------+
//	|      | CQE  | CQE  | CQE  |      |      |      |      |  16 bytes each, CQEntries of them
//	+------+------+------+------+------+------+------+------+
//	         head (we write)      tail (kernel)
//	            |
//	            v
//	     Ring.Completions, or Ready / At / Advance
//
// Indices run freely and wrap at 2^32. A full completion queue loses nothing: the kernel keeps a backlog, raises a flag and
// hands it over on the next Submit; [Ring.Counters] tells. Completions are really lost only when the kernel has no memory
// for the backlog, and then Submit answers [ErrLost].
//
// # Life of a batch
//
//  1. Ring.SQE until the batch is full or it returns nil; a Prep method on each; set UserData.
//  2. Ring.Submit. Fewer consumed than handed out with a nil error means back-pressure: the rest stays queued for the next
//     Submit. Submit also collects completions, so call it with nothing to send, too.
//  3. Ring.Completions. An entry's memory is free again when [CQE.Done] says so; a zero-copy send completes twice.
//
// # Minimum kernel
//
//	feature                                   kernel  without it
//	whole package (EXT_ARG, NODROP)           5.11    New and Probe: errors.ErrUnsupported
//	SQPOLL without privilege                  5.13    CAP_SYS_NICE (5.11: CAP_SYS_ADMIN)
//	CQE_SKIP_SUCCESS                          5.17    do not set the flag
//	SUBMIT_ALL, registered ring descriptor    5.18    one rung down; plain descriptor
//	COOP_TASKRUN, provided-buffer rings       5.19    one rung down; BufRing: errors.ErrUnsupported
//	cancel by descriptor or everything        5.19    cancel by user data
//	SINGLE_ISSUER, SEND_ZC, RECV multishot    6.0     one rung down; OpSet.Has says no
//	DEFER_TASKRUN, SENDMSG_ZC, SEND with To   6.1     one rung down; SENDMSG
//	SEND_ZC usage reports                     6.2     do not ask
//	NO_SQARRAY                                6.6     one rung down
//	NAPI busy polling                         6.9     RegisterNAPI: errors.ErrUnsupported
//
// Where io_uring is switched off (sysctl kernel.io_uring_disabled, a seccomp filter such as Docker's default) [Probe] says
// which of them it is and what would change it.
package uring
