package xdp_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"blast/internal/testskip"
	"blast/xdp"
)

// nicPair names two network cards that are wired back to back, as "eth0,eth1": the virtual hardware of the lab, or a real bench.
const nicPair = "BLAST_NIC_PAIR"

func nics(t testing.TB) (a, b *net.Interface) {
	t.Helper()
	names := strings.Split(os.Getenv(nicPair), ",")
	if len(names) != 2 {
		testskip.Skip(t, "vm", "no pair of network cards", nicPair+"=eth0,eth1 go test ./xdp, of two cards joined by a cable")
	}
	var out [2]*net.Interface
	for i, name := range names {
		var err error
		if out[i], err = net.InterfaceByName(name); err != nil {
			t.Fatal(err)
		}
	}
	return out[0], out[1]
}

// TestKernelHardware sends between two cards in every mode the driver has: what one sends, the other receives, on the queue
// hashing chose; and a mode that was asked for is the mode that was granted.
func TestKernelHardware(t *testing.T) {
	a, b := nics(t)
	for _, mode := range []xdp.Mode{xdp.Generic, xdp.Native, xdp.ZeroCopy, xdp.Auto} {
		t.Run(mode.String(), func(t *testing.T) {
			left := open(t, xdp.DeviceConfig{Interface: a.Name, Mode: mode})
			right := open(t, xdp.DeviceConfig{Interface: b.Name, Mode: mode, Receive: true, Ports: []uint16{theirPort}})
			var receivers []*xdp.Socket
			for q := range right.Queues() {
				receivers = append(receivers, socket(t, right, xdp.SocketConfig{Queue: q, TxFrames: 64, RxFrames: 512}))
			}
			for _, q := range []int{0, 1} {
				s := socket(t, left, xdp.SocketConfig{Queue: q, TxFrames: 512, Stall: 20 * time.Second})
				t.Logf("queue %d: %s %v", q, s.Granted(), s.Granted().Notes)
				if got := s.Granted().Mode; mode == xdp.ZeroCopy && got != xdp.ZeroCopy {
					t.Errorf("granted %s", got)
				}
				f := flow(t, netip.MustParseAddrPort("10.1.0.1:7001"), netip.MustParseAddrPort("10.1.0.2:7002"), a.HardwareAddr, b.HardwareAddr, 0)
				const count = 2000
				seen := 0
				begin := time.Now()
				for i := 0; i < count; i += 40 {
					if c := send(t, s, f, 40, numbered(100)); c.Sent != 40 {
						t.Fatalf("%+v; %+v", c, s.SendStats())
					}
					collect(t, receivers, 40, func(frame []byte) {
						d := decode(frame)
						if d == nil {
							t.Fatalf("received %x", frame)
						}
						checkFrame(t, frame, d.payload)
						seen++
					})
				}
				for range 20 { // single frames leave at once, too
					send(t, s, f, 1, numbered(100))
					collect(t, receivers, 1, func([]byte) { seen++ })
				}
				t.Logf("queue %d: %d packets one way in %s; %+v", q, seen, time.Since(begin).Round(time.Millisecond), s.SendStats())
			}
			if err := errors.Join(left.Close(), right.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkKernelHardware is the bare loop on one queue of a real driver, by copy and zero-copy. On emulated cards only the ratio means
// something.
func BenchmarkKernelHardware(b *testing.B) {
	left, right := nics(b)
	for _, mode := range []xdp.Mode{xdp.Generic, xdp.ZeroCopy} {
		b.Run(mode.String(), func(b *testing.B) {
			d, err := xdp.Open(xdp.DeviceConfig{Interface: left.Name, Mode: mode})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			s, err := d.Open(xdp.SocketConfig{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			f := flow(b, netip.MustParseAddrPort("10.1.0.1:7001"), netip.MustParseAddrPort("10.1.0.2:7002"), left.HardwareAddr, right.HardwareAddr, 0)
			loop(b, s, f, 64)
			b.ReportMetric(float64(s.SendStats().Completed)/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}
