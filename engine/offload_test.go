package engine

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/backend"
	"blast/pace"
	"blast/stats"
)

// fakeOffload says that it did what the test wants.
type fakeOffload struct {
	books  func(start, deadline int64) backend.OffloadBooks
	unsent []uint64
	fail   error

	mu              sync.Mutex
	start, deadline int64
	running         bool
	stop            chan struct{}
	begun           chan struct{}
	given           bool
	closed          int
}

func (f *fakeOffload) Run(time.Duration) error {
	f.mu.Lock()
	f.running = true
	f.mu.Unlock()
	select {
	case <-f.begun:
	case <-f.stop:
	}
	return f.fail
}

func (f *fakeOffload) Ready() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running, nil
}

func (f *fakeOffload) Start(start, deadline int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start, f.deadline = start, deadline
	close(f.begun)
	return nil
}

func (f *fakeOffload) Stop() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
}

// Collect gives all at the end: a lag of 5 ns for every packet.
func (f *fakeOffload) Collect(now int64, fn func(*backend.OffloadInterval)) error {
	if now < 1<<62 || f.given {
		return nil
	}
	f.given = true
	b, _ := f.Books()
	n := b.Sent + b.Dropped
	fn(&backend.OffloadInterval{Sent: n, Lag: backend.Buckets{Counts: []uint64{5: n}, Min: 5, Max: 5, SumLo: 5 * n}})
	return nil
}

func (f *fakeOffload) Books() (backend.OffloadBooks, error) { return f.books(f.start, f.deadline), nil }

func (f *fakeOffload) Unsent(fn func(uint64)) (uint64, error) {
	for _, seq := range f.unsent {
		fn(seq)
	}
	return 0, nil
}

func (f *fakeOffload) Limits() backend.Limits { return backend.Limits{Batch: 8, Mode: "fake"} }

func (f *fakeOffload) Close() error {
	f.closed++
	return nil
}

// fakeReplies is the receiver.
type fakeReplies struct {
	backend.OffloadReceiver
	books  []backend.ReceiverBooks
	unseen uint64
	closed int
}

func (f *fakeReplies) Begin(int64) error                                    { return nil }
func (f *fakeReplies) Collect(int64, func(*backend.ReceiverInterval)) error { return nil }
func (f *fakeReplies) Books() ([]backend.ReceiverBooks, error)              { return f.books, nil }
func (f *fakeReplies) Told(func(*backend.Reply)) (uint64, error)            { return 0, nil }
func (f *fakeReplies) Unseen(_ int, from, to uint64, each func(uint64)) (n uint64, err error) {
	return f.unseen, nil
}
func (f *fakeReplies) Mode() string    { return "fake XDP" }
func (f *fakeReplies) Notes() []string { return nil }
func (f *fakeReplies) Close() error {
	f.closed++
	return nil
}

func offloadConfig(t *testing.T, pps uint64, length time.Duration) Config {
	t.Helper()
	s, err := pace.Constant(pace.Rate{Packets: pps, Per: time.Second}, length)
	if err != nil {
		t.Fatal(err)
	}
	flow := backend.Flow{Dst: netip.MustParseAddrPort("192.0.2.1:9")}
	return Config{Schedule: s, Workers: 1, Flows: []backend.Flow{flow, flow}, Timeout: time.Second, Drain: time.Millisecond,
		Source: func(int) Source { return &Stamped{PayloadBytes: 48} }}
}

