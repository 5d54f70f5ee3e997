package xdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/xdp"
)

const (
	ourPort   = 7001
	theirPort = 7002
)

func open(t testing.TB, cfg xdp.DeviceConfig) *xdp.Device {
	t.Helper()
	d, err := xdp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func socket(t testing.TB, d *xdp.Device, cfg xdp.SocketConfig) *xdp.Socket {
	t.Helper()
	s, err := d.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// send sends count packets and waits for all completions. Payload number i is made by fill.
func send(t testing.TB, s *xdp.Socket, f *testFlow, count int, fill func(i int, payload []byte) int) xdp.Completed {
	t.Helper()
	var sum xdp.Completed
	reap := func() {
		c, err := s.Reap()
		if err != nil {
			t.Fatal(err)
		}
		sum.Sent += c.Sent
		sum.Dropped += c.Dropped
	}
	for i := 0; i < count; {
		frames := s.Reserve(min(64, count-i))
		for k, fr := range frames {
			fr.Len = f.Write(fr.Data, fill(i+k, f.Payload(fr.Data)))
		}
		n, err := s.Commit(len(frames))
		if err != nil {
			t.Fatal(err)
		}
		i += n
		reap()
	}
	for end := time.Now().Add(5 * time.Second); s.Outstanding() > 0; {
		reap()
		if time.Now().After(end) {
			t.Fatalf("%d frames never completed: %+v", s.Outstanding(), s.SendStats())
		}
	}
	return sum
}

func numbered(size int) func(int, []byte) int {
	return func(i int, payload []byte) int {
		n := copy(payload, fmt.Sprintf("packet %d ", i))
		for ; n < size; n++ {
			payload[n] = byte(i + n)
		}
		return size
	}
}

// capture opens an AF_PACKET socket on the right end.
func capture(t testing.TB, h *testnet.Host) int {
	t.Helper()
	fd := -1
	h.Do(func() {
		var err error
		proto := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: h.Index}); err != nil {
			t.Fatal(err)
		}
		// The kernel takes VLAN tags out; with auxdata it says which.
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			t.Fatal(err)
		}
	})
	return fd
}

// captured waits for a UDP packet to port and returns the frame and its VLAN id.
func captured(t testing.TB, fd int, port uint16) ([]byte, int) {
	t.Helper()
	buf, oob := make([]byte, 4096), make([]byte, 256)
	for range 1000 {
		n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, 0)
		if err != nil {
			t.Fatalf("capture: %v", err)
		}
		frame := bytes.Clone(buf[:n])
		d := decode(frame)
		if d == nil || d.port != port {
			continue
		}
		vlan := d.vlan
		cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range cmsgs { // struct tpacket_auxdata: status at 0, vlan_tci at 16
			if m.Header.Type == unix.PACKET_AUXDATA && m.Data[0]&unix.TP_STATUS_VLAN_VALID != 0 {
				vlan = int(m.Data[16]) | int(m.Data[17])<<8
			}
		}
		return frame, vlan
	}
	t.Fatal("no such packet in the capture")
	return nil, 0
}

// TestKernelSend proves content, checksums and VLAN: a capture on the other end, decoded by gopacket, finds every packet as it was
// written, an ordinary socket receives the untagged ones, and the sender counts exactly what arrived.
func TestKernelSend(t *testing.T) {
	for _, c := range []struct {
		name    string
		six     bool
		queue   int
		vlan    int
		payload int
	}{
		{"IPv4 on queue 0, smallest frame", false, 0, 0, 18},
		{"IPv6 on queue 1", true, 1, 0, 100},
		{"IPv4 full size", false, 1, 0, 1472},
		{"IPv4 in a VLAN", false, 1, 83, 18},
		{"IPv6 in a VLAN, full size", true, 0, 83, 1452},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{Queues: 2})
			src, dst := p.Left.IPv4, p.Right.IPv4
			if c.six {
				src, dst = p.Left.IPv6, p.Right.IPv6
			}
			rx := p.Right.ListenUDP(netip.AddrPortFrom(dst.Addr(), theirPort))
			sniff := capture(t, p.Right)
			const count = 200
			fill := numbered(c.payload)
			p.Left.Do(func() {
				d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
				s := socket(t, d, xdp.SocketConfig{Queue: c.queue})
				got := send(t, s, across(t, p, src, dst, c.vlan), count, fill)
				if got.Sent != count || got.Dropped != 0 {
					t.Fatalf("%+v of %d; %+v", got, count, s.SendStats())
				}
			})
			buf, want := make([]byte, 2048), make([]byte, 2048)
			_ = rx.SetReadDeadline(time.Now().Add(5 * time.Second))
			for i := range count {
				fill(i, want)
				frame, vlan := captured(t, sniff, theirPort)
				checkFrame(t, frame, want[:c.payload])
				if vlan != c.vlan {
					t.Fatalf("captured in VLAN %d, want %d", vlan, c.vlan)
				}
				if c.vlan != 0 { // the other end has no interface for the VLAN
					continue
				}
				n, from, err := rx.ReadFromUDPAddrPort(buf)
				if err != nil {
					t.Fatalf("packet %d: %v", i, err)
				}
				if !bytes.Equal(buf[:n], want[:c.payload]) || from != netip.AddrPortFrom(src.Addr(), ourPort) {
					t.Fatalf("packet %d from %s differs: %q", i, from, buf[:min(n, 20)])
				}
			}
		})
	}
}

