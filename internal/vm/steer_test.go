package vm

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/tuning"
	"blast/tuning/steer"
)

// testSteer computes source ports for each of the four queues from the card's key and table, for both families, and proves by the card's
// counters that the replies, and nothing else to speak of, land there.
func testSteer(t *testing.T, pair *testnet.Pair) {
	left := pair.Left
	port := echo(t, pair.Right)
	want := []int{3, 2, 1, 0}
	for _, f := range []struct {
		name     string
		src, dst netip.Addr
		fields   tuning.Setting
	}{
		{"IPv4", left.IPv4.Addr(), pair.Right.IPv4.Addr(), tuning.UDP4Fields},
		{"IPv6", left.IPv6.Addr(), pair.Right.IPv6.Addr(), tuning.UDP6Fields},
	} {
		t.Run(f.name, func(t *testing.T) {
			device := tuning.Reader{}.Device()
			target := netip.AddrPortFrom(f.dst, port)
			probe := func(port uint16, n int) error { return roundTrips(left, netip.AddrPortFrom(f.src, port), target, n) }
			var card steer.Card
			left.Do(func() {
				var err error
				if err = device.Set(left.Interface, f.fields, "sdfn"); err == nil {
					card, err = steer.Read(device, left.Interface, f.dst.Is6())
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			carrier(t, left)
			if err := card.Computable(); err != nil {
				t.Fatal(err)
			}
			ports, err := steer.Choose(steer.Ports{From: 20000, To: 21000}, want, func(p uint16) int {
				return card.Queue(netip.AddrPortFrom(f.src, p), target)
			})
			if err != nil {
				t.Fatal(err)
			}
			counters := func() (got map[int]uint64, err error) {
				left.Do(func() { got, err = steer.DeviceCounters(device, left.Interface)() })
				return got, err
			}
			if err := probe(ports[0], 1); err != nil { // neighbours are resolved
				t.Fatal(err)
			}
			for i, p := range ports {
				before, err := counters()
				if err != nil {
					t.Fatal(err)
				}
				const packets = 50
				if err := probe(p, packets); err != nil {
					t.Fatal(err)
				}
				after, err := counters()
				if err != nil {
					t.Fatal(err)
				}
				grown := map[int]uint64{}
				for q, n := range after {
					grown[q] = n - before[q]
				}
				t.Logf("port %d for queue %d: %v", p, want[i], grown)
				for q, n := range grown {
					if q == want[i] && n < packets || q != want[i] && n > packets/10 { // a neighbour's question may come in between
						t.Errorf("port %d for queue %d: queue %d received %d packets", p, want[i], q, n)
					}
				}
			}
		})
	}
}

// roundTrips sends packets one by one and waits for each reply.
func roundTrips(from *testnet.Host, src, dst netip.AddrPort, n int) (err error) {
	var conn *net.UDPConn
	from.Do(func() { conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(src)) })
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 64)
	for i := range n {
		for attempt := 0; ; attempt++ {
			if _, err := conn.WriteToUDPAddrPort(fmt.Appendf(nil, "probe %d", i), dst); err != nil && attempt > 0 {
				return err
			}
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				return err
			}
			if _, _, err = conn.ReadFromUDPAddrPort(buf); err == nil {
				break
			} else if attempt > 1 {
				return err
			}
		}
	}
	return nil
}
