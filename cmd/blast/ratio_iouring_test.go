package main

import (
	"runtime"
	"testing"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/backend/iouring"
	"blast/backend/mmsg"
	"blast/internal/testskip"
)

// The place of io_uring among the socket backends: level with sendmmsg where one call serves one socket, ahead where it cannot.
func TestRatioIOUring(t *testing.T) {
	testskip.IOUring(t, iouring.Probe())
	const payload = 18 // a minimum frame
	for _, c := range []struct {
		name  string
		flows int
		cfg   backend.Config
		least float64
	}{
		{"one flow", 1, backend.Config{}, 0.95},
		{"1,000 flows", 1000, backend.Config{}, 1.2},
		{"one flow, trains of 32", 1, backend.Config{GSO: 32}, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // for good: rings belong to the thread that made them
			send := func(open backend.Open) func(int) {
				cfg := c.cfg
				to := backendtest.Unread(t)
				for range c.flows {
					cfg.Flows = append(cfg.Flows, backend.Flow{Dst: to})
				}
				return backendtest.FlatOut(t, open, cfg, to, payload)
			}
			backendtest.Ratio(t, send(mmsg.Open), send(iouring.Open), c.least)
		})
	}
}
