package tuning

import (
	"testing"

	"blast/internal/testnet"
)

// TestKernelDeviceOnAnyStack asks the driver with every fill of a new goroutine's small stack: one that grew within the ethtool library
// made it answer nothing, without an error.
func TestKernelDeviceOnAnyStack(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{Queues: 4})
	pair.Left.Count(testnet.CountConfig{Action: testnet.Pass})
	for depth := range 120 {
		for _, s := range []Setting{QueuePackets, Channels} {
			pair.Left.Do(func() {
				deeper(depth, func() {
					got, err := (Reader{}).Device().Get(pair.Left.Interface, s)
					if err != nil || got == "" || s == Channels && got != "rx=4 tx=4 other=0 combined=0" {
						t.Errorf("depth %d: %s %q, %v", depth, s, got, err)
					}
				})
			})
		}
	}
}

//go:noinline
func deeper(n int, fn func()) byte {
	var frame [16]byte
	if n > 0 {
		frame[n%16] = deeper(n-1, fn)
	} else {
		fn()
	}
	return frame[n%7]
}
