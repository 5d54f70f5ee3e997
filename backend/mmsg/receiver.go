package mmsg

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

const (
	// bufferBytes holds any datagram and any UDP_GRO aggregate. The odd cache lines keep the buffers' beginnings, which is all that
	// short packets touch, out of one another's cache sets.
	bufferBytes = 1<<16 + 3*64
	// controlBytes holds a receive time of either kind and a segment size.
	controlBytes = 128
)

// Receiver implements backend.Receiver on the sockets of a Sender. Replies come to a flow's own socket, from the flow's destination
// only; what another address sends never gets here.
type Receiver struct {
	socks *udpsock.Sockets
	epoll int // -1 with one socket, which needs none
	ready [vector]unix.EpollEvent
	wait  [1]unix.PollFd

	msgs    [vector]unix.Mmsghdr
	iovs    [vector]unix.Iovec
	names   [vector][sys.SockaddrBytes]byte
	buffers []byte
	control []byte // nil without stamps and GRO

	now    func() int64
	stamps bool           // they are the receive time
	clock  clock.Realtime // used with kernel times only
	device *clock.Device  // of Packet.Kernel, nil where the kernel makes it
	kernel bool           // Packet.Kernel and Packet.Asked are wanted
	asked  int64          // when the last call began
	packet backend.Packet
	events udpsock.Events

	mu     sync.Mutex // guards what follows against Drops on another thread
	closed bool
	drops  uint64 // as of Close
}

var _ backend.Receiver = (*Receiver)(nil)

func newReceiver(cfg *backend.Config, socks *udpsock.Sockets, device *clock.Device) (*Receiver, error) {
	r := &Receiver{socks: socks, epoll: -1, now: cfg.Now, stamps: cfg.KernelStamp, kernel: cfg.Stamps, device: device, buffers: make([]byte, vector*bufferBytes)}
	if cfg.GRO || cfg.KernelStamp || r.kernel {
		r.control = make([]byte, vector*controlBytes)
	}
	for i := range r.msgs {
		h := &r.msgs[i].Hdr
		h.Iov, h.Name = &r.iovs[i], &r.names[i][0]
		r.iovs[i].Base = &r.buffers[i*bufferBytes]
		r.iovs[i].SetLen(bufferBytes)
		h.SetIovlen(1)
		if r.control != nil {
			h.Control = &r.control[i*controlBytes]
		}
		r.rearm(i)
	}
	if err := socks.ReceiveOptions(cfg); err != nil {
		return nil, err
	}
	if err := r.watch(); err != nil {
		return nil, err
	}
	socks.Share()
	return r, nil
}

func (r *Receiver) watch() (err error) {
	if len(r.socks.FDs) == 1 {
		r.wait[0] = unix.PollFd{Fd: int32(r.socks.FDs[0]), Events: unix.POLLIN}
		return nil
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	for flow, fd := range r.socks.FDs {
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(flow)}); err != nil {
			unix.Close(r.epoll)
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	r.wait[0] = unix.PollFd{Fd: int32(r.epoll), Events: unix.POLLIN}
	return nil
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
	r.drops, r.closed = r.socks.Drops(), true
	if r.epoll >= 0 {
		unix.Close(r.epoll)
	}
	return r.socks.Release()
}
