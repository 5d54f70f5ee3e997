package testskip

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// outcome stands in for the test that wants to skip: it notes what becomes of it.
type outcome struct {
	testing.TB
	skipped, failed string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.skipped = fmt.Sprintf(format, args...)
	panic(o)
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.failed = fmt.Sprintf(format, args...)
	panic(o)
}

// A feature that is missing skips with reason and remedy, fails where BLAST_MUST_RUN names it, and a probe that could not tell always fails.
func TestSkip(t *testing.T) {
	missing := fmt.Errorf("no rings: %w", errors.ErrUnsupported)
	for _, c := range []struct {
		name, mustRun   string
		ask             func(testing.TB, error)
		err             error
		skipped, failed string
	}{
		{"it works", "all", IOUring, nil, "", ""},
		{"missing", "", IOUring, missing, "io_uring: no rings: unsupported operation; remedy: sysctl", ""},
		{"missing, others must run", "root, xdp", IOUring, missing, "remedy: sysctl", ""},
		{"missing, and must run", "root, xdp", XDP, missing, "", "BLAST_MUST_RUN forbids the skip; remedy: sudo"},
		{"missing, and all must run", "all", IOUring, missing, "", "BLAST_MUST_RUN forbids"},
		{"could not tell", "", XDP, errors.New("out of descriptors"), "", "probe: out of descriptors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("BLAST_MUST_RUN", c.mustRun)
			o := &outcome{}
			func() {
				defer func() { _ = recover() }()
				c.ask(o, c.err)
			}()
			if (o.skipped == "") != (c.skipped == "") || !strings.Contains(o.skipped, c.skipped) {
				t.Errorf("skipped %q, want %q", o.skipped, c.skipped)
			}
			if (o.failed == "") != (c.failed == "") || !strings.Contains(o.failed, c.failed) {
				t.Errorf("failed %q, want %q", o.failed, c.failed)
			}
		})
	}
}
