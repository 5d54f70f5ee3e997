//go:build !linux

package xdp

import (
	"errors"
	"fmt"
	"runtime"
)

// Probe says that AF_XDP does not exist here.
func Probe(string) error {
	return fmt.Errorf("xdp: AF_XDP on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
