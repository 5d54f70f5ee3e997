package testnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"blast/internal/testskip"
)

// Config says what network to make. The zero value is a one-queue pair with MTU 1500 and no VLAN.
type Config struct {
	// Queues is the number of transmit and of receive queues of each end; zero means 1.
	Queues int
	// MTU of both ends in bytes; zero means 1500.
	MTU int
	// VLAN is the id of an 802.1Q interface made on top of each end, with addresses of its own; zero makes none.
	VLAN int
	// Lossless puts a pfifo queueing discipline on both ends. A veth with a queueing discipline pushes back when its
	// peer is slow (kernel 6.16, dc82a33297fc); without one it drops.
	Lossless bool
}

// Pair is a finished network. It is taken down by the test's cleanup.
type Pair struct {
	Left, Right *Host
}

// errNoVLAN says that the kernel cannot make 802.1Q interfaces.
var errNoVLAN = errors.New("no 802.1Q interfaces (CONFIG_VLAN_8021Q)")

// NewPair makes the network, or fails the test. It skips when this process may not (feature "netns") or when a VLAN was asked for
// and the kernel has none (feature "vlan").
func NewPair(t testing.TB, cfg Config) *Pair {
	t.Helper()
	p, err := newPair(t, cfg)
	switch {
	case errors.Is(err, errNoVLAN):
		testskip.Skip(t, "vlan", err.Error(), "modprobe 8021q, or build a kernel with it")
	case errors.Is(err, unix.EPERM):
		testskip.Skip(t, "netns", err.Error(), "run as root, or grant CAP_SYS_ADMIN and CAP_NET_ADMIN")
	case errors.Is(err, unix.EOPNOTSUPP):
		testskip.Skip(t, "netns", err.Error(), "modprobe veth")
	case err != nil:
		t.Fatal(err)
	}
	return p
}

// leftIndex is the interface number of the left end.
const leftIndex = 83

func newPair(t testing.TB, cfg Config) (*Pair, error) {
	cfg.Queues = max(cfg.Queues, 1)
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	left, err := newHost(t, "left", 1)
	if err != nil {
		return nil, err
	}
	right, err := newHost(t, "right", 2)
	if err != nil {
		return nil, err
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{
			// Both ends would get the number 2, each in its namespace. The kernel takes an interface whose peer has its own number for one
			// without a peer, and tells of its carrier up to a second late (net/core/link_watch.c, linkwatch_urgent_event).
			Name: left.Interface, Index: leftIndex, MTU: cfg.MTU, TxQLen: 1000, NumTxQueues: cfg.Queues, NumRxQueues: cfg.Queues,
			HardwareAddr: left.MAC,
		},
		PeerName: right.Interface, PeerHardwareAddr: right.MAC, PeerNamespace: netlink.NsFd(right.ns),
		PeerMTU: uint32(cfg.MTU), PeerTxQLen: 1000,
		PeerNumTxQueues: uint32(cfg.Queues), PeerNumRxQueues: uint32(cfg.Queues),
	}
	if err := left.Netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("veth pair with %d queues: %w", cfg.Queues, err)
	}
	for _, h := range []*Host{left, right} {
		if err := h.configure(cfg); err != nil {
			return nil, err
		}
	}
	for _, h := range []*Host{left, right} {
		if err := h.settle(); err != nil {
			return nil, err
		}
	}
	// Static neighbours are not set: resolving them is part of what is tested.
	return &Pair{Left: left, Right: right}, nil
}

