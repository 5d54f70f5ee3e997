package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blast/internal/testskip"
)

// cpuQuota makes a control group of 0.3 CPUs in the hierarchy of the cpu controller, and takes it away after the test.
func cpuQuota(t *testing.T) string {
	t.Helper()
	testskip.Root(t)
	for _, h := range []struct{ dir, file, value string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "30000"}, {"/sys/fs/cgroup/unified", "cpu.max", "30000 100000"}, {"/sys/fs/cgroup", "cpu.max", "30000 100000"},
	} {
		dir := filepath.Join(h.dir, fmt.Sprintf("blast-quota-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("control group left behind: %v", err)
			}
		})
		if os.WriteFile(filepath.Join(dir, h.file), []byte(h.value), 0o644) == nil {
			return dir
		}
	}
	testskip.Skip(t, "cgroup", "no writable cpu controller", "mount a cgroup hierarchy with the cpu controller, writable")
	return ""
}

// TestKernelQuotaIsSteal runs blast under a cgroup quota below its worker: it warns before, and what the quota took is in the timeline
// as steal.
func TestKernelQuotaIsSteal(t *testing.T) {
	group := cpuQuota(t)
	server := serveUDP(t)
	o := start(t, func(cmd *exec.Cmd) {
		// The shell joins the group before blast starts, so every thread is inside.
		cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}, "udp", server.addr, "--rate", "20k", "--duration", "3s", "--wait", "spin", "--format", "json").end()
	if !strings.Contains(o.stderr, "warning: the cgroup quota is 0.3 CPUs for 1 worker") {
		t.Errorf("no warning: %s", o.stderr)
	}
	res := o.result(t)
	most := 0.0
	for _, s := range res.Timeline {
		most = max(most, s.Steal)
	}
	// 0.7 of every period is withheld; 0.05 is what a busy machine leaves of that, because who waits is not throttled.
	if most < 0.05 {
		t.Errorf("no second shows more than %.1f %% stolen", 100*most)
	}
	if notes := strings.Join(res.Backend.Notes, "\n"); !strings.Contains(notes, "cgroup quota") || !strings.Contains(notes, "placement of worker 0: core") {
		t.Errorf("notes: %s", notes)
	}
	t.Logf("worst second %.0f %% stolen, verdict %+v", 100*most, res.Verdict.Reasons)
}

// TestKernelAlign: a run that aligns the host says what it did and where its worker was, and leaves no journal.
func TestKernelAlign(t *testing.T) {
	testskip.Root(t)
	server := serveUDP(t)
	res, o := measure(t, server.addr, "--rate", "100", "--duration", "300ms", "--align")
	notes := strings.Join(res.Backend.Notes, "\n")
	if !strings.Contains(notes, "settings changed for the run, and put back at its end") || !strings.Contains(notes, "placement of worker 0: core") {
		t.Errorf("notes: %s\n%s", notes, o.stderr)
	}
	if _, err := os.Stat("/var/lib/blast/tune.journal"); !os.IsNotExist(err) {
		t.Errorf("the journal stays: %v", err)
	}
}
