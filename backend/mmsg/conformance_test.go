package mmsg

import (
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Open: Open, Sockets: true})
}

// TestConformanceTrains is the same with everything that changes how packets leave and arrive.
func TestConformanceTrains(t *testing.T) {
	offload := func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		cfg.GRO, cfg.KernelStamp = cfg.GRO || cfg.Receive, cfg.Receive
		return Open(cfg)
	}
	backendtest.Run(t, backendtest.Harness{Open: offload, Config: backend.Config{GSO: 32}, Sockets: true})
}
