package vm

import (
	"net/netip"
	"testing"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/backend/backendtest"
	"blast/internal/sys"
	"blast/internal/testnet"
)

// testConformance runs the suite on queue 0, with the zero-copy that the card grants. A worker on another queue stays open beside it, and
// with it the program on the interface: igb takes the link down for seconds whenever a program comes or goes.
func testConformance(t *testing.T, pair *testnet.Pair) {
	entry := afxdp.Entry()
	pair.Left.Do(func() {
		s, r, err := entry.Open(backend.Config{
			Flows:     []backend.Flow{{Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9001)}},
			Interface: pair.Left.Interface, Queue: 3, Receive: true, Now: sys.Monotonic, ZeroCopy: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	carrier(t, pair.Left)
	open := func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		if cfg.Receive {
			return entry.Open(cfg)
		}
		// The program that is attached is one that receives: a worker that only sends shares it by opening a receiver, too.
		cfg.Receive, cfg.Now = true, sys.Monotonic
		s, r, err := entry.Open(cfg)
		if err != nil {
			return nil, nil, err
		}
		return s, nil, r.Close()
	}
	h := backendtest.Harness{Open: open, Config: backend.Config{Interface: pair.Left.Interface, ZeroCopy: true}}
	backendtest.Run(t, backendtest.OnPair(h, pair))
}
