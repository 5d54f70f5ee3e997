//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"blast/internal/testskip"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name))
	}
	goleak.VerifyTestMain(m)
}

// testRing makes a ring on the test's own thread and closes it there.
func testRing(t testing.TB, cfg Config, setup setupFunc) *Ring {
	t.Helper()
	testskip.IOUring(t, Probe())
	runtime.LockOSThread()
	r, err := newRing(cfg, setup)
	if err != nil {
		runtime.UnlockOSThread()
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs on the test's goroutine, which is still locked
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	return r
}

func submitAndWait(t testing.TB, r *Ring, want int) {
	t.Helper()
	if _, err := r.SubmitAndWait(want, 5*time.Second); err != nil {
		t.Fatalf("waiting for %d completions, %d are there: %v", want, r.Ready(), err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10s for %s", what)
		}
	}
}

func openFDs(t testing.TB) []string {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(to, "/proc/") {
			out = append(out, e.Name()+" "+to)
		}
	}
	return out
}

// udpPair is two connected loopback sockets; the second is plain, with a read deadline.
func udpPair(t testing.TB) (fd int, peer *net.UDPConn) {
	t.Helper()
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	_ = peer.SetReadBuffer(4 << 20)
	if err := peer.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: peer.LocalAddr().(*net.UDPAddr).Port}); err != nil {
		t.Fatal(err)
	}
	return fd, peer
}

func local(t testing.TB, fd int) netip.AddrPort {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := sa.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}
