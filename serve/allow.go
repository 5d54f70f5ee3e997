package serve

import (
	"fmt"
	"net"
	"net/netip"
)

// DefaultAllow is loopback and the prefixes of the interface addresses that are listened on; a wildcard listens on all of its
// family. It looks at the network namespace of the calling thread. A prefix of length 0 is never taken over.
func DefaultAllow(listen []netip.AddrPort) ([]netip.Prefix, error) {
	allow := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8), netip.PrefixFrom(netip.IPv6Loopback(), 128)}
	owned, err := interfacePrefixes()
	if err != nil {
		return nil, err
	}
	for _, o := range owned {
		for _, l := range listen {
			if o.Bits() > 0 && listensOn(l.Addr(), o.Addr()) {
				allow = appendNew(allow, o.Masked())
			}
		}
	}
	return allow, nil
}

// interfacePrefixes are the addresses of all interfaces with the lengths of their networks.
func interfacePrefixes() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("interface addresses: %w", err)
	}
	var list []netip.Prefix
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		addr, ok := netip.AddrFromSlice(n.IP)
		bits, size := n.Mask.Size()
		if addr = addr.Unmap(); ok && size == addr.BitLen() {
			list = append(list, netip.PrefixFrom(addr, bits))
		}
	}
	return list, nil
}

// listensOn says whether a socket bound to an address receives what is sent to another.
func listensOn(bound, to netip.Addr) bool {
	bound = bound.Unmap().WithZone("")
	return bound == to || bound.IsUnspecified() && bound.BitLen() == to.BitLen()
}

// ownAddrs are the addresses from which a datagram with the server's own port could only be its own reply, or forged to look
// like one: answering it would go on for ever. All of 127.0.0.0/8 is the host's.
func ownAddrs(bound netip.Addr, owned []netip.Prefix) []netip.Prefix {
	if !bound.IsUnspecified() {
		bound = bound.WithZone("")
		return []netip.Prefix{netip.PrefixFrom(bound, bound.BitLen())}
	}
	own := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)}
	for _, o := range owned {
		own = append(own, netip.PrefixFrom(o.Addr(), o.Addr().BitLen()))
	}
	return own
}

func appendNew(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	for _, have := range list {
		if have.Bits() <= p.Bits() && have.Contains(p.Addr()) {
			return list
		}
	}
	return append(list, p)
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for i := range list {
		if list[i].Contains(a) {
			return true
		}
	}
	return false
}
