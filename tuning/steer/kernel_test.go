package steer

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/tuning"
)

// TestKernelLearn finds ports for all four queues of a veth, which has no RSS table, by probing, and proves by the counters of the
// queues that the replies of each chosen port, and nothing else, land on its queue.
func TestKernelLearn(t *testing.T) {
	const queues = 4
	pair := testnet.NewPair(t, testnet.Config{Queues: queues})
	pair.Left.Do(func() {
		if _, err := Read((tuning.Reader{}).Device(), pair.Left.Interface, false); err == nil {
			t.Error("a veth tells an RSS table")
		}
	})
	target := netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9000)
	server := pair.Right.ListenUDP(target)
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // the test's end
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	// Both ends need XDP for the veth to have receive queues of its own (drivers/net/veth.c, veth_napi).
	arrived := pair.Left.Count(testnet.CountConfig{Action: testnet.Pass})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Pass})
	counters := func() (map[int]uint64, error) {
		out := map[int]uint64{}
		for q := range queues {
			out[q] = arrived.Queue(q).Frames
		}
		return out, nil
	}
	probe := func(port uint16, n int) error {
		conn := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), port))
		defer conn.Close()
		return roundTrips(conn, target, n)
	}
	learnt := map[uint16]int{}
	found := map[int]bool{}
	for port := uint16(20000); port < 20100 && len(found) < queues; port++ {
		queue, err := Learn(probe, counters, port, 10)
		if err != nil {
			t.Fatal(err)
		}
		if queue >= 0 {
			learnt[port], found[queue] = queue, true
		}
	}
	if len(found) != queues {
		t.Fatalf("%d of %d queues found: %v", len(found), queues, learnt)
	}
	want := []int{3, 2, 1, 0}
	ports, err := Choose(Ports{From: 20000, To: 20099}, want, func(p uint16) int {
		if q, ok := learnt[p]; ok {
			return q
		}
		return -1
	})
	if err != nil {
		t.Fatal(err)
	}
	if wrong, err := Verify(probe, counters, ports, want, 50); err != nil || len(wrong) > 0 {
		t.Errorf("ports %v of %v miss their queues %v: %v", wrong, ports, want, err)
	}
	// The driver's own counters say the same as the program's.
	pair.Left.Do(func() {
		got, err := DeviceCounters((tuning.Reader{}).Device(), pair.Left.Interface)()
		if err != nil || len(got) != queues {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// roundTrips sends n packets one by one and waits for each reply.
func roundTrips(conn *net.UDPConn, target netip.AddrPort, n int) error {
	buf := make([]byte, 64)
	for range n {
		if _, err := conn.WriteToUDPAddrPort([]byte("probe"), target); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, _, err := conn.ReadFromUDPAddrPort(buf); err != nil {
			return err
		}
	}
	return nil
}
