package udpsock

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
)

// OpenStamps settles cfg.Stamps for the connected sockets of the flows: it opens their twins and writes the outcome into the limits. messages
// is the most that one call sends. Where there are no stamps to be had it returns nil, takes the wish out of cfg, and Limits.Notes says why.
func OpenStamps(cfg *backend.Config, fds []int, limits *backend.Limits, messages int) *Stamps {
	if !cfg.Stamps {
		return nil
	}
	s, note, err := openStamps(cfg, fds, messages)
	if err == nil {
		err = probeStamps(s, cfg)
	}
	if err != nil {
		for _, fd := range fds { // nobody will read receive times
			err = errors.Join(err, setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, 0, "SO_TIMESTAMPING"))
		}
		cfg.Stamps = false
		limits.Notes = append(limits.Notes, fmt.Sprintf("stamps: none: %v", errors.Join(err, s.Close())))
		return nil
	}
	limits.Stamps, limits.HardwareArrivals = s.kinds, s.arrivals && cfg.Receive
	if note != "" {
		limits.Notes = append(limits.Notes, "stamps: "+note)
	}
	return s
}

// stampKinds are the stamps that every device with skb_tx_timestamp in its driver gives.
const stampKinds = backend.StampKinds(1<<backend.StampSched | 1<<backend.StampSoftware)

// openStamps opens the twins and makes the sockets report receive times. What it returns is to be closed on an error too; note is what a reader
// must know of the device's stamps.
func openStamps(cfg *backend.Config, fds []int, messages int) (s *Stamps, note string, err error) {
	if cfg.GSO > 1 {
		return nil, "", errors.New("a train has one stamp for all its packets")
	}
	s = &Stamps{kinds: stampKinds, now: cfg.Now, named: true, control: make([]byte, messages*sys.StampRequestBytes), counts: make([]uint32, len(fds)), lost: make([]bool, len(fds))}
	note = s.openHardware(cfg, fds)
	s.flags, s.each = stampFlags(s.kinds)
	for _, fd := range fds {
		if err := s.twin(cfg, fd); err != nil {
			return s, "", fmt.Errorf("a second socket of a flow: %w", err)
		}
		if !cfg.Receive {
			continue
		}
		if err := setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, s.receiveFlags(), "SO_TIMESTAMPING"); err != nil {
			return s, "", err
		}
	}
	return s, note, nil
}

// twinBuffer is the receive buffer of a twin, bytes: stamps are charged to it, and some hundred may come before they are taken.
const twinBuffer = 1 << 20

// twin opens the second socket of a flow: same address and port, same options as far as they shape what leaves, connected to a port of the
// peer that sends nothing.
func (s *Stamps) twin(cfg *backend.Config, fd int) error {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return os.NewSyscallError("getpeername", err)
	}
	family, level, discover, recverr := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_RECVERR
	if _, six := local.(*unix.SockaddrInet6); six {
		family, level, discover, recverr = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVERR
	}
	twin, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.twins = append(s.twins, twin)
	name := make([]byte, sys.SockaddrBytes)
	to, scope, err := sys.FromSockaddr(peer)
	if err != nil {
		return err
	}
	name = name[:sys.PutSockaddr(name, to, scope)]
	if scope != 0 { // as a number: looking a name up allocates
		to = netip.AddrPortFrom(to.Addr().WithZone(strconv.FormatUint(uint64(scope), 10)), to.Port())
	}
	s.peers, s.names = append(s.peers, to), append(s.names, name)
	away, err := sys.Sockaddr(silent(to))
	if err != nil {
		return err
	}
	fragments, err := getInt(fd, level, discover, "IP_MTU_DISCOVER")
	if err == nil {
		err = setInt(twin, level, discover, fragments, "IP_MTU_DISCOVER")
	}
	if err == nil { // without it a full queueing discipline drops packets and does not say so (net/ipv4/udp.c udp_send_skb)
		err = setInt(twin, level, recverr, 1, "IP_RECVERR")
	}
	if err == nil && cfg.SendBuffer > 0 {
		err = force(twin, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, cfg.SendBuffer, "SO_SNDBUF")
	}
	return errors.Join(err, force(twin, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, twinBuffer, "SO_RCVBUF"), setStamps(twin, s.device != nil), bindBeside(twin, fd, local),
		os.NewSyscallError("connect", unix.Connect(twin, away)))
}

