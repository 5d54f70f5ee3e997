package backend

import (
	"errors"
	"fmt"
	"net/netip"
)

// FlowSpace is what flows are made from: every combination of a source address, a source port and a target of the same family.
type FlowSpace struct {
	// Targets are where packets go; at least one.
	Targets []netip.AddrPort
	// Sources are local addresses to send from; empty leaves the choice to the route.
	Sources []netip.Addr
	// PortFrom and PortTo bound the source ports, both included; 0 and 0 leave the choice to the kernel, a new port a flow.
	PortFrom, PortTo uint16
}

// Flows makes n flows: targets vary fastest, then source addresses, then ports, so that few flows reach all targets already.
func (s FlowSpace) Flows(n int) ([]Flow, error) {
	if len(s.Targets) == 0 {
		return nil, errors.New("flows: no target")
	}
	if s.PortTo < s.PortFrom {
		return nil, fmt.Errorf("source ports %d-%d: the second is below the first", s.PortFrom, s.PortTo)
	}
	var pairs []Flow
	for _, src := range s.sources() {
		for _, dst := range s.Targets {
			if !src.IsValid() || src.Unmap().Is4() == dst.Addr().Unmap().Is4() {
				pairs = append(pairs, Flow{Src: netip.AddrPortFrom(src, 0), Dst: dst})
			}
		}
	}
	if len(pairs) == 0 {
		return nil, errors.New("source addresses: none has the address family of a target")
	}
	if room := uint64(s.PortTo-s.PortFrom) + 1; s.PortFrom != 0 && uint64(n) > room*uint64(len(pairs)) {
		return nil, fmt.Errorf("%d flows: %d source ports x %d pairs of source address and target make only %d; widen --src-port or add --src",
			n, room, len(pairs), room*uint64(len(pairs)))
	}
	flows := make([]Flow, n)
	for k := range flows {
		f := pairs[k%len(pairs)]
		if s.PortFrom != 0 {
			f.Src = netip.AddrPortFrom(f.Src.Addr(), s.PortFrom+uint16(k/len(pairs)))
		}
		if !f.Src.Addr().IsValid() && f.Src.Port() != 0 {
			f.Src = netip.AddrPortFrom(unspecified(f.Dst.Addr()), f.Src.Port())
		}
		flows[k] = f
	}
	return flows, nil
}

func (s FlowSpace) sources() []netip.Addr {
	if len(s.Sources) == 0 {
		return []netip.Addr{{}}
	}
	return s.Sources
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Unmap().Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
