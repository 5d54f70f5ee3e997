package serve

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// openSockets binds n sockets to one address and returns them with the address as bound.
//
// The first is bound without SO_REUSEPORT and gets it only afterwards. So a port that anyone else has is refused with EADDRINUSE,
// and port 0 never lands on a port that another SO_REUSEPORT socket of this user already has (udp_lib_lport_inuse allows that).
func openSockets(at netip.AddrPort, n int, cfg *Config) (fds []int, bound netip.AddrPort, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	bound = at
	for i := range n {
		fd, err := newSocket(at.Addr(), cfg)
		if err != nil {
			return fds, bound, err
		}
		fds = append(fds, fd)
		if i > 0 {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return fds, bound, os.NewSyscallError("setsockopt SO_REUSEPORT", err)
			}
		}
		sa, err := sys.Sockaddr(bound)
		if err != nil {
			return fds, bound, err
		}
		if err := unix.Bind(fd, sa); err != nil {
			return fds, bound, os.NewSyscallError("bind", err)
		}
		if i > 0 {
			continue
		}
		if bound, err = localAddr(fd, at.Addr().Zone()); err != nil {
			return fds, bound, err
		}
		if n > 1 {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return fds, bound, os.NewSyscallError("setsockopt SO_REUSEPORT", err)
			}
		}
	}
	return fds, bound, nil
}

// newSocket opens a socket with every option but SO_REUSEPORT.
func newSocket(at netip.Addr, cfg *Config) (fd int, err error) {
	family := unix.AF_INET
	if at.Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	// SO_RCVBUFFORCE exceeds net.core.rmem_max but needs CAP_NET_ADMIN; Server.ReceiveBuffer says what was granted.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, cfg.ReceiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, cfg.ReceiveBuffer); err != nil {
			return -1, os.NewSyscallError("setsockopt SO_RCVBUF", err)
		}
	}
	// Waits are bounded so that nothing hangs for good: receiving by the look at the stop flag, sending by a refused reply.
	wait := unix.NsecToTimeval(pollWait.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
			return -1, os.NewSyscallError("setsockopt SO_RCVTIMEO or SO_SNDTIMEO", err)
		}
	}
	set := func(name string, level, option int) {
		if err == nil {
			err = os.NewSyscallError("setsockopt "+name, unix.SetsockoptInt(fd, level, option, 1))
		}
	}
	if at.Is6() {
		set("IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}
	if cfg.wantInfo(at) {
		if at.Is6() {
			set("IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
		} else {
			set("IP_PKTINFO", unix.IPPROTO_IP, unix.IP_PKTINFO)
		}
	}
	if cfg.GRO {
		set("UDP_GRO", unix.SOL_UDP, unix.UDP_GRO)
	}
	return fd, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func localAddr(fd int, zone string) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	a, _, err := sys.FromSockaddr(sa)
	return netip.AddrPortFrom(a.Addr().WithZone(zone), a.Port()), err
}
