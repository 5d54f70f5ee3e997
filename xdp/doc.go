// Package xdp sends and receives raw Ethernet frames by AF_XDP sockets, in pure Go. It knows nothing of blast.
//
// # Parts
//
//	Device    one interface: judged, its XDP program attached (bpf_link), shared by all its sockets
//	Socket    one queue of a Device: registered memory, four rings, one thread per direction
//	Resolver  which interface, VLAN and hardware address lead to an IP address
//
//	            Socket on queue q, thread T                                kernel
//	 Reserve -> frames (free -> user)                 +-----------------+
//	 Commit  -> (user -> kernel) ------------------>  | transmit ring   | --> driver / skb path --> wire
//	 Reap    <- (kernel -> free) <------------------  | completion ring | <-- sent or dropped
//
//	 Receive <- (kernel -> user) <------------------  | receive ring    | <-- XDP program: UDP to our ports
//	         -> (user -> kernel) ------------------>  | fill ring       | --> buffers for the driver
//	                                                  +-----------------+
//
// A frame has exactly one owner at any time; frames for sending and for receiving are two disjoint pools of one memory.
// Sending and receiving are two kernel sockets on that memory, so that the receiving half may sleep in poll(2), which on a
// sending socket would transmit and lose the count of dropped frames. One thread may call the sending half and another the
// receiving half; a method says which half it belongs to.
//
// # What counts as sent
//
// A completion says that the kernel is done with a frame, not that it left. In copy mode a kick that answers EBUSY says that one
// frame was consumed and dropped, and its completion comes all the same; so sent = completions - EBUSY (net/xdp/xsk.c,
// NET_XMIT_DROP in __xsk_generic_xmit).
//
// # What is left alone
//
// Only UDP packets to the ports asked for are taken from the kernel; ARP, neighbour discovery and everything else pass. A program
// that somebody else attached is reported by its id and never touched. The link is a file descriptor: when the process dies, the
// kernel detaches the program.
//
// # Needs
//
// Linux 5.15. CAP_NET_RAW for the socket; CAP_NET_ADMIN and CAP_BPF where a program is attached (receiving, and zero-copy sending);
// CAP_IPC_LOCK or enough RLIMIT_MEMLOCK for the memory.
package xdp
