package mmsg

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
)

// listen opens a socket on loopback to send to.
func listen(t *testing.T) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	a := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return c, netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func openSender(t *testing.T, cfg backend.Config) *Sender {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	s, _, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*Sender)
}

// fill reserves one slot per length and puts its number into the first byte.
func fill(s *Sender, flow int, lengths ...int) int {
	slots := s.Reserve(len(lengths))
	for i := range slots {
		slots[i].Len, slots[i].Flow = lengths[i], flow
		if lengths[i] > 0 {
			slots[i].Payload[0] = byte(i)
		}
	}
	return len(slots)
}

// The layout that the kernel gets: how many messages, in how many pieces of memory, with which segment size.
func TestBuild(t *testing.T) {
	_, to := listen(t)
	for _, c := range []struct {
		about   string
		gso     int
		lengths []int
		want    []string // per message: segments x size, pieces of memory
	}{
		{"without trains: a message a slot", 0, []int{8, 8, 0}, []string{"1x8 1", "1x8 1", "1x0 1"}},
		{"full slots touch: one piece", 8, []int{10, 10, 10}, []string{"3x10 1"}},
		{"a shorter last one touches too", 8, []int{10, 10, 4}, []string{"3x10 1"}},
		{"half-filled slots do not touch: a piece each", 8, []int{5, 5, 5}, []string{"3x5 3"}},
		{"a longer one begins a new train", 8, []int{5, 5, 6, 6}, []string{"2x5 2", "2x6 2"}},
		{"after a shorter one nothing follows", 8, []int{5, 4, 4}, []string{"2x5 2", "1x4 1"}},
		{"empty packets ride alone", 8, []int{0, 0, 5, 0}, []string{"1x0 1", "1x0 1", "1x5 1", "1x0 1"}},
		{"no longer than asked for", 2, []int{10, 10, 10, 10, 10}, []string{"2x10 1", "2x10 1", "1x10 1"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			s := openSender(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 10, GSO: c.gso})
			n := s.build(0, fill(s, 0, c.lengths...), 0)
			if n != len(c.want) {
				t.Fatalf("%d messages, want %d", n, len(c.want))
			}
			for m := range n {
				h := &s.msgs[m].Hdr
				segments, size := s.first[m+1]-s.first[m], s.slots[s.first[m]].Len
				if train := h.Control != nil; train != (segments > 1) {
					t.Errorf("message %d: %d segments, and a control message: %v", m, segments, train)
				}
				if got := describe(segments, size, int(h.Iovlen)); got != c.want[m] {
					t.Errorf("message %d: %s, want %s", m, got, c.want[m])
				}
			}
			if s.first[n] != len(c.lengths) {
				t.Errorf("%d slots laid out, want %d", s.first[n], len(c.lengths))
			}
		})
	}
}

func describe(segments, size, pieces int) string {
	digits := func(n int) string { return strings.TrimLeft(string([]byte{byte('0' + n/10), byte('0' + n%10)}), "0") }
	zero := func(s string) string {
		if s == "" {
			return "0"
		}
		return s
	}
	return zero(digits(segments)) + "x" + zero(digits(size)) + " " + zero(digits(pieces))
}

