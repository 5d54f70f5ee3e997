package iouring

import (
	"errors"
	"fmt"
	"sync"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/udpsock"
	"blast/uring"
)

const (
	// buffers is the number of replies that one call can hand over. A call serves 20 sockets (IO_LOCAL_TW_DEFAULT_MAX of
	// io_uring/io_uring.c, 6.13; all of them before), each with up to 32 replies (MULTISHOT_MAX_RETRY of io_uring/net.c). A buffer holds
	// any datagram and any UDP_GRO aggregate; only the pages that replies touch are ever in memory.
	buffers = 1024
	// arming is the number of receives that one call starts.
	arming = 256
	// controlBytes holds a receive time and a segment size: cmsg(3) space of struct timespec and of an int. stampBytes holds another one, of
	// struct scm_timestamping.
	controlBytes = 32 + 24
	stampBytes   = 64
)

// Receiver implements backend.Receiver on the sockets of a Sender: one multishot receive per socket, all of one ring, which the first
// Poll makes because it belongs to that thread.
type Receiver struct {
	socks   *udpsock.Sockets
	now     func() int64
	stamps  bool           // kernel times are the receive time
	clock   clock.Realtime // used with kernel times only
	device  *clock.Device  // of Packet.Kernel, nil where the kernel makes it
	kernel  bool           // Packet.Kernel and Packet.Asked are wanted
	asked   int64          // when the last call began
	control int
	packet  backend.Packet
	events  udpsock.Events

	ring    *uring.Ring
	buffers *uring.BufRing
	header  *uring.Message // what every receive writes in front of the payload
	idle    []int32        // flows without a receive

	mu     sync.Mutex // guards what follows against Drops on another thread
	closed bool
	drops  uint64 // as of Close
}

var _ backend.Receiver = (*Receiver)(nil)

func newReceiver(cfg *backend.Config, socks *udpsock.Sockets, device *clock.Device, ops uring.OpSet) (*Receiver, error) {
	if !ops.HasMultishot() {
		return nil, fmt.Errorf("%w: multishot receive came with Linux 6.0; use another backend", errors.ErrUnsupported)
	}
	if err := socks.ReceiveOptions(cfg); err != nil {
		return nil, err
	}
	r := &Receiver{socks: socks, now: cfg.Now, stamps: cfg.KernelStamp, kernel: cfg.Stamps, device: device, idle: make([]int32, len(socks.FDs))}
	for flow := range r.idle {
		r.idle[flow] = int32(len(r.idle) - 1 - flow) // taken from the end
	}
	if cfg.GRO || cfg.KernelStamp {
		r.control = controlBytes
	}
	if r.kernel {
		r.control += stampBytes
	}
	socks.Share()
	return r, nil
}

// open makes the ring on the calling thread.
func (r *Receiver) open() error {
	size := uring.MultishotHeader(r.control) + 1<<16
	ring, err := uring.New(uring.Config{
		Entries: arming, CQEntries: uint32(min(powerOfTwo(2*(buffers+len(r.idle))), uring.MaxCQEntries)),
		ArenaBytes: uring.BufRingBytes(buffers, size) + 4096, LazyArena: true,
	})
	if err != nil {
		return broken(err)
	}
	if err := r.layOut(ring, size); err != nil {
		return broken(errors.Join(err, ring.Close()))
	}
	r.ring = ring
	return nil
}

func (r *Receiver) layOut(ring *uring.Ring, size int) (err error) {
	fds := make([]int32, len(r.socks.FDs))
	for i, fd := range r.socks.FDs {
		fds[i] = int32(fd)
	}
	if err := ring.RegisterFiles(fds); err != nil {
		return err
	}
	headers, err := ring.Arena().Messages(1)
	if err != nil {
		return err
	}
	r.header = &headers[0]
	if err := r.header.ForMultishot(r.control); err != nil {
		return err
	}
	r.buffers, err = ring.NewBufRing(0, buffers, size)
	return err
}

// Drops implements backend.Receiver.
func (r *Receiver) Drops() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.drops
	}
	return r.socks.Drops()
}

// Close implements backend.Receiver.
func (r *Receiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.ring != nil {
		if err := r.ring.Close(); err != nil {
			return broken(err)
		}
	}
	r.drops, r.closed = r.socks.Drops(), true
	return r.socks.Release()
}
