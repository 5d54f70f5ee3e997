// Package wire makes what comes nearest to a wire on a machine without one: two network namespaces joined by a veth pair, whose far end
// counts and drops IPv4 packets in an XDP program, before the kernel spends anything on them.
//
//	near namespace                            far namespace
//	+----------------------------+            +------------------------------+
//	| near0  10.87.0.1           |----------->| far0  10.87.0.2   XDP: count,|
//	| (senders enter it)         |  n queues  |                   drop IPv4  |
//	+----------------------------+            +------------------------------+
//
// Nothing of the host changes; the namespaces are held by descriptors alone and go with the process. It needs Linux with veth,
// CAP_SYS_ADMIN for the namespaces, CAP_NET_ADMIN and CAP_BPF.
package wire
