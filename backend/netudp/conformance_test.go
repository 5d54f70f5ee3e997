package netudp

import (
	"testing"

	"blast/backend/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Open: Open, Sockets: true})
}
