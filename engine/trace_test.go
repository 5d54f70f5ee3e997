package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/clock"
	"blast/pace"
	"blast/packet"
	"blast/stats"
)

// Every block has one run of consecutive slots, with consecutive ids, at a place that either thread finds from the slot number alone, in
// whatever order it asks.
func TestSampler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Uint64Range(1, 300).Draw(t, "every")
		first := rapid.Uint64Range(0, 1000).Draw(t, "first")
		seed := rapid.Uint64().Draw(t, "seed")
		forward, jumping := newSampler(every, seed, first), newSampler(every, seed, first)
		const blocks = 4
		n := blocks * every * sampleRun
		ids := make([]uint32, n)
		picked := uint64(0)
		for k := range n {
			if ids[k] = forward.pick(first + k); ids[k] == 0 {
				continue
			}
			if picked++; uint64(ids[k]) != picked {
				t.Fatalf("slot %d has id %d: want %d, the next one", k, ids[k], picked)
			}
			if !startsRun(ids[k]) && ids[k-1] != ids[k]-1 {
				t.Fatalf("slot %d is in the middle of a run, and the slot before it is not sampled", k)
			}
		}
		if picked != blocks*sampleRun {
			t.Fatalf("%d slots picked of %d: want %d", picked, n, blocks*sampleRun)
		}
		for range 50 {
			k := rapid.Uint64Range(0, n-1).Draw(t, "slot")
			if id := jumping.pick(first + k); id != ids[k] {
				t.Fatalf("slot %d: id %d when jumping, %d in order", k, id, ids[k])
			}
		}
		if first > 0 && forward.pick(first-1) != 0 {
			t.Fatal("a slot of the warm-up is sampled")
		}
	})
}

const (
	toSched, toDriver  = 300, 700 // ns after the Commit began
	upNS, serverNS     = 4000, 2000
	replyNS            = 10_000 // after the Commit began
	otherClock         = int64(12_345_678_901)
	stampedRate, every = 10_000, 4
)

// stampedBench is a run whose every segment is known: stamps and server times follow the Commit by fixed times.
func stampedBench(t *testing.T, serverAhead int64) *bench {
	b := newBench(t, constant(t, stampedRate, 2*time.Second), 3)
	b.cfg.Echo, b.cfg.StampEvery, b.cfg.StampSeed = true, every, 7
	b.fake.Spend = func(int) { b.clk.T += 1000 }
	b.fake.Stamp = func(_ uint64, kind backend.StampKind, at int64) int64 {
		return at + []int64{toSched, toDriver}[kind]
	}
	b.fake.Reply = func(uint64, int, []byte) []time.Duration { return []time.Duration{replyNS} }
	b.fake.Serve = func(payload []byte) {
		var st packet.Stamp
		packet.ParseStamp(payload, 0, &st)
		received := st.Sent + toDriver + upNS + serverAhead
		packet.PutServer(payload, received, received+serverNS, 1, 1)
	}
	return b
}

func (b *bench) segments(t *testing.T) (*stats.Result, map[string]stats.Histogram) {
	t.Helper()
	res := must[*stats.Result](t)(b.go_(t))
	if res.Segments == nil {
		t.Fatal("no segments")
	}
	parts := map[string]stats.Histogram{}
	for _, p := range res.Segments.Parts {
		parts[p.Name] = p.NS
	}
	return res, parts
}

func within(t *testing.T, parts map[string]stats.Histogram, name string, low, high int64) {
	t.Helper()
	h, ok := parts[name]
	if !ok || h.Count == 0 || h.Min < low || h.Max > high {
		t.Errorf("%s: there %v, n %d, %d to %d ns: want %d to %d", name, ok, h.Count, h.Min, h.Max, low, high)
	}
}

