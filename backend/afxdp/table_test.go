package afxdp

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"blast/internal/udpsock"
	"blast/packet"
)

// TestTable: whatever the flows are, each is found by its own addresses, and nothing else is.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few different values, so that flows share ports, addresses and hash chains.
		port := rapid.Uint16Range(1, 4)
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			last := rapid.ByteRange(1, 3).Draw(t, "host")
			return netip.AddrFrom4([4]byte{10, 0, 0, last})
		})
		at := func(label string) netip.AddrPort {
			return netip.AddrPortFrom(addr.Draw(t, label), port.Draw(t, label+" port"))
		}
		l := &link{socks: &udpsock.Sockets{}}
		known := map[[2]netip.AddrPort]int{}
		for range rapid.IntRange(1, 60).Draw(t, "flows") {
			key := [2]netip.AddrPort{at("local"), at("remote")}
			if _, twice := known[key]; twice {
				continue
			}
			f, err := packet.NewFlow(packet.Headers{Src: key[0], Dst: key[1]})
			if err != nil {
				t.Fatal(err)
			}
			known[key] = len(l.flows)
			l.flows, l.sources = append(l.flows, f), append(l.sources, key[0])
			l.socks.Peers = append(l.socks.Peers, key[1])
		}
		table := newTable(l)
		for key, want := range known {
			if flow, peer, ok := table.find(key[0], key[1]); !ok || flow != want || peer != key[1] {
				t.Fatalf("%v: flow %d, %v, %v; want %d", key, flow, peer, ok, want)
			}
		}
		for range 50 {
			key := [2]netip.AddrPort{at("other local"), at("other remote")}
			_, want := known[key]
			if _, _, ok := table.find(key[0], key[1]); ok != want {
				t.Fatalf("%v: found %v, known %v", key, ok, want)
			}
		}
	})
}
