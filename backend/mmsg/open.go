package mmsg

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

// Name is the value of --backend.
const Name = "sendmmsg"

const (
	// vector bounds the messages of one system call: the calls are raw ones, which must not hold a processor for long.
	vector = 64
	// defaultBatch is the number of slots of a Commit where none is asked for and no trains make more worthwhile.
	defaultBatch = 64
	// maxBatch bounds the memory of a Sender.
	maxBatch = 1 << 14
)

// Entry is the row of this backend.
func Entry() backend.Entry { return backend.Entry{Name: Name, Open: Open, Probe: Probe} }

// Probe tells whether sendmmsg works here.
func Probe() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sendmmsg: %w", os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	// A message without a destination on an unconnected socket: any kernel that has the call answers EDESTADDRREQ.
	switch _, errno := sys.Sendmmsg(fd, make([]unix.Mmsghdr, 1)); errno {
	case 0, unix.EDESTADDRREQ:
		return nil
	case unix.ENOSYS, unix.EPERM:
		return fmt.Errorf("sendmmsg: %w: the kernel or a seccomp filter refuses the system call; --backend net does without: %w", errors.ErrUnsupported, errno)
	default:
		return fmt.Errorf("sendmmsg: %w", errno)
	}
}

// Open implements backend.Open.
func Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	if err := check(&cfg); err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", err)
	}
	plan := udpsock.NewPlan(&cfg)
	socks := &sockets{}
	if err := socks.open(&cfg, plan); err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", errors.Join(err, socks.release()))
	}
	s := newSender(&cfg, socks, plan.Limits())
	if !cfg.Receive {
		return s, nil, nil
	}
	r, err := newReceiver(&cfg, socks)
	if err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", errors.Join(err, s.Close()))
	}
	return s, r, nil
}

func check(cfg *backend.Config) error {
	err := udpsock.Check(cfg)
	if cfg.SQPoll || cfg.ZeroCopy {
		err = errors.Join(err, errors.New("a submission thread and zero copy are switches of other backends"))
	}
	if cfg.Batch > maxBatch {
		err = errors.Join(err, fmt.Errorf("batch of %d: at most %d", cfg.Batch, maxBatch))
	}
	return err
}

// sockets are the connected sockets of a Sender and, where there is one, its Receiver; the last of the two to close closes them.
type sockets struct {
	fds   []int
	peers []netip.AddrPort
	users atomic.Int32
	hand  udpsock.Handoff
}

func (s *sockets) open(cfg *backend.Config, plan *udpsock.Plan) error {
	s.users.Store(1)
	for flow, f := range cfg.Flows {
		f.Dst = netip.AddrPortFrom(f.Dst.Addr().Unmap(), f.Dst.Port())
		s.peers = append(s.peers, f.Dst)
		fd, err := openSocket(f, func(fd int) error { return plan.Prepare(fd, flow) })
		if err != nil {
			return udpsock.Explain(cfg, flow, err)
		}
		s.fds = append(s.fds, fd)
		if err := plan.Inspect(fd, flow); err != nil {
			return fmt.Errorf("flow %d: %w", flow, err)
		}
	}
	return nil
}

func openSocket(f backend.Flow, prepare func(fd int) error) (fd int, err error) {
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
	defer func() {
		if err != nil {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(fd)))
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
		sa, err := sockaddr(src)
		if err != nil {
			return -1, err
		}
		if err := unix.Bind(fd, sa); err != nil {
			return -1, os.NewSyscallError("bind", err)
		}
	}
	sa, err := sockaddr(dst)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) (unix.Sockaddr, error) {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
	}
	sa := &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	if zone := a.Addr().Zone(); zone != "" {
		if id, err := strconv.ParseUint(zone, 10, 32); err == nil {
			sa.ZoneId = uint32(id)
			return sa, nil
		}
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("zone of %v: %w", a.Addr(), err)
		}
		sa.ZoneId = uint32(ifi.Index)
	}
	return sa, nil
}

// release closes the sockets when nobody uses them any more.
func (s *sockets) release() error {
	if s.users.Add(-1) > 0 {
		return nil
	}
	var errs []error
	for _, fd := range s.fds {
		errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
	}
	s.fds = nil
	return errors.Join(errs...)
}

// misuse is what Commit says of a caller that does not keep to the contract.
func misuse(slots, reserved int) error {
	return fmt.Errorf("sendmmsg: commit of %d slots, %d reserved", slots, reserved)
}

// fatal is what a Sender or Receiver says of an errno that ends the run.
func fatal(call string, flow int, errno syscall.Errno) error {
	return fmt.Errorf("sendmmsg: flow %d: %w", flow, os.NewSyscallError(call, errno))
}

// waiting is what a Receiver says of an error of the call it waits with.
func waiting(call string, err error) error {
	return fmt.Errorf("sendmmsg: wait for replies: %w", os.NewSyscallError(call, err))
}
