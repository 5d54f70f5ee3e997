package udpsock

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"blast/backend"
)

func TestExplain(t *testing.T) {
	cfg := &backend.Config{Flows: []backend.Flow{
		{Dst: netip.MustParseAddrPort("192.0.2.1:7")},
		{Src: netip.MustParseAddrPort("192.0.2.9:4000"), Dst: netip.MustParseAddrPort("192.0.2.1:7")},
	}}
	for _, c := range []struct {
		flow  int
		errno syscall.Errno
		want  string
	}{
		{1, unix.EADDRNOTAVAIL, "source address 192.0.2.9 is not an address of this host"},
		{1, unix.EADDRINUSE, "source port 4000 is in use"},
		{0, unix.EADDRINUSE, "no free source port"},
		{0, unix.EAGAIN, "no free source port"},
		{0, unix.ENETUNREACH, "no route to 192.0.2.1"},
		{0, unix.EHOSTUNREACH, "no route to 192.0.2.1"},
		{0, unix.EMFILE, "2 flows of this worker need about 66"},
		{0, unix.ENFILE, "fs.file-max"},
		{1, unix.EACCES, "flow 1, 192.0.2.9:4000 to 192.0.2.1:7"},
	} {
		err := Explain(cfg, c.flow, &net.OpError{Op: "dial", Err: c.errno})
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %q does not say %q", c.errno, err, c.want)
		}
	}
}

// What reaches a socket after it is bound and before it is connected may come from anybody. No reply may be taken for it.
func TestInspectEmpties(t *testing.T) {
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	cfg := &backend.Config{Flows: []backend.Flow{{
		Src: netip.MustParseAddrPort("127.0.0.1:0"), Dst: peer.LocalAddr().(*net.UDPAddr).AddrPort()}}}
	plan := NewPlan(cfg)
	fd, err := Connect(cfg.Flows[0], func(fd int) error { return plan.Prepare(fd, 0) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	local, err := localAddr(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // from the peer, as the socket is connected by now: Inspect cannot tell them from earlier ones
		if _, err := peer.WriteToUDPAddrPort([]byte{1}, local); err != nil {
			t.Fatal(err)
		}
	}
	if err := plan.Inspect(fd, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, make([]byte, 8)); err != unix.EAGAIN {
		t.Fatalf("%d bytes, %v: the socket was not emptied", n, err)
	}
}

// The table is that of a little-endian machine, as amd64 and arm64 are.
func TestTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  207: 0100007F:9C41 0200007F:0007 01 00000000:00000000 00:00000000 00000000     0        0 10131 2 0000000000000000 0
  208: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 10132 2 0000000000000000 0
  209: B80D0120000000000000000001000000:1F90 B80D0120000000000000000002000000:0050 01 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0
  210: 0000000000000000FFFF00000100007F:0001 0000000000000000FFFF00000200007F:0002 01 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0
`
	got := make(map[backend.Flow]bool)
	if err := readTable(strings.NewReader(table), got); err != nil {
		t.Fatal(err)
	}
	want := map[backend.Flow]bool{}
	for _, f := range [][2]string{{"127.0.0.1:40001", "127.0.0.2:7"}, {"[2001:db8::1]:8080", "[2001:db8::2]:80"}, {"127.0.0.1:1", "127.0.0.2:2"}} {
		want[backend.Flow{Src: netip.MustParseAddrPort(f[0]), Dst: netip.MustParseAddrPort(f[1])}] = true
	}
	if !maps.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	for _, line := range []string{"1: 0100007F:9C41 zz:1", "1: 01:1 0100007F:0001", "1: 0100007F:123456 0100007F:0001", "1: 0100007F 0100007F:0001"} {
		if err := readTable(strings.NewReader("head\n"+line+"\n"), got); err == nil {
			t.Errorf("%q was understood", line)
		}
	}
}

// Without CAP_NET_ADMIN the sysctl limits count, and the report says what was granted.
func TestBufferNotes(t *testing.T) {
	done := make(chan error, 1)
	var limits backend.Limits
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread without capabilities ends with the goroutine
		done <- func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			cfg := &backend.Config{SendBuffer: 1 << 30, ReceiveBuffer: 1 << 30,
				Flows: []backend.Flow{{Dst: netip.MustParseAddrPort("127.0.0.1:9")}}}
			plan, socks := NewPlan(cfg), &Sockets{}
			err := socks.Open(cfg, plan)
			limits = plan.Limits()
			return errors.Join(err, socks.Release())
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(limits.Notes, "\n"); !strings.Contains(notes, "net.core.wmem_max") || !strings.Contains(notes, "net.core.rmem_max") {
		t.Fatalf("asked for 1 GiB each, granted %d and %d, notes %q", limits.SendBuffer, limits.ReceiveBuffer, limits.Notes)
	}
}
