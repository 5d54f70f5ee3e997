package report

import (
	"bytes"
	"strings"
	"testing"

	"blast/stats"
)

// TestHeart: the few lines for a first reader, each of them also in the full report, and no figure of latency without INVALID.
func TestHeart(t *testing.T) {
	for _, c := range []struct {
		file, why string
		r         *stats.Result
	}{
		{"heart.txt", "a VALID echo run", echoRun()},
		{"heart-invalid.txt", "an INVALID run", invalid(echoRun())},
	} {
		t.Run(c.file, func(t *testing.T) {
			var b bytes.Buffer
			if err := Heart(&b, c.r, Options{}); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file, b.Bytes())
			whole := text(t, c.r, Options{})
			parts := strings.Split(b.String(), "\n\n")
			if len(parts) != 3 {
				t.Fatalf("%d parts, want the verdict, a table and the ledger", len(parts))
			}
			for line := range strings.Lines(parts[0] + "\n" + parts[2]) { // the table has fewer columns than that of the full report
				if !strings.Contains(whole, line) {
					t.Errorf("the full report has no line %q", line)
				}
			}
			for line := range strings.Lines(parts[1]) {
				if !c.r.Verdict.Valid && (strings.HasPrefix(line, "latency") || strings.HasPrefix(line, "service")) && !strings.Contains(line, "INVALID") {
					t.Errorf("no INVALID in %q", line)
				}
			}
		})
	}
}
