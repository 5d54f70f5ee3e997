package udpsock

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
)

// asker is a Sender's view of a few sockets that ask for stamps. named chooses who numbers the packets.
type asker struct {
	t      *testing.T
	fds    []int
	sink   func() // closes it
	stamps *Stamps
}

func newAsker(t *testing.T, sockets int, named bool) *asker {
	t.Helper()
	a := &asker{t: t}
	sink, err := openSocketPair()
	if err != nil {
		t.Fatal(err)
	}
	a.sink = sync.OnceFunc(sink.close)
	t.Cleanup(a.sink)
	to, err := localAddr(sink.to)
	if err != nil {
		t.Fatal(err)
	}
	for range sockets {
		fd, err := Connect(backend.Flow{Dst: netip.AddrPortFrom(to.Addr(), to.Port())}, func(int) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		a.fds = append(a.fds, fd)
	}
	var limits backend.Limits
	cfg := &backend.Config{Stamps: true, Now: clock.NewReal().Now}
	if a.stamps = OpenStamps(cfg, a.fds, &limits, 1); a.stamps == nil {
		t.Fatal(limits.Notes)
	}
	t.Cleanup(func() {
		if err := a.stamps.Close(); err != nil {
			t.Error(err)
		}
	})
	a.stamps.named = a.stamps.named && named
	return a
}

// send sends one packet on a flow; an id asks for its stamps.
func (a *asker) send(flow int, id uint32) {
	a.t.Helper()
	slot := backend.Slot{Flow: flow, Stamp: id}
	iov := unix.Iovec{}
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: &iov}
	msgs[0].Hdr.SetIovlen(1)
	wants, fd := a.stamps.Wants(&slot), a.fds[flow]
	if wants {
		a.stamps.Address(&msgs[0].Hdr, 0, &slot)
		fd = a.stamps.Twins()[flow]
	}
	if n, errno := sys.Sendmmsg(fd, msgs); n != 1 {
		a.t.Fatal(errno)
	}
	if wants {
		a.stamps.Sent(&slot)
	}
}

// ids takes stamps until there are n packets with both, and returns those that came.
func (a *asker) ids(n int) map[uint32]int {
	got := map[uint32]int{}
	var buf [16]backend.Stamp
	for give := time.Now().Add(5 * time.Second); time.Now().Before(give); {
		a.stamps.Round()
		for _, s := range buf[:a.stamps.Take(buf[:])] {
			got[s.ID] |= 1 << s.Kind
		}
		whole := 0
		for _, kinds := range got {
			if kinds == 3 {
				whole++
			}
		}
		if whole >= n {
			break
		}
	}
	return got
}

// Stamps come back under the ids that were asked for, whether the kernel takes them (6.13) or counts the packets of each socket itself.
func TestStampIDs(t *testing.T) {
	for _, named := range []bool{true, false} {
		a := newAsker(t, 3, named)
		id, want := uint32(0), 0
		for i := range 300 {
			ask := uint32(0)
			if i%4 != 0 {
				id++
				ask = 1000 + id*7
				want++
			}
			a.send(i%3, ask)
			if i%20 == 19 {
				got := a.ids(want)
				for k := range want {
					if kinds := got[1000+(id-uint32(k))*7]; kinds != 3 {
						t.Fatalf("named %v: packet %d of %v has kinds %b", named, i-k, got, kinds)
					}
				}
				if len(got) != want {
					t.Fatalf("named %v: stamps of %d packets, %d asked", named, len(got), want)
				}
				want = 0
			}
		}
	}
}

// Where the kernel counts, a packet that it refused may have been counted or not: its flow asks no more, the others do.
func TestStampCountLost(t *testing.T) {
	a := newAsker(t, 2, false)
	a.stamps.Refused(&backend.Slot{Flow: 1, Stamp: 5})
	if a.stamps.Wants(&backend.Slot{Flow: 1, Stamp: 6}) || !a.stamps.Wants(&backend.Slot{Flow: 0, Stamp: 6}) {
		t.Error("want no more from flow 1, and go on with flow 0")
	}
	a = newAsker(t, 2, true)
	a.stamps.Refused(&backend.Slot{Flow: 1, Stamp: 5})
	if !a.stamps.Wants(&backend.Slot{Flow: 1, Stamp: 6}) {
		t.Error("with our own ids a refusal costs nothing")
	}
}

