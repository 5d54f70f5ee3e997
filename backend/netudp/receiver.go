package netudp

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

const (
	// bufferBytes holds any datagram.
	bufferBytes = 1 << 16
	// controlBytes holds a receive time.
	controlBytes = 64
	// burst bounds the packets taken from one socket before the others get their turn.
	burst = 64
)

// Receiver implements backend.Receiver on the sockets of a Sender: one poll(2) over all of them, then one read per packet. Replies
// come to a flow's own socket, from the flow's destination only.
type Receiver struct {
	conns *conns
	cfg   backend.Config
	polls []unix.PollFd

	read   func(fd uintptr) bool // made once, like Sender.write
	buffer []byte
	n      int           // bytes read
	errno  syscall.Errno // 0 when something was
	packet backend.Packet
	events udpsock.Events

	message [1]unix.Mmsghdr // for kernel times; its control data is nil without
	iov     unix.Iovec
	control []byte
	clock   clock.Realtime
	device  *clock.Device // of the receive times, nil where the kernel makes them
	asked   int64         // when the last call began

	mu     sync.Mutex // guards what follows against Drops on another thread
	closed bool
	drops  uint64 // as of Close
}

var _ backend.Receiver = (*Receiver)(nil)

func newReceiver(cfg *backend.Config, c *conns, device *clock.Device) *Receiver {
	r := &Receiver{conns: c, cfg: *cfg, device: device, polls: make([]unix.PollFd, len(c.fds)), buffer: make([]byte, bufferBytes)}
	for i, fd := range c.fds {
		r.polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	r.read = func(fd uintptr) bool {
		n, err := unix.Read(int(fd), r.buffer)
		r.n, r.errno = n, 0
		if err != nil {
			r.errno, _ = err.(syscall.Errno)
		}
		return true
	}
	if cfg.Stamps {
		r.control = make([]byte, controlBytes)
		r.iov.Base = &r.buffer[0]
		r.iov.SetLen(len(r.buffer))
		r.read = func(fd uintptr) bool {
			r.receiveTimed(int(fd))
			return true
		}
	}
	c.users.Add(1)
	return r
}

// Poll implements backend.Receiver. It does not wait in the runtime's poller, which wakes a locked thread by way of another one.
func (r *Receiver) Poll(wait time.Duration, fn func(*backend.Packet)) (int, error) {
	if r.closed {
		return 0, udpsock.ErrClosed
	}
	limit := unix.NsecToTimespec(max(int64(wait), 0))
	n, err := unix.Ppoll(r.polls, &limit, nil)
	if err != nil && err != unix.EINTR {
		return 0, fmt.Errorf("net: wait for replies: %w", os.NewSyscallError("ppoll", err))
	}
	total := 0
	for flow := 0; flow < len(r.polls) && n > 0; flow++ {
		ready := r.polls[flow].Revents
		if ready == 0 {
			continue
		}
		n--
		if ready&unix.POLLERR != 0 {
			r.errors(flow)
		}
		if ready&unix.POLLIN != 0 {
			seen, err := r.receive(flow, fn)
			total += seen
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

func (r *Receiver) receive(flow int, fn func(*backend.Packet)) (packets int, err error) {
	for range burst {
		if err := r.conns.raws[flow].Read(r.read); err != nil {
			return packets, fmt.Errorf("net: flow %d: %w", flow, err)
		}
		switch {
		case r.errno == 0:
		case r.errno == unix.EAGAIN:
			return packets, nil
		case udpsock.MaybePending(r.errno):
			r.errors(flow)
			continue
		case r.errno == unix.EINTR:
			continue
		default:
			return packets, fmt.Errorf("net: flow %d: %w", flow, os.NewSyscallError("read", r.errno))
		}
		r.packet = backend.Packet{Payload: r.buffer[:r.n], Flow: flow, At: r.cfg.Now(), Source: r.cfg.Flows[flow].Dst}
		if r.control != nil {
			r.time()
		}
		fn(&r.packet)
		packets++
	}
	return packets, nil
}

// receiveTimed reads a packet with the kernel's receive time, for which read(2) has no place.
func (r *Receiver) receiveTimed(fd int) {
	h := &r.message[0].Hdr
	*h = unix.Msghdr{Iov: &r.iov, Control: &r.control[0]}
	h.SetIovlen(1)
	h.SetControllen(len(r.control))
	r.asked = r.cfg.Now()
	_, r.errno = sys.Recvmmsg(fd, r.message[:])
	r.n = int(r.message[0].Len)
}

// time adds to the packet in hand when the kernel took it in and when it was asked for.
func (r *Receiver) time() {
	r.clock.Renew(r.packet.At, r.cfg.Now)
	r.packet.Asked = r.asked
	stamp, hardware, _ := udpsock.ParseControl(r.control[:r.message[0].Hdr.Controllen])
	switch {
	case r.device != nil:
		r.packet.Kernel = r.device.Monotonic(hardware)
	case stamp != 0:
		r.packet.Kernel = r.clock.Monotonic(stamp)
	}
}

// errors empties an error queue that the Sender does not get round to, and that would end every wait at once.
func (r *Receiver) errors(flow int) {
	if r.events.Drain(r.conns.fds[flow]) > 0 {
		r.conns.hand.Give(&r.events)
	}
}

// Drops implements backend.Receiver.
func (r *Receiver) Drops() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.drops
	}
	return r.count()
}

func (r *Receiver) count() (total uint64) {
	for _, fd := range r.conns.fds {
		n, _ := sys.SocketDrops(fd) // cannot fail on an open socket of a kernel that has SO_MEMINFO
		total += uint64(n)
	}
	return total
}

// Close implements backend.Receiver.
func (r *Receiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.drops, r.closed = r.count(), true
	if err := r.conns.release(); err != nil {
		return fmt.Errorf("net: %w", err)
	}
	return nil
}
