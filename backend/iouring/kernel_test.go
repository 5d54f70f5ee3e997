package iouring

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/internal/testskip"
)

// absent is an address of the pair's network that nobody has: packets to it stay in the socket's accounts until the neighbour appears.
var absent = netip.MustParseAddr("10.83.0.99")

// The bound on what a packet takes up in a send buffer holds: free sending within half a buffer rests on it.
func TestKernelWeight(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{MTU: 9000})
	p.Left.Do(func() {
		own(t)
		for _, gso := range []int{1, 8} {
			for _, size := range []int{0, 1, 18, 64, 100, 190, 200, 440, 500, 700, 1000, 1400, 1472, 2000, 3000, 4000, 8000, 8972} {
				if gso*size > 60000 || gso > 1 && size == 0 {
					continue
				}
				s, _ := must(t, backend.Config{Flows: []backend.Flow{{Dst: netip.AddrPortFrom(absent, 9)}}, PayloadBytes: size, GSO: gso, SendBuffer: 4 << 20})
				slots := s.Reserve(gso)
				for i := range slots {
					slots[i].Len = size
				}
				if n, err := s.Commit(gso); n != gso || err != nil {
					t.Fatal(n, err)
				}
				charged, err := unix.IoctlGetInt(s.(*Sender).socks.FDs[0], unix.SIOCOUTQ)
				if err != nil {
					t.Fatal(err)
				}
				if bound := weight(size * gso); charged <= 0 || charged > bound {
					t.Errorf("%d x %d bytes are charged as %d, bound %d", gso, size, charged, bound)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Two flows take turns in one Commit, and one of them is stuck: the other goes on as far as the contract allows, nothing of the stuck one
// is lost, repeated or overtaken, and Commit does not take more of it while packets are held.
func TestKernelStuckFlow(t *testing.T) {
	for _, sqpoll := range []bool{false, true} {
		p := testnet.NewPair(t, testnet.Config{})
		p.Left.Do(func() { stuckFlow(t, p, sqpoll) })
	}
}

func stuckFlow(t *testing.T, p *testnet.Pair, sqpoll bool) {
	own(t)
	var conn *net.UDPConn
	var err error
	p.Right.Do(func() { conn, err = net.ListenUDP("udp4", &net.UDPAddr{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	s, _ := must(t, backend.Config{
		Flows:        []backend.Flow{{Dst: netip.AddrPortFrom(absent, port)}, {Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), port)}},
		PayloadBytes: 16, SendBuffer: 1, SQPoll: sqpoll,
	})
	defer s.Close()
	const packets = 200 // they fit into the default receive buffer
	put := func(slot *backend.Slot, i int) {
		slot.Flow, slot.Len = i%2, 16
		binary.BigEndian.PutUint64(slot.Payload, uint64(i%2))
		binary.BigEndian.PutUint64(slot.Payload[8:], uint64(i/2))
	}
	sent, told := 0, backend.Completions{}
	add := func(c backend.Completions) {
		told.Sent += c.Sent
		for _, n := range c.Refused {
			told.Dropped += n
		}
		told.Events[backend.EventPushback] += c.Events[backend.EventPushback]
	}
	send := func() (accepted int) {
		slots := s.Reserve(packets - sent)
		for i := range slots {
			put(&slots[i], sent+i)
		}
		n, err := s.Commit(len(slots))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		add(s.Reap())
		return n
	}
	for deadline := time.Now().Add(20 * time.Second); told.Events[backend.EventPushback] == 0; {
		if send(); time.Now().After(deadline) {
			t.Fatal("the stuck flow was never pushed back")
		}
	}
	for range 50 {
		send()
	}
	if stuck := sent; stuck == packets {
		t.Fatalf("%d packets went into the smallest send buffer", stuck)
	}
	link, err := p.Right.Netlink.LinkByName(p.Right.Interface)
	if err == nil {
		err = p.Right.Netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: absent.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); sent < packets || told.Sent < packets; {
		send()
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d accepted, told %+v", sent, packets, told)
		}
	}
	if told.Sent != packets || told.Dropped != 0 {
		t.Fatalf("told %+v", told)
	}
	var seen [2][packets / 2]bool
	buf := make([]byte, 64)
	next := uint64(0)
	for range packets {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
		flow, n := binary.BigEndian.Uint64(buf), binary.BigEndian.Uint64(buf[8:])
		if seen[flow][n] {
			t.Fatalf("packet %d of flow %d twice", n, flow)
		}
		seen[flow][n] = true
		// The stuck flow's may come in any order: the kernel lets new packets pass while it sends the waiting ones (__neigh_update).
		if flow == 1 {
			if n != next {
				t.Fatalf("packet %d of the free flow where %d was next", n, next)
			}
			next++
		}
	}
}

// What stays stuck is not kept for ever: within a second every accepted packet has its fate.
func TestKernelGivesUp(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		own(t)
		s, _ := must(t, backend.Config{
			Flows:        []backend.Flow{{Dst: netip.AddrPortFrom(absent, 9)}, {Dst: netip.AddrPortFrom(p.Right.IPv4.Addr(), 9)}},
			PayloadBytes: 16, SendBuffer: 1,
		})
		defer s.Close()
		accepted, sum := uint64(0), backend.Completions{}
		for deadline := time.Now().Add(20 * time.Second); len(s.(*Sender).held) == 0; {
			slots := s.Reserve(16)
			for i := range slots {
				slots[i].Flow, slots[i].Len = i%2, 16
			}
			n, err := s.Commit(len(slots))
			if err != nil || time.Now().After(deadline) {
				t.Fatal(n, err)
			}
			accepted += uint64(n)
			c := s.Reap()
			sum.Sent += c.Sent
		}
		begun, full := time.Now(), uint64(0)
		for sum.Sent+full < accepted {
			c := s.Reap()
			sum.Sent += c.Sent
			full += c.Refused[backend.CauseFull]
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%d of %d told", sum.Sent+full, accepted)
			}
		}
		if full == 0 || time.Since(begun) < time.Duration(holdMost)/2 {
			t.Errorf("%d refused as full after %v", full, time.Since(begun))
		}
	})
}

// Without the capability and over the limit, zero copy is refused with both numbers; with the capability there is no limit.
func TestKernelMemlock(t *testing.T) {
	testskip.Root(t)
	own(t)
	for _, mode := range []string{"without", "with"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemlockChild$", "-test.v")
		cmd.Env = append(os.Environ(), memlockEnv+"="+mode)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "judged") {
			t.Errorf("%s CAP_IPC_LOCK: %v\n%s", mode, err, out)
		}
	}
}

const memlockEnv = "BLAST_TEST_MEMLOCK"

// TestMemlockChild is a part of TestKernelMemlock: it lowers a limit that cannot be raised again.
func TestMemlockChild(t *testing.T) {
	mode := os.Getenv(memlockEnv)
	if mode == "" {
		return // not in that process
	}
	own(t)
	lim := unix.Rlimit{Cur: 512 << 10, Max: 512 << 10} // room for the queues, which count as well
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		t.Fatal(err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		t.Fatal(err)
	}
	if mode == "without" {
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := unix.Capset(&hdr, &caps[0]); err != nil {
			t.Fatal(err)
		}
	}
	_, to := socket(t)
	s, _, err := Open(backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 4000, ZeroCopy: true})
	t.Log("judged")
	if mode == "with" {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("opened, or %v", err)
	}
	for _, w := range []string{"4096000 bytes", "524288", "RLIMIT_MEMLOCK", "CAP_IPC_LOCK is missing", "ulimit -l 4000"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	// The kernel thread needs no privilege since 5.13.
	s, _ = must(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 8, SQPoll: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ten thousand sockets, or as many as files may be open, send and receive; what one costs in memory is told.
func TestKernelTenThousandSockets(t *testing.T) {
	own(t)
	const batch = 500
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	sockets := int(min(10_000, lim.Cur*9/10)) / batch * batch
	conn, to := socket(t)
	list := make([]backend.Flow, sockets)
	for i := range list {
		list[i].Dst = to
	}
	before, slab := resident(t), unreclaimable(t)
	s, r := must(t, backend.Config{Flows: list, PayloadBytes: 16, Batch: batch, Receive: true, ReceiveBuffer: 1 << 16, Now: sys.Monotonic})
	if _, err := r.Poll(0, func(*backend.Packet) {}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sockets: each costs %d bytes of the process and about %d bytes of the kernel, sending and receiving",
		sockets, (resident(t)-before)/sockets, (unreclaimable(t)-slab)/sockets)
	seen := make([]bool, sockets)
	buf := make([]byte, 64)
	for at := 0; at < sockets; at += batch {
		slots := s.Reserve(batch)
		for i := range slots {
			slots[i].Flow, slots[i].Len = at+i, 16
			binary.BigEndian.PutUint64(slots[i].Payload, uint64(at+i))
		}
		if n, err := s.Commit(len(slots)); n != batch || err != nil {
			t.Fatalf("commit: %d, %v", n, err)
		}
		settle(t, s, batch)
		for range batch {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.WriteToUDPAddrPort(buf[:n], from); err != nil {
				t.Fatal(err)
			}
		}
		for got := 0; got < batch; {
			n, err := r.Poll(time.Second, func(p *backend.Packet) {
				if number := binary.BigEndian.Uint64(p.Payload); number != uint64(p.Flow) || seen[p.Flow] {
					t.Errorf("the reply to packet %d came to flow %d", number, p.Flow)
				}
				seen[p.Flow] = true
			})
			if err != nil || n == 0 {
				t.Fatalf("%d of %d replies: %v", got, batch, err)
			}
			got += n
		}
	}
	if err := errors.Join(s.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// resident is VmRSS in bytes.
func resident(t *testing.T) int { return memory(t, "/proc/self/status", "VmRSS:") }

// unreclaimable is the memory that the kernel itself uses, in bytes.
func unreclaimable(t *testing.T) int { return memory(t, "/proc/meminfo", "SUnreclaim:") }

func memory(t *testing.T, path, key string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			kib := 0
			for _, d := range f[1] {
				kib = kib*10 + int(d-'0')
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in %s", key, path)
	return 0
}
