package engine

import (
	"os"
	"testing"
	"time"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/testskip"
	"blast/pace"
	"blast/packet"
	"blast/stats"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// null is a backend that does nothing: what remains is the engine's own cost.
type null struct {
	slots []backend.Slot
	sent  int
}

func newNull(batch, payload int) *null {
	n := &null{slots: make([]backend.Slot, batch)}
	for i := range n.slots {
		n.slots[i].Payload = make([]byte, payload)
	}
	return n
}

func (n *null) Reserve(k int) []backend.Slot { return n.slots[:min(k, len(n.slots))] }
func (n *null) Commit(k int) (int, error)    { n.sent += k; return k, nil }
func (n *null) Reap() backend.Completions    { return backend.Completions{} }
func (n *null) Limits() backend.Limits       { return backend.Limits{Batch: len(n.slots), GSO: 1} }
func (n *null) Close() error                 { return nil }

// hotWorker is a worker over a null backend that is always a full batch behind a real schedule, so that every pass sends one.
func hotWorker(tb testing.TB, clk clock.Clock, rate uint64) (*worker, *null) {
	s, err := pace.Constant(pace.Rate{Packets: rate, Per: time.Second}, time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := Config{
		Schedule: s, Flows: make([]backend.Flow, 1), Clock: clk,
		Open:   func(backend.Config) (backend.Sender, backend.Receiver, error) { return newNull(64, 64), nil, nil },
		Source: func(int) Source { return &Stamped{PayloadBytes: 64} },
	}.withDefaults()
	r := newRun(cfg)
	if err := r.open(0); err != nil {
		tb.Fatal(err)
	}
	w := r.workers[0]
	r.begin(clk.Now() - int64(time.Minute))
	w.measuring, w.nextFlip = true, 1<<62
	w.cursor, w.origin = r.lanes[0].cursor, r.start
	w.advance()
	return w, w.snd.(*null)
}

func (w *worker) pass() {
	now := w.clk.Now()
	w.collect(now)
	w.send(now)
}

// The hot loops allocate nothing: sending, and receiving with a report.
func TestNoAllocations(t *testing.T) {
	w, _ := hotWorker(t, clock.NewReal(), 14_880_000)
	if n := testing.AllocsPerRun(1000, w.pass); n != 0 {
		t.Errorf("a pass of 64 packets allocates %v times: want 0", n)
	}
	rc := &receiver{src: w.src, rec: &stats.Double[stats.ReceiveInterval]{}, win: newWindow(0, 1<<20, 1, 1), timeout: 1e9, limit: 1 << 20}
	payload, seq := make([]byte, 64), uint64(0)
	p := &backend.Packet{Payload: payload}
	if n := testing.AllocsPerRun(1000, func() {
		packet.PutStamp(payload, &packet.Stamp{Seq: seq, Stride: 1})
		packet.PutServer(payload, 1, 2, seq+1, ^uint64(0))
		p.At = int64(1000 * seq)
		seq++
		rc.packet(p)
	}); n != 0 {
		t.Errorf("a reply allocates %v times: want 0", n)
	}
	if rc.unique != 1001 {
		t.Errorf("%d replies counted: want 1001", rc.unique)
	}
}

// BenchmarkPacket is the engine's own cost of a packet: schedule, stamp, lag and histogram, over a backend that does nothing.
func BenchmarkPacket(b *testing.B) {
	w, _ := hotWorker(b, clock.NewReal(), 1_000_000_000)
	b.ReportAllocs()
	for n := 0; n < b.N; n += 64 {
		w.pass()
	}
}

// BenchmarkReply is the cost of one reply: match, window, three histograms.
func BenchmarkReply(b *testing.B) {
	w, _ := hotWorker(b, clock.NewReal(), 1_000_000)
	rc := &receiver{src: w.src, rec: &stats.Double[stats.ReceiveInterval]{}, win: newWindow(0, uint64(b.N), 1, 1), timeout: 1e9, limit: 1 << 60}
	payload := make([]byte, 64)
	p := &backend.Packet{Payload: payload}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		packet.PutStamp(payload, &packet.Stamp{Seq: uint64(n), Stride: 1})
		packet.PutServer(payload, 1, 2, uint64(n)+1, ^uint64(0))
		p.At = int64(n)
		rc.packet(p)
	}
}

// TestRatioEngine holds the engine's own cost of a packet against one RecordValue of hdrhistogram-go, in turns: at most 8 times.
func TestRatioEngine(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	w, _ := hotWorker(t, clock.NewReal(), 1_000_000_000)
	hdr := hdrhistogram.New(1, int64(time.Hour), 3)
	const packets = 1 << 22
	best := func(fn func()) float64 {
		begun := time.Now()
		fn()
		return float64(time.Since(begun)) / packets
	}
	engine, record := 1e9, 1e9
	for range 9 {
		engine = min(engine, best(func() {
			for range packets / 64 {
				w.pass()
			}
		}))
		record = min(record, best(func() {
			for i := range int64(packets) {
				_ = hdr.RecordValue(1000 + i%5000)
			}
		}))
	}
	t.Logf("a packet costs the engine %.1f ns, a RecordValue %.1f ns: ratio %.2f (at most 8)", engine, record, engine/record)
	if engine > 8*record {
		t.Errorf("ratio %.2f: want at most 8", engine/record)
	}
}

// The real clock agrees with CLOCK_MONOTONIC as others read it, and sleeps until what it is told.
func TestRealClock(t *testing.T) {
	clk := clock.NewReal()
	before := clk.Now()
	clk.Sleep(before + int64(2*time.Millisecond))
	if slept := clk.Now() - before; slept < int64(2*time.Millisecond) {
		t.Errorf("slept %d ns: want 2 ms at least", slept)
	}
}
