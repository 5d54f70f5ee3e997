package backendtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
)

// patience bounds every wait of the suite. It is long: only a backend that is broken waits it out.
const patience = 20 * time.Second

// Harness is what Run needs to know about a backend and the network to test it on. The zero value of everything but Open suits
// a backend on kernel sockets over loopback.
type Harness struct {
	// Open is the backend.
	Open backend.Open
	// Config is what every Open of the suite starts from: trains, batch, interface, queue ... The suite sets Flows, PayloadBytes,
	// Receive and Now, and in the tests about them the buffers, Batch and Fragment.
	Config backend.Config
	// From4, From6 are the addresses to send from, To4, To6 those of the sinks; invalid means 127.0.0.1 and ::1. OnlyIPv4 leaves
	// IPv6 out, for networks without it.
	From4, From6, To4, To6 netip.Addr
	OnlyIPv4               bool
	// Do runs fn on a locked thread in the sender's network namespace; nil means on this thread, locked.
	Do func(fn func())
	// Listen opens a socket in the sinks' network namespace; nil means here. The suite closes it.
	Listen func(addr netip.AddrPort) (*net.UDPConn, error)
	// Sockets adds the tests of what only kernel sockets do: ICMP errors, socket buffers, choice of source ports.
	Sockets bool
	// SendOnly leaves out the receiver.
	SendOnly bool
	// ZeroCopy says that Config.ZeroCopy is a switch of this backend.
	ZeroCopy bool
}

// Run is the conformance suite: what the contract says, tried on the real thing.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	h.Do(func() { h.reach(t) })
	for _, c := range []struct {
		name    string
		fn      func(*testing.T, *Harness)
		sockets bool
		receive bool
	}{
		{"every packet arrives once and in order", testCounts, false, false},
		{"bytes on the wire are the bytes given", testSizes, false, false},
		{"reserve is idempotent and commit gives back", testReserve, false, false},
		{"batches keep to the limit", testBatch, false, false},
		{"flows go where they should", testFlows, false, false},
		{"flat out loses and repeats nothing it accepted", testFlatOut, false, false},
		{"close is idempotent and leaves nothing", testClose, false, false},
		{"no allocation per packet sent", testSendAllocs, false, false},
		{"replies come back whole", testReplies, false, true},
		{"sender and receiver on two threads", testTwoThreads, false, true},
		{"poll waits no longer than told", testPollWait, false, true},
		{"no allocation per packet received", testReceiveAllocs, false, true},

		{"configs it cannot honour are refused", testRefusedConfigs, true, false},
		{"open errors say what is wrong", testOpenErrors, true, false},
		{"the kernel chooses source ports", testFreePorts, true, false},
		{"one source port, several targets", testSharedPort, true, false},
		{"both address families at once", testMixedFamilies, true, false},
		{"socket buffers are read back", testBuffers, true, false},
		{"closed port: nothing is lost from the ledger", testClosedPort, true, false},
		{"an error after the last packet is told", testLastError, true, false},
		{"an error does not keep a receiver awake", testErrorWakes, true, true},
		{"a target that appears later receives", testLateTarget, true, false},
		{"stamps name their packets", testStamps, true, true},
		{"a stamp does not keep a receiver awake", testStampWakes, true, true},
		{"overflow of the receive buffer is counted", testOverflow, true, true},
		{"a thousand flows", testManyFlows, true, true},
	} {
		if c.sockets && !h.Sockets || c.receive && h.SendOnly {
			continue // not this backend's business, as its harness says
		}
		t.Run(c.name, func(t *testing.T) { h.Do(func() { c.fn(t, &h) }) })
	}
}

func (h Harness) withDefaults() Harness {
	loopback4, loopback6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	for _, a := range []*netip.Addr{&h.From4, &h.To4} {
		if !a.IsValid() {
			*a = loopback4
		}
	}
	for _, a := range []*netip.Addr{&h.From6, &h.To6} {
		if !a.IsValid() {
			*a = loopback6
		}
	}
	if h.Do == nil {
		h.Do = func(fn func()) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			fn()
		}
	}
	if h.Listen == nil {
		h.Listen = func(addr netip.AddrPort) (*net.UDPConn, error) {
			return net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		}
	}
	return h
}

// reach waits until packets pass both ways. A device that has just come up drops them without a word until its queueing discipline is
// in place (net/sched/sch_generic.c noop_enqueue), and a test that counts packets must not start before.
func (h *Harness) reach(t *testing.T) {
	t.Helper()
	for _, f := range h.families() {
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.from, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		buf, deadline := make([]byte, 8), time.Now().Add(patience)
		for answered := false; !answered; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no packet passes from %v to %v and back", f.name, f.from, f.to)
			}
			_, _ = c.WriteToUDPAddrPort(buf, to.addr) // may say that there is no neighbour yet: the next round tells
			a, ok := to.next(20 * time.Millisecond)
			if !ok {
				continue
			}
			to.reply(a.payload, a.from)
			err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, _, rerr := c.ReadFromUDPAddrPort(buf)
			answered = err == nil && rerr == nil
		}
	}
}

// Unprivileged is a Harness.Do: it runs fn on a thread without capabilities, which ends with it. For a backend that claims to need none.
func Unprivileged(t *testing.T) func(fn func()) {
	return func(fn func()) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			err := unix.Capset(&header, &none[0])
			defer func() { done <- err }() // also when fn ends its goroutine by t.Fatal
			if err == nil {
				fn()
			}
		}()
		if err := <-done; err != nil {
			t.Fatalf("drop capabilities: %v", err)
		}
	}
}

