package backendtest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
)

// StampAll makes a backend ask for transmit stamps of every packet, whoever uses it: with it the suite must pass as without.
func StampAll(openBackend backend.Open) backend.Open {
	return func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		if cfg.Stamps { // by a test that wants to see them
			return openBackend(cfg)
		}
		cfg.Stamps = true
		if cfg.Now == nil && !cfg.Receive {
			cfg.Now = clock.NewReal().Now
		}
		s, r, err := openBackend(cfg)
		if err != nil {
			return nil, nil, err
		}
		return &stampingSender{Sender: s}, r, nil
	}
}

type stampingSender struct {
	backend.Sender
	last uint32
	buf  [64]backend.Stamp
}

// Reserve asks for stamps of every slot.
func (s *stampingSender) Reserve(n int) []backend.Slot {
	slots := s.Sender.Reserve(n)
	for i := range slots {
		if s.last++; s.last == 0 {
			s.last++
		}
		slots[i].Stamp = s.last
	}
	return slots
}

// Reap throws the stamps away.
func (s *stampingSender) Reap() backend.Completions {
	c := s.Sender.Reap()
	if stamper, ok := s.Sender.(backend.Stamper); ok {
		for stamper.TakeStamps(s.buf[:]) == len(s.buf) {
		}
	}
	return c
}

// stamped is what a test learned about the packets that asked.
type stamped map[uint32]*[backend.NumStampKinds]int64

func (d *driver) takeStamps(into stamped) {
	var buf [8]backend.Stamp
	for {
		n := d.sender.(backend.Stamper).TakeStamps(buf[:])
		for _, s := range buf[:n] {
			if into[s.ID] == nil {
				into[s.ID] = new([backend.NumStampKinds]int64)
			}
			if into[s.ID][s.Kind] != 0 {
				d.t.Errorf("packet %d: two stamps of kind %d", s.ID, s.Kind)
			}
			into[s.ID][s.Kind] = s.At
		}
		if n < len(buf) {
			return
		}
	}
}

// testStamps: each packet that asks has every stamp once, in order and at the time it was sent; no other has; none is an event; replies have
// the kernel's time.
func testStamps(t *testing.T, h *Harness) {
	for _, f := range h.families() {
		to := listen(t, h, netip.AddrPortFrom(f.to, 0))
		flows := make([]backend.Flow, 3)
		for i := range flows {
			flows[i] = flow(t, f, to)
		}
		cfg := h.config(8, flows...)
		cfg.Stamps = true
		d := openReceive(t, h, cfg)
		limits := d.sender.Limits()
		if cfg.GSO > 1 {
			if limits.Stamps != 0 || !strings.Contains(strings.Join(limits.Notes, "\n"), "stamps: none: a train has one stamp") {
				t.Errorf("stamps %b with trains, notes %q", limits.Stamps, limits.Notes)
			}
			d.close()
			continue
		}
		if !limits.Stamps.Has(backend.StampSched) || !limits.Stamps.Has(backend.StampSoftware) {
			t.Fatalf("stamps %b, notes %q", limits.Stamps, limits.Notes)
		}
		stampRounds(t, d, to, len(flows))
		if d.done.Events != [backend.NumEvents]uint64{} {
			t.Errorf("%s: events %v, and nothing but stamps came back", f.name, d.done.Events)
		}
		d.close()
	}
}

// stampRounds sends batches with every fifth packet asking, and checks the stamps of each before the next.
func stampRounds(t *testing.T, d *driver, to *sink, flows int) {
	t.Helper()
	const rounds, batch, every = 40, 20, 5
	for round := range rounds {
		before := sys.Monotonic()
		d.send(batch, func(i int, slot *backend.Slot) {
			numbered(i%flows)(round*batch+i, slot)
			if slot.Stamp = 0; i%every == 0 {
				slot.Stamp = uint32(round*batch + i + 1)
			}
		})
		d.settle()
		got := stamped{}
		for deadline := time.Now().Add(patience); !complete(got, batch/every); d.reap() {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: stamps of %d packets of %d: %v", round, len(got), batch/every, got)
			}
			d.takeStamps(got)
		}
		after := sys.Monotonic()
		for id, at := range got {
			sched, out := at[backend.StampSched], at[backend.StampSoftware]
			if (id-1)%every != 0 || int(id-1)/batch != round {
				t.Fatalf("round %d: stamps of packet %d, which did not ask", round, id)
			}
			if sched < before-stampSlack || out < sched || out > after+stampSlack {
				t.Fatalf("packet %d: scheduled at %d, sent at %d, and the test saw it between %d and %d", id, sched, out, before, after)
			}
		}
		for _, a := range to.take(batch) {
			to.reply(a.payload, a.from)
		}
		stampedReplies(t, d, batch)
	}
}

func complete(got stamped, packets int) bool {
	for _, at := range got {
		if at[backend.StampSched] == 0 || at[backend.StampSoftware] == 0 {
			return false
		}
	}
	return len(got) == packets
}

// stampedReplies takes replies and checks their times.
func stampedReplies(t *testing.T, d *driver, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); n > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d replies are missing", n)
		}
		seen, err := d.receive.Poll(10*time.Millisecond, func(p *backend.Packet) {
			now := sys.Monotonic()
			if p.Kernel == 0 || p.Kernel > p.At+stampSlack || p.Asked == 0 || p.Asked > p.At || p.At > now+stampSlack {
				t.Errorf("in the kernel at %d, asked for at %d, received at %d, and it is %d", p.Kernel, p.Asked, p.At, now)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		n -= seen
	}
}

// testStampWakes: stamps that nobody has taken do not end a receiver's wait for good.
func testStampWakes(t *testing.T, h *Harness) {
	f := h.families()[0]
	if h.Config.GSO > 1 {
		return // no stamps there
	}
	for _, n := range []int{1, 3} {
		flows := make([]backend.Flow, n)
		for i := range flows {
			flows[i] = flow(t, f, listen(t, h, netip.AddrPortFrom(f.to, 0)))
		}
		cfg := h.config(8, flows...)
		cfg.Stamps = true
		d := openReceive(t, h, cfg)
		for i := range flows {
			slots := d.sender.Reserve(1)
			numbered(i)(0, &slots[0])
			slots[0].Stamp = uint32(i + 1)
			if accepted, err := d.sender.Commit(1); accepted != 1 || err != nil {
				t.Fatalf("%d, %v", accepted, err)
			}
		}
		const wait, polls = 20 * time.Millisecond, 20
		start := time.Now()
		for range polls { // and no Reap
			if k, err := d.receive.Poll(wait, func(*backend.Packet) {}); k != 0 || err != nil {
				t.Fatalf("poll: %d, %v", k, err)
			}
		}
		if took := time.Since(start); took < wait*polls/2 {
			t.Fatalf("%d flows: %d polls of %v took %v altogether: an old stamp ends them", n, polls, wait, took)
		}
		got := stamped{}
		for deadline := time.Now().Add(patience); !complete(got, n); d.takeStamps(got) {
			if d.reap(); time.Now().After(deadline) {
				t.Fatalf("%d packets asked, stamps %v", n, got)
			}
		}
		d.close()
	}
}
