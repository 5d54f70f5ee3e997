package serve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"blast/xdp/live"
)

// XDPConfig is a target inside the kernel. It obeys the same allow rules as the one on sockets.
type XDPConfig struct {
	Mode Mode
	// Listen are the local addresses to serve, each with a port. A wildcard stands for all addresses of its family on Ethernet interfaces.
	Listen []netip.AddrPort
	// Allow is who is served; nil means DefaultAllow.
	Allow []netip.Prefix
	// Faults are injected by seed into requests that carry our stamp; echo only, and without Delay, since nothing here can wait. Reordering and
	// duplicating take Linux 6.6, and a reply that is to be overtaken waits for the next request of its flow, for ever if none comes.
	Faults Faults
}

// XDPServer answers or swallows datagrams in the XDP programs of the interfaces that own its addresses: no socket, no copy, no wake-up.
// It writes its times into our stamps but keeps no account of flows, so replies carry no report. Needs CAP_NET_ADMIN and CAP_BPF.
// Its methods may be called from any thread.
type XDPServer struct {
	mode    Mode
	addrs   []netip.AddrPort
	allow   []netip.Prefix
	faults  Faults
	targets []*live.Target
	notes   []string

	mu     sync.Mutex
	truth  xdpTruth
	closed bool
	done   chan struct{}
}

// ListenXDP attaches the programs in the network namespace of the calling thread. Datagrams are served from now on, until Close.
func ListenXDP(cfg XDPConfig) (_ *XDPServer, err error) {
	s := &XDPServer{mode: cfg.Mode, allow: append([]netip.Prefix{}, cfg.Allow...), faults: cfg.Faults, done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("serve --xdp: %w", errors.Join(err, s.Close()))
		}
	}()
	if cfg.Mode != Sink && cfg.Mode != Echo {
		return nil, fmt.Errorf("%v: want sink or echo", cfg.Mode)
	}
	if err := cfg.checkFaults(); err != nil {
		return nil, err
	}
	byInterface, err := s.resolve(cfg.Listen)
	if err != nil {
		return nil, err
	}
	if cfg.Allow == nil {
		if s.allow, err = DefaultAllow(s.addrs); err != nil {
			return nil, err
		}
	}
	for name, addrs := range byInterface {
		if err := s.attach(name, addrs); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// resolve finds the interface of every address: the one that owns it, or the one below that for a VLAN.
func (s *XDPServer) resolve(listen []netip.AddrPort) (map[string][]netip.AddrPort, error) {
	if len(listen) == 0 {
		return nil, errors.New("no address to listen on")
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	found := map[string][]netip.AddrPort{}
	for _, at := range listen {
		if at.Port() == 0 || !at.IsValid() {
			return nil, fmt.Errorf("listen %v: want an address with a port", at)
		}
		bound, served := at.Addr().Unmap(), 0
		for _, l := range links {
			a := l.Attrs()
			if a.EncapType != "ether" {
				continue
			}
			own, err := netlink.AddrList(l, netlink.FAMILY_ALL)
			if err != nil {
				return nil, fmt.Errorf("addresses of %s: %w", a.Name, err)
			}
			name := a.Name
			if l.Type() == "vlan" {
				name = names[a.ParentIndex]
			}
			for _, o := range own {
				addr, ok := netip.AddrFromSlice(o.IP)
				if addr = addr.Unmap(); !ok || !listensOn(bound, addr) {
					continue
				}
				e := netip.AddrPortFrom(addr, at.Port())
				found[name] = append(found[name], e)
				s.addrs = append(s.addrs, e)
				served++
			}
		}
		if served == 0 && bound.IsLoopback() {
			return nil, fmt.Errorf("listen %v: lo has no driver that could answer in place; serve it on a socket, without --xdp: %w", at, errors.ErrUnsupported)
		}
		if served == 0 {
			return nil, fmt.Errorf("listen %v: no Ethernet interface here has that address", at)
		}
	}
	return found, nil
}

func (s *XDPServer) attach(name string, addrs []netip.AddrPort) error {
	i, err := live.Inspect(name)
	if err != nil {
		return err
	}
	t, err := live.NewTarget(i, live.TargetConfig{Endpoints: addrs, Echo: s.mode == Echo, Allow: s.allow, Faults: s.faults.inKernel()})
	if err != nil {
		return err
	}
	s.targets = append(s.targets, t)
	if !t.Native() {
		s.notes = append(s.notes, fmt.Sprintf("%s: generic mode, as driver %q has no XDP of its own; this is not faster than a socket", name, i.Driver))
	} else if err := i.CanTransmit(); s.mode == Echo && err != nil {
		// Not an error: a peer on the other end of a veth pair may become able to take replies later.
		s.notes = append(s.notes, fmt.Sprintf("as long as this holds, replies are dropped: %v", err))
	}
	return nil
}

// Addrs are the addresses served.
func (s *XDPServer) Addrs() []netip.AddrPort { return append([]netip.AddrPort(nil), s.addrs...) }

// Allow is who is served.
func (s *XDPServer) Allow() []netip.Prefix { return append([]netip.Prefix(nil), s.allow...) }

// Notes are things a reader must know, such as generic mode.
func (s *XDPServer) Notes() []string { return append([]string(nil), s.notes...) }

// Run waits until ctx ends or Close is called, and meanwhile keeps the names of what was touched. The programs serve before and after, until
// Close.
func (s *XDPServer) Run(ctx context.Context) error {
	var look <-chan time.Time
	if s.faults.any() {
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.done:
			return nil
		case <-look:
			if err := s.keepNames(); err != nil {
				return fmt.Errorf("serve --xdp: %w", err)
			}
		}
	}
}

// keepNames takes what the programs have told, as long as they are there.
func (s *XDPServer) keepNames() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return s.truth.keep(s.targets)
}

// Counts is the present state; the parts are interfaces and within them CPUs. Flows, reports and their kin stay zero: nothing here knows
// flows. A reply that the driver cannot send is still counted as replied; the interface's counters tell.
func (s *XDPServer) Counts() (Counts, error) {
	var total Counts
	for _, t := range s.targets {
		perCPU, err := t.Counts()
		if err != nil && !errors.Is(err, os.ErrClosed) {
			return total, fmt.Errorf("serve --xdp: %w", err)
		}
		for _, n := range perCPU {
			c := Counts{Received: n.Received, Bytes: n.Bytes, Denied: n.Denied, Replied: n.Replied, ReplyRefused: n.Unfinished, Malformed: n.Malformed}
			total.add(&c)
			total.Workers = append(total.Workers, c)
		}
	}
	return total, nil
}

// Close takes the programs off. Counts stays readable. It is idempotent.
func (s *XDPServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.done)
	var errs []error
	if s.faults.any() {
		errs = append(errs, s.truth.read(s.targets))
	}
	for _, t := range s.targets {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}
