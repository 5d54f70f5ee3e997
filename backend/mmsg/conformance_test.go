package mmsg

import (
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/testnet"
)

// harnesses are the two ways this backend works: packet by packet, and with everything that changes how they leave and arrive.
func harnesses() map[string]backendtest.Harness {
	offload := func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		cfg.GRO, cfg.KernelStamp = cfg.GRO || cfg.Receive, cfg.Receive
		return Open(cfg)
	}
	return map[string]backendtest.Harness{
		"plain":  {Open: Open, Sockets: true},
		"trains": {Open: offload, Config: backend.Config{GSO: 32}, Sockets: true},
		"stamps": {Open: backendtest.StampAll(Open), Sockets: true},
	}
}

func TestConformance(t *testing.T) {
	for name, h := range harnesses() {
		t.Run(name, func(t *testing.T) { backendtest.Run(t, h) })
	}
}

func TestConformanceUnprivileged(t *testing.T) {
	for name, h := range harnesses() {
		h.Do = backendtest.Unprivileged(t)
		t.Run(name, func(t *testing.T) { backendtest.Run(t, h) })
	}
}

func TestKernelConformance(t *testing.T) {
	for name, h := range harnesses() {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.OnPair(h, testnet.NewPair(t, testnet.Config{})))
		})
	}
}

func TestKernelFaults(t *testing.T) {
	for name, h := range harnesses() {
		t.Run(name, func(t *testing.T) { backendtest.RunSocketFaults(t, h) })
	}
}
