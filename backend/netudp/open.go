package netudp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/udpsock"
)

// Name is the value of --backend.
const Name = "net"

// defaultBatch is the number of slots of a Commit where none is asked for; maxBatch bounds the memory of a Sender.
const (
	defaultBatch = 64
	maxBatch     = 1 << 14
)

// Entry is the row of this backend.
func Entry() backend.Entry { return backend.Entry{Name: Name, Open: Open, Probe: Probe, Stamps: true} }

// Probe opens a socket: more is not needed.
func Probe() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("net: socket: %w", err)
	}
	return unix.Close(fd)
}

// Open implements backend.Open.
func Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	if err := check(&cfg); err != nil {
		return nil, nil, fmt.Errorf("net: %w", err)
	}
	plan := udpsock.NewPlan(&cfg)
	c := &conns{}
	if err := c.open(&cfg, plan); err != nil {
		return nil, nil, fmt.Errorf("net: %w", errors.Join(err, c.release()))
	}
	limits := plan.Limits()
	limits.Mode = "connected sockets of the standard library"
	limits.Batch = cfg.Batch
	if cfg.Batch == 0 {
		limits.Batch = defaultBatch
	}
	s := newSender(&cfg, c, limits)
	if !cfg.Receive {
		return s, nil, nil
	}
	return s, newReceiver(&cfg, c, s.stamps.ArrivalClock()), nil
}

func check(cfg *backend.Config) error {
	err := udpsock.Check(cfg)
	refuse := func(bad bool, what string) {
		if bad {
			err = errors.Join(err, fmt.Errorf("%s: not a feature of the standard library's sockets; --backend sendmmsg has it", what))
		}
	}
	refuse(cfg.GSO > 1, "UDP_SEGMENT trains")
	refuse(cfg.GRO, "UDP_GRO")
	refuse(cfg.KernelStamp, "kernel receive times")
	if cfg.SQPoll || cfg.ZeroCopy {
		err = errors.Join(err, errors.New("a submission thread and zero copy are switches of other backends"))
	}
	if cfg.Batch > maxBatch {
		err = errors.Join(err, fmt.Errorf("batch of %d: at most %d", cfg.Batch, maxBatch))
	}
	return err
}

// conns are the connected sockets of a Sender and, where there is one, its Receiver; the last of the two to close closes them.
type conns struct {
	conns []*net.UDPConn
	raws  []syscall.RawConn
	fds   []int // valid as long as the conns are open
	users atomic.Int32
	hand  udpsock.Handoff
}

func (c *conns) open(cfg *backend.Config, plan *udpsock.Plan) error {
	c.users.Store(1)
	for flow := range cfg.Flows {
		conn, err := dial(cfg.Flows[flow], func(fd int) error { return plan.Prepare(fd, flow) })
		if err != nil {
			return udpsock.Explain(cfg, flow, err)
		}
		c.conns = append(c.conns, conn)
		raw, err := conn.SyscallConn()
		if err != nil {
			return fmt.Errorf("flow %d: %w", flow, err)
		}
		c.raws = append(c.raws, raw)
		var inner error
		if err := raw.Control(func(fd uintptr) {
			c.fds = append(c.fds, int(fd))
			inner = plan.Inspect(int(fd), flow)
		}); err != nil || inner != nil {
			return fmt.Errorf("flow %d: %w", flow, errors.Join(err, inner))
		}
	}
	return nil
}

// dial makes one connected socket, on the calling thread and so in its network namespace.
func dial(f backend.Flow, prepare func(fd int) error) (*net.UDPConn, error) {
	var inner error
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if err := raw.Control(func(fd uintptr) { inner = prepare(int(fd)) }); err != nil {
			return err
		}
		return inner
	}}
	dst := netip.AddrPortFrom(f.Dst.Addr().Unmap(), f.Dst.Port())
	network := "udp6"
	if dst.Addr().Is4() {
		network = "udp4"
	}
	if src := f.Src.Addr().Unmap(); src.IsValid() || f.Src.Port() != 0 {
		local := &net.UDPAddr{Port: int(f.Src.Port())}
		if src.IsValid() {
			local.IP, local.Zone = src.AsSlice(), src.Zone()
		}
		d.LocalAddr = local
	}
	conn, err := d.Dial(network, dst.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// release closes the sockets when nobody uses them any more.
func (c *conns) release() error {
	if c.users.Add(-1) > 0 {
		return nil
	}
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