// Each part of a sampled packet is what the backend and the server did, and the parts are the latency.
func TestSegments(t *testing.T) {
	res, parts := stampedBench(t, 0).segments(t)
	s := res.Segments
	if want := uint64(2 * stampedRate / every); s.Complete < want-sampleRun || s.Complete > want || s.Incomplete != 0 {
		t.Errorf("%d complete, %d incomplete: want %d and 0", s.Complete, s.Incomplete, want)
	}
	if s.ResidualNS != 0 || !s.SameClock || s.Every != every || s.Stamps != "software" || len(s.Notes) != 0 {
		t.Errorf("residual %d, same clock %v, every %d, stamps %q, notes %q", s.ResidualNS, s.SameClock, s.Every, s.Stamps, s.Notes)
	}
	within(t, parts, stats.SegmentLag, 0, 60)
	within(t, parts, stats.SegmentSendCall, toSched, toSched+120)
	within(t, parts, stats.SegmentKernel, toDriver-toSched, toDriver-toSched)
	within(t, parts, stats.SegmentUp, upNS-120, upNS)
	within(t, parts, stats.SegmentServer, serverNS, serverNS)
	within(t, parts, stats.SegmentDown, replyNS-upNS-serverNS-toDriver, replyNS-upNS-serverNS-toDriver+120)
	sum := 0.0
	for _, h := range parts {
		sum += h.Mean
	}
	if d := sum - s.Latency.Mean; d > 1e-3 || d < -1e-3 || s.Latency.Count != s.Complete {
		t.Errorf("the parts' means add up to %.3f ns, mean latency is %.3f", sum, s.Latency.Mean)
	}
	if len(parts) != 8 || len(s.Parts) != 8 {
		t.Errorf("parts %v: want 8", parts)
	}
}

// A server with another clock is found out; its lead is estimated within the bound that is given, and the ways up and down are one.
func TestSegmentsOtherClock(t *testing.T) {
	res, parts := stampedBench(t, otherClock).segments(t)
	s := res.Segments
	if s.SameClock || s.OffsetErrorNS <= 0 || s.OffsetErrorNS > replyNS || abs(s.OffsetNS-otherClock) > s.OffsetErrorNS {
		t.Errorf("same clock %v, offset %d +- %d ns: it is %d", s.SameClock, s.OffsetNS, s.OffsetErrorNS, otherClock)
	}
	within(t, parts, stats.SegmentWire, replyNS-serverNS-toDriver, replyNS-serverNS-toDriver)
	within(t, parts, stats.SegmentServer, serverNS, serverNS)
	if _, up := parts[stats.SegmentUp]; up || len(s.Parts) != 7 || s.ResidualNS != 0 {
		t.Errorf("parts %v, residual %d: want no up, 7 parts, 0", parts, s.ResidualNS)
	}
}

// A target that stamps nothing leaves its time in the wire, and the report says so.
func TestSegmentsForeignTarget(t *testing.T) {
	b := stampedBench(t, 0)
	b.fake.Serve = nil
	res, parts := b.segments(t)
	within(t, parts, stats.SegmentWire, replyNS-toDriver, replyNS-toDriver)
	if s := res.Segments; len(s.Parts) != 6 || len(s.Notes) != 1 || s.SameClock || s.OffsetNS != 0 || s.OffsetErrorNS != 0 {
		t.Errorf("%d parts, notes %q, same clock %v, offset %d: want 6, one note, no clock", len(s.Parts), s.Notes, s.SameClock, s.OffsetNS)
	}
}

// Packets without a reply or with a lost stamp are counted apart; a lost stamp takes the gaps on both sides with it.
func TestSegmentsIncomplete(t *testing.T) {
	b := stampedBench(t, 0)
	base := b.fake.Stamp
	b.fake.Stamp = func(seq uint64, kind backend.StampKind, at int64) int64 {
		if kind == backend.StampSoftware && seq%100 == 1 || kind == backend.StampSched && seq%100 == 2 {
			return 0
		}
		return base(seq, kind, at)
	}
	b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
		if seq%100 == 3 {
			return nil
		}
		return []time.Duration{replyNS}
	}
	res, _ := b.segments(t)
	picks := newSampler(every, b.cfg.StampSeed+scatter(0), 0)
	var asked, incomplete, gaps uint64
	last := uint32(0)
	for seq := range uint64(2 * stampedRate) {
		id := picks.pick(seq)
		if id == 0 {
			continue
		}
		asked++
		if seq%100 >= 1 && seq%100 <= 3 {
			incomplete++
		}
		if seq%100 == 1 {
			last = 0
			continue
		}
		if last != 0 && last+1 == id && !startsRun(id) {
			gaps++
		}
		last = id
	}
	if s := res.Segments; s.Incomplete != incomplete || s.Complete != asked-incomplete || len(s.Notes) != 1 {
		t.Errorf("%d complete, %d incomplete, notes %q: want %d, %d, one note", s.Complete, s.Incomplete, s.Notes, asked-incomplete, incomplete)
	}
	if res.Gap.Count != gaps || res.Departures.Error.Count != gaps {
		t.Errorf("%d gaps, %d errors: want %d", res.Gap.Count, res.Departures.Error.Count, gaps)
	}
}

