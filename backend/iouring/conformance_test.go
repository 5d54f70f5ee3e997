package iouring

import (
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/testnet"
	"blast/internal/testskip"
)

// harnesses are the ways this backend works: packet by packet, with everything that changes how packets leave and arrive, through
// the kernel's submission thread, and without copying.
func harnesses(t *testing.T) map[string]backendtest.Harness {
	t.Helper()
	testskip.IOUring(t, Probe())
	offload := func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		cfg.GRO, cfg.KernelStamp = cfg.GRO || cfg.Receive, cfg.Receive
		return Open(cfg)
	}
	zero := func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		cfg.ZeroCopy = true
		return Open(cfg)
	}
	return map[string]backendtest.Harness{
		"plain":     {Open: Open, Sockets: true, ZeroCopy: true},
		"trains":    {Open: offload, Config: backend.Config{GSO: 32}, Sockets: true, ZeroCopy: true},
		"sqpoll":    {Open: Open, Config: backend.Config{SQPoll: true}, Sockets: true, ZeroCopy: true},
		"stamps":    {Open: backendtest.StampAll(Open), Sockets: true, ZeroCopy: true},
		"zero copy": {Open: zero, Config: backend.Config{GSO: 32}, Sockets: true, ZeroCopy: true},
	}
}

func TestConformance(t *testing.T) {
	for name, h := range harnesses(t) {
		t.Run(name, func(t *testing.T) { backendtest.Run(t, h) })
	}
}

func TestKernelConformance(t *testing.T) {
	for name, h := range harnesses(t) {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.OnPair(h, testnet.NewPair(t, testnet.Config{})))
		})
	}
}

func TestKernelFaults(t *testing.T) {
	for name, h := range harnesses(t) {
		t.Run(name, func(t *testing.T) { backendtest.RunSocketFaults(t, h) })
	}
}
