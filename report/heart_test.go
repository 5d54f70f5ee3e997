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
			for line := range strings.Lines(b.String()) {
				if strings.HasPrefix(line, "packets") && !strings.Contains(whole, line) {
					t.Errorf("the full report has no line %q", line)
				}
				if !c.r.Verdict.Valid && (strings.HasPrefix(line, "latency") || strings.HasPrefix(line, "service")) && !strings.Contains(line, "INVALID") {
					t.Errorf("no INVALID in %q", line)
				}
			}
		})
	}
}