// TestOffloadLedger: every slot has a fate, whatever the worker says it did.
func TestOffloadLedger(t *testing.T) {
	const slots = 1000 // 10k/s for 100 ms
	for _, c := range []struct {
		name    string // what the case is for
		books   func(start, deadline int64) backend.OffloadBooks
		replies *backend.ReceiverBooks
		unseen  uint64
		unsent  []uint64 // told, with names
		want    stats.Ledger
	}{
		{"all sent", func(int64, int64) backend.OffloadBooks { return backend.OffloadBooks{Next: slots, Sent: slots} }, nil, 0, nil,
			stats.Ledger{Planned: slots, Sent: slots}},
		{"some dropped, refused and skipped", func(int64, int64) backend.OffloadBooks {
			b := backend.OffloadBooks{Next: slots, Sent: 900, Dropped: 50, Skipped: 30}
			b.Refused[backend.CauseDown] = 20
			return b
		}, nil, 0, nil, stats.Ledger{Planned: slots, Sent: 900, KernelDropped: 50, Abandoned: 30, Refused: map[string]uint64{"down": 20}}},
		{"cut short at half time", func(start, _ int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 400, Sent: 400, Ended: start + int64(50*time.Millisecond)}
		}, nil, 0, nil, stats.Ledger{Planned: 501, Sent: 400, Abandoned: 101}},
		{"given up at the deadline", func(_, deadline int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 700, Sent: 700, Ended: deadline}
		}, nil, 0, nil, stats.Ledger{Planned: slots, Sent: 700, Abandoned: 300}},
		{"replies of every kind, the rest in flight", func(int64, int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: slots, Sent: slots}
		}, &backend.ReceiverBooks{Unique: 990, Replied: 980, Late: 10, Duplicate: 3, Reordered: 2, Stray: 1}, 10, nil,
			stats.Ledger{Planned: slots, Sent: slots, Replied: 980, Late: 10, Duplicate: 3, Reordered: 2, Stray: 1, InFlight: 10}},
		{"dropped packets are not waited for", func(int64, int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: slots, Sent: 995, Dropped: 5}
		}, &backend.ReceiverBooks{Unique: 995, Replied: 995}, 5, nil,
			stats.Ledger{Planned: slots, Sent: 995, KernelDropped: 5, Replied: 995}},
		{"some lost for good", func(int64, int64) backend.OffloadBooks { return backend.OffloadBooks{Next: slots, Sent: slots} },
			&backend.ReceiverBooks{Unique: 990, Replied: 990}, 4, nil,
			stats.Ledger{Planned: slots, Sent: slots, Replied: 990, InFlight: 4, Lost: 6, LostUnknown: 6}},
		{"dropped packets that are known are not in flight", func(int64, int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: slots, Sent: 995, Dropped: 5}
		}, &backend.ReceiverBooks{Unique: 990, Replied: 990}, 8, []uint64{991, 992, 993, 994, 995},
			stats.Ledger{Planned: slots, Sent: 995, KernelDropped: 5, Replied: 990, InFlight: 3, Lost: 2, LostUnknown: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := offloadConfig(t, 10_000, 100*time.Millisecond)
			if cfg.Echo = c.replies != nil; c.unsent != nil {
				cfg.Names = &Names{}
			}
			f := &fakeOffload{books: c.books, unsent: c.unsent, stop: make(chan struct{}), begun: make(chan struct{})}
			replies := &fakeReplies{unseen: c.unseen}
			res, err := RunOffload(context.Background(), cfg, func(cfgs []backend.OffloadConfig, r *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
				if len(cfgs) != 1 || cfgs[0].Slots != slots || len(cfgs[0].Segments) != 1 || cfgs[0].Segments[0].Quot != 100_000 || (r != nil) != cfg.Echo {
					t.Errorf("asked for %+v, %+v", cfgs, r)
				}
				if r == nil {
					return []backend.Offload{f}, nil, nil
				}
				replies.books = []backend.ReceiverBooks{*c.replies}
				return []backend.Offload{f}, replies, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			mode := stats.ModeOneway
			if cfg.Echo {
				mode = stats.ModeEcho
			}
			if err := res.Ledger.Check(mode); err != nil {
				t.Error(err)
			}
			got := res.Ledger
			got.InFlightAtLeastNS = 0
			if c.want.Refused == nil {
				c.want.Refused = map[string]uint64{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("ledger (-want +got):\n%s", diff)
			}
			if n := got.Sent + got.KernelDropped; res.Lag.Count != n || res.Lag.Max != 5 || len(res.Timeline) != 1 || res.Timeline[0].Sent != n || res.Timeline[0].Planned != slots {
				t.Errorf("lag %+v, timeline %+v", res.Lag, res.Timeline)
			}
			if f.closed != 1 || cfg.Echo && replies.closed != 1 {
				t.Errorf("closed %d and %d times", f.closed, replies.closed)
			}
		})
	}
}

// TestOffloadDuty: a worker that has sent all of its share waits for the rest of the plan's time; one that was cut short did not.
func TestOffloadDuty(t *testing.T) {
	for _, c := range []struct {
		name string // what the case is for
		book func(start, deadline int64) backend.OffloadBooks
		want float64
	}{
		{"one packet in a second", func(start, _ int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 1, Sent: 1, LastSent: start + 1000}
		}, 1e-6},
		{"busy until it was cut short at half time", func(start, _ int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 1, Sent: 1, LastSent: start + 1000, Ended: start + 500_000_000}
		}, 1},
		{"waiting for the most part until it was cut short", func(start, _ int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 1, Sent: 1, LastSent: start + 1000, Waited: 400_000_000, Ended: start + 500_000_000}
		}, 0.2},
	} {
		f := &fakeOffload{books: c.book, stop: make(chan struct{}), begun: make(chan struct{})}
		res, err := RunOffload(context.Background(), offloadConfig(t, 1, time.Second),
			func([]backend.OffloadConfig, *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
				return []backend.Offload{f}, nil, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Workers[0].Duty; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: duty %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOffloadFailure: a worker that fails gives its books and its error.
func TestOffloadFailure(t *testing.T) {
	broken := errors.New("out of pages")
	f := &fakeOffload{fail: broken, stop: make(chan struct{}), begun: make(chan struct{}),
		books: func(start, _ int64) backend.OffloadBooks {
			return backend.OffloadBooks{Next: 10, Sent: 10, Ended: start + int64(time.Millisecond)}
		}}
	res, err := RunOffload(context.Background(), offloadConfig(t, 10_000, 100*time.Millisecond),
		func([]backend.OffloadConfig, *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
			return []backend.Offload{f}, nil, nil
		})
	if !errors.Is(err, broken) || res == nil || res.Ledger.Sent != 10 || !strings.Contains(res.Interrupted, "out of pages") || f.closed != 1 {
		t.Errorf("%v; %+v", err, res)
	}
}

// TestOffloadRefuses: what needs us for each packet, or for each reply, is refused before anything is opened.
func TestOffloadRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"sizes that differ", func(c *Config) { c.Source = func(int) Source { return &Stamped{Size: func(uint64) int { return 1 }} } }},
		{"another source", func(c *Config) { c.Source = func(int) Source { return &Templated{} } }},
		{"a closed model", func(c *Config) { c.Model, c.Echo, c.Schedule = ModelClosed, true, pace.Unpaced{} }},
		{"a cap on what is in flight", func(c *Config) { c.MaxInFlight, c.Echo = 3, true }},
	} {
		cfg := offloadConfig(t, 1000, time.Second)
		c.change(&cfg)
		_, err := RunOffload(context.Background(), cfg, func([]backend.OffloadConfig, *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
			t.Errorf("%s: opened", c.name)
			return nil, nil, errors.ErrUnsupported
		})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
