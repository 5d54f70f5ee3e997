package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blast/internal/testskip"
)

// TestManual: there is a page for every command that is shown, and it names every flag; groff renders it without a warning, and what it shows can be
// copied.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if o := blast(t, "man", dir); o.code != exitOK || o.stdout != "" {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	pages := map[string]bool{}
	for _, name := range list(t, dir) {
		pages[name] = true
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := manualName(cmd) + ".1"
		if shown := cmd.Parent() == nil || cmd.IsAvailableCommand(); shown != pages[name] {
			t.Errorf("%s: shown %v, page %v", cmd.CommandPath(), shown, pages[name])
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && pages[name] {
			t.Fatal(err)
		}
		named := func(f *pflag.Flag) {
			if pages[name] && !strings.Contains(string(text), `\fB\-\-`+roff(f.Name)+`\fR`) {
				t.Errorf("%s does not name --%s", name, f.Name)
			}
		}
		cmd.LocalFlags().VisitAll(named)
		cmd.InheritedFlags().VisitAll(named)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(rootCommand())
	if pages["blast-man.1"] || !pages["blast-udp.1"] || !pages["blast-tune-check.1"] {
		t.Errorf("pages %v", pages)
	}

	groff, err := exec.LookPath("groff")
	if err != nil {
		testskip.Skip(t, "groff", err.Error(), "apt-get install groff-base")
	}
	for name := range pages {
		cmd := exec.Command(groff, "-man", "-Kutf8", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u", filepath.Join(dir, name))
		var warnings strings.Builder
		cmd.Stderr = &warnings
		out, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v: %s", name, err, warnings.String())
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"} {
			if !strings.Contains(string(out), "\n"+section+"\n") {
				t.Errorf("%s has no section %s:\n%s", name, section, out)
			}
		}
		if name == "blast-udp.1" && !strings.Contains(string(out), `blast udp 10.0.0.2:9000 --profile ramp:10k..200k/60s --duration 60s --slo 'p99<5ms' --slo 'loss<0.1%'`) {
			t.Errorf("the last example of blast udp cannot be copied:\n%s", out)
		}
	}
}

// TestManualRefused: what cannot be written is said.
func TestManualRefused(t *testing.T) {
	if o := blast(t, "man"); o.code != exitUsage {
		t.Errorf("no directory: exit %d: %s", o.code, o.stderr)
	}
	if o := blast(t, "man", filepath.Join(t.TempDir(), "nowhere")); o.code != exitRun || !strings.Contains(o.stderr, "no such file or directory") {
		t.Errorf("a directory that is not there: exit %d: %s", o.code, o.stderr)
	}
}

// TestRoff: text that roff would take for its own.
func TestRoff(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain\nsecond", "plain\nsecond\n"},
		{"one\n\ntwo", "one\n.PP\ntwo\n"},
		{"see:\n\n  blast udp --rate 1k\n  blast lab\n\nend", "see:\n.PP\n.nf\n.RS 2\nblast udp \\-\\-rate 1k\nblast lab\n.RE\n.fi\n.PP\nend\n"},
		{"as:\n\ttab", "as:\n.PP\n.nf\n.RS 2\ntab\n.RE\n.fi\n"},
		{".PP is a request\n'so is this", "\\&.PP is a request\n\\(aqso is this\n"},
		{`a\b`, "a\\eb\n"},
	} {
		if got := roffText(c.text); got != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}