// A worker that was not granted stamps, such as one for which there were no descriptors left, takes nothing from those that were.
func TestSegmentsOfSomeWorkers(t *testing.T) {
	b := stampedBench(t, 0)
	fake, cfg := &backendtest.Fake{OneThread: true, Stamp: func(_ uint64, kind backend.StampKind, at int64) int64 { return at + []int64{toSched, toDriver}[kind] },
		Reply: func(uint64, int, []byte) []time.Duration { return []time.Duration{100 * time.Microsecond} }}, b.cfg
	cfg.Clock, cfg.Workers, cfg.Schedule = nil, 3, constant(t, 3000, 500*time.Millisecond)
	cfg.Open = func(c backend.Config) (backend.Sender, backend.Receiver, error) {
		c.Stamps = c.Stamps && c.Worker > 0
		return fake.Open(c)
	}
	res := must[*stats.Result](t)(Run(context.Background(), cfg))
	s := res.Segments
	if s == nil || s.Stamps != "software" || s.Arrivals != "software" || s.Complete == 0 || len(s.Notes) == 0 || res.Departures == nil {
		t.Fatalf("segments %+v, departures %v: want those of two workers, by software, and a note", s, res.Departures)
	}
	if note := s.Notes[len(s.Notes)-1]; !strings.Contains(note, "2 of 3 workers") {
		t.Errorf("notes %q: want that two of three are followed", s.Notes)
	}
}