// Where a twin is not to be had there are no stamps and a note with the cause; what was opened is closed, and the flows' sockets are as before.
func TestStampsNotToBeHad(t *testing.T) {
	a := newAsker(t, 3, true)
	if err := a.stamps.Close(); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(a.fds[0]) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	cfg, granted := &backend.Config{Stamps: true, Receive: true, Now: clock.NewReal().Now}, backend.Limits{}
	tight := unix.Rlimit{Cur: uint64(free) + 1, Max: limit.Max} // room for one twin
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	s := OpenStamps(cfg, a.fds, &granted, 1)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if s != nil || cfg.Stamps || granted.Stamps != 0 {
		t.Fatalf("stamps %v, wanted %v, granted %b without a twin for each flow", s, cfg.Stamps, granted.Stamps)
	}
	if want := []string{"stamps: none: a second socket of a flow: socket: too many open files"}; !slices.Equal(granted.Notes, want) {
		t.Errorf("notes %q, want %q", granted.Notes, want)
	}
	again, err := unix.Dup(a.fds[0])
	if err != nil || again != free {
		t.Errorf("descriptor %d is free, %v: want %d, as before", again, err, free)
	}
	unix.Close(again)
	for _, fd := range a.fds {
		if flags, err := getInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, "SO_TIMESTAMPING"); flags != 0 || err != nil {
			t.Errorf("a flow's socket is left with SO_TIMESTAMPING %#x, %v", flags, err)
		}
	}
	if n := s.Take(make([]backend.Stamp, 4)); n != 0 || s.Twins() != nil || s.Wants(&backend.Slot{Stamp: 1}) || s.ClockError() != 0 || s.ArrivalClock() != nil || s.Close() != nil {
		t.Error("no stamps are not nothing")
	}
	s.Round()
}

// A packet by a twin comes from the flow's own address and port; what is sent to that port goes to the flow's socket, and so does an ICMP
// error. Nobody who waits for that socket is woken by a stamp.
func TestStampTwins(t *testing.T) {
	a := newAsker(t, 1, true)
	local, err := localAddr(a.fds[0])
	if err != nil {
		t.Fatal(err)
	}
	twin, err := localAddr(a.stamps.Twins()[0])
	if err != nil || twin != local {
		t.Fatalf("twin at %v, %v: want %v", twin, err, local)
	}
	if reuse, err := getInt(a.fds[0], unix.SOL_SOCKET, unix.SO_REUSEADDR, "SO_REUSEADDR"); reuse != 0 || err != nil {
		t.Errorf("the flow's socket lets others have its port: %d, %v", reuse, err)
	}
	if err := setInt(a.fds[0], unix.IPPROTO_IP, unix.IP_RECVERR, 1, "IP_RECVERR"); err != nil {
		t.Fatal(err)
	}
	a.sink() // from here on the port is closed
	a.send(0, 1)
	if got := a.ids(1); got[1] != 3 {
		t.Fatalf("stamps %v: want both of packet 1", got)
	}
	var events Events
	for give := time.Now().Add(5 * time.Second); events.Counts[backend.EventConnRefused] == 0 && time.Now().Before(give); {
		events.Drain(a.fds[0])
	}
	if events.Counts[backend.EventConnRefused] != 1 {
		t.Errorf("events %v: want one refusal, at the flow's socket", events.Counts)
	}
	polls := []unix.PollFd{{Fd: int32(a.fds[0]), Events: unix.POLLIN}}
	if n, err := unix.Poll(polls, 0); n != 0 || err != nil {
		t.Errorf("%d ready (%x), %v: a stamp is seen at the flow's socket", n, polls[0].Revents, err)
	}
}

// No stamp costs an allocation, asked for or taken.
func TestStampAllocs(t *testing.T) {
	a := newAsker(t, 1, true)
	slot := backend.Slot{Stamp: 9}
	iov := unix.Iovec{}
	msgs := make([]unix.Mmsghdr, 1)
	msgs[0].Hdr = unix.Msghdr{Iov: &iov}
	msgs[0].Hdr.SetIovlen(1)
	var buf [16]backend.Stamp
	taken := 0
	n := testing.AllocsPerRun(200, func() {
		a.stamps.Address(&msgs[0].Hdr, 0, &slot)
		sys.Sendmmsg(a.stamps.Twins()[0], msgs)
		a.stamps.Sent(&slot)
		a.stamps.Round()
		taken += a.stamps.Take(buf[:])
	})
	if n != 0 || taken < 200 {
		t.Errorf("%v allocations a packet, %d stamps taken of about 400", n, taken)
	}
}
