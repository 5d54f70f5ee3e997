package udpsock

import (
	"net/netip"
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
	stamps *Stamps
	events Events
}

func newAsker(t *testing.T, sockets int, named bool) *asker {
	t.Helper()
	a := &asker{t: t}
	sink, err := openSocketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.close)
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
	if a.stamps = OpenStamps(cfg, a.fds, &Handoff{}, &a.events, &limits, 1); a.stamps == nil {
		t.Fatal(limits.Notes)
	}
	if !named {
		a.stamps.named, a.stamps.counts, a.stamps.lost = false, make([]uint32, sockets), make([]bool, sockets)
	}
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
	wants := a.stamps.Wants(&slot)
	if wants {
		request := a.stamps.Request(0, id)
		msgs[0].Hdr.Control = &request[0]
		msgs[0].Hdr.SetControllen(len(request))
	}
	if n, errno := sys.Sendmmsg(a.fds[flow], msgs); n != 1 {
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
		a.stamps.Round(&a.events, a.fds)
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
		if a.events.Counts != [backend.NumEvents]uint64{} {
			t.Errorf("named %v: events %v of stamps alone", named, a.events.Counts)
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

// An ICMP error behind stamps in the error queue is found by the same Drain, and counts once.
func TestStampsBeforeError(t *testing.T) {
	closed := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1) // tcpmux: nobody serves it by UDP
	fd, err := Connect(backend.Flow{Dst: closed}, func(fd int) error { return setInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1, "IP_RECVERR") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	a := &asker{t: t, fds: []int{fd}}
	var limits backend.Limits
	if a.stamps = OpenStamps(&backend.Config{Stamps: true, Now: clock.NewReal().Now}, a.fds, &Handoff{}, &a.events, &limits, 1); a.stamps == nil {
		t.Fatal(limits.Notes)
	}
	a.send(0, 1)
	got := a.ids(1)
	for give := time.Now().Add(5 * time.Second); a.events.Counts[backend.EventConnRefused] == 0 && time.Now().Before(give); {
		a.events.Drain(fd, 0)
	}
	if got[1] != 3 || a.events.Counts[backend.EventConnRefused] != 1 || len(got) != 1 {
		t.Errorf("stamps %v, events %v: want both stamps of packet 1, and one refusal", got, a.events.Counts)
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
		request := a.stamps.Request(0, slot.Stamp)
		msgs[0].Hdr.Control = &request[0]
		msgs[0].Hdr.SetControllen(len(request))
		sys.Sendmmsg(a.fds[0], msgs)
		a.stamps.Sent(&slot)
		a.stamps.Round(&a.events, a.fds)
		taken += a.stamps.Take(buf[:])
	})
	if n != 0 || taken < 200 {
		t.Errorf("%v allocations a packet, %d stamps taken of about 400", n, taken)
	}
}
