// Package afxdp is the backend on AF_XDP sockets: it writes whole Ethernet frames into memory that the kernel, or the network card
// itself, sends from. It is the adapter between the contract of package backend and package xdp.
//
// One worker has one queue of one interface:
//
//	       Sender, its thread                                    Receiver, another thread
//	Reserve: payload slots in frames                      Poll: receive ring -> parse -> flow -> fn
//	Commit:  headers around them, kick                          ^                         ^
//	Reap:    completions                                        | our ports, our queue    | everything else of our flows
//	   |                                                  +-----------+            +-------------------+
//	   v                                                  |  XDP      |--- pass -->| ordinary sockets, |
//	transmit ring of the queue ----> wire ----> target -->|  program  |            | one per flow      |
//	                                                      +-----------+            +-------------------+
//
// Every flow also has an ordinary connected UDP socket, which never sends. It reserves the source port, so that the kernel neither gives
// it away nor answers replies with ICMP; it takes ICMP errors about our packets; and it receives the replies that the XDP program
// leaves to the kernel: fragments, and what arrives on a queue that is not the worker's.
//
// Sent is what completed, less the frames that the kernel took and dropped (a kick that answers EBUSY).
//
// It needs Linux 5.15; CAP_NET_RAW; CAP_NET_ADMIN and CAP_BPF to receive or to send without a copy. It sends no trains, no fragments, and
// no IPv4 to this host itself.
package afxdp
