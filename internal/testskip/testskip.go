// Package testskip is the one place where a test may skip itself, so that CI can forbid it.
//
// The environment variable BLAST_MUST_RUN holds a comma-separated list of features, or "all". A test that wants to
// skip for want of a listed feature fails instead: on the build machines nothing is skipped silently.
package testskip

import (
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
