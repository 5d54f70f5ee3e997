package udpsock

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// Sockets are the connected, non-blocking sockets of a Sender and, where there is one, its Receiver, one per flow; the last of the two
// to close closes them.
type Sockets struct {
	// FDs are the descriptors and Peers the destinations, by flow.
	FDs   []int
	Peers []netip.AddrPort
	// Hand carries events from the Receiver to the Sender.
	Hand  Handoff
	users atomic.Int32
}

// Open opens and connects a socket for every flow, for one user. On an error the caller releases what is open.
func (s *Sockets) Open(cfg *backend.Config, plan *Plan) error {
	s.users.Store(1)
	for flow, f := range cfg.Flows {
		f.Dst = netip.AddrPortFrom(f.Dst.Addr().Unmap(), f.Dst.Port())
		s.Peers = append(s.Peers, f.Dst)
		fd, err := Connect(f, func(fd int) error { return plan.Prepare(fd, flow) })
		if err != nil {
			return Explain(cfg, flow, err)
		}
		s.FDs = append(s.FDs, fd)
		if err := plan.Inspect(fd, flow); err != nil {
			return fmt.Errorf("flow %d: %w", flow, err)
		}
	}
	return nil
}

// Connect opens the socket of one flow. prepare sets options before it is bound.
func Connect(f backend.Flow, prepare func(fd int) error) (fd int, err error) {
	family, dst := unix.AF_INET, netip.AddrPort{}
	src := netip.AddrPortFrom(f.Src.Addr().Unmap(), f.Src.Port())
	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	if dst = f.Dst; !dst.Addr().Is4() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	opened := fd // the returns below set fd
	defer func() {
		if err != nil {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(opened)))
		}
	}()
	if err := prepare(fd); err != nil {
		return -1, err
	}
	if !src.Addr().IsValid() {
		src = netip.AddrPortFrom(any4, src.Port())
		if family == unix.AF_INET6 {
			src = netip.AddrPortFrom(any6, src.Port())
		}
	}
	// Nothing to bind: connect(2) picks both. It spares a lookup, and picks ports that are free for this peer only.
	if !src.Addr().IsUnspecified() || src.Port() != 0 {
		sa, err := sys.Sockaddr(src)
		if err != nil {
			return -1, err
		}
		if err := unix.Bind(fd, sa); err != nil {
			return -1, os.NewSyscallError("bind", err)
		}
	}
	sa, err := sys.Sockaddr(dst)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// Share adds a user.
func (s *Sockets) Share() { s.users.Add(1) }

// Release takes a user off and closes the sockets when nobody uses them any more.
func (s *Sockets) Release() error {
	if s.users.Add(-1) > 0 {
		return nil
	}
	var errs []error
	for _, fd := range s.FDs {
		errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
	}
	s.FDs = nil
	return errors.Join(errs...)
}

// ReceiveOptions sets what a Receiver needs: UDP_GRO and kernel receive times where cfg asks for them.
func (s *Sockets) ReceiveOptions(cfg *backend.Config) error {
	for _, fd := range s.FDs {
		if cfg.GRO {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
				return fmt.Errorf("UDP_GRO (Linux 5.0): %w", os.NewSyscallError("setsockopt", err))
			}
		}
		if cfg.KernelStamp {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
				return fmt.Errorf("kernel receive times: %w", os.NewSyscallError("setsockopt SO_TIMESTAMPNS", err))
			}
		}
	}
	return nil
}

// Drops is the number of packets that the receive buffers had no room for (SO_MEMINFO).
func (s *Sockets) Drops() (total uint64) {
	for _, fd := range s.FDs {
		n, _ := sys.SocketDrops(fd) // cannot fail on an open socket of a kernel that has SO_MEMINFO
		total += uint64(n)
	}
	return total
}
