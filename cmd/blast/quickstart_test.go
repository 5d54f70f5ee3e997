package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blast/calib"
	"blast/stats"
	"blast/tuning"
	"blast/verdict"
)

// TestExplained: what a first reader is told, with the run's own figures when they are the target's, and kindly when they are not.
func TestExplained(t *testing.T) {
	r := &stats.Result{
		Config:      stats.Config{MaxLagNS: 1e6},
		Lag:         stats.Histogram{Count: 480000, P999: 99e3},
		Latency:     stats.Histogram{Count: 480000, P50: 32500, P99: 113e3},
		Calibration: &stats.Calibration{Margin: 3.04},
		Verdict:     stats.Verdict{Valid: true},
	}
	golden(t, "explained-valid.txt", explained(r))
	r.Ledger.Lost, r.Ledger.Late = 7, 5
	if text := explained(r); !strings.Contains(text, "12 were lost or late") {
		t.Errorf("losses are not told:\n%s", text)
	}
	r.Verdict = stats.Verdict{Reasons: []stats.Reason{{Code: verdict.CodeLag}, {Code: verdict.CodeSteal}}}
	text := explained(r)
	golden(t, "explained-invalid.txt", text)
	for _, figure := range []string{"32.5", "113"} {
		if strings.Contains(text, figure) {
			t.Errorf("an INVALID run quotes %s:\n%s", figure, text)
		}
	}
}

// TestEnded: a run that broke off ends with what broke it, whatever the verdict on the rest is.
func TestEnded(t *testing.T) {
	broke := os.ErrClosed
	for _, c := range []struct {
		why     string
		verdict stats.Verdict
		err     error
		code    int
		says    error
	}{
		{"all is well", stats.Verdict{Valid: true}, nil, exitOK, nil},
		{"INVALID", stats.Verdict{}, nil, exitInvalid, nil},
		{"an objective was missed", stats.Verdict{Valid: true, SLOs: []stats.SLO{{Text: "p99<1us"}}}, nil, exitSLO, nil},
		{"broken off, and INVALID", stats.Verdict{}, broke, exitRun, broke},
		{"broken off, and VALID until then", stats.Verdict{Valid: true}, broke, exitRun, broke},
	} {
		err := ended(c.verdict, c.err)
		var exit *exitError
		switch {
		case c.code == exitOK && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.code != exitOK && (!errors.As(err, &exit) || exit.code != c.code || !errors.Is(exit.err, c.says)):
			t.Errorf("%s: %v: want exit %d with %v", c.why, err, c.code, c.says)
		}
	}
}

// TestNewFiles: nothing that is there is written over, and pages and results keep the same number.
func TestNewFiles(t *testing.T) {
	dir := t.TempDir()
	content := map[string][]byte{".html": []byte("page"), ".json": []byte("{}")}
	for _, want := range []string{"q", "q-2", "q-3"} {
		if want == "q-2" { // only one of the two is in the way
			if err := os.Remove(filepath.Join(dir, "q.json")); err != nil {
				t.Fatal(err)
			}
		}
		paths, err := newFiles(dir, "q", content)
		if err != nil || paths[".html"] != filepath.Join(dir, want+".html") || paths[".json"] != filepath.Join(dir, want+".json") {
			t.Fatalf("%v, %v; want %s", paths, err, want)
		}
		if b, err := os.ReadFile(paths[".html"]); err != nil || string(b) != "page" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 5 { // q.html, and two whole pairs
		t.Errorf("%d files", len(files))
	}
	if paths, err := newFiles(filepath.Join(dir, "absent"), "q", content); err == nil {
		t.Errorf("into no directory: %v", paths)
	}
}

// storeFull puts a full calibration of this host into a state directory: one that quickstart keeps, with ceilings that any machine has.
func storeFull(t *testing.T, state string) {
	t.Helper()
	host := tuning.Reader{}.Host(loopback)
	p := &calib.Profile{
		Schema: calib.Schema, ID: "full", Created: time.Now().UTC(), Host: host, Fingerprint: tuning.Fingerprint(host), Against: calib.Loopback,
		Rows:        []calib.Row{{Backend: "sendmmsg", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 6000, StayBelowPPS: 2000, Rounds: []calib.Round{}}},
		Recommended: calib.Recommended{Backend: "sendmmsg"}, Failed: []calib.Failed{},
	}
	if err := (calib.Store{Dir: state + "/blast"}).Save(p); err != nil {
		t.Fatal(err)
	}
}

func quickstart(t *testing.T, state, out string, args ...string) *process {
	t.Helper()
	return start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "XDG_STATE_HOME="+state) }, append([]string{"quickstart", "--out", out}, args...)...)
}

