package afxdp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/testnet"
)

// patience bounds waits that only something broken waits out.
const patience = 20 * time.Second

// worker is one opened share of the backend, driven as the engine does.
type worker struct {
	t        testing.TB
	s        backend.Sender
	r        backend.Receiver
	accepted uint64
	refused  [backend.NumCauses]uint64
	told     backend.Completions
	err      error // that ended it
}

// open opens a worker on the calling thread and closes it with the test.
func open(t testing.TB, fn backend.Open, cfg backend.Config) *worker {
	t.Helper()
	cfg.Now = clock.NewReal().Now
	s, r, err := fn(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, s: s, r: r}
	t.Cleanup(w.close)
	return w
}

func (w *worker) close() {
	if err := w.s.Close(); err != nil {
		w.t.Error(err)
	}
	if w.r != nil {
		if err := w.r.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// send offers n slots until each is accepted or refused, or the worker ends.
func (w *worker) send(n int, fill func(i int, slot *backend.Slot)) {
	w.t.Helper()
	for i, end := 0, time.Now().Add(patience); i < n && w.err == nil; w.reap() {
		if time.Now().After(end) {
			w.t.Fatalf("stuck at packet %d of %d: %+v", i, n, w.told)
		}
		i += w.offer(i, n, fill)
	}
}

// offer is one Reserve and Commit for slots i to n, and returns how many are dealt with.
func (w *worker) offer(i, n int, fill func(i int, slot *backend.Slot)) int {
	slots := w.s.Reserve(n - i)
	for k := range slots {
		fill(i+k, &slots[k])
	}
	accepted, err := w.s.Commit(len(slots))
	w.accepted += uint64(accepted)
	if cause, ok := err.(backend.Cause); ok {
		w.refused[cause]++
		return accepted + 1
	}
	w.err = err
	return accepted
}

func (w *worker) reap() {
	c := w.s.Reap()
	w.told.Sent += c.Sent
	w.told.Dropped += c.Dropped
	for i, n := range c.Refused {
		w.told.Refused[i] += n
	}
	for i, n := range c.Events {
		w.told.Events[i] += n
	}
}

// settle waits until the fate of every accepted slot is known.
func (w *worker) settle() {
	w.t.Helper()
	for end := time.Now().Add(patience); w.fates() < w.accepted; w.reap() {
		if time.Now().After(end) {
			break
		}
	}
	if w.fates() != w.accepted {
		w.t.Fatalf("accepted %d, and was told of %d: %+v", w.accepted, w.fates(), w.told)
	}
}

func (w *worker) fates() uint64 {
	n := w.told.Sent + w.told.Dropped
	for _, k := range w.told.Refused {
		n += k
	}
	return n
}

// poll gathers n replies as copies.
func (w *worker) poll(n int) []backend.Packet {
	w.t.Helper()
	var got []backend.Packet
	for end := time.Now().Add(patience); len(got) < n; w.reap() {
		_, err := w.r.Poll(20*time.Millisecond, func(p *backend.Packet) {
			c := *p
			c.Payload = append([]byte(nil), p.Payload...)
			got = append(got, c)
		})
		if err != nil || time.Now().After(end) {
			w.t.Fatalf("%d of %d replies came: %v", len(got), n, err)
		}
	}
	return got
}

// numbered fills slots with their number, going round flows.
func numbered(flows int) func(i int, slot *backend.Slot) {
	return func(i int, slot *backend.Slot) {
		slot.Flow, slot.Len = i%flows, len(slot.Payload)
		if slot.Len >= 8 {
			binary.BigEndian.PutUint64(slot.Payload, uint64(i))
		}
	}
}

// do runs fn at the left end, on a thread of its own.
func do(p *testnet.Pair, fn func()) {
	p.Left.Do(func() {
		runtime.LockOSThread() // Do has done so; said again for the reader
		fn()
	})
}

// sink is an ordinary socket at the right end.
func sink(t testing.TB, p *testnet.Pair, addr netip.Addr) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c := p.Right.ListenUDP(netip.AddrPortFrom(addr, 0))
	if err := c.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	a := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return c, netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// capture is an AF_PACKET socket at the right end.
func capture(t testing.TB, h *testnet.Host) int {
	t.Helper()
	fd := -1
	h.Do(func() {
		var err error
		const all = 0x0300 // ETH_P_ALL in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: h.Index}); err != nil {
			t.Fatal(err)
		}
		// The kernel takes VLAN tags out of the frame; with auxdata it says which.
		for _, o := range []struct{ level, name, value int }{
			{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1}, {unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20},
		} {
			if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
			t.Fatal(err)
		}
	})
	return fd
}

// seen is one captured UDP packet, taken apart by gopacket, which shares no code with blast.
type seen struct {
	srcMAC, dstMAC  string
	vlan            int // -1 for none
	src, dst        netip.AddrPort
	payload, behind []byte // behind is the padding
}

// next waits for the next UDP packet to port and checks its checksums.
func next(t testing.TB, fd int, port uint16) seen {
	t.Helper()
	buf, oob := make([]byte, 1<<14), make([]byte, 256)
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, 0)
		if err != nil {
			t.Fatalf("capture: %v", err)
		}
		frame := append([]byte(nil), buf[:n]...)
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		udp, ok := p.TransportLayer().(*layers.UDP)
		if !ok || uint16(udp.DstPort) != port {
			continue
		}
		s := seen{vlan: tag(t, oob[:oobn]), payload: udp.Payload}
		eth := p.LinkLayer().(*layers.Ethernet)
		s.srcMAC, s.dstMAC = eth.SrcMAC.String(), eth.DstMAC.String()
		src, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		dst, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
		s.src, s.dst = netip.AddrPortFrom(src, uint16(udp.SrcPort)), netip.AddrPortFrom(dst, uint16(udp.DstPort))
		if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		if err, mismatches := p.VerifyChecksums(); err != nil || len(mismatches) > 0 {
			t.Fatalf("checksums of %d bytes % x...: %v, %v", len(frame), frame[:min(len(frame), 62)], mismatches, err)
		}
		if udp.Checksum == 0 {
			t.Fatalf("no checksum: % x", frame)
		}
		headers := 14 + len(p.NetworkLayer().LayerContents()) + 8
		s.behind = frame[headers+len(udp.Payload):]
		return s
	}
}

// tag finds the VLAN in the auxiliary data: struct tpacket_auxdata, status at 0, vlan_tci at 16.
func tag(t testing.TB, oob []byte) int {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if m.Header.Type == unix.PACKET_AUXDATA && binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
			return int(binary.NativeEndian.Uint16(m.Data[16:]))
		}
	}
	return -1
}

// unrationed lets the calling thread's namespace send as many ICMP errors as there are reasons for.
func unrationed(t testing.TB) {
	t.Helper()
	for name, value := range map[string]string{"ipv4/icmp_ratemask": "0", "ipv6/icmp/ratelimit": "0"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
}