// silent is another port of a peer: tcpmux, or its neighbour, which nobody serves by UDP.
func silent(peer netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(peer.Addr(), 1+peer.Port()%2)
}

// bindBeside binds twin to the address that fd has. Both allow it for the moment: by SO_REUSEADDR, and where fd shares its port with others,
// which have only that, by SO_REUSEPORT.
func bindBeside(twin, fd int, local unix.Sockaddr) error {
	shared, err := getInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, "SO_REUSEPORT")
	if err == nil && shared != 0 {
		err = setInt(twin, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT")
	}
	if err == nil {
		err = errors.Join(setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"), setInt(twin, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"))
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(twin, local))
	}
	return errors.Join(err, setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0, "SO_REUSEADDR"))
}

// setStamps makes a socket report stamps of the packets that ask, without a copy of them (SO_TIMESTAMPING), and throw away what comes to it,
// though it should be nothing: it would take the room of stamps (net/core/skbuff.c sock_queue_err_skb). That is a socket filter of one
// instruction (socket(7) SO_ATTACH_FILTER): take 0 bytes.
func setStamps(fd int, hardware bool) error {
	flags := unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	if hardware { // and both, where the device stamps (OPT_TX_SWHW)
		flags |= unix.SOF_TIMESTAMPING_RAW_HARDWARE | unix.SOF_TIMESTAMPING_OPT_TX_SWHW
	}
	if err := setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags, "SO_TIMESTAMPING"); err != nil {
		return err
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing}))
}

// Close closes the twins and the device's clock. Times of the device can still be converted.
func (s *Stamps) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, fd := range s.twins {
		errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
	}
	s.twins = nil
	if s.phc != nil {
		errs = append(errs, s.phc.Close())
		s.phc = nil
	}
	return errors.Join(errs...)
}

// probePatience is how long the probe waits for stamps, probeID the id of its packets.
const (
	probePatience = time.Second
	probeID       = 0x6b1a57
)

// probeStamps sends packets over loopback, between sockets of its own, and waits for their stamps; it finds out whether the kernel takes our
// ids. Receive stamps begin some time after the first socket has asked for them (net_enable_timestamp leaves that to a kernel thread), so
// that a run that began at once would miss some.
func probeStamps(s *Stamps, cfg *backend.Config) error {
	p, err := openSocketPair()
	if err != nil {
		return err
	}
	defer p.close()
	err = errors.Join(setStamps(p.from, false), setInt(p.to, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_SOFTWARE|unix.SOF_TIMESTAMPING_RX_SOFTWARE, "SO_TIMESTAMPING"))
	if err != nil {
		return err
	}
	errno := p.ask(s)
	if s.named = errno != unix.EINVAL; !s.named {
		errno = p.ask(s)
	}
	if errno != 0 {
		return fmt.Errorf("SO_TIMESTAMPING as control message: %w", os.NewSyscallError("sendmmsg", errno))
	}
	out, in := false, !cfg.Receive
	for give := time.Now().Add(probePatience); !out || !in; time.Sleep(100 * time.Microsecond) {
		for !out {
			entry, errno := s.queue.Next(p.from)
			if errno != 0 {
				break
			}
			software, _ := s.queue.Stamps()
			out = entry.Origin == unix.SO_EE_ORIGIN_TIMESTAMPING && software != 0
		}
		if in = in || p.stamped(); !in {
			p.ask(s)
		}
		if time.Now().After(give) {
			return errors.New("the kernel takes packets that ask for them and makes none")
		}
	}
	return nil
}

// ask sends an empty packet that asks for stamps.
func (p pair) ask(s *Stamps) syscall.Errno {
	_, errno := sys.Sendmmsg(p.from, oneMessage(&unix.Iovec{}, s.Request(0, probeID)))
	return errno
}

// stamped reports whether the oldest packet that has come has a receive time.
func (p pair) stamped() bool {
	control := make([]byte, 128)
	msgs := oneMessage(&unix.Iovec{}, control)
	n, _ := sys.Recvmmsg(p.to, msgs)
	if n != 1 {
		return false
	}
	stamp, _, _ := ParseControl(control[:msgs[0].Hdr.Controllen])
	return stamp != 0
}
