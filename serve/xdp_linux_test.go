package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/packet"
)

// xdpPort is the target's in these tests.
const xdpPort = 4701

func listenXDP(t *testing.T, pair *testnet.Pair, cfg XDPConfig) *XDPServer {
	t.Helper()
	var s *XDPServer
	pair.Right.Do(func() {
		var err error
		if s, err = ListenXDP(cfg); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends a payload from the left and returns the reply, nil for none.
func ask(t *testing.T, c *net.UDPConn, to netip.AddrPort, payload []byte) []byte {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(payload, to); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		return nil
	}
	if from := netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); from != to {
		t.Fatalf("reply from %v, want %v", from, to)
	}
	return buf[:n]
}

// TestKernelXDPEcho: ordinary sockets get back what they sent, of every length, although their packets come without a finished checksum; also from the
// program behind the driver, which answers where replies may have to be repeated.
func TestKernelXDPEcho(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	// A veth end takes what its peer's program sends only with NAPI, which GRO turns on.
	pair.Left.Do(func() {
		e, err := ethtool.NewEthtool()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.Change(pair.Left.Interface, map[string]bool{"rx-gro": true}); err != nil {
			t.Fatal(err)
		}
	})
	hardlyEver := Faults{Duplicate: 1e-12}
	for _, c := range []struct {
		name   string // what the case is for
		listen netip.AddrPort
		from   netip.Addr
		to     netip.Addr
		faults Faults
	}{
		{"an IPv4 address", netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort), pair.Left.IPv4.Addr(), pair.Right.IPv4.Addr(), Faults{}},
		{"an IPv6 address", netip.AddrPortFrom(pair.Right.IPv6.Addr(), xdpPort), pair.Left.IPv6.Addr(), pair.Right.IPv6.Addr(), Faults{}},
		{"the IPv4 wildcard", netip.AddrPortFrom(netip.IPv4Unspecified(), xdpPort), pair.Left.IPv4.Addr(), pair.Right.IPv4.Addr(), Faults{}},
		{"behind the driver", netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort), pair.Left.IPv4.Addr(), pair.Right.IPv4.Addr(), hardlyEver},
		{"behind the driver, IPv6", netip.AddrPortFrom(pair.Right.IPv6.Addr(), xdpPort), pair.Left.IPv6.Addr(), pair.Right.IPv6.Addr(), hardlyEver},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := listenXDP(t, pair, XDPConfig{Mode: Echo, Listen: []netip.AddrPort{c.listen}, Faults: c.faults})
			conn, to := pair.Left.ListenUDP(netip.AddrPortFrom(c.from, 0)), netip.AddrPortFrom(c.to, xdpPort)
			var want Counts
			for _, size := range []int{0, 1, 2, 3, 15, 47, 64, 333, 1400} {
				payload := make([]byte, size)
				for k := range payload {
					payload[k] = byte(k*7 + 1)
				}
				if got := ask(t, conn, to, payload); got == nil || !bytes.Equal(got, payload) {
					t.Fatalf("%d bytes came back as %x; notes %q", size, got, s.Notes())
				}
				want.Received++
				want.Replied++
				want.Bytes += uint64(size)
			}
			payload := make([]byte, 64)
			packet.PutStamp(payload, &packet.Stamp{Worker: 3, Seq: 9, Planned: 5, Sent: 6})
			before := sys.Monotonic()
			reply := ask(t, conn, to, payload)
			var st packet.Stamp
			if !packet.ParseStamp(reply, before, &st) || st.Seq != 9 || st.ServerReceived < before || st.ServerSent < st.ServerReceived || st.ServerSent > sys.Monotonic() {
				t.Fatalf("stamp came back as %+v", st)
			}
			ask(t, conn, to, []byte{0xb1, 0xa5, 1, 2, 3})
			want.Received, want.Replied, want.Bytes, want.Malformed = want.Received+2, want.Replied+2, want.Bytes+69, 1
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := s.Counts()
			if err != nil {
				t.Fatal(err)
			}
			if got.Workers = nil; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("counted\n%v, want\n%v", got, want)
			}
		})
	}
}

// TestKernelXDPAllow: who is not allowed is counted and gets nothing, and other ports pass to their sockets.
func TestKernelXDPAllow(t *testing.T) {
	t.Run("in the driver", func(t *testing.T) { testAllow(t, Faults{}) })
	t.Run("behind the driver", func(t *testing.T) { testAllow(t, Faults{Duplicate: 1}) })
}

