package udpsock

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// DefaultReceiveBuffer is what SO_RCVBUF is set to when nothing is asked for and replies are wanted, in bytes.
const DefaultReceiveBuffer = 4 << 20

// Plan knows how each flow's socket is to be set up, and gathers what the kernel granted. Used by one thread, at Open.
type Plan struct {
	cfg    *backend.Config
	taken  map[backend.Flow]bool // by other sockets, before this Plan's were opened
	limits backend.Limits
}

// NewPlan takes a Config that Check passed. The Config is read as long as the Plan is used.
func NewPlan(cfg *backend.Config) *Plan {
	p := &Plan{cfg: cfg, limits: backend.Limits{PayloadBytes: MaxPayload}}
	if !slices.ContainsFunc(cfg.Flows, func(f backend.Flow) bool { return f.Src.Port() != 0 }) {
		return p // the kernel gives out free ports only
	}
	var err error
	if p.taken, err = connected(); err != nil {
		p.limits.Notes = append(p.limits.Notes, fmt.Sprintf("source ports: could not see whether another process sends from them to the same targets: %v", err))
	}
	return p
}

// Prepare sets the options that a flow's socket needs before it is bound.
func (p *Plan) Prepare(fd, flow int) error {
	f := p.cfg.Flows[flow]
	level, recverr, discover, set := unix.IPPROTO_IP, unix.IP_RECVERR, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if p.cfg.Fragment {
		set = unix.IP_PMTUDISC_DONT
	}
	if !f.Dst.Addr().Unmap().Is4() {
		level, recverr, discover = unix.IPPROTO_IPV6, unix.IPV6_RECVERR, unix.IPV6_MTU_DISCOVER
	}
	if err := setInt(fd, level, recverr, 1, "IP_RECVERR"); err != nil {
		return err
	}
	if err := setInt(fd, level, discover, set, "IP_MTU_DISCOVER"); err != nil {
		return err
	}
	if f.Src.Port() != 0 {
		// Several targets from one port, on this worker or others: connected sockets are told apart by their peer (net/ipv4/udp.c
		// compute_score). A port that a socket without this option has stays an error.
		if err := setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"); err != nil {
			return err
		}
	}
	return p.buffers(fd)
}

func (p *Plan) buffers(fd int) error {
	if n := p.cfg.SendBuffer; n > 0 {
		if err := force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, n, "SO_SNDBUF"); err != nil {
			return err
		}
	}
	n := p.cfg.ReceiveBuffer
	if n == 0 && p.cfg.Receive {
		n = DefaultReceiveBuffer
	}
	if n > 0 {
		return force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, n, "SO_RCVBUF")
	}
	return nil
}

// Inspect reads back what a bound and connected socket was granted and checks that the payload fits the path. The sockets come in
// the order of the flows and do not block.
func (p *Plan) Inspect(fd, flow int) error {
	f := p.cfg.Flows[flow]
	local, err := localAddr(fd)
	if err != nil {
		return err
	}
	if p.taken[backend.Flow{Src: bare(local), Dst: bare(f.Dst)}] {
		return fmt.Errorf("%v to %v belongs to another socket already, and the replies would go to one of the two: %w", local, f.Dst, unix.EADDRINUSE)
	}
	send, err := getInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, "SO_SNDBUF")
	if err != nil {
		return err
	}
	receive, err := getInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, "SO_RCVBUF")
	if err != nil {
		return err
	}
	largest, mtu, err := p.largest(fd, f)
	if err != nil {
		return err
	}
	if p.cfg.PayloadBytes > largest {
		return fmt.Errorf("payload of %d bytes: the path to %v takes at most %d in one packet (MTU %d); --fragment lets the kernel cut it up",
			p.cfg.PayloadBytes, f.Dst.Addr(), largest, mtu)
	}
	empty(fd)
	l := &p.limits
	l.Sources = append(l.Sources, local)
	l.PayloadBytes = min(l.PayloadBytes, largest)
	l.SendBuffer, l.ReceiveBuffer = send, receive // the same for every flow: the same request met the same limits
	return nil
}

// empty throws away what came to the socket between bind and connect, from whatever address: it is no reply.
func empty(fd int) {
	var b [1]byte
	for range 1 << 16 {
		if _, err := unix.Read(fd, b[:]); err != nil {
			return
		}
	}
}

// largest is the largest payload that leaves as one packet, by the path MTU the kernel knows now (ip(7) IP_MTU).
func (p *Plan) largest(fd int, f backend.Flow) (payload, mtu int, err error) {
	level, option, headers := unix.IPPROTO_IP, unix.IP_MTU, 20+8
	if !f.Dst.Addr().Unmap().Is4() {
		level, option, headers = unix.IPPROTO_IPV6, unix.IPV6_MTU, 40+8
	}
	if mtu, err = getInt(fd, level, option, "IP_MTU"); err != nil {
		return 0, 0, err
	}
	if p.cfg.Fragment {
		return MaxPayload, mtu, nil
	}
	return min(mtu-headers, MaxPayload), mtu, nil
}

// Limits is what Inspect gathered over all flows: payload, buffers, sources, and notes where less was granted than asked for.
// Batch, GSO and Mode are the backend's to fill in.
func (p *Plan) Limits() backend.Limits {
	l := p.limits
	l.GSO = 1
	note := func(name, sysctl string, asked, got int) {
		if asked > 0 && got < 2*asked { // the kernel doubles what it grants (socket(7))
			l.Notes = append(l.Notes, fmt.Sprintf("%s: asked for %d bytes, granted %d (net.core.%s)", name, asked, got/2, sysctl))
		}
	}
	note("SO_SNDBUF", "wmem_max", p.cfg.SendBuffer, l.SendBuffer)
	receive := p.cfg.ReceiveBuffer
	if receive == 0 && p.cfg.Receive {
		receive = DefaultReceiveBuffer
	}
	note("SO_RCVBUF", "rmem_max", receive, l.ReceiveBuffer)
	return l
}

// force sets a buffer size past the sysctl limit where CAP_NET_ADMIN allows it, else up to the limit.
func force(fd, forced, plain, n int, name string) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, n) == nil {
		return nil
	}
	return setInt(fd, unix.SOL_SOCKET, plain, n, name)
}

func setInt(fd, level, option, value int, name string) error {
	return os.NewSyscallError("setsockopt "+name, unix.SetsockoptInt(fd, level, option, value))
}

func getInt(fd, level, option int, name string) (int, error) {
	v, err := unix.GetsockoptInt(fd, level, option)
	return v, os.NewSyscallError("getsockopt "+name, err)
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	a, _, err := sys.FromSockaddr(sa)
	return a, err
}
