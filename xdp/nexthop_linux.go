package xdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Target asks for the way to an address.
type Target struct {
	// Addr is where packets shall go. A link-local IPv6 address needs a zone.
	Addr netip.Addr
	// Source is the local address to send from; the zero value leaves it to the route.
	Source netip.Addr
	// Interface, when not empty, is where the way must lead, or the parent of the VLAN interface it leads to.
	Interface string
	// Wait bounds the wait for an answer to ARP or neighbour discovery; zero means 4 s, which is one second more than the kernel tries.
	Wait time.Duration
}

// NextHop is what a frame to a target needs.
type NextHop struct {
	// Interface and Index name the device to open. For a target behind a VLAN interface it is the parent, and VLAN is the tag (Tagged).
	Interface string
	Index     int
	VLAN      uint16
	Tagged    bool
	// Source is the local address, without a zone; Gateway is the neighbour that takes the packets: the target itself or a router.
	Source, Gateway netip.Addr
	SrcMAC, DstMAC  [6]byte
	// MTU is that of the route or the interface, in bytes.
	MTU int

	via  int           // interface whose neighbour table knows Gateway
	find bool          // the hardware address comes from the neighbour table
	wait time.Duration // Target.Wait
}

// Resolver finds next hops in the network namespace of the thread that made it. Its methods may be called from any thread, one
// at a time.
type Resolver struct {
	netlink *netlink.Handle
	// What the namespace does with IPv4 packets that come in with an address of its own, when the Resolver was made.
	acceptLocal, routeLocalnet bool
}

// NewResolver opens the kernel's routing and neighbour tables.
func NewResolver() (*Resolver, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("xdp: netlink: %w", err)
	}
	return &Resolver{netlink: h, acceptLocal: loopbackSetting("accept_local"), routeLocalnet: loopbackSetting("route_localnet")}, nil
}

// loopbackSetting reads a switch of lo, which "all" sets too, in the namespace of the calling thread.
func loopbackSetting(name string) bool {
	for _, conf := range []string{"lo", "all"} {
		b, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + conf + "/" + name)
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			return true
		}
	}
	return false
}

// Close lets go of the tables.
func (r *Resolver) Close() { r.netlink.Close() }

// Resolve finds the way: route, source address, VLAN, and the neighbour's hardware address, which the kernel is made to ask for when it
// does not know it. It needs CAP_NET_ADMIN for asking. The errors say what is missing: no route, a way by another interface, no answer.
func (r *Resolver) Resolve(ctx context.Context, t Target) (*NextHop, error) {
	n, err := r.route(t)
	if err == nil && n.find {
		n.DstMAC, err = r.neighbour(ctx, n)
	}
	if err != nil {
		return nil, fmt.Errorf("xdp: next hop to %s: %w", t.Addr, err)
	}
	return n, nil
}

// route asks the kernel for the route and fills in all but the neighbour.
func (r *Resolver) route(t Target) (*NextHop, error) {
	addr := t.Addr.Unmap()
	if !addr.IsValid() || addr.IsUnspecified() {
		return nil, errors.New("not an address")
	}
	opts := &netlink.RouteGetOptions{}
	if t.Source.IsValid() {
		opts.SrcAddr = t.Source.Unmap().WithZone("").AsSlice()
	}
	zone := addr.Zone()
	if (addr.IsLinkLocalUnicast() || addr.IsLinkLocalMulticast()) && addr.Is6() {
		if zone == "" {
			zone = t.Interface
		}
		if zone == "" {
			return nil, errors.New("a link-local address needs a zone, such as fe80::1%eth0")
		}
		opts.Oif = zone
	}
	addr = addr.WithZone("")
	routes, err := r.netlink.RouteGetWithOptions(addr.AsSlice(), opts)
	switch {
	case err != nil && t.Source.IsValid():
		return nil, fmt.Errorf("no route from %s (is it an address of this host?): %w", t.Source, err)
	case err != nil:
		return nil, fmt.Errorf("no route: %w", err)
	case len(routes) == 0:
		return nil, fmt.Errorf("no route: %w", unix.ENETUNREACH)
	}
	route := routes[0]
	switch route.Type {
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return nil, fmt.Errorf("the route forbids it: %w", unix.EHOSTUNREACH)
	}
	n := &NextHop{Gateway: addr, via: route.LinkIndex, MTU: route.MTU, wait: t.Wait}
	if gw, ok := gateway(&route); ok {
		n.Gateway = gw
	}
	if src, ok := netip.AddrFromSlice(route.Src); ok {
		n.Source = src.Unmap()
	}
	if t.Source.IsValid() {
		n.Source = t.Source.Unmap().WithZone("")
	}
	if err := n.device(r.netlink.LinkByIndex, t.Interface); err != nil {
		return nil, err
	}
	if !n.Source.IsValid() {
		return nil, fmt.Errorf("%s has no source address for it; name one", n.Interface)
	}
	return n, r.classify(n, addr, &route)
}