// TestKernelSendLoopback proves that lo works as a sending device, by the next hop that Resolve finds: to ::1 always, to 127.0.0.1 and
// an own address where the namespace lets such packets in.
func TestKernelSendLoopback(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		for _, name := range []string{"accept_local", "route_localnet"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/lo/"+name, []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, addr := range []netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1"), p.Left.IPv4.Addr()} {
		t.Run(addr.String(), func(t *testing.T) {
			rx := p.Left.ListenUDP(netip.AddrPortFrom(addr, theirPort))
			p.Left.Do(func() {
				n, err := resolver(t).Resolve(context.Background(), xdp.Target{Addr: addr})
				if err != nil {
					t.Fatal(err)
				}
				d := open(t, xdp.DeviceConfig{Interface: n.Interface})
				s := socket(t, d, xdp.SocketConfig{})
				f := flow(t, netip.AddrPortFrom(n.Source, ourPort), netip.AddrPortFrom(addr, theirPort), n.SrcMAC[:], n.DstMAC[:], 0)
				if got := send(t, s, f, 50, numbered(30)); got.Sent != 50 {
					t.Fatalf("%+v", got)
				}
				_ = rx.SetReadDeadline(time.Now().Add(5 * time.Second))
				for range 50 {
					if _, err := rx.Read(make([]byte, 100)); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// TestKernelSparse proves that a single frame leaves at once and completes, without another behind it.
func TestKernelSparse(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s := socket(t, d, xdp.SocketConfig{})
		f := across(t, p, p.Left.IPv4, p.Right.IPv4, 0)
		for i := range uint64(20) {
			send(t, s, f, 1, numbered(18))
			for end := time.Now().Add(5 * time.Second); counter.Total().Frames != i+1; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("frame %d lies somewhere; %d arrived", i, counter.Total().Frames)
				}
			}
		}
	})
}

// TestKernelQueue proves that a socket on queue q of one end arrives on queue q of the other, and that two queues work at once.
func TestKernelQueue(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		f := across(t, p, p.Left.IPv4, p.Right.IPv4, 0)
		s0, s1 := socket(t, d, xdp.SocketConfig{Queue: 0}), socket(t, d, xdp.SocketConfig{Queue: 1})
		send(t, s0, f, 100, numbered(18))
		send(t, s1, f, 300, numbered(18))
	})
	if a, b := counter.Queue(0).Frames, counter.Queue(1).Frames; a != 100 || b != 300 {
		t.Fatalf("queue 0 got %d of 100, queue 1 got %d of 300", a, b)
	}
}

