// Package netudp sends and receives by the standard library's UDP sockets, one system call per packet: the plain reference that
// the other backends are compared with, and what most Go programs do.
//
// It differs from UDPConn.Write in one point. That call waits in the runtime's poller when the socket buffer is full, and a wait
// inside a send is lag that nobody counts; so the write goes through RawConn, which takes the same locks and makes the same system
// call, and EAGAIN becomes the push-back it is.
//
// It needs Linux 4.12 and no privilege; CAP_NET_ADMIN lets socket buffers exceed the sysctl limits.
package netudp