// gateway is the router of a route, if there is one; it may be of the other family (RFC 5549).
func gateway(route *netlink.Route) (netip.Addr, bool) {
	ip := route.Gw
	if via, ok := route.Via.(*netlink.Via); ok && ip == nil {
		ip = via.Addr
	}
	gw, ok := netip.AddrFromSlice(ip)
	return gw.Unmap(), ok && !gw.IsUnspecified()
}

// device finds the interface to open for a route: the parent of a VLAN, or the interface itself.
func (n *NextHop) device(byIndex func(int) (netlink.Link, error), want string) error {
	link, err := byIndex(n.via)
	if err != nil {
		return fmt.Errorf("interface number %d: %w", n.via, err)
	}
	a := link.Attrs()
	copy(n.SrcMAC[:], a.HardwareAddr)
	if n.MTU == 0 {
		n.MTU = a.MTU
	}
	n.Interface, n.Index = a.Name, a.Index
	name := a.Name
	if v, ok := link.(*netlink.Vlan); ok {
		if v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q && v.VlanProtocol != netlink.VLAN_PROTOCOL_UNKNOWN {
			return fmt.Errorf("%s has %s tags; only 802.1Q is known: %w", a.Name, v.VlanProtocol, errors.ErrUnsupported)
		}
		parent, err := byIndex(a.ParentIndex)
		if err != nil {
			return fmt.Errorf("parent of %s: %w", a.Name, err)
		}
		if parent.Type() == "vlan" {
			return fmt.Errorf("%s is a VLAN in a VLAN: %w", a.Name, errors.ErrUnsupported)
		}
		n.Interface, n.Index = parent.Attrs().Name, parent.Attrs().Index
		n.VLAN, n.Tagged = uint16(v.VlanId), true
	}
	if want != "" && want != n.Interface && want != name {
		return fmt.Errorf("the route leads to %s, not to %s as asked; see: ip route get", name, want)
	}
	return nil
}

// classify knows the hardware address where no neighbour has to be asked.
func (r *Resolver) classify(n *NextHop, addr netip.Addr, route *netlink.Route) error {
	switch {
	case route.Type == unix.RTN_LOCAL:
		// Such frames come in from outside with an address of this host: martians, unless the host is told otherwise.
		if addr.Is4() && (!r.acceptLocal || addr.IsLoopback() && !r.routeLocalnet) {
			return fmt.Errorf("IPv4 frames put on %s do not reach sockets of this host; use ::1, or a veth pair with a namespace "+
				"(in a namespace of your own also: sysctl net.ipv4.conf.lo.accept_local=1 net.ipv4.conf.lo.route_localnet=1): %w",
				n.Interface, errors.ErrUnsupported)
		}
	case route.Type == unix.RTN_BROADCAST:
		n.DstMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	case addr.IsMulticast():
		n.DstMAC = multicastMAC(addr)
	default:
		n.find = true
	}
	return nil
}