// A socket that may not make checksums cannot send trains (udp_send_skb: EINVAL). It stands for a device that cannot.
func TestTrainsTurnedOff(t *testing.T) {
	sinks := [2]*net.UDPConn{}
	flows := make([]backend.Flow, 2)
	for i := range flows {
		sinks[i], flows[i].Dst = listen(t)
	}
	s := openSender(t, backend.Config{Flows: flows, PayloadBytes: 10, GSO: 16})
	if err := unix.SetsockoptInt(s.socks.FDs[0], unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	before := len(s.Limits().Notes)
	for flow, sink := range sinks {
		n := fill(s, flow, 10, 10, 10, 10, 3)
		if accepted, err := s.Commit(n); accepted != n || err != nil {
			t.Fatalf("flow %d: %d of %d accepted, %v", flow, accepted, n, err)
		}
		buf := make([]byte, 100)
		for i, want := range []int{10, 10, 10, 10, 3} {
			if err := sink.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			got, err := sink.Read(buf)
			if err != nil || got != want || buf[0] != byte(i) {
				t.Fatalf("flow %d, packet %d: %d bytes, number %d, %v", flow, i, got, buf[0], err)
			}
		}
		if err := sink.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := sink.Read(buf); err == nil {
			t.Fatalf("flow %d: a packet of %d bytes too many", flow, n)
		}
	}
	notes := s.Limits().Notes[before:]
	if len(notes) != 1 || !strings.Contains(notes[0], "turned off on the way for 1 of 2 flows, first for flow 0: invalid argument") {
		t.Fatalf("notes %q", notes)
	}
	if c := s.Reap(); c != (backend.Completions{}) {
		t.Fatalf("learned %+v: the retry is nobody's business", c)
	}
}

// More segments than every kernel takes are probed for; more than any kernel or datagram takes are cut down. Neither silently.
func TestTrainsGranted(t *testing.T) {
	_, to := listen(t)
	for _, c := range []struct {
		about        string
		asked, bytes int
		least, most  int
		note         string
	}{
		{"what every kernel takes", 64, 18, 64, 64, ""},
		{"more: as the kernel says", 128, 18, 64, 128, ""},
		{"more than any kernel takes", 5000, 1, 64, 4999, "too many for this kernel"},
		{"more than a datagram holds", 64, 1472, 44, 44, "44 fit"},
		{"one does not make a train", 64, 40000, 1, 1, "1 fit"},
	} {
		s := openSender(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: c.bytes, GSO: c.asked})
		l := s.Limits()
		if l.GSO < c.least || l.GSO > c.most {
			t.Errorf("%s: granted %d, want %d to %d", c.about, l.GSO, c.least, c.most)
		}
		if !strings.Contains(strings.Join(l.Notes, "\n"), c.note) {
			t.Errorf("%s: notes %q do not say %q", c.about, l.Notes, c.note)
		}
		n := len(s.Reserve(l.GSO))
		for i := range s.slots[:n] {
			s.slots[i].Len = c.bytes
		}
		if accepted, err := s.Commit(n); accepted != n || err != nil {
			t.Errorf("%s: %d of %d accepted, %v", c.about, accepted, n, err)
		}
		if notes := s.trains.Notes(); notes != nil {
			t.Errorf("%s: granted and then refused: %q", c.about, notes)
		}
	}
}

// Two blasts face each other: what one sends as a train reaches the other as an aggregate, and comes out as the packets it was.
func TestAggregatesSplit(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a, b := netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("127.0.0.1:0")
	for _, p := range []*netip.AddrPort{&a, &b} {
		c, addr := listen(t)
		*p = addr
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	left := openSender(t, backend.Config{Flows: []backend.Flow{{Src: a, Dst: b}}, PayloadBytes: 100, GSO: 32})
	closer, r, err := Open(backend.Config{Flows: []backend.Flow{{Src: b, Dst: a}}, PayloadBytes: 100, Receive: true, GRO: true, Now: clock.NewReal().Now})
	if err != nil {
		t.Fatal(err)
	}
	lengths := []int{100, 100, 100, 50, 70, 70, 7, 0, 20}
	n := fill(left, 0, lengths...)
	if accepted, err := left.Commit(n); accepted != n || err != nil {
		t.Fatal(accepted, err)
	}
	seen, calls := 0, 0
	for deadline := time.Now().Add(10 * time.Second); seen < n; calls++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d packets came", seen, n)
		}
		_, err := r.Poll(50*time.Millisecond, func(p *backend.Packet) {
			if len(p.Payload) != lengths[seen] || len(p.Payload) > 0 && p.Payload[0] != byte(seen) || p.Source != a {
				t.Errorf("packet %d: %d bytes from %v, want %d from %v", seen, len(p.Payload), p.Source, lengths[seen], a)
			}
			seen++
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{closer.Close(), r.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
}
