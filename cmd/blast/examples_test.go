package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"blast/internal/testskip"
	"blast/stats"
)

const examples = "../../examples"

// runExample runs a script of examples in a process group of its own, with settings (NAME=value) over its defaults, and checks that
// nothing is left of it: no process and no file. It is the script that is tested here, so a send may be late by what a neighbour takes.
func runExample(t *testing.T, script string, settings ...string) outcome {
	t.Helper()
	temp, home := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(examples, script))
	cmd.Env = append(os.Environ(), "BLAST="+os.Getenv(binaryVariable), "MAX_LAG=500ms", "TMPDIR="+temp, "HOME="+home, "XDG_STATE_HOME=")
	cmd.Env = append(cmd.Env, settings...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", script, err)
	}
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(begun), script}
	if !eventually(t.Context(), 5*time.Second, func() bool { return errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH) }) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		t.Errorf("%s left processes behind", script)
	}
	for _, dir := range []string{temp, home} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s left files behind: %v, %v", script, left, err)
		}
	}
	return o
}

// TestKernelExample runs each example with shorter runs than its own, and looks at its exit code and its answer. A machine too busy to
// judge anything is told so by exit 3; then it is tried again.
func TestKernelExample(t *testing.T) {
	state := t.TempDir()
	storeFull(t, state)
	for _, c := range []struct {
		why, script string
		settings    []string
		code        int
		answer      string
	}{
		{"the ceiling of one path", "ceiling.sh", []string{"BACKEND=sendmmsg", "PAYLOADS=64", "BUDGET=3s"}, exitOK,
			`stay below .*pps at 64 bytes, with 1 worker: a margin of 3 to the ceiling of sendmmsg`},
		{"the service carries the rate", "before-a-run.sh", []string{"RATE=500", "DURATION=1s", "SLO=p99<900ms"}, exitOK, `pass: 500 within p99<900ms, p99 \d+ us, .* sent \d+ times as much`},
		{"the service is too slow for the objective", "before-a-run.sh", []string{"RATE=500", "DURATION=1s", "LADDER=no", "SLO=p50<1us", "STORE=yes", "XDG_STATE_HOME=" + state}, exitSLO, `fail: .* \(p99 \d+ us, wanted p50<1us\)`},
		{"every query answered", "dns.sh", []string{"RATE=500", "DURATION=1s", "NAME=www.blast.test"}, exitOK,
			`500 of 500 queries for www.blast.test answered in time, p99 \d+ us; loss<0.1% kept`},
		{"clients spread and at once", "game-clients.sh", []string{"CLIENTS=200", "HZ=10", "DURATION=1s"}, exitOK,
			`200 clients at 10 Hz: p99 \d+ us \([\d.]+ % of a tick\) when spread, \d+ us \([\d.]+ % of a tick\) when all at once; unanswered 0 and 0`},
		{"two backends and the noise", "compare-backends.sh", []string{"RATE=500", "DURATION=1s", "ROUNDS=1"}, exitOK,
			`latency p50 of net is [\d.]+ times that of sendmmsg; two runs of the same differ up to [\d.]+ times: `},
	} {
		t.Run(c.script+"/"+c.why, func(t *testing.T) {
			if c.script == "dns.sh" {
				if _, err := exec.LookPath("dnsmasq"); err != nil {
					testskip.Skip(t, "dns", err.Error(), "apt-get install dnsmasq-base")
				}
			}
			untilValid(t, func() *stats.Result {
				o := runExample(t, c.script, c.settings...)
				lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
				last := lines[len(lines)-1]
				want := "^answer: " + c.answer
				if o.code == exitInvalid {
					want = "^answer: unknown: "
				} else if o.code != c.code {
					t.Errorf("exit %d, want %d", o.code, c.code)
				}
				if !regexp.MustCompile(want).MatchString(last) {
					t.Errorf("the answer is %q, want %s", last, want)
				}
				if t.Failed() {
					t.Logf("%s%s", o.stdout, o.stderr)
				}
				return &stats.Result{Verdict: stats.Verdict{Valid: o.code != exitInvalid, Reasons: []stats.Reason{{Code: fmt.Sprint("exit ", o.code), Detail: last}}}}
			})
		})
	}
}

// TestExamples: each script is in the list, can be run, says at its head what it is for, and passes shellcheck; what it cannot do here is
// said at once.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(examples, "*.sh"))
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%v, %v", scripts, err)
	}
	list, err := os.ReadFile(filepath.Join(examples, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		name := filepath.Base(script)
		b, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(list), "["+name+"]("+name+")") {
			t.Errorf("%s is not in the list", name)
		}
		for _, want := range []string{"#!/usr/bin/env bash\n# ", "\n# How to read it", "\n# What to change: ", "\nset -euo pipefail\n", "\ntrap ", `BLAST=${BLAST:-`, "answer: "} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		if info, err := os.Stat(script); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be run: %v, %v", name, info.Mode(), err)
		}
		if o := runExample(t, name, "BLAST=/no/such/blast"); o.code != exitUsage || !strings.Contains(o.stderr, "no blast at /no/such/blast: make build") {
			t.Errorf("%s without blast: exit %d, %s", name, o.code, o.stderr)
		}
	}
	if o := runExample(t, "game-clients.sh", "CLIENTS=2000000000"); o.code != exitUsage || !strings.Contains(o.stderr, "clients need 2000000100 open files") {
		t.Errorf("more clients than files: exit %d, %s", o.code, o.stderr)
	}
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		testskip.Skip(t, "shellcheck", err.Error(), "apt-get install shellcheck")
	}
	if out, err := exec.Command(shellcheck, scripts...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
