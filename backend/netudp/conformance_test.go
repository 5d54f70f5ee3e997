package netudp

import (
	"testing"

	"blast/backend/backendtest"
	"blast/internal/testnet"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Open: Open, Sockets: true})
	t.Run("stamps", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{Open: backendtest.StampAll(Open), Sockets: true})
	})
}

func TestConformanceUnprivileged(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Open: Open, Sockets: true, Do: backendtest.Unprivileged(t)})
}

func TestKernelConformance(t *testing.T) {
	h := backendtest.Harness{Open: Open, Sockets: true}
	backendtest.Run(t, backendtest.OnPair(h, testnet.NewPair(t, testnet.Config{})))
}

func TestKernelFaults(t *testing.T) {
	backendtest.RunSocketFaults(t, backendtest.Harness{Open: Open})
}
