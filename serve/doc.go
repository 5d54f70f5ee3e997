// Package serve holds the UDP targets that blast brings along: a sink that only counts, an echo that answers every datagram with
// itself, and a queueing service (QueueServer) that holds each for a time that can be computed, injects faults by seed, and tells what it did.
//
// The first two are the no-op a generator is measured against. The echo writes its own times and a report of what it received into our
// payload stamp, so that the sender learns in which direction a packet was lost; any other payload goes back byte for byte. Only
// peers inside an allow list are answered, by default loopback and the prefix of the interface itself: a target must not be
// usable as a reflector.
//
// Each worker is a locked thread with a SO_REUSEPORT socket of its own and batched system calls. Linux only; no privilege is
// needed, but CAP_NET_ADMIN lets the receive buffer exceed net.core.rmem_max. Train reception (Config.GRO) needs kernel 5.0,
// drop counts 4.12.
package serve
