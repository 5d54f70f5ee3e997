// Package mmsg sends by sendmmsg(2) on connected sockets, optionally in UDP_SEGMENT trains, and receives by recvmmsg(2): the
// fastest path through the socket layer that every kernel has.
//
//	slots of one Commit   [a0 a1 a2 | b0 | a3 a4]      letter = flow
//	calls                  sendmmsg(A)  (B)  (A)       one per run of slots of the same flow
//	messages in a call     one per slot, or with trains one per run of equal lengths (the last may be shorter)
//
// It needs Linux 4.18 for trains, 5.0 for UDP_GRO, and no privilege; CAP_NET_ADMIN lets socket buffers exceed the sysctl limits.
package mmsg