// Stamps that leave no descriptors for a worker's own sockets are done without; where there are too few even so, that is the error.
func TestStampsLeaveTooFewDescriptors(t *testing.T) {
	for _, enough := range []bool{true, false} {
		b, fake := stampedBench(t, 0), &backendtest.Fake{OneThread: true, Stamp: func(_ uint64, _ backend.StampKind, at int64) int64 { return at },
			Reply: func(uint64, int, []byte) []time.Duration { return []time.Duration{100 * time.Microsecond} }}
		cfg := b.cfg
		cfg.Clock, cfg.Workers, cfg.Schedule = nil, 3, constant(t, 3000, 200*time.Millisecond)
		cfg.Open = func(c backend.Config) (backend.Sender, backend.Receiver, error) {
			if c.Worker == 1 && (c.Stamps || !enough) {
				return nil, nil, os.NewSyscallError("socket", syscall.EMFILE)
			}
			return fake.Open(c)
		}
		res, err := Run(context.Background(), cfg)
		switch {
		case !enough:
			if res != nil || !errors.Is(err, syscall.EMFILE) {
				t.Errorf("result %v, error %v: want too many open files", res, err)
			}
		case err != nil || res.Ledger.Sent != 600 || res.Segments != nil || len(res.Backend.Notes) != 1 || !strings.Contains(res.Backend.Notes[0], "stamps: none"):
			t.Errorf("%+v, %v: want all sent, no segments and a note", res, err)
		}
		if err := fake.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Without stamps there is nothing to tell, and no memory for it.
func TestNobodyFollowed(t *testing.T) {
	b := stampedBench(t, 0)
	b.cfg.StampEvery = 0
	res := must[*stats.Result](t)(b.go_(t))
	if res.Segments != nil || res.Departures != nil || res.Gap.Count != 0 || res.Gap.HDR != new(stats.Hist).Summary().HDR || len(b.run.tracing.tallies) != 0 {
		t.Errorf("segments %v, departures %v, gap %+v, %d tallies: want nothing", res.Segments, res.Departures, res.Gap, len(b.run.tracing.tallies))
	}
}

// Two clocks that do not run alike are found out by bounds that no lead fulfils.
func TestSegmentsClocksApart(t *testing.T) {
	b := stampedBench(t, otherClock)
	b.fake.Serve = func(payload []byte) {
		var st packet.Stamp
		packet.ParseStamp(payload, 0, &st)
		received := st.Sent + toDriver + upNS + otherClock + int64(st.Seq)*100 // 2 ms in the end, of a way of 10 us
		packet.PutServer(payload, received, received+serverNS, 1, 1)
	}
	res, parts := b.segments(t)
	s := res.Segments
	if s.SameClock || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "do not run alike") {
		t.Errorf("same clock %v, notes %q: want a note alone", s.SameClock, s.Notes)
	}
	within(t, parts, stats.SegmentWire, replyNS-serverNS-toDriver, replyNS-serverNS-toDriver)
}

// A path that makes no stamp of a kind, and no receive times, is named.
func TestSegmentsMissing(t *testing.T) {
	b := stampedBench(t, 0)
	base := b.fake.Stamp
	b.fake.Stamp = func(seq uint64, kind backend.StampKind, at int64) int64 {
		if kind == backend.StampSoftware {
			return 0
		}
		return base(seq, kind, at)
	}
	res, _ := b.segments(t)
	if s := res.Segments; s.Complete != 0 || len(s.Notes) != 2 || !strings.Contains(s.Notes[1], "TX_SOFTWARE") || res.Departures != nil {
		t.Errorf("%d complete, notes %q, departures %v: want none, the stamp that is missing, none", s.Complete, s.Notes, res.Departures)
	}
}

// Where the device stamps, a packet leaves when the device says so, and the bound of its clock is stated. A device that stamps too few, or none,
// takes nothing from what software tells. Packets with and without its stamps are never in one histogram.
func TestSegmentsHardware(t *testing.T) {
	const toWire, clockError = 1100, 400
	for _, c := range []struct {
		why     string
		stamps  func(seq uint64) bool // by the device
		early   int64                 // ns before the driver, which shows that the clock is wrong
		source  string
		kernel  int64
		missing uint64 // in 100
		notes   []string
	}{
		{"each", func(uint64) bool { return true }, 0, "hardware", toWire - toSched, 0, []string{"within 400 ns"}},
		{"three of four", func(seq uint64) bool { return seq/64%4 != 0 }, 0, "hardware", toWire - toSched, 25, []string{"are in no part", "within 400 ns"}},
		{"one of four", func(seq uint64) bool { return seq/64%4 == 0 }, 0, "software", toDriver - toSched, 0, []string{"too few to go by"}},
		{"none", func(uint64) bool { return false }, 0, "software", toDriver - toSched, 0, []string{"not one TX_HARDWARE"}},
		{"a wrong clock", func(uint64) bool { return true }, 1100, "hardware", 0, 0, []string{"within 400 ns", "700 ns before its driver"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			b := stampedBench(t, 0)
			b.fake.Hardware, b.fake.ClockError = true, clockError
			b.fake.Stamp = func(seq uint64, kind backend.StampKind, at int64) int64 {
				if kind == backend.StampHardware && !c.stamps(seq) {
					return 0
				}
				return at + []int64{toSched, toDriver, toWire - c.early}[kind]
			}
			res, parts := b.segments(t)
			s := res.Segments
			all := s.Complete + s.Incomplete
			if s.Stamps != c.source || s.Arrivals != "software" || res.Departures.Source != "tx_"+c.source || (s.ClockErrorNS == clockError) != (c.source == "hardware") {
				t.Errorf("stamps %q, arrivals %q, departures by %q, clock error %d", s.Stamps, s.Arrivals, res.Departures.Source, s.ClockErrorNS)
			}
			if off := int64(s.Incomplete*100) - int64(c.missing*all); all < 2*stampedRate/every-sampleRun || off < -100*sampleRun || off > 100*sampleRun {
				t.Errorf("%d complete, %d incomplete: want %d in 100 without", s.Complete, s.Incomplete, c.missing)
			}
			within(t, parts, stats.SegmentKernel, c.kernel, c.kernel)
			if len(s.Notes) != len(c.notes) {
				t.Fatalf("notes %q: want %q", s.Notes, c.notes)
			}
			for i, want := range c.notes {
				if !strings.Contains(s.Notes[i], want) {
					t.Errorf("note %q: want %q", s.Notes[i], want)
				}
			}
		})
	}
}

// Gaps are those of the stamps, not of the send loop: here every packet with an even number leaves 5 us late.
func TestDepartures(t *testing.T) {
	const late, period = 5000, int64(time.Second) / stampedRate
	b := stampedBench(t, 0)
	b.cfg.Echo = false
	b.fake.Stamp = func(seq uint64, kind backend.StampKind, at int64) int64 {
		return at + []int64{toSched, toDriver}[kind] + int64(1-seq%2)*late
	}
	res := must[*stats.Result](t)(b.go_(t))
	d := res.Departures
	if d == nil || d.Source != "tx_software" || d.Test != nil || res.Segments != nil {
		t.Fatalf("departures %+v, segments %v: want stamps of software, no test, no segments", d, res.Segments)
	}
	want := uint64(2*stampedRate/every) / sampleRun * (sampleRun - 1)
	if n := d.Error.Count; n != res.Gap.Count || n < want-sampleRun || n > want {
		t.Errorf("%d gaps, %d errors: want %d", res.Gap.Count, n, want)
	}
	if d.Error.Min < late-60 || d.Error.Max > late+60 || res.Gap.Min < period-late-60 || res.Gap.Max > period+late+60 {
		t.Errorf("gap error %d to %d, gap %d to %d: want %d, and %d with it added and taken off", d.Error.Min, d.Error.Max, res.Gap.Min, res.Gap.Max, late, period)
	}
}

// A Poisson plan's departures pass the test against it, and bursts do not.
func TestDeparturesFit(t *testing.T) {
	for _, c := range []struct {
		why   string
		burst int64 // ns on which packets leave
		fits  bool
	}{
		{"packets that leave as planned", 1, true},
		{"packets that leave on full milliseconds", int64(time.Millisecond), false},
	} {
		b := newBench(t, must[*pace.Process](t)(pace.Poisson(pace.Rate{Packets: 2000, Per: time.Second}, 3, 5*time.Second)), 1)
		b.cfg.StampEvery, b.cfg.StampSeed = 4, 1
		b.fake.Stamp = func(_ uint64, _ backend.StampKind, at int64) int64 { return at + 700 + c.burst - at%c.burst }
		res := must[*stats.Result](t)(b.go_(t))
		test := res.Departures.Test
		if test == nil || test.Samples != res.Gap.Count || (test.P > 0.001) != c.fits || !strings.HasPrefix(test.Against, "exponential gaps, mean ") {
			t.Errorf("%s: test %+v of %d gaps", c.why, test, res.Gap.Count)
		}
	}
}

// A worker of two has every second slot of a Poisson plan, whose gaps are no exponential ones.
func TestFitOfWorkers(t *testing.T) {
	plan := must[*pace.Process](t)(pace.Poisson(pace.Rate{Packets: 2000, Per: time.Second}, 3, 5*time.Second))
	var gaps []float64
	for i := uint64(2); i < plan.Slots(); i += 2 {
		gaps = append(gaps, float64(plan.At(i)-plan.At(i-2)))
	}
	for _, c := range []struct {
		workers int
		against string
		fits    bool
	}{
		{2, "Erlang gaps of shape 2, as every one of 2 workers has, mean ", true},
		{1, "exponential gaps, mean ", false},
	} {
		test := (&run{Config: Config{Schedule: plan, Workers: c.workers}}).fit(gaps)
		if test == nil || !strings.HasPrefix(test.Against, c.against) || (test.P > 0.001) != c.fits || test.Samples != uint64(len(gaps)) {
			t.Errorf("%d workers: %+v of %d gaps", c.workers, test, len(gaps))
		}
	}
	if test := (&run{Config: Config{Schedule: plan, Workers: 1}}).fit(gaps[:49]); test != nil {
		t.Errorf("too few gaps: %+v", test)
	}
}

// Stamps cost the hot loops no allocation.
func TestStampsNoAllocations(t *testing.T) {
	w, n := hotWorker(t, clock.NewReal(), 14_880_000)
	var table [64]backend.Stamp
	follow := follower{sampler: newSampler(4, 1, 0), stamper: &echoStamper{null: n, stamps: table[:0]}, each: 1, marks: marks{items: make([]mark, 256)}}
	w.follow = &follow
	taken := 0
	if n := testing.AllocsPerRun(1000, func() {
		w.pass()
		w.reap()
		follow.marks.take(func(*mark) { taken++ })
	}); n != 0 {
		t.Errorf("a pass of 64 packets allocates %v times: want 0", n)
	}
	if taken < 1000*2*16 {
		t.Errorf("%d marks of 1000 passes: want about two for each of 16 packets", taken)
	}
	rc := &receiver{src: w.src, rec: &stats.Double[stats.ReceiveInterval]{}, win: newWindow(0, 1<<20, 1, 1), timeout: 1e9, limit: 1 << 20}
	rc.follow = &follower{sampler: newSampler(4, 1, 0), marks: marks{items: make([]mark, 256)}}
	payload, seq, p := make([]byte, 64), uint64(0), &backend.Packet{}
	p.Payload = payload
	if n := testing.AllocsPerRun(1000, func() {
		packet.PutStamp(payload, &packet.Stamp{Seq: seq, Stride: 1})
		p.At = int64(1000 * seq)
		seq++
		rc.packet(p)
	}); n != 0 {
		t.Errorf("a reply allocates %v times: want 0", n)
	}
}

// echoStamper stamps what asked in the last Commit.
type echoStamper struct {
	*null
	stamps []backend.Stamp
}

func (e *echoStamper) TakeStamps(into []backend.Stamp) (n int) {
	for i := range e.slots {
		if id := e.slots[i].Stamp; id != 0 && n < len(into) {
			into[n] = backend.Stamp{ID: id}
			n++
			e.slots[i].Stamp = 0
		}
	}
	return n
}
