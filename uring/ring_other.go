//go:build !linux || !(amd64 || arm64 || loong64 || ppc64le || riscv64)

package uring

import "runtime"

func unsupported() error {
	return &UnsupportedError{What: "io_uring", Why: "needs Linux on a 64-bit little-endian machine, this is " + runtime.GOOS + "/" + runtime.GOARCH}
}

// Probe always answers that io_uring is not supported here.
func Probe() error { return unsupported() }

// Ring cannot be made here.
type Ring struct{}

// New always answers that io_uring is not supported here.
func New(Config) (*Ring, error) { return nil, unsupported() }

// Close does nothing.
func (*Ring) Close() error { return nil }
