// Package iouring sends and receives by io_uring on connected sockets. Its place is where sendmmsg(2) cannot go: one system call covers
// any number of sockets, and replies come from any number of sockets without a call per packet or per socket.
//
//	slots of one Commit   [a0 | b0 | c0 | a1 a2 | d0]      letter = flow
//	entries                SEND A  B   C   A  A   D         one per slot, or with trains one SENDMSG per run of equal lengths
//	calls                  io_uring_enter                   one; none with SQPOLL
//	receive                RECVMSG multishot on A, B, C, D  one request per socket that lives on, one ring for all of them
//
// # Who waits for what
//
// Limits.Async is true: Commit says what went into the queue and Reap what became of it. Every send carries MSG_DONTWAIT, so without
// SQPOLL and zero copy it is decided inside the call that submits it; what comes back at the end of a Commit counts as not accepted,
// as with sendmmsg, so that its lag shows. Where a later slot of another flow went out, the slot that came back stays accepted, is held and
// offered again before anything new of its flow; 800 ms after the last Commit it is refused as full. A refusal for good is told by
// Reap under its cause.
//
// # Order within a flow
//
// The kernel goes on after a send that fails, so the next packet of the flow could pass it. Within one submission, packets of one flow
// follow each other freely only when nothing can fail: poll(2), one call per flow and submission, says that no error is pending and half
// of the send buffer is free, and the packets fit into that half. Otherwise they are chained by IOSQE_IO_LINK, which stops at the first
// failure but costs some 5 %. One case is left: an ICMP error that arrives between that poll and the last packet of the
// submission. The packet that meets it is sent again behind those of its submission; from then on the flow is chained until its socket
// has looked clean for a while. Flows with one packet per submission, the shape of game clients, need none of this.
//
// # Threads and memory
//
// A Sender's ring belongs to the thread that called Open, a Receiver's to the one that first called Poll; any other is refused
// (uring.ErrThread). Payloads and headers lie in the ring's arena. A Receiver holds 256 buffers of 64 KiB, whatever the number of flows.
//
// It needs Linux 5.11 to send, 6.0 to receive and for zero copy, 6.1 for the cheapest way (DEFER_TASKRUN), and no privilege. Zero copy
// locks memory: CAP_IPC_LOCK, or a large enough RLIMIT_MEMLOCK. See docs/io_uring.md for when it wins.
package iouring
