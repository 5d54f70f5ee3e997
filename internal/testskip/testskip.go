// Package testskip is the one place where a test may skip itself, so that CI can forbid it.
//
// The environment variable BLAST_MUST_RUN holds a comma-separated list of features, or "all". A test that wants to
// skip for want of a listed feature fails instead: on the build machines nothing is skipped silently.
package testskip

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// Skip ends the test: skipped with the reason and its remedy, or failed when BLAST_MUST_RUN names the feature.
// feature is a short stable word such as "root", "netns", "io_uring", "xdp", "npm", "dns".
func Skip(t testing.TB, feature, reason, remedy string) {
	t.Helper()
	for f := range strings.SplitSeq(os.Getenv("BLAST_MUST_RUN"), ",") {
		if f = strings.TrimSpace(f); f == feature || f == "all" {
			t.Fatalf("%s: %s; BLAST_MUST_RUN forbids the skip; remedy: %s", feature, reason, remedy)
		}
	}
	t.Skipf("%s: %s; remedy: %s", feature, reason, remedy)
}

// Root skips the test unless it runs as uid 0.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root", "needs root", "sudo -E go test")
	}
}

// IOUring skips the test where err, of a probe of io_uring, says that it will not work here.
func IOUring(t testing.TB, err error) {
	t.Helper()
	if unsupported(t, err) {
		Skip(t, "io_uring", err.Error(), "sysctl -w kernel.io_uring_disabled=0, and a seccomp profile that allows io_uring")
	}
}

// XDP skips the test where err, of a probe of AF_XDP or the in-kernel engine, says that it will not work here.
func XDP(t testing.TB, err error) {
	t.Helper()
	if unsupported(t, err) {
		Skip(t, "xdp", err.Error(), "sudo -E go test, on a kernel from 5.18 with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS")
	}
}

// unsupported fails the test when the probe could not tell: that is no reason to skip.
func unsupported(t testing.TB, err error) bool {
	t.Helper()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("probe: %v", err)
	}
	return err != nil
}