// TestKernelReceive proves that replies to our port come to the sockets, that everything else stays with the kernel, and that
// both directions at once keep every frame.
func TestKernelReceive(t *testing.T) {
	for _, c := range []struct {
		name string
		mode xdp.Mode
		want string
		six  bool
	}{
		{"native IPv4", xdp.Auto, "driver", false},
		{"native IPv6", xdp.Native, "driver", true},
		{"generic IPv4", xdp.Generic, "generic", false},
		{"generic IPv6", xdp.Generic, "generic", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, testnet.Config{Queues: 2})
			left, right := p.Left.IPv4, p.Right.IPv4
			if c.six {
				left, right = p.Left.IPv6, p.Right.IPv6
			}
			echo(t, p, right)
			other := p.Left.ListenUDP(netip.AddrPortFrom(left.Addr(), ourPort+1))
			p.Left.Do(func() {
				d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Mode: c.mode, Receive: true, Ports: []uint16{ourPort}})
				socks := []*xdp.Socket{socket(t, d, xdp.SocketConfig{Queue: 0, RxFrames: 256}), socket(t, d, xdp.SocketConfig{Queue: 1, RxFrames: 256})}
				if g := socks[0].Granted(); g.Program != c.want {
					t.Fatalf("granted %+v", g)
				}
				f := across(t, p, left, right, 0)
				const count = 1000
				seen := map[string]int{}
				for i := 0; i < count; i += 50 {
					send(t, socks[i/50%2], f, 50, func(k int, b []byte) int { return copy(b, fmt.Sprintf("reply %d", i+k)) })
					collect(t, socks, 50, func(frame []byte) {
						// The checksum of a packet from a local socket is unfinished: no network card was there to do it.
						d := decode(frame)
						if d == nil || d.port != ourPort {
							t.Errorf("received %x", frame)
							return
						}
						seen[string(d.payload)]++
					})
				}
				for i := range count {
					if n := seen[fmt.Sprintf("reply %d", i)]; n != 1 {
						t.Fatalf("reply %d came %d times", i, n)
					}
				}
				for _, s := range socks {
					if k, err := s.KernelStats(); err != nil || k != (xdp.KernelStats{TxRingEmpty: k.TxRingEmpty}) {
						t.Errorf("kernel counters %+v, %v", k, err)
					}
				}
				if r, err := d.Redirects(); err != nil || r != (xdp.Redirects{Redirected: count}) {
					t.Errorf("program counted %+v, %v", r, err)
				}
				// A packet to another port of ours belongs to the kernel.
				if _, err := other.WriteToUDPAddrPort([]byte("to the kernel"), netip.AddrPortFrom(right.Addr(), theirPort)); err != nil {
					t.Fatal(err)
				}
				_ = other.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := other.Read(make([]byte, 100)); err != nil {
					t.Fatalf("a packet to another port did not stay with the kernel: %v", err)
				}
			})
		})
	}
}

// echo answers on the right until the test ends.
func echo(t testing.TB, p *testnet.Pair, at netip.Prefix) {
	conn := p.Right.ListenUDP(netip.AddrPortFrom(at.Addr(), theirPort))
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
}

// collect receives count frames from some sockets, sleeping in Wait.
func collect(t testing.TB, socks []*xdp.Socket, count int, fn func([]byte)) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); count > 0; {
		for _, s := range socks {
			if _, err := s.Wait(time.Millisecond); err != nil {
				t.Fatal(err)
			}
			for _, frame := range s.Receive(64) {
				fn(frame)
				count--
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d replies never came", count)
		}
	}
	for _, s := range socks {
		s.Recycle()
	}
}

// attached reads which program is on an interface.
func attached(t testing.TB, h *testnet.Host) *netlink.LinkXdp {
	t.Helper()
	link, err := h.Netlink.LinkByName(h.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return x
	}
	return nil
}

// TestKernelCloseLeavesNothing proves that no program stays, that both orders of closing work, twice, and that a closed socket
// answers instead of crashing.
func TestKernelCloseLeavesNothing(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		for _, deviceFirst := range []bool{true, false} {
			d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{ourPort}})
			s := socket(t, d, xdp.SocketConfig{})
			if attached(t, p.Left) == nil {
				t.Fatal("no program although the device is open")
			}
			closers := []func() error{d.Close, s.Close, d.Close, s.Close}
			if !deviceFirst {
				closers = []func() error{s.Close, d.Close, s.Close, d.Close}
			}
			for i, c := range closers {
				if err := c(); err != nil {
					t.Fatalf("device first %v, close %d: %v", deviceFirst, i, err)
				}
			}
			if x := attached(t, p.Left); x != nil {
				t.Fatalf("program %d stayed", x.ProgId)
			}
			if n := len(s.Reserve(1)); n != 0 {
				t.Errorf("a closed socket has %d frames", n)
			}
			if _, err := s.Commit(0); err == nil {
				t.Error("a closed socket takes frames")
			}
			if _, err := s.Reap(); err == nil {
				t.Error("a closed socket reaps")
			}
			if s.Receive(1) != nil {
				t.Error("a closed socket receives")
			}
			if _, err := s.KernelStats(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestKernelForeignProgram proves that somebody else's program is reported by its id and left alone.
func TestKernelForeignProgram(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	for _, generic := range []bool{false, true} {
		counter := p.Left.Count(testnet.CountConfig{Action: testnet.Pass, Generic: generic})
		before := attached(t, p.Left)
		p.Left.Do(func() {
			_, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{1}})
			if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), fmt.Sprintf("id %d", before.ProgId)) ||
				!strings.Contains(err.Error(), "testnet_count") {
				t.Errorf("error does not name program %d: %v", before.ProgId, err)
			}
		})
		if after := attached(t, p.Left); after == nil || after.ProgId != before.ProgId {
			t.Errorf("the other program was touched: %+v", after)
		}
		counter.Detach()
	}
}
