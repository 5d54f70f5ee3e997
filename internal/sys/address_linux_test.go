package sys

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// What is written is what is read, and what the kernel keeps is what was given.
func TestAddresses(t *testing.T) {
	for _, text := range []string{"192.0.2.7:65535", "[2001:db8::1]:53", "[fe80::1%7]:9", "[::ffff:192.0.2.1]:80", "127.0.0.1:0"} {
		want := netip.MustParseAddrPort(text)
		scope, err := ZoneIndex(want.Addr().Zone())
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, SockaddrBytes)
		for i := range b {
			b[i] = 0xff // of the address before
		}
		n := PutSockaddr(b, want, scope)
		if got, ok := ParseSockaddr(b[:n]); !ok || got != want {
			t.Errorf("%s: read back as %v (%v)", text, got, ok)
		}
		sa, err := Sockaddr(want)
		if err != nil {
			t.Fatal(err)
		}
		got, back, err := FromSockaddr(sa)
		if plain := netip.AddrPortFrom(want.Addr().WithZone(""), want.Port()); err != nil || got != plain || back != scope {
			t.Errorf("%s: from unix.Sockaddr %v, scope %d: %v", text, got, back, err)
		}
	}
	if n := PutSockaddr(make([]byte, SockaddrBytes), netip.AddrPort{}, 0); n != 0 {
		t.Errorf("no address: %d bytes", n)
	}
	if _, _, err := FromSockaddr(&unix.SockaddrUnix{}); err == nil {
		t.Error("a unix socket's address passes for IP")
	}
	if _, err := Sockaddr(netip.MustParseAddrPort("[fe80::1%nosuchif0]:1")); err == nil {
		t.Error("a zone that is no interface passes")
	}
	if i, err := ZoneIndex("lo"); err != nil || i == 0 {
		t.Errorf("zone lo: %d, %v", i, err)
	}
}