func testAllow(t *testing.T, faults Faults) {
	pair := testnet.NewPair(t, testnet.Config{})
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)
	conn := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0))
	s := listenXDP(t, pair, XDPConfig{Mode: Echo, Listen: []netip.AddrPort{to}, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Faults: faults})
	if _, err := conn.WriteToUDPAddrPort([]byte("hello"), to); err != nil {
		t.Fatal(err)
	}
	other := pair.Right.ListenUDP(netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort+1))
	if _, err := conn.WriteToUDPAddrPort([]byte("other"), other.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
		t.Fatal(err)
	}
	_ = other.SetReadDeadline(time.Now().Add(2 * time.Second))
	buf := make([]byte, 16)
	if n, err := other.Read(buf); err != nil || string(buf[:n]) != "other" {
		t.Fatalf("the other port got %q, %v", buf[:n], err)
	}
	c, err := s.Counts()
	if err != nil || c.Denied != 1 || c.Received != 0 || c.Replied != 0 {
		t.Fatalf("counted %v, %v; want 1 denied", c, err)
	}
}

// TestKernelXDPNeverReflects: a peer that is not allowed gets nothing while programs come and go either: the one behind the driver knows no allow list.
func TestKernelXDPNeverReflects(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)
	conn := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = conn.WriteToUDPAddrPort([]byte("hello"), to) // refused by ICMP where nobody serves
			}
		}
	}()
	denied := uint64(0)
	for range 12 {
		s := listenXDP(t, pair, XDPConfig{Mode: Echo, Listen: []netip.AddrPort{to}, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Faults: Faults{Duplicate: 1}})
		time.Sleep(5 * time.Millisecond)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		c, err := s.Counts()
		if err != nil {
			t.Error(err)
		}
		denied += c.Denied
	}
	close(stop)
	<-stopped
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 16)); err == nil || denied == 0 {
		t.Errorf("a reply of %d bytes, %d datagrams were denied", n, denied)
	}
}

// TestKernelXDPOwn: a datagram that pretends to come from the server itself is counted as denied and not answered, or two servers would talk for ever.
func TestKernelXDPOwn(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	own := netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)
	s := listenXDP(t, pair, XDPConfig{Mode: Echo, Listen: []netip.AddrPort{own}})
	fd := packetSocket(t, pair.Left)
	for i, c := range []struct {
		from netip.AddrPort
		want Counts
	}{
		{own, Counts{Denied: 1}},
		{netip.AddrPortFrom(own.Addr(), xdpPort+1), Counts{Denied: 1, Received: 1, Replied: 1, Bytes: 5}}, // allowed: the interface's own prefix
	} {
		flow, err := packet.NewFlow(packet.Headers{SrcMAC: mac(pair.Left), DstMAC: mac(pair.Right), Src: c.from, Dst: own})
		if err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, max(flow.Layout().Payload+5, packet.MinFrameBytes))
		copy(flow.Payload(frame), "hello")
		if err := unix.Send(fd, frame[:flow.Write(frame, 5)], 0); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
			got, err := s.Counts()
			if err != nil {
				t.Fatal(err)
			}
			if got.Workers = nil; fmt.Sprint(got) == fmt.Sprint(c.want) {
				break
			} else if time.Now().After(end) {
				t.Fatalf("datagram %d from %v: counted\n%v, want\n%v", i, c.from, got, c.want)
			}
		}
	}
}

// TestKernelXDPSink: a sink counts and answers nothing.
func TestKernelXDPSink(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)
	s := listenXDP(t, pair, XDPConfig{Mode: Sink, Listen: []netip.AddrPort{to}})
	conn := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0))
	for range 100 {
		if _, err := conn.WriteToUDPAddrPort([]byte("hello"), to); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := s.Counts()
		if err != nil {
			t.Fatal(err)
		}
		if c.Received == 100 && c.Bytes == 500 && c.Replied == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("counted %v", c)
		}
	}
}

// TestKernelXDPRefuses names what cannot be.
func TestKernelXDPRefuses(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Right.Do(func() {
		_, err := ListenXDP(XDPConfig{Mode: Echo, Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7")}})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("lo: %v", err)
		}
		if _, err = ListenXDP(XDPConfig{Mode: Echo, Listen: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7")}}); err == nil {
			t.Error("an address that is not here was accepted")
		}
		if _, err = ListenXDP(XDPConfig{Mode: Echo, Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), 0)}}); err == nil {
			t.Error("port 0 was accepted")
		}
		for _, c := range []struct {
			why    string
			mode   Mode
			faults Faults
		}{
			{"a sink has no replies to lose", Sink, Faults{Drop: 0.1}},
			{"nothing here can wait", Echo, Faults{Delay: 0.1, DelayBy: time.Second}},
			{"more than all", Echo, Faults{Drop: 0.6, Duplicate: 0.6}},
		} {
			at := netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)
			if _, err = ListenXDP(XDPConfig{Mode: c.mode, Listen: []netip.AddrPort{at}, Faults: c.faults}); err == nil {
				t.Errorf("%s: accepted", c.why)
			}
		}
	})
	listenXDP(t, pair, XDPConfig{Mode: Echo, Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)}})
	pair.Right.Do(func() {
		if _, err := ListenXDP(XDPConfig{Mode: Sink, Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), 7)}}); err == nil {
			t.Error("a second program went onto the interface")
		} else {
			t.Log(err)
		}
	})
}
