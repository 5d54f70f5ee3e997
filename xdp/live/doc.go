// Package live sends, answers and receives UDP packets inside the kernel. It knows nothing of blast but the layout of its stamp.
//
//	Sender    one worker: one long BPF_PROG_RUN with live frames, in which the XDP program is the scheduler and the kernel's own loop
//	          the wait; every turn either drops its frame (nothing is due) or makes it the next packet and redirects it
//	Receiver  an XDP program on an interface that takes replies with our stamp, times them and keeps the books
//	Target    an XDP program that answers or swallows datagrams: the fastest honest peer
//
// The programs are C in bpf/, built by go generate; the objects are committed, so building needs no clang. Their state and histograms are
// maps, read from outside while they run. A worker's state has one writer at any time: the program, or user space between two calls.
//
//	user space                kernel, one thread, one CPU
//	Sender.Run --- call --->  repeat { batch of turns { clock; due? write, redirect : drop } ; flush ; softirqs ; signal? }
//	watch (2 ms) -- signal -> ends it once the plan is done                                  |
//	Collect <--- maps ------  state, histograms                                              v
//	Receiver <-- maps ------  receive program on the interface  <--- wire / veth --- peer
//
// # What counts as sent
//
// A redirect says nothing about the device. Two raw tracepoint programs listen to what the device took (xdp_devmap_xmit, once per 16
// frames) and to frames that never came to it (xdp_redirect_err); sent = redirected - dropped - failed.
//
// # Needs
//
// Linux 5.18 (live frames), CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON, and a driver with ndo_xdp_xmit for sending; Linux 5.12 for the atomic
// operations of the receiver. Nothing survives the process: links and maps are file descriptors.
package live
