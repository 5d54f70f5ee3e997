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
	owned, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("interface addresses: %w", err)
	}
	for _, o := range owned {
		n, ok := o.(*net.IPNet)
		if !ok {
			continue
		}
		addr, ok := netip.AddrFromSlice(n.IP)
		bits, size := n.Mask.Size()
		if addr = addr.Unmap(); !ok || bits == 0 || size != addr.BitLen() {
			continue
		}
		for _, l := range listen {
			at := l.Addr().Unmap().WithZone("")
			if at == addr || at.IsUnspecified() && at.BitLen() == addr.BitLen() {
				allow = appendNew(allow, netip.PrefixFrom(addr, bits).Masked())
			}
		}
	}
	return allow, nil
}

func appendNew(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	for _, have := range list {
		if have.Bits() <= p.Bits() && have.Contains(p.Addr()) {
			return list
		}
	}
	return append(list, p)
}

func allowed(list []netip.Prefix, a netip.Addr) bool {
	for i := range list {
		if list[i].Contains(a) {
			return true
		}
	}
	return false
}
