package sys

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// SockaddrBytes is the size of a buffer for any address of an IPv4 or IPv6 socket (struct sockaddr_in6).
const SockaddrBytes = unix.SizeofSockaddrInet6

// ParseSockaddr reads the address the kernel wrote as msg_name. A scope becomes a numeric zone only for link-local addresses.
// It reports false for anything but IPv4 and IPv6.
func ParseSockaddr(b []byte) (netip.AddrPort, bool) {
	if len(b) < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), true
	case unix.AF_INET6:
		if len(b) < unix.SizeofSockaddrInet6 {
			return netip.AddrPort{}, false
		}
		addr := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(strconv.FormatUint(uint64(scope), 10)) // netip interns the zone
		}
		return netip.AddrPortFrom(addr, port), true
	}
	return netip.AddrPort{}, false
}

// PutSockaddr writes a as the kernel reads it (struct sockaddr_in, sockaddr_in6) into b, which has SockaddrBytes, and returns its length: 0
// when a is no address. scope is the index of an IPv6 zone, see ZoneIndex; the one in a is not looked at, because that may allocate.
func PutSockaddr(b []byte, a netip.AddrPort, scope uint32) int {
	clear(b[:SockaddrBytes])
	n := 0
	switch ip := a.Addr(); {
	case ip.Is4():
		n = unix.SizeofSockaddrInet4
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		v4 := ip.As4()
		copy(b[4:], v4[:])
	case ip.Is6():
		n = unix.SizeofSockaddrInet6
		binary.NativeEndian.PutUint16(b, unix.AF_INET6)
		v6 := ip.As16()
		copy(b[8:], v6[:])
		binary.NativeEndian.PutUint32(b[24:], scope)
	default:
		return 0
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	return n
}

// ZoneIndex is the index of the interface that the zone of an IPv6 address names, by number or by name; 0 for no zone.
func ZoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// Sockaddr is a as bind(2) and connect(2) of golang.org/x/sys/unix want it.
func Sockaddr(a netip.AddrPort) (unix.Sockaddr, error) {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
	}
	scope, err := ZoneIndex(a.Addr().Zone())
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: scope}, err
}

// FromSockaddr is what getsockname(2) and getpeername(2) of golang.org/x/sys/unix told, without a zone, and the index of that (0 = none).
func FromSockaddr(sa unix.Sockaddr) (a netip.AddrPort, scope uint32, err error) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), 0, nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), sa.ZoneId, nil
	}
	return netip.AddrPort{}, 0, fmt.Errorf("socket address: %T is not IP", sa)
}