// newHost makes an empty namespace with its loopback interface up and address discovery quiet.
func newHost(t testing.TB, name string, last byte) (*Host, error) {
	h := &Host{
		Name:      name,
		Interface: name + "0",
		MAC:       net.HardwareAddr{0x02, 0xb1, 0xa5, 0x70, 0x00, last},
		IPv4:      netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 83, 0, last}), 24),
		IPv6:      netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x83, 15: last}), 64),
		t:         t,
		ns:        netns.None(),
	}
	var err error
	onNewThread(func() {
		if h.ns, err = netns.New(); err != nil {
			err = fmt.Errorf("new network namespace: %w", err)
			return
		}
		// No duplicate address detection (an address would be unusable for a second), no router solicitation.
		// The kernel detects duplicates when either "all" or the interface says so (net/ipv6/addrconf.c, addrconf_dad_begin).
		for _, f := range []string{"all/accept_dad", "default/accept_dad", "default/router_solicitations", "default/accept_ra"} {
			path := "/proc/sys/net/ipv6/conf/" + f
			if werr := os.WriteFile(path, []byte("0"), 0); werr != nil && !errors.Is(werr, os.ErrNotExist) {
				err = fmt.Errorf("namespace %s: %w", name, werr)
				return
			}
		}
	})
	if h.ns.IsOpen() {
		t.Cleanup(h.close)
	}
	if err != nil {
		return nil, err
	}
	if h.Netlink, err = netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("netlink in namespace %s: %w", name, err)
	}
	lo, err := h.Netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("lo in namespace %s: %w", name, err)
	}
	if err := h.Netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("lo in namespace %s: %w", name, err)
	}
	return h, nil
}

// configure gives the end its addresses and VLAN and brings it up.
func (h *Host) configure(cfg Config) error {
	link, err := h.Netlink.LinkByName(h.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", h.Interface, err)
	}
	h.Index = link.Attrs().Index
	if cfg.Lossless {
		fifo := &netlink.GenericQdisc{QdiscType: "pfifo", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: h.Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}}
		if err := h.Netlink.QdiscReplace(fifo); err != nil {
			return fmt.Errorf("pfifo on %s: %w", h.Interface, err)
		}
	}
	if err := h.up(link, h.IPv4, h.IPv6); err != nil {
		return err
	}
	if cfg.VLAN == 0 {
		return nil
	}
	v := &VLAN{
		ID:        cfg.VLAN,
		Interface: fmt.Sprintf("%s.%d", h.Interface, cfg.VLAN),
		IPv4:      netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 84, 0, h.IPv4.Addr().As4()[3]}), 24),
		IPv6:      netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x84, 15: h.IPv6.Addr().As16()[15]}), 64),
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = v.Interface, h.Index
	err = h.Netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: v.ID})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errNoVLAN
	}
	if err != nil {
		return fmt.Errorf("vlan %s: %w", v.Interface, err)
	}
	vlan, err := h.Netlink.LinkByName(v.Interface)
	if err != nil {
		return fmt.Errorf("vlan %s: %w", v.Interface, err)
	}
	v.Index, h.VLAN = vlan.Attrs().Index, v
	return h.up(vlan, v.IPv4, v.IPv6)
}

// settle waits until the kernel has noticed the carrier and given the end its link-local address.
func (h *Host) settle() error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		link, err := h.Netlink.LinkByIndex(h.Index)
		if err != nil {
			return fmt.Errorf("interface %s: %w", h.Interface, err)
		}
		addrs, err := h.Netlink.AddrList(link, netlink.FAMILY_V6)
		if errors.Is(err, netlink.ErrDumpInterrupted) { // the kernel changed the list meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", h.Interface, err)
		}
		for _, a := range addrs {
			if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 && link.Attrs().OperState == netlink.OperUp {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("interface %s is %s with addresses %v after 5 s", h.Interface, link.Attrs().OperState, addrs)
		}
	}
}

func (h *Host) up(link netlink.Link, prefixes ...netip.Prefix) error {
	for _, p := range prefixes {
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP:   p.Addr().AsSlice(),
			Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		}}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.Netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s on %s: %w", p, link.Attrs().Name, err)
		}
	}
	if err := h.Netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s up: %w", link.Attrs().Name, err)
	}
	return nil
}
