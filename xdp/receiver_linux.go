//blast:hot

package xdp

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// ReceiveStats are the counters of the receiving half since Open. They belong to its thread.
type ReceiveStats struct {
	// Received frames were handed out.
	Received uint64
	// Foreign descriptors named no frame that the kernel had, or ran out of it: a kernel bug, they are left alone.
	Foreign uint64
	// Wakes are the system calls that told a driver of new buffers.
	Wakes uint64
}

// receiver is the receiving half. One pass: give back the frames of the last call by the fill ring, take new ones from the
// receive ring.
type receiver struct {
	mem        []byte
	first      uint64 // address of the first frame
	frameBytes uint64 // a power of two
	owners     []owner

	rx      ring.Consumer
	rxDesc  []unix.XDPDesc
	fq      ring.Producer
	fqAddr  []uint64
	fqFlags *atomic.Uint32
	wake    func() syscall.Errno

	out      [][]byte
	held     []uint64 // base addresses of what out shows
	stamped  bool     // the program writes arrivals
	arrivals []int64  // of what out shows
	stats    ReceiveStats
}

func newReceiver(u *umem, limit int) *receiver {
	return &receiver{mem: u.mem, first: u.rxFirst, frameBytes: uint64(u.frameBytes), owners: make([]owner, u.rxFrames),
		out: make([][]byte, 0, limit), held: make([]uint64, 0, limit), arrivals: make([]int64, limit)}
}

// fill gives every frame to the kernel. It must come before bind: an empty fill ring at activation can wedge a queue (mlx5).
func (r *receiver) fill() {
	n := r.fq.Room(uint32(len(r.owners)))
	at, mask := r.fq.Index(), r.fq.Mask()
	for i := range n {
		r.fqAddr[(at+i)&mask] = r.first + uint64(i)*r.frameBytes
		r.owners[i] = ownKernel
	}
	r.fq.Publish(n)
}

// recycle gives back what the last receive handed out.
func (r *receiver) recycle() {
	if len(r.held) == 0 {
		return
	}
	// The fill ring holds as many entries as there are frames, so there is always room for those the kernel has not.
	n := r.fq.Room(uint32(len(r.held)))
	at, mask := r.fq.Index(), r.fq.Mask()
	for i, base := range r.held[:n] {
		r.fqAddr[(at+uint32(i))&mask] = base
		r.owners[(base-r.first)/r.frameBytes] = ownKernel
	}
	r.fq.Publish(n)
	r.held = r.held[:copy(r.held, r.held[n:])]
	r.out = r.out[:0]
}

// arrival takes the program's note from in front of the packet at an address: ns of CLOCK_MONOTONIC, 0 = none. It is wiped, because the next
// packet in the frame may have none.
func (r *receiver) arrival(base, at uint64) int64 {
	if at-base < arrivalBytes {
		return 0
	}
	note := r.mem[at-arrivalBytes : at]
	if binary.NativeEndian.Uint64(note) != arrivalMagic {
		return 0
	}
	clear(note[:8])
	return int64(binary.NativeEndian.Uint64(note[8:]))
}

// receive is Socket.Receive.
func (r *receiver) receive(n int) [][]byte {
	r.recycle()
	n = min(n, cap(r.held)-len(r.held))
	if n <= 0 {
		return nil
	}
	got := r.rx.Peek(uint32(n))
	at, mask := r.rx.Index(), r.rx.Mask()
	for i := range got {
		d := r.rxDesc[(at+i)&mask]
		base := d.Addr &^ (r.frameBytes - 1)
		index := (base - r.first) / r.frameBytes
		if d.Addr < r.first || index >= uint64(len(r.owners)) || r.owners[index] != ownKernel ||
			d.Addr+uint64(d.Len) > base+r.frameBytes {
			r.stats.Foreign++
			continue
		}
		r.owners[index] = ownUser
		r.held = append(r.held, base)
		if r.stamped {
			r.arrivals[len(r.out)] = r.arrival(base, d.Addr)
		}
		r.out = append(r.out, r.mem[d.Addr:d.Addr+uint64(d.Len):d.Addr+uint64(d.Len)])
	}
	if got > 0 {
		r.rx.Release(got)
		r.stats.Received += uint64(len(r.out))
	}
	if got < uint32(n) && r.fqFlags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 {
		// A loop that never sleeps in poll must wake the driver itself, or an empty fill ring is never looked at again.
		r.stats.Wakes++
		_ = r.wake()
	}
	return r.out
}
