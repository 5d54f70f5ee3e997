package backendtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"blast/backend"
	"blast/internal/sys"
)

// stampSlack is how far a kernel receive time, converted between clocks, may lie outside of what the test saw.
const stampSlack = int64(5 * time.Millisecond)

// seenPacket is a backend.Packet that outlives its call.
type seenPacket struct {
	payload []byte
	flow    int
	at      int64
	source  netip.AddrPort
}

// poll gathers n replies.
func (d *driver) poll(n int) []seenPacket {
	d.t.Helper()
	var got []seenPacket
	for deadline := time.Now().Add(patience); len(got) < n; {
		if time.Now().After(deadline) {
			d.t.Fatalf("%d of %d replies came", len(got), n)
		}
		before := len(got)
		k, err := d.receive.Poll(50*time.Millisecond, func(p *backend.Packet) {
			got = append(got, seenPacket{append([]byte(nil), p.Payload...), p.Flow, p.At, p.Source})
		})
		if err != nil {
			d.t.Fatal(err)
		}
		if k != len(got)-before {
			d.t.Fatalf("poll says %d packets and showed %d", k, len(got)-before)
		}
		d.reap()
	}
	return got
}

func testReplies(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		t.Run(f.name, func(t *testing.T) { h.Do(func() { replies(t, h, f) }) })
	}
}

func replies(t *testing.T, h *Harness, f family) {
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	flows := make([]backend.Flow, 5)
	for i, port := range ports(t, f.from, len(flows)) {
		flows[i] = backend.Flow{Src: netip.AddrPortFrom(f.from, port), Dst: to.addr}
	}
	d := openReceive(t, h, h.config(1400, flows...))
	defer d.close()
	const rounds, batch = 20, 20
	replied := 0
	for round := range rounds {
		d.send(batch, func(i int, slot *backend.Slot) {
			slot.Flow, slot.Len = i%len(flows), 1+(round*batch+i)*3
			pattern(slot.Payload[:slot.Len], round*batch+i)
		})
		sent := sys.Monotonic()
		for _, a := range to.take(batch) {
			to.reply(a.payload, a.from)
		}
		got := d.poll(batch)
		now := sys.Monotonic()
		next := [5]int{0, 1, 2, 3, 4} // of each flow, the number in the batch that must come now
		for _, p := range got {
			if p.flow < 0 || p.flow >= len(flows) {
				t.Fatalf("flow %d of %d", p.flow, len(flows))
			}
			number := round*batch + next[p.flow]
			next[p.flow] += len(flows)
			if want := 1 + number*3; len(p.payload) != want {
				t.Fatalf("reply %d on flow %d: %d bytes, sent %d", number, p.flow, len(p.payload), want)
			}
			if err := checkPattern(p.payload, number); err != nil {
				t.Fatal(err)
			}
			if p.source != to.addr {
				t.Fatalf("reply from %v, not from %v", p.source, to.addr)
			}
			if p.at < sent-stampSlack || p.at > now+stampSlack {
				t.Fatalf("received at %d ns, and the test saw it between %d and %d", p.at, sent, now)
			}
		}
		replied += batch
	}
	if n, err := d.receive.Poll(0, func(*backend.Packet) {}); n != 0 || err != nil {
		t.Fatalf("%d replies too many, %v", n, err)
	}
	if d.receive.Drops() != 0 {
		t.Fatalf("%d drops and nothing is missing", d.receive.Drops())
	}
	d.exact(replied)
}

func testTwoThreads(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := openReceive(t, h, h.config(8, flow(t, f, to), flow(t, f, to)))
	const packets = 2000
	var seen atomic.Int64
	done, closed, sent := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		deadline := time.Now().Add(patience)
		var err error
		for err == nil && seen.Load() < packets {
			var n int
			n, err = d.receive.Poll(10*time.Millisecond, func(*backend.Packet) {})
			seen.Add(int64(n))
			if err == nil && time.Now().After(deadline) {
				err = fmt.Errorf("%d of %d replies came", seen.Load(), packets)
			}
		}
		done <- err
		<-sent
		closed <- d.receive.Close() // by the thread that polled, after the sender
	}()
	defer func() {
		err := d.sender.Close()
		close(sent)
		if err = errors.Join(err, <-closed); err != nil {
			t.Error(err)
		}
	}()
	for at := 0; at < packets; {
		n := min(window(8), packets-at)
		d.send(n, func(i int, slot *backend.Slot) { numbered((at+i)%2)(at+i, slot) })
		for _, a := range to.take(n) {
			to.reply(a.payload, a.from)
		}
		at += n
		d.receive.Drops() // from any thread
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	d.exact(packets)
}

func testPollWait(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := openReceive(t, h, h.config(8, flow(t, f, to)))
	defer d.close()
	never := func(*backend.Packet) { t.Error("a packet came that nobody sent") }
	for _, wait := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
		start := time.Now()
		if n, err := d.receive.Poll(wait, never); n != 0 || err != nil {
			t.Fatalf("poll: %d, %v; an empty wait is no error", n, err)
		}
		if took := time.Since(start); took > wait+patience/2 {
			t.Fatalf("poll of %v took %v", wait, took)
		}
	}
	// A packet ends the wait: the deadline here would fail the test.
	d.send(1, numbered(0))
	a := to.take(1)[0]
	go func() {
		time.Sleep(10 * time.Millisecond)
		to.conn.WriteToUDPAddrPort(a.payload, a.from)
	}()
	start := time.Now()
	for n := 0; n == 0; {
		k, err := d.receive.Poll(2*patience, func(p *backend.Packet) {
			if binary.BigEndian.Uint64(p.Payload) != 0 {
				t.Errorf("payload %x", p.Payload)
			}
		})
		if err != nil || time.Since(start) > patience {
			t.Fatalf("poll: %d, %v after %v", k, err, time.Since(start))
		}
		n += k
	}
	d.exact(1)
}

func testReceiveAllocs(t *testing.T, h *Harness) {
	f := h.families()[0]
	to := listen(t, h, netip.AddrPortFrom(f.to, 0))
	d := openReceive(t, h, h.config(8, flow(t, f, to), flow(t, f, to)))
	defer d.close()
	d.send(1, numbered(1))
	back := to.take(1)[0].from
	payload, got := make([]byte, 8), 0
	count := func(*backend.Packet) { got++ }
	failed := error(nil)
	allocs := testing.AllocsPerRun(50, func() {
		for range 4 {
			if _, err := to.conn.WriteToUDPAddrPort(payload, back); err != nil {
				failed = err
			}
		}
		for want := got + 4; got < want && failed == nil; {
			_, failed = d.receive.Poll(time.Second, count)
		}
	})
	if failed != nil {
		t.Fatal(failed)
	}
	if allocs != 0 {
		t.Fatalf("%v allocations per four replies", allocs)
	}
}
