//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"blast/internal/ring"
	"blast/internal/sys"
)

// MaxBufRing is the largest number of buffers in one group (io_uring/kbuf.c: ids have 16 bits and the ring 2^15 entries).
const MaxBufRing = 32768

// bufEntry is struct io_uring_buf. The tail of the whole ring lies over the reserved field of entry 0:
//
//	byte   0        8     12    14    16
//	      +--------+-----+-----+-----+
//	  0   | addr   | len | id  | TAIL|   the kernel reads 16 bits here, after an acquire
//	      +--------+-----+-----+-----+
//	  1   | addr   | len | id  | -   |
//	      +--------+-----+-----+-----+
type bufEntry struct {
	addr uint64
	len  uint32
	id   uint16
	_    uint16 // the tail in entry 0, see idTail
}

// BufRing is a group of provided buffers: the kernel takes one per received datagram, the caller gives it back by Recycle and
// Commit. It belongs to the ring's thread and ends with the ring. Kernel 5.19.
type BufRing struct {
	group   uint16
	size    int
	mem     []byte
	entries []bufEntry
	idTail  *atomic.Uint32 // id of entry 0 and tail in one word: Go has no 16-bit atomic store
	tail    uint16         // next entry to fill, free-running
	staged  uint16         // filled since the last Commit
	kernel  int            // buffers the kernel may take: committed and not seen in a completion
}

// BufRingBytes is what NewBufRing takes from the arena: the ring of entries on its own pages, and the buffers.
func BufRingBytes(entries, size int) int {
	page := os.Getpagesize()
	return entries*16 + page + entries*stride(size) + ring.CacheLine
}

func stride(size int) int { return (size + ring.CacheLine - 1) &^ (ring.CacheLine - 1) }

// NewBufRing registers a group of entries buffers (a power of two up to MaxBufRing) of size bytes each and hands all of
// them to the kernel.
func (r *Ring) NewBufRing(group uint16, entries, size int) (*BufRing, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	if entries <= 0 || entries&(entries-1) != 0 || entries > MaxBufRing || size <= 0 || size > MaxBufferBytes {
		return nil, fmt.Errorf("uring: buffer ring of %d entries of %d bytes: entries are a power of two up to %d", entries, size, MaxBufRing)
	}
	mem, err := r.arena.Bytes(entries*16, os.Getpagesize())
	if err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", err)
	}
	b := &BufRing{group: group, size: size}
	if b.entries, err = ring.Slice[bufEntry](mem, entries); err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", err)
	}
	if b.idTail, err = ring.Word(mem, 12); err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", err)
	}
	if b.mem, err = r.arena.Bytes(entries*stride(size), ring.CacheLine); err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", err)
	}
	reg := sys.URingBufReg{RingAddr: ring.Addr(mem), RingEntries: uint32(entries), Group: group}
	err = sys.URingRegisterBufRing(r.fd, &reg)
	if errors.Is(err, syscall.EEXIST) {
		return nil, fmt.Errorf("uring: buffer ring: group %d is in use: %w", group, err)
	}
	if err := r.featureError("provided-buffer ring", "5.19", err); err != nil {
		return nil, err
	}
	for id := range entries {
		b.Recycle(uint16(id))
	}
	b.Commit()
	return b, nil
}

// Group is the number to arm receives with.
func (b *BufRing) Group() uint16 { return b.group }

// Free is how many buffers the kernel still has to fill.
func (b *BufRing) Free() int { return b.kernel }

func (b *BufRing) buffer(id uint16) []byte {
	at := int(id) * stride(b.size)
	return b.mem[at : at+b.size : at+b.size]
}

// Take returns what a completion put into a buffer of this group; the buffer is the caller's until Recycle. ok is false when
// the completion has no buffer.
func (b *BufRing) Take(c CQE) (data []byte, id uint16, ok bool) {
	id, ok = c.BufferID()
	if !ok || int(id) >= len(b.entries) {
		return nil, 0, false
	}
	b.kernel--
	return b.buffer(id)[:max(0, min(int(c.Res), b.size))], id, true
}

// Recycle puts a buffer back; the kernel sees it after Commit. Each taken buffer goes back exactly once.
func (b *BufRing) Recycle(id uint16) {
	e := &b.entries[int(b.tail+b.staged)&(len(b.entries)-1)]
	// Field by field: a whole-struct store would overwrite the tail in entry 0.
	e.addr, e.len, e.id = ring.Addr(b.buffer(id)), uint32(b.size), id
	b.staged++
}

// Commit shows the recycled buffers to the kernel, all at once.
func (b *BufRing) Commit() {
	if b.staged == 0 {
		return
	}
	b.kernel += int(b.staged)
	b.tail += b.staged
	b.staged = 0
	var word [4]byte
	binary.NativeEndian.PutUint16(word[0:], b.entries[0].id)
	binary.NativeEndian.PutUint16(word[2:], b.tail)
	b.idTail.Store(binary.NativeEndian.Uint32(word[:]))
}
