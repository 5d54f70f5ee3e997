package backendtest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// window is how many payloads of a size may lie unread in a sink, so that even a default socket buffer loses nothing: a small packet
// takes up to a kilobyte of it, a big one a page more than its size.
func window(payload int) int { return min(48, max(1, 100_000/(payload+1000))) }

// sink is an ordinary socket that packets are sent to. It is read by the test itself: no goroutine, no race, nothing lost.
type sink struct {
	t    *testing.T
	conn *net.UDPConn
	addr netip.AddrPort
	buf  []byte
}

// arrival is one packet at a sink.
type arrival struct {
	from    netip.AddrPort
	payload []byte
}

func listen(t *testing.T, h *Harness, addr netip.AddrPort) *sink {
	t.Helper()
	c, err := h.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	s := &sink{t: t, conn: c, addr: netip.AddrPortFrom(local.Addr().Unmap(), local.Port()), buf: make([]byte, 1<<16)}
	s.control(func(fd int) {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20) // as much as the sysctl allows; the window copes
		}
	})
	return s
}

func (s *sink) control(fn func(fd int)) {
	s.t.Helper()
	raw, err := s.conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { fn(int(fd)) })
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// next waits for a packet and returns false when none comes within d.
func (s *sink) next(d time.Duration) (arrival, bool) {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		s.t.Fatal(err)
	}
	n, from, err := s.conn.ReadFromUDPAddrPort(s.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return arrival{}, false
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return arrival{from: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), payload: append([]byte(nil), s.buf[:n]...)}, true
}

// take waits for n packets.
func (s *sink) take(n int) []arrival {
	s.t.Helper()
	got := make([]arrival, 0, n)
	for len(got) < n {
		a, ok := s.next(patience)
		if !ok {
			s.t.Fatalf("sink %v: %d of %d packets arrived", s.addr, len(got), n)
		}
		got = append(got, a)
	}
	return got
}

// quiet fails the test when a packet comes that nobody sent, or that came before.
func (s *sink) quiet() {
	s.t.Helper()
	if a, ok := s.next(20 * time.Millisecond); ok {
		s.t.Fatalf("sink %v: one packet of %d bytes too many, from %v", s.addr, len(a.payload), a.from)
	}
}

// drops is what the sink's own buffer lost.
func (s *sink) drops() (n uint32) {
	s.t.Helper()
	s.control(func(fd int) {
		var err error
		if n, err = sys.SocketDrops(fd); err != nil {
			s.t.Fatal(err)
		}
	})
	return n
}

// reply sends a payload back.
func (s *sink) reply(payload []byte, to netip.AddrPort) {
	s.t.Helper()
	if _, err := s.conn.WriteToUDPAddrPort(payload, to); err != nil {
		s.t.Fatal(err)
	}
}
