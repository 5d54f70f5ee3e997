package xdp_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/xdp"
)

// compareHops compares what a caller sees of a next hop.
var compareHops = cmp.Options{cmpopts.IgnoreUnexported(xdp.NextHop{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}

func resolver(t testing.TB) *xdp.Resolver {
	t.Helper()
	r, err := xdp.NewResolver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestKernelResolve proves that a plain IP address is enough: route, source, VLAN and hardware address are found, asked for where
// they are missing.
func TestKernelResolve(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	l, r := p.Left, p.Right
	l.AddRoute(netip.MustParsePrefix("10.99.0.0/16"), r.IPv4.Addr())
	l.AddRoute(netip.MustParsePrefix("fd99::/64"), r.IPv6.Addr())
	here := xdp.NextHop{Interface: l.Interface, Index: l.Index, SrcMAC: [6]byte(l.MAC), DstMAC: [6]byte(r.MAC), MTU: 1500}
	with := func(change func(*xdp.NextHop)) xdp.NextHop {
		n := here
		change(&n)
		return n
	}
	cases := []struct {
		name   string
		target xdp.Target
		want   xdp.NextHop
	}{
		{"IPv4 neighbour", xdp.Target{Addr: r.IPv4.Addr()},
			with(func(n *xdp.NextHop) { n.Source, n.Gateway = l.IPv4.Addr(), r.IPv4.Addr() })},
		{"IPv6 neighbour, interface asked for", xdp.Target{Addr: r.IPv6.Addr(), Interface: l.Interface},
			with(func(n *xdp.NextHop) { n.Source, n.Gateway = l.IPv6.Addr(), r.IPv6.Addr() })},
		{"IPv4 by a gateway", xdp.Target{Addr: netip.MustParseAddr("10.99.1.2")},
			with(func(n *xdp.NextHop) { n.Source, n.Gateway = l.IPv4.Addr(), r.IPv4.Addr() })},
		{"IPv6 by a gateway, source named", xdp.Target{Addr: netip.MustParseAddr("fd99::5"), Source: l.IPv6.Addr()},
			with(func(n *xdp.NextHop) { n.Source, n.Gateway = l.IPv6.Addr(), r.IPv6.Addr() })},
		{"IPv4 multicast", xdp.Target{Addr: netip.MustParseAddr("239.129.2.3"), Source: l.IPv4.Addr()},
			with(func(n *xdp.NextHop) {
				n.Source, n.Gateway, n.DstMAC = l.IPv4.Addr(), netip.MustParseAddr("239.129.2.3"), [6]byte{1, 0, 0x5e, 1, 2, 3}
			})},
		{"IPv4 broadcast", xdp.Target{Addr: netip.MustParseAddr("10.83.0.255")},
			with(func(n *xdp.NextHop) {
				n.Source, n.Gateway = l.IPv4.Addr(), netip.MustParseAddr("10.83.0.255")
				n.DstMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
			})},
		{"IPv6 loopback", xdp.Target{Addr: netip.MustParseAddr("::1")},
			xdp.NextHop{Interface: "lo", Index: 1, Source: netip.IPv6Loopback(), Gateway: netip.IPv6Loopback(), MTU: 65536}},
	}
	l.Do(func() {
		l.AddRoute(netip.MustParsePrefix("239.0.0.0/8"), r.IPv4.Addr())
		res := resolver(t)
		for _, c := range cases {
			got, err := res.Resolve(context.Background(), c.target)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if c.want.Gateway.IsMulticast() { // with a route by a gateway the kernel still sends to the group
				got.Gateway = c.want.Gateway
			}
			if diff := cmp.Diff(c.want, *got, compareHops); diff != "" {
				t.Errorf("%s:\n%s", c.name, diff)
			}
		}
	})
}

// TestKernelResolveVLAN proves that a route by a VLAN interface leads to its parent and a tag.
func TestKernelResolveVLAN(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{VLAN: 83})
	l, r := p.Left, p.Right
	l.Do(func() {
		res := resolver(t)
		for _, name := range []string{l.Interface, l.VLAN.Interface, ""} {
			for _, pair := range [][2]netip.Prefix{{l.VLAN.IPv4, r.VLAN.IPv4}, {l.VLAN.IPv6, r.VLAN.IPv6}} {
				got, err := res.Resolve(context.Background(), xdp.Target{Addr: pair[1].Addr(), Interface: name})
				if err != nil {
					t.Fatal(err)
				}
				want := xdp.NextHop{Interface: l.Interface, Index: l.Index, SrcMAC: [6]byte(l.MAC), DstMAC: [6]byte(r.MAC), MTU: 1500,
					Source: pair[0].Addr(), Gateway: pair[1].Addr(), VLAN: 83, Tagged: true}
				if diff := cmp.Diff(want, *got, compareHops); diff != "" {
					t.Error(diff)
				}
			}
		}
		_, err := res.Resolve(context.Background(), xdp.Target{Addr: r.IPv4.Addr(), Interface: l.VLAN.Interface})
		if err == nil || !strings.Contains(err.Error(), "leads to "+l.Interface) {
			t.Errorf("VLAN asked for, route by the parent: %v", err)
		}
	})
}

// TestKernelResolveLinkLocal proves that fe80 addresses work with a zone, and that without one the text says so.
func TestKernelResolveLinkLocal(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	right, err := p.Right.Netlink.LinkByName(p.Right.Interface)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := p.Right.Netlink.AddrList(right, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	var far netip.Addr
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); ip.IsLinkLocalUnicast() {
			far = ip
		}
	}
	p.Left.Do(func() {
		r := resolver(t)
		n, err := r.Resolve(context.Background(), xdp.Target{Addr: far.WithZone(p.Left.Interface)})
		if err != nil {
			t.Fatal(err)
		}
		if n.DstMAC != [6]byte(p.Right.MAC) || !n.Source.IsLinkLocalUnicast() {
			t.Errorf("%+v", n)
		}
		if _, err := r.Resolve(context.Background(), xdp.Target{Addr: far}); err == nil || !strings.Contains(err.Error(), "zone") {
			t.Errorf("without a zone: %v", err)
		}
	})
}

// TestKernelResolveRefuses proves that what cannot work ends in bounded time with the reason.
func TestKernelResolveRefuses(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	if err := p.Left.Netlink.RouteAdd(&netlink.Route{Type: unix.RTN_BLACKHOLE,
		Dst: &net.IPNet{IP: net.IPv4(10, 66, 0, 0), Mask: net.CIDRMask(16, 32)}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		target xdp.Target
		text   string
		cause  error
	}{
		{"nobody has the address", xdp.Target{Addr: netip.MustParseAddr("10.83.0.77"), Wait: 300 * time.Millisecond}, "10.83.0.77 on left0 does not answer", unix.EHOSTUNREACH},
		{"nobody has the IPv6 address", xdp.Target{Addr: netip.MustParseAddr("fd83::77"), Wait: 300 * time.Millisecond}, "does not answer", unix.EHOSTUNREACH},
		{"no route", xdp.Target{Addr: netip.MustParseAddr("192.0.2.1")}, "no route", unix.ENETUNREACH},
		{"blackhole", xdp.Target{Addr: netip.MustParseAddr("10.66.1.1")}, "route", unix.EINVAL},
		{"another interface than asked", xdp.Target{Addr: p.Right.IPv4.Addr(), Interface: "lo"}, "leads to left0, not to lo", nil},
		{"own IPv4 address", xdp.Target{Addr: p.Left.IPv4.Addr()}, "::1", errors.ErrUnsupported},
		{"IPv4 loopback", xdp.Target{Addr: netip.MustParseAddr("127.0.0.1")}, "::1", errors.ErrUnsupported},
		{"foreign source", xdp.Target{Addr: p.Right.IPv4.Addr(), Source: netip.MustParseAddr("10.1.1.1")}, "no route from 10.1.1.1", nil},
		{"no address", xdp.Target{}, "not an address", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Left.Do(func() {
				start := time.Now()
				_, err := resolver(t).Resolve(context.Background(), c.target)
				if err == nil || !strings.Contains(err.Error(), c.text) || c.cause != nil && !errors.Is(err, c.cause) {
					t.Errorf("%v", err)
				}
				if d := time.Since(start); d > 10*time.Second {
					t.Errorf("took %s", d)
				}
			})
		})
	}
}

// TestKernelRefresh proves that a neighbour which the kernel forgot is asked for again, and that a changed hardware address is taken over.
func TestKernelRefresh(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		r := resolver(t)
		n, err := r.Resolve(context.Background(), xdp.Target{Addr: p.Right.IPv4.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := r.Refresh(context.Background(), n); err != nil || changed {
			t.Fatalf("nothing happened: changed %v, %v", changed, err)
		}
		forget := func() {
			if err := p.Left.Netlink.NeighDel(&netlink.Neigh{LinkIndex: p.Left.Index, IP: p.Right.IPv4.Addr().AsSlice()}); err != nil {
				t.Fatal(err)
			}
		}
		forget()
		if changed, err := r.Refresh(context.Background(), n); err != nil || changed {
			t.Fatalf("forgotten: changed %v, %v", changed, err)
		}
		link, err := p.Right.Netlink.LinkByName(p.Right.Interface)
		if err != nil {
			t.Fatal(err)
		}
		mac := net.HardwareAddr{2, 9, 9, 9, 9, 9}
		if err := p.Right.Netlink.LinkSetHardwareAddr(link, mac); err != nil {
			t.Fatal(err)
		}
		forget()
		if changed, err := r.Refresh(context.Background(), n); err != nil || !changed || n.DstMAC != [6]byte(mac) {
			t.Fatalf("new address: changed %v, %x, %v", changed, n.DstMAC, err)
		}
	})
}