// multicastMAC is the group's hardware address: RFC 1112 6.4, RFC 2464 7.
func multicastMAC(addr netip.Addr) [6]byte {
	if addr.Is4() {
		b := addr.As4()
		return [6]byte{0x01, 0x00, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	b := addr.As16()
	return [6]byte{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// usable are the states in which a neighbour's address is known (include/uapi/linux/neighbour.h).
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// lookup reads the neighbour table.
func (r *Resolver) lookup(n *NextHop) (mac [6]byte, state int, err error) {
	family := netlink.FAMILY_V4
	if n.Gateway.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := r.netlink.NeighList(n.via, family)
	// An interrupted dump is one that the kernel changed meanwhile: what is missing now is found at the next look.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return mac, 0, fmt.Errorf("neighbour table: %w", err)
	}
	for i := range list {
		if ip, ok := netip.AddrFromSlice(list[i].IP); ok && ip.Unmap() == n.Gateway {
			copy(mac[:], list[i].HardwareAddr)
			return mac, list[i].State, nil
		}
	}
	return mac, 0, nil
}

// ask makes the kernel resolve or confirm the neighbour: an entry with NTF_USE starts ARP or neighbour discovery as a packet would,
// without a packet (net/core/neighbour.c, neigh_add).
func (r *Resolver) ask(n *NextHop) error {
	err := r.netlink.NeighSet(&netlink.Neigh{LinkIndex: n.via, IP: net.IP(n.Gateway.AsSlice()), State: netlink.NUD_NONE, Flags: netlink.NTF_USE})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the address of %s is unknown, and asking for it needs CAP_NET_ADMIN; ping it once: %w", n.Gateway, err)
	}
	if err != nil {
		return fmt.Errorf("ask for %s: %w", n.Gateway, err)
	}
	return nil
}

// neighbour waits for the hardware address of the gateway.
func (r *Resolver) neighbour(ctx context.Context, n *NextHop) ([6]byte, error) {
	limit := n.wait
	if limit == 0 {
		limit = 4 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for asked := false; ; {
		mac, state, err := r.lookup(n)
		if err != nil {
			return mac, err
		}
		if state&usable != 0 && mac != [6]byte{} {
			return mac, nil
		}
		// A failed entry is asked for once more; the kernel gives up by itself after about 3 s.
		if !asked {
			if err := r.ask(n); err != nil {
				return mac, err
			}
			asked = true
		} else if state == netlink.NUD_FAILED {
			return mac, fmt.Errorf("%s on %s does not answer: %w", n.Gateway, nameOf(r.netlink, n.via), unix.EHOSTUNREACH)
		}
		select {
		case <-ctx.Done():
			return mac, fmt.Errorf("%s on %s does not answer within %s: %w", n.Gateway, nameOf(r.netlink, n.via), limit, unix.EHOSTUNREACH)
		case <-tick.C:
		}
	}
}

// Refresh keeps a next hop alive in a long run: it makes the kernel confirm the neighbour, which also renews the neighbour's own entry
// about us, and takes over a hardware address that changed. It says whether one did. Frames sent by AF_XDP do not count as
// use, so without it the kernel forgets the neighbour. Call it every 30 s or so. An error leaves the old address in place.
func (r *Resolver) Refresh(ctx context.Context, n *NextHop) (changed bool, err error) {
	if !n.find {
		return false, nil
	}
	mac, state, err := r.lookup(n)
	if err != nil {
		return false, fmt.Errorf("xdp: refresh: %w", err)
	}
	// An entry that the administrator made is not asked about: NTF_USE would make an ordinary one of it (__neigh_update).
	if state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 {
		if err := r.ask(n); err != nil {
			return false, fmt.Errorf("xdp: refresh: %w", err)
		}
		mac, err = r.neighbour(ctx, n)
	}
	if err != nil {
		return false, fmt.Errorf("xdp: refresh: %w", err)
	}
	changed = mac != n.DstMAC
	n.DstMAC = mac
	return changed, nil
}
