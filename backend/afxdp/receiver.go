package afxdp

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/packet"
	"blast/xdp"
)

// Receiver implements backend.Receiver: on the AF_XDP socket of the worker's queue, and on the ordinary sockets of its flows for what
// does not come that way.
type Receiver struct {
	link   *link
	sock   *xdp.Socket
	flows  table
	now    func() int64
	kernel bool // Packet.Kernel and Packet.Asked are wanted
	turn   uint // of Poll
	packet backend.Packet
	parsed packet.Parsed

	epoll  int // over the ordinary sockets
	ready  [64]unix.EpollEvent
	buffer []byte
	events udpsock.Events

	mu     sync.Mutex // guards what follows against Drops on another thread
	closed bool
	drops  uint64 // as of Close
}

var _ backend.Receiver = (*Receiver)(nil)

func newReceiver(cfg *backend.Config, l *link) (*Receiver, error) {
	r := &Receiver{link: l, sock: l.sock, flows: newTable(l), now: cfg.Now, kernel: cfg.Stamps, buffer: make([]byte, 1<<16)}
	var err error
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	for flow, fd := range l.socks.FDs {
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(flow)}); err != nil {
			unix.Close(r.epoll)
			return nil, os.NewSyscallError("epoll_ctl", err)
		}
	}
	l.share()
	return r, nil
}

// Drops implements backend.Receiver: what the receive ring, for want of room or of buffers, and the ordinary sockets lost.
func (r *Receiver) Drops() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.drops
	}
	return r.lost()
}

func (r *Receiver) lost() uint64 {
	n := r.link.socks.Drops()
	if k, err := r.sock.KernelStats(); err == nil {
		n += k.RxDropped + k.RxRingFull
	}
	return n
}

// Close implements backend.Receiver.
func (r *Receiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.drops, r.closed = r.lost(), true
	unix.Close(r.epoll)
	return r.link.release()
}
