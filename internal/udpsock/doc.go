// Package udpsock prepares UDP sockets for the socket backends: one connected socket per flow, with the options, the checks and the
// texts that are the same whoever sends on them.
//
// What it sees to: IP_RECVERR (without it udp_send_skb turns a packet that the queueing discipline dropped into a success), DF
// unless fragments are asked for, socket buffers past the sysctl limits where CAP_NET_ADMIN allows, the largest payload the path
// takes, trains that fit both flow and kernel, error queues that are looked at, and errors that name the flow, the cause and the
// remedy. It needs Linux 4.12 (SO_MEMINFO) and no privilege.
package udpsock
