package engine

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blast/backend"
)

// fakeSockets are a worker's sockets for replies, on which nothing comes.
type fakeSockets struct {
	backend.Sender
	sources []netip.AddrPort
	closed  *atomic.Int32
}

func (f *fakeSockets) Limits() backend.Limits {
	return backend.Limits{Mode: "fake", Sources: f.sources, Notes: []string{"a small buffer"}}
}
func (f *fakeSockets) Close() error { f.closed.Add(1); return nil }

// fakeSocketReceiver is their other half.
type fakeSocketReceiver struct{ closed *atomic.Int32 }

func (f *fakeSocketReceiver) Poll(time.Duration, func(*backend.Packet)) (int, error) {
	time.Sleep(time.Millisecond)
	return 0, nil
}
func (f *fakeSocketReceiver) Drops() uint64 { return 3 }
func (f *fakeSocketReceiver) Close() error  { f.closed.Add(1); return nil }

// TestOffloadSockets: sockets for replies are opened before the workers, which are told their ports, and closed whatever fails.
func TestOffloadSockets(t *testing.T) {
	broken := errors.New("no more ports")
	for _, c := range []struct {
		name    string // what the case is for
		fails   int    // the worker whose sockets cannot be opened, -1 = none
		sources int    // sockets of a worker
		open    error  // of the offload
		cpus    []int
		want    error
		closed  int32 // halves of sockets
	}{
		{"all is well", -1, 1, nil, nil, nil, 4},
		{"the second worker's sockets fail", 1, 1, nil, nil, broken, 2},
		{"fewer sockets than flows", -1, 0, nil, nil, errors.ErrUnsupported, 2},
		{"the offload fails", -1, 1, broken, nil, broken, 4},
		{"threads on a CPU that is not there", -1, 1, nil, []int{4095}, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			var closed atomic.Int32
			cfg := offloadConfig(t, 1000, 100*time.Millisecond)
			cfg.Workers, cfg.Echo, cfg.ReceiveCPUs = 2, true, c.cpus
			cfg.ReplySockets = func(b backend.Config) (backend.Sender, backend.Receiver, error) {
				if b.Worker == c.fails {
					return nil, nil, broken
				}
				f := &fakeSockets{closed: &closed}
				for i := range c.sources {
					f.sources = append(f.sources, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(4000+10*b.Worker+i)))
				}
				return f, &fakeSocketReceiver{&closed}, nil
			}
			opened := false
			res, err := RunOffload(context.Background(), cfg, func(cfgs []backend.OffloadConfig, r *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
				opened = true
				if c.open != nil {
					return nil, nil, c.open
				}
				var list []backend.Offload
				for i := range cfgs {
					if f := &cfgs[i]; r != nil || !f.Held || len(f.Flows) != 1 || f.Flows[0].Src.Port() != uint16(4000+10*i) {
						t.Errorf("worker %d: asked for %+v, receiver %+v", i, f, r)
					}
					list = append(list, &fakeOffload{stop: make(chan struct{}), begun: make(chan struct{}),
						books: func(int64, int64) backend.OffloadBooks { return backend.OffloadBooks{Next: 50, Sent: 50} }})
				}
				return list, nil, nil
			})
			if n := closed.Load(); n != c.closed || c.want != nil && !errors.Is(err, c.want) || opened != (c.want == nil || c.open != nil) {
				t.Fatalf("%v; closed %d, want %d; workers opened: %v", err, n, c.closed, opened)
			}
			switch {
			case c.want != nil:
			case c.cpus != nil:
				if err == nil || strings.Count(err.Error(), "cpus [4095]") != 2 || strings.Count(err.Error(), "receiver 1:") != 1 {
					t.Errorf("%v: want each receiver named once, with its CPUs", err)
				}
			case err != nil || res.Ledger.Sent != 100 || res.Ledger.SelfLost != 6 || res.Ledger.InFlight+res.Ledger.Lost != 100 ||
				!strings.Contains(res.Backend.Mode, "replies by sockets, fake") || !strings.Contains(strings.Join(res.Backend.Notes, "|"), "a small buffer"):
				t.Errorf("%v; %+v, %+v", err, res.Ledger, res.Backend)
			}
		})
	}
}
