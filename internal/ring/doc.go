// Package ring is the arithmetic and the memory that user space shares with the kernel through mapped rings.
//
// It is for the io_uring and AF_XDP packages; nobody else needs it. It knows no ring layout: a caller maps memory
// ([Map], [MapFD]), finds the two index words and the entries in it ([Word], [Slice]), and drives them by a [Producer]
// or a [Consumer].
//
//	          consumer index C           producer index P
//	                 |                          |
//	+------+------+--v---+------+------+------+-v----+------+
//	| free | free | full | full | full | full | free | free |     size = power of two
//	+------+------+------+------+------+------+------+------+
//	    full entries = P - C           free entries = size - (P - C)
//
// Both indices run freely and wrap at 2^32; an entry sits at index & (size-1). Only differences of indices mean
// anything, never their order. Each index has exactly one writer: the producer's end writes P, the consumer's end writes C.
//
// Ordering. Every access to a shared word goes through sync/atomic, which Go defines as sequentially consistent. So
// entries written before [Producer.Publish] are seen by a peer that sees the new index, and a flag word read after Publish
// ("must I wake the kernel?") cannot have been read before it: on amd64 the store is an XCHG, on arm64 an STLR followed
// by an LDAR. A plain release store would leave a hole there.
//
// Keep-alive. Memory the kernel still reads or writes must neither move nor be freed. Go stacks move, and an object known
// only by a number in a kernel struct is garbage to the collector; runtime.KeepAlive does not fix an address. Therefore
// everything the kernel touches lives in a [Region], which is mapped outside the Go heap, has no finalizer and goes away
// only by [Region.Close]. The owner closes it after the kernel let go of it, and no slice of it may be used afterwards:
// such an access is a fault that Go cannot recover from.
//
// Nothing here is safe for concurrent use except where the two ends of one ring are the two users. No privilege is needed,
// except by huge pages, which the administrator must have reserved. Linux only.
package ring
