//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"fmt"
	"time"

	"blast/internal/ring"
	"blast/internal/sys"
)

// ErrArenaFull is wrapped by the carving methods when Config.ArenaBytes was too small.
var ErrArenaFull = ring.ErrNoSpace

// Arena is the mapped memory of one ring from which everything is carved that entries point at. Pieces are never given back;
// all of them end with Ring.Close, and touching one afterwards is a fault.
type Arena struct{ a *ring.Arena }

// Bytes carves n bytes at a multiple of align, a power of two. The capacity ends with the piece.
func (a *Arena) Bytes(n, align int) ([]byte, error) { return a.a.Alloc(n, align) }

// Slots carves n pieces of size bytes each, every one at a multiple of align (a cache line, 64, keeps them apart).
func (a *Arena) Slots(n, size, align int) ([][]byte, error) {
	if n <= 0 || size <= 0 || align <= 0 || align&(align-1) != 0 {
		return nil, fmt.Errorf("uring: %d slots of %d bytes aligned to %d", n, size, align)
	}
	if n > a.Left()/size || align > a.Left() { // also keeps the product below from overflowing
		return nil, fmt.Errorf("uring: %d slots of %d bytes, %d bytes left: %w", n, size, a.Left(), ErrArenaFull)
	}
	stride := (size + align - 1) &^ (align - 1)
	mem, err := a.a.Alloc((n-1)*stride+size, align)
	if err != nil {
		return nil, err
	}
	slots := make([][]byte, n)
	for i := range slots {
		slots[i] = mem[i*stride : i*stride+size : i*stride+size]
	}
	return slots, nil
}

// Messages carves n messages, each ready for Payload.
func (a *Arena) Messages(n int) ([]Message, error) {
	ms, err := ring.Carve[Message](a.a, n)
	if err != nil {
		return nil, err
	}
	for i := range ms {
		ms[i].hdr.iov, ms[i].hdr.iovlen = ring.AddrOf(&ms[i].iov), 1
	}
	return ms, nil
}

// Sockaddrs carves n socket addresses.
func (a *Arena) Sockaddrs(n int) ([]Sockaddr, error) { return ring.Carve[Sockaddr](a.a, n) }

// Iovecs carves n iovecs, for Message.Vector.
func (a *Arena) Iovecs(n int) ([]Iovec, error) { return ring.Carve[Iovec](a.a, n) }

// Timespecs carves n times, for SQE.PrepTimeout.
func (a *Arena) Timespecs(n int) ([]Timespec, error) { return ring.Carve[Timespec](a.a, n) }

// Left is the number of bytes not carved yet.
func (a *Arena) Left() int { return a.a.Left() }

// Iovec is one piece of memory in a vector (struct iovec).
type Iovec struct{ iov sys.URingIovec }

// Set makes the iovec describe b, which lies in the arena.
func (v *Iovec) Set(b []byte) { v.iov = sys.URingIovec{Base: ring.Addr(b), Len: uint64(len(b))} }

// Timespec is a time or a duration as the kernel reads it (struct __kernel_timespec).
type Timespec struct{ ts sys.Timespec64 }

// Set stores a duration, or a clock reading as time since the clock's zero. It must not be negative.
func (t *Timespec) Set(d time.Duration) {
	t.ts = sys.Timespec64{Sec: int64(d / time.Second), Nsec: int64(d % time.Second)}
}