// families are the address families to test, each with the sender's and the sinks' address.
func (h *Harness) families() []family {
	f := []family{{"IPv4", h.From4, h.To4}}
	if !h.OnlyIPv4 {
		f = append(f, family{"IPv6", h.From6, h.To6})
	}
	return f
}

type family struct {
	name     string
	from, to netip.Addr
}

// config is the harness's Config with the given flows and payload.
func (h *Harness) config(payload int, flows ...backend.Flow) backend.Config {
	cfg := h.Config
	cfg.Flows, cfg.PayloadBytes = flows, payload
	return cfg
}

// ports returns n source ports that were free on addr a moment ago.
func ports(t *testing.T, addr netip.Addr, n int) []uint16 {
	t.Helper()
	var free []uint16
	for range n {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() // all together, so that none comes twice
		free = append(free, uint16(c.LocalAddr().(*net.UDPAddr).Port))
	}
	return free
}

// flow is a flow from a free port to a sink.
func flow(t *testing.T, f family, to *sink) backend.Flow {
	t.Helper()
	return backend.Flow{Src: netip.AddrPortFrom(f.from, ports(t, f.from, 1)[0]), Dst: to.addr}
}

// driver drives a Sender the way the engine does: everything not accepted is offered again, a refused slot is not.
type driver struct {
	t       *testing.T
	sender  backend.Sender
	receive backend.Receiver
	// accepted, refused and done are what became of the slots so far.
	accepted uint64
	refused  [backend.NumCauses]uint64
	done     backend.Completions
}

func open(t *testing.T, h *Harness, cfg backend.Config) *driver {
	t.Helper()
	s, r, err := h.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Receive && r == nil {
		t.Fatal("no receiver, though one was asked for")
	}
	return &driver{t: t, sender: s, receive: r}
}

// openReceive is open with a Receiver.
func openReceive(t *testing.T, h *Harness, cfg backend.Config) *driver {
	t.Helper()
	cfg.Receive, cfg.Now = true, clock.NewReal().Now
	return open(t, h, cfg)
}

func (d *driver) close() {
	d.t.Helper()
	err := d.sender.Close()
	if d.receive != nil {
		err = errors.Join(err, d.receive.Close())
	}
	if err != nil {
		d.t.Error(err)
	}
}

// send gets n packets accepted or refused. fill writes packet i, which may be asked for again.
func (d *driver) send(n int, fill func(i int, slot *backend.Slot)) {
	d.t.Helper()
	for i, deadline := 0, time.Now().Add(patience); i < n; {
		if time.Now().After(deadline) {
			d.t.Fatalf("stuck at packet %d of %d; learned so far: %+v", i, n, d.done)
		}
		slots := d.sender.Reserve(n - i)
		for k := range slots {
			fill(i+k, &slots[k])
		}
		accepted, err := d.sender.Commit(len(slots))
		if accepted < 0 || accepted > len(slots) {
			d.t.Fatalf("commit of %d slots accepted %d", len(slots), accepted)
		}
		i += accepted
		d.accepted += uint64(accepted)
		var cause backend.Cause
		switch {
		case errors.As(err, &cause):
			if accepted == len(slots) {
				d.t.Fatalf("all %d slots accepted, and a refusal: %v", accepted, err)
			}
			d.refused[cause]++
			i++
		case err != nil:
			d.t.Fatal(err)
		}
		d.reap()
	}
}

func (d *driver) reap() {
	c := d.sender.Reap()
	d.done.Sent += c.Sent
	d.done.Dropped += c.Dropped
	for i, n := range c.Refused { // a late refusal counts like one at Commit
		d.done.Refused[i] += n
		d.refused[i] += n
		d.accepted -= n
	}
	for i, n := range c.Events {
		d.done.Events[i] += n
	}
}

// settle waits until an asynchronous backend has told the fate of every accepted slot, and returns the number sent without a drop.
func (d *driver) settle() uint64 {
	d.t.Helper()
	if !d.sender.Limits().Async {
		if d.done.Sent != 0 || d.done.Refused != [backend.NumCauses]uint64{} {
			d.t.Fatalf("a synchronous backend told completions: %+v", d.done)
		}
		return d.accepted - d.done.Dropped
	}
	for deadline := time.Now().Add(patience); ; {
		told := d.done.Sent + d.done.Dropped
		switch {
		case told == d.accepted:
			return d.done.Sent
		case told > d.accepted || time.Now().After(deadline):
			d.t.Fatalf("accepted %d slots, was told of %d: %+v", d.accepted, told, d.done)
		}
		d.reap()
	}
}

// exact fails the test unless every slot was accepted and sent.
func (d *driver) exact(n int) {
	d.t.Helper()
	if sent := d.settle(); sent != uint64(n) || d.refused != [backend.NumCauses]uint64{} {
		d.t.Fatalf("%d packets: %d sent, refused %v, learned %+v", n, sent, d.refused, d.done)
	}
}

// pattern fills b with bytes that tell sequence number and position.
func pattern(b []byte, seq int) {
	x := uint64(seq)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

func checkPattern(b []byte, seq int) error {
	want := make([]byte, len(b))
	pattern(want, seq)
	if string(want) != string(b) {
		return fmt.Errorf("packet %d: %d bytes that are not the ones given", seq, len(b))
	}
	return nil
}
