package main

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"blast/internal/testnet"
)

// TestKernelPath tests what depends on routes and MTU in namespaces of its own: a pair with 1500 bytes and no default route.
func TestKernelPath(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	in := func(h *testnet.Host, args ...string) outcome {
		var p *process
		h.Do(func() { p = start(t, nil, args...) })
		return p.end()
	}
	right := pair.Right.IPv4.Addr().String()
	for _, c := range []struct {
		what string
		args []string
		code int
		says string
	}{
		{"no route", []string{"10.99.0.1:9", "--rate", "5"}, exitUsage, "no route to 10.99.0.1"},
		{"no route, IPv6", []string{"[fd99::1]:9", "--rate", "5"}, exitUsage, "no route to fd99::1"},
		{"a public address may be loaded by who is authorized, but there is no route", []string{"8.8.8.8:53", "--rate", "5", "--authorized"}, exitUsage, "no route to 8.8.8.8"},
		{"more than the path takes whole", []string{right + ":9", "--rate", "5", "--payload", "1473"}, exitUsage,
			"takes 1472 bytes whole (MTU 1500 on left0); send at most that, or let the kernel fragment with --fragment"},
		{"the same, IPv6", []string{"[" + pair.Right.IPv6.Addr().String() + "]:9", "--rate", "5", "--payload", "1453"}, exitUsage, "takes 1452 bytes whole"},
		{"as much as the path takes", []string{right + ":9", "--rate", "5", "--payload", "1472", "--dry-run"}, exitOK, ""},
		{"an address of the other host", []string{right + ":9", "--rate", "5", "--src", right}, exitUsage, "blast does not spoof"},
		{"the own address", []string{right + ":9", "--rate", "5", "--src", pair.Left.IPv4.Addr().String(), "--dry-run"}, exitOK, ""},
	} {
		if o := in(pair.Left, append([]string{"udp"}, c.args...)...); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d: %s", c.what, o.code, c.code, o.stderr)
		}
	}

	// With a route a public address needs only permission.
	pair.Left.AddRoute(netip.MustParsePrefix("8.8.8.0/24"), pair.Right.IPv4.Addr())
	if o := in(pair.Left, "udp", "8.8.8.8:53", "--rate", "5"); o.code != exitUsage || !strings.Contains(o.stderr, "--authorized") {
		t.Errorf("public: exit %d: %s", o.code, o.stderr)
	}
	if o := in(pair.Left, "udp", "8.8.8.8:53", "--rate", "5", "--authorized", "--dry-run"); o.code != exitOK {
		t.Errorf("public, authorized: exit %d: %s", o.code, o.stderr)
	}

	// Whole at the MTU, in fragments above it: both arrive as they were sent.
	for _, c := range []struct {
		size int
		args []string
	}{{1472, nil}, {4000, []string{"--fragment"}}} {
		conn := pair.Right.ListenUDP(netip.AddrPortFrom(pair.Right.IPv4.Addr(), 0))
		args := append([]string{"udp", conn.LocalAddr().String(), "--mode", "oneway", "--rate", "100", "--duration", "200ms", "--format", "json", "--payload", strconv.Itoa(c.size)}, c.args...)
		res := in(pair.Left, args...).result(t)
		if res.Host.NIC != "left0" || res.Ledger.Planned != 20 {
			t.Errorf("through %s, %+v", res.Host.NIC, res.Ledger)
		}
		b := make([]byte, 1<<16)
		for i := range res.Ledger.Sent {
			if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(b)
			if err != nil || n != c.size {
				t.Fatalf("packet %d of %d: %d bytes, want %d: %v", i, res.Ledger.Sent, n, c.size, err)
			}
		}
	}
}
