package tuning

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InterfaceFor asks the kernel how it would send to dst from the calling thread's network namespace ("ip route get"): the
// interface that packets leave by, the largest IP packet in bytes that goes whole (the path's MTU where the kernel has learnt
// one, else the interface's), and the source address it would choose. A zone in dst ("fe80::1%eth0") names the interface.
// Without a route the error says so and wraps the kernel's errno.
func InterfaceFor(dst netip.Addr) (name string, mtu int, src netip.Addr, err error) {
	if !dst.IsValid() {
		return "", 0, netip.Addr{}, errors.New("route: no destination address")
	}
	zone, dst := dst.Zone(), dst.Unmap().WithZone("")
	var opts netlink.RouteGetOptions
	if index, err := strconv.Atoi(zone); err == nil {
		opts.OifIndex = index // a zone may be the interface's number (RFC 4007, section 11.2)
	} else {
		opts.Oif = zone
	}
	routes, err := netlink.RouteGetWithOptions(dst.AsSlice(), &opts)
	if err != nil {
		return "", 0, netip.Addr{}, routeError(dst, zone, err)
	}
	if len(routes) == 0 {
		return "", 0, netip.Addr{}, routeError(dst, zone, unix.ENETUNREACH)
	}
	route := routes[0]
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return "", 0, netip.Addr{}, fmt.Errorf("route to %s: interface %d: %w", dst, route.LinkIndex, err)
	}
	mtu = link.Attrs().MTU
	if route.MTU > 0 {
		mtu = min(mtu, route.MTU)
	}
	src, _ = netip.AddrFromSlice(route.Src)
	return link.Attrs().Name, mtu, src.Unmap(), nil
}

// routeError puts the kernel's answer into words. The errnos are those of fib lookups (net/ipv4/fib_semantics.c, fib_props):
// no route, and routes of type unreachable, prohibit and blackhole.
func routeError(dst netip.Addr, zone string, err error) error {
	where := ""
	if zone != "" {
		where = " by " + zone
	}
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fmt.Errorf("no route to %s%s: %w", dst, where, err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("the route to %s%s is prohibited: %w", dst, where, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("no route to %s%s, or a blackhole: %w", dst, where, err)
	}
	return fmt.Errorf("route to %s%s: %w", dst, where, err)
}
