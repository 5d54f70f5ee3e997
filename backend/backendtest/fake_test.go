package backendtest

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/backend"
	"blast/internal/clock"
)

var fakeFlows = []backend.Flow{{Dst: netip.MustParseAddrPort("192.0.2.1:7")}, {Dst: netip.MustParseAddrPort("192.0.2.2:7")}}

func openFake(t *testing.T, f *Fake, cfg backend.Config) (backend.Sender, backend.Receiver) {
	t.Helper()
	cfg.Flows = fakeFlows
	s, r, err := f.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// put commits n one-byte payloads counting up from first.
func put(s backend.Sender, first byte, n int) (int, error) {
	slots := s.Reserve(n)
	for i := range slots {
		slots[i].Payload[0], slots[i].Len, slots[i].Flow = first+byte(i), 1, i%2
	}
	return s.Commit(len(slots))
}

func TestFakeFaults(t *testing.T) {
	boom := errors.New("boom")
	type step struct {
		n   int
		err error
	}
	for _, c := range []struct {
		about string
		fake  *Fake
		want  []step
		seqs  string // payload bytes that got through, as letters from a
	}{
		{"no fault: all is taken", &Fake{}, []step{{4, nil}, {4, nil}}, "abcdabcd"},
		{"full: nothing is handed out", &Fake{Room: func(call, n int) int { return n * call }}, []step{{0, nil}, {4, nil}}, "abcd"},
		{"partial accept: the first k go", &Fake{Accept: func(_, n int) int { return n - 1 }}, []step{{3, nil}, {3, nil}}, "abcabc"},
		{"EAGAIN storm: nothing is taken, nothing lost", &Fake{Accept: func(call, n int) int { return n * call }}, []step{{0, nil}, {4, nil}}, "abcd"},
		{"a refused slot stops the Commit in front of it",
			&Fake{Refuse: func(seq uint64) (backend.Cause, bool) { return backend.CausePermission, seq == 2 }},
			[]step{{2, backend.CausePermission}, {4, nil}}, "ababcd"},
		{"fatal: the error comes through", &Fake{Fatal: func(call int) error {
			if call == 1 {
				return boom
			}
			return nil
		}}, []step{{4, nil}, {0, boom}}, "abcd"},
	} {
		t.Run(c.about, func(t *testing.T) {
			c.fake.Keep = true
			s, _ := openFake(t, c.fake, backend.Config{PayloadBytes: 8})
			for i, want := range c.want {
				if n, err := put(s, 'a', 4); n != want.n || err != want.err {
					t.Fatalf("commit %d: %d, %v; want %d, %v", i, n, err, want.n, want.err)
				}
			}
			var got strings.Builder
			for _, p := range c.fake.Senders()[0].Packets {
				got.Write(p.Payload)
			}
			if got.String() != c.seqs {
				t.Fatalf("got through: %q, want %q", got.String(), c.seqs)
			}
			if err := errors.Join(s.Close(), s.Close(), c.fake.Check()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFakeAsync(t *testing.T) {
	clk := &clock.Fake{}
	f := &Fake{Async: true, Depth: 6, Latency: time.Microsecond, Now: clk.Now, Keep: true,
		Drop:       func(seq uint64) bool { return seq == 1 },
		RefuseLate: func(seq uint64) (backend.Cause, bool) { return backend.CauseDown, seq == 2 }}
	s, _ := openFake(t, f, backend.Config{PayloadBytes: 8, Batch: 4})
	if n, err := put(s, 'a', 4); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := put(s, 'a', 4); n != 2 || err != nil {
		t.Fatalf("%d, %v: two of six places were left", n, err)
	}
	if len(s.Reserve(1)) != 0 || s.Reap() != (backend.Completions{}) {
		t.Fatal("room or completions before the time")
	}
	clk.T = 1000
	want := backend.Completions{Sent: 4, Dropped: 1}
	want.Refused[backend.CauseDown] = 1
	if diff := cmp.Diff(want, s.Reap()); diff != "" {
		t.Fatal(diff)
	}
	if n, err := put(s, 'a', 4); n != 4 || err != nil { // wraps in the ring
		t.Fatal(n, err)
	}
	if err := errors.Join(s.Close(), f.Check()); err != nil {
		t.Fatal(err)
	}
}

func TestFakeLoopback(t *testing.T) {
	clk := &clock.Fake{T: 100}
	delays := [][]time.Duration{{30}, {}, {10, 20}, {5}} // late, lost, twice, overflowed
	f := &Fake{Now: clk.Now, Sleep: clk.Sleep,
		Reply:    func(seq uint64, _ int, _ []byte) []time.Duration { return delays[seq] },
		Serve:    func(p []byte) { p[0] -= 'a' - 'A' },
		Overflow: func(reply uint64) bool { return reply == 0 }}
	s, r := openFake(t, f, backend.Config{PayloadBytes: 8, Receive: true, Now: clk.Now})
	if n, err := put(s, 'a', 4); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	type seen struct {
		Payload string
		Flow    int
		At      int64
		Source  netip.AddrPort
	}
	var got []seen
	for range 10 {
		if _, err := r.Poll(100, func(p *backend.Packet) {
			got = append(got, seen{string(p.Payload), p.Flow, p.At, p.Source})
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := []seen{{"C", 0, 110, fakeFlows[0].Dst}, {"C", 0, 120, fakeFlows[0].Dst}, {"A", 0, 130, fakeFlows[0].Dst}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
	if r.Drops() != 1 {
		t.Fatalf("drops %d", r.Drops())
	}
	if err := errors.Join(s.Close(), r.Close(), f.Check()); err != nil {
		t.Fatal(err)
	}
}

func TestFakeCloseDuringSend(t *testing.T) {
	f := &Fake{}
	f.Accept = func(_, n int) int { f.Senders()[0].Close(); return n }
	s, _ := openFake(t, f, backend.Config{PayloadBytes: 8})
	if n, err := put(s, 'a', 4); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestFakeTellsOnItsUser(t *testing.T) {
	for _, c := range []struct {
		about, want string
		misuse      func(s backend.Sender)
	}{
		{"more committed than reserved", "commit of 3 slots, 2 reserved", func(s backend.Sender) { s.Reserve(2); s.Commit(3) }},
		{"a commit ends the reservation", "commit of 1 slots, 0 reserved", func(s backend.Sender) { put(s, 0, 2); s.Commit(1) }},
		{"not closed", "not closed", func(backend.Sender) {}},
		{"used after Close", "Reserve after Close", func(s backend.Sender) { s.Close(); s.Reserve(1) }},
		{"length beyond the slot", "length 99 of 8", func(s backend.Sender) { s.Reserve(1)[0].Len = 99; s.Commit(1) }},
		{"written to after Commit", "written to between", func(s backend.Sender) {
			slots := s.Reserve(1)
			slots[0].Len = 8
			s.Commit(1)
			slots[0].Payload[0]++
			s.Reap()
		}},
	} {
		t.Run(c.about, func(t *testing.T) {
			f := &Fake{Async: true, Keep: true}
			s, _ := openFake(t, f, backend.Config{PayloadBytes: 8})
			c.misuse(s)
			if err := f.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v does not say %q", err, c.want)
			}
		})
	}
}

func TestFakeAllocs(t *testing.T) {
	for _, f := range []*Fake{{}, {Async: true, Depth: 64}} {
		s, _ := openFake(t, f, backend.Config{PayloadBytes: 8})
		if n := testing.AllocsPerRun(100, func() { put(s, 0, 64); s.Reap() }); n != 0 {
			t.Errorf("async %v: %v allocations per batch", f.Async, n)
		}
	}
}
