package packet

import (
	"bytes"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestToeplitzVectors are the eight published ones (Microsoft "Verifying the RSS hash calculation"; Intel 82599 data sheet 7.1.2.8.3;
// DPDK app/test/test_thash.c).
func TestToeplitzVectors(t *testing.T) {
	for _, c := range []struct {
		src, dst     string
		addrs, ports uint32
	}{
		{"66.9.149.187:2794", "161.142.100.80:1766", 0x323e8fc2, 0x51ccc178},
		{"199.92.111.2:14230", "65.69.140.83:4739", 0xd718262a, 0xc626b0ea},
		{"24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0a5de, 0x5c2b394a},
		{"38.27.205.30:48228", "209.142.163.6:2217", 0x82989176, 0xafc7327f},
		{"153.39.163.191:44251", "202.188.127.2:1303", 0x5d1809c5, 0x10e828a2},
		{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc18cd5, 0x40207d3d},
		{"[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c461c, 0xdde51bbf},
		{"[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x4b61e985, 0x02d1feef},
	} {
		src, dst := netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst)
		if got := ToeplitzAddrs(ToeplitzKey(), src.Addr(), dst.Addr()); got != c.addrs {
			t.Errorf("%s to %s, addresses: %#08x, published %#08x", c.src, c.dst, got, c.addrs)
		}
		if got := ToeplitzFlow(ToeplitzKey(), src, dst); got != c.ports {
			t.Errorf("%s to %s, with ports: %#08x, published %#08x", c.src, c.dst, got, c.ports)
		}
		if src.Addr().Is4() { // an IPv4 address in IPv6 clothes goes over the wire as IPv4
			mapped := netip.AddrPortFrom(netip.AddrFrom16(src.Addr().As16()), src.Port())
			if got := ToeplitzFlow(ToeplitzKey(), mapped, dst); got != c.ports {
				t.Errorf("mapped %s: %#08x, published %#08x", c.src, got, c.ports)
			}
		}
	}
}

// TestToeplitzProperties are what makes it a linear hash, against a bit-by-bit reading of the definition.
func TestToeplitzProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 0, 52).Draw(t, "key")
		a := rapid.SliceOfN(rapid.Byte(), 36, 36).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 36, 36).Draw(t, "b")
		if Toeplitz(key, a) != slowToeplitz(key, a) {
			t.Fatalf("key %x input %x: %#x, by definition %#x", key, a, Toeplitz(key, a), slowToeplitz(key, a))
		}
		sum := make([]byte, len(a))
		for i := range a {
			sum[i] = a[i] ^ b[i]
		}
		if Toeplitz(key, sum) != Toeplitz(key, a)^Toeplitz(key, b) {
			t.Fatal("the hash of a sum is not the sum of the hashes")
		}
		if Toeplitz(key, bytes.Repeat([]byte{0}, 36)) != 0 {
			t.Fatal("the hash of zeros is not zero")
		}
	})
}

func slowToeplitz(key, input []byte) uint32 {
	bit := func(b []byte, i int) uint32 {
		if i/8 >= len(b) {
			return 0
		}
		return uint32(b[i/8]>>(7-i%8)) & 1
	}
	var hash uint32
	for i := range 8 * len(input) {
		if bit(input, i) == 1 {
			for j := range 32 {
				hash ^= bit(key, i+j) << (31 - j)
			}
		}
	}
	return hash
}

func TestToeplitzAllocatesNothing(t *testing.T) {
	key, src, dst := ToeplitzKey(), netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2")
	if n := testing.AllocsPerRun(100, func() { ToeplitzFlow(key, src, dst) }); n != 0 {
		t.Errorf("%v allocations a hash", n)
	}
}

func BenchmarkToeplitzFlow(b *testing.B) {
	key, src, dst := ToeplitzKey(), netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
	for b.Loop() {
		ToeplitzFlow(key, src, dst)
	}
}
