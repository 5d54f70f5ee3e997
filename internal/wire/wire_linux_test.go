package wire_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"blast/internal/testskip"
	"blast/internal/wire"
)

// TestKernelWire: what is sent from the near namespace is counted at the far end and goes nowhere else; nothing is left on the host.
func TestKernelWire(t *testing.T) {
	w, err := wire.Open(2)
	if errors.Is(err, errors.ErrUnsupported) {
		testskip.Skip(t, "netns", err.Error(), "sudo -E go test")
	}
	if err != nil {
		t.Fatal(err)
	}
	const packets = 100
	sent := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := w.Enter()
		if err == nil {
			var c *net.UDPConn
			c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.Target(), 9)))
			for i := 0; err == nil && i < packets; i++ {
				_, err = c.Write([]byte{byte(i)})
			}
		}
		sent <- err
	}()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	var got uint64
	for end := time.Now().Add(10 * time.Second); got < packets && time.Now().Before(end); {
		if got, err = w.Received(); err != nil {
			t.Fatal(err)
		}
	}
	if got != packets {
		t.Errorf("%d of %d came out", got, packets)
	}
	if _, err := net.InterfaceByName(wire.Interface); err == nil {
		t.Errorf("%s is on the host", wire.Interface)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