// quickResult checks what a quickstart left behind and said.
func quickResult(t *testing.T, o outcome, base string) *stats.Result {
	t.Helper()
	if o.code != exitOK && o.code != exitInvalid {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	res := storedResult(t, base+".json")
	page, err := os.ReadFile(base + ".html")
	if err != nil {
		t.Fatal(err)
	}
	word := "INVALID"
	if res.Verdict.Valid {
		word = "VALID"
	}
	if !strings.HasPrefix(string(page), "<!") || !strings.Contains(string(page), word) {
		t.Errorf("the page is none, or has no verdict: %.200s", page)
	}
	for _, want := range []string{"1 of 3  ", "2 of 3  ", "3 of 3  ", "\n" + word + " ", "\nlatency", "\npackets   planned ", "page      " + base + ".html", "result    " + base + ".json"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("%q is not said:\n%s", want, o.stdout)
		}
	}
	if (o.code == exitInvalid) != strings.Contains(o.stdout, "What INVALID means") || (o.code == exitOK) != strings.Contains(o.stdout, "How to read it") {
		t.Errorf("exit %d is explained as another:\n%s", o.code, o.stdout)
	}
	return res
}

// TestKernelQuickstart is the first minute of somebody who has just built blast: measured, run, explained, written, in the time that was
// announced; and a later one, which keeps the calibration that took minutes, and the files of the first.
func TestKernelQuickstart(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	base := filepath.Join(dir, quickName)
	o := quickstart(t, state, dir, "--duration", "2s").end()
	first := quickResult(t, o, base)
	if o.took > time.Minute || !strings.Contains(o.stdout, "About 18 s.") {
		t.Errorf("it took %v:\n%s", o.took, o.stdout)
	}
	if files, err := os.ReadDir(state + "/blast"); !strings.Contains(o.stdout, "every trial was interrupted") && (err != nil || len(files) != 1) {
		t.Errorf("stored calibrations: %v, %v", files, err)
	}
	storeFull(t, state)
	n := 1
	untilValid(t, func() *stats.Result {
		n++
		o := quickstart(t, state, dir, "--duration", "2s").end()
		res := quickResult(t, o, base+"-"+string(rune('0'+n)))
		if l := &res.Ledger; l.Planned != 4000 || res.Backend.Name != "sendmmsg" || res.Calibration == nil || res.Calibration.ID != "full" {
			t.Errorf("want 2 kpps through sendmmsg, judged by the full calibration: %+v, %+v", *l, res.Calibration)
		}
		if o.took > 10*time.Second {
			t.Errorf("it took %v with a calibration there", o.took)
		}
		return res
	})
	if again := storedResult(t, base+".json"); again.RunID != first.RunID {
		t.Error("the first result was written over")
	}
}

// TestKernelQuickstartStopped: Ctrl-C leaves nothing behind while it calibrates, and what was measured during the run.
func TestKernelQuickstartStopped(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	p := quickstart(t, state, dir)
	time.Sleep(3 * time.Second)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := p.end()
	if o.code != exitRun || !strings.Contains(o.stderr, "nothing was stored or written") || o.took > 8*time.Second {
		t.Errorf("exit %d after %v: %s%s", o.code, o.took, o.stdout, o.stderr)
	}
	left, _ := os.ReadDir(dir)
	stored, _ := os.ReadDir(state + "/blast")
	if len(left)+len(stored) > 0 {
		t.Errorf("left behind: %v, %v", left, stored)
	}

	storeFull(t, state)
	p = quickstart(t, state, dir)
	time.Sleep(2 * time.Second)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	o = p.end()
	res := quickResult(t, o, filepath.Join(dir, quickName))
	if res.Interrupted == "" || res.Ledger.Sent == 0 || res.Ledger.Planned >= 20000 {
		t.Errorf("interrupted %q, %+v", res.Interrupted, res.Ledger)
	}
}

// TestOpenPage: the page goes to xdg-open where there is one, and what came of it is said.
func TestOpenPage(t *testing.T) {
	for _, c := range []struct{ why, script, want string }{
		{"none here", "", "there is no xdg-open here; open the page by hand"},
		{"one that works", "#!/bin/sh\ntest \"$1\" = page.html\n", "handed to xdg-open"},
		{"one without a desktop", "#!/bin/sh\nexit 3\n", "xdg-open: exit status 3; open the page by hand"},
	} {
		dir := t.TempDir()
		if c.script != "" {
			if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(c.script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		if got := openPage("page.html"); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
