package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blast/internal/testnet"
	"blast/internal/testskip"
)

// cpuQuota makes a control group of percent of one CPU in the hierarchy of the cpu controller, and takes it away after the test.
func cpuQuota(t *testing.T, percent int) string {
	t.Helper()
	testskip.Root(t)
	for _, h := range []struct{ dir, file, value string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "%d000"}, {"/sys/fs/cgroup/unified", "cpu.max", "%d000 100000"}, {"/sys/fs/cgroup", "cpu.max", "%d000 100000"},
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
		if os.WriteFile(filepath.Join(dir, h.file), fmt.Appendf(nil, h.value, percent), 0o644) == nil {
			return dir
		}
	}
	testskip.Skip(t, "cgroup", "no writable cpu controller", "mount a cgroup hierarchy with the cpu controller, writable")
	return ""
}

// joins makes a command join a control group before it starts, so that every thread of it is inside.
func joins(group string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

// TestKernelQuotaIsSteal runs blast under a cgroup quota below its worker: it warns before, and what the quota took is in the timeline
// as steal.
func TestKernelQuotaIsSteal(t *testing.T) {
	group := cpuQuota(t, 30)
	server := serveUDP(t)
	o := start(t, joins(group), "udp", server.addr, "--rate", "20k", "--duration", "3s", "--wait", "spin", "--format", "json").end()
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

// TestKernelAlignSteers runs two workers over a veth with four queues, which has no RSS table: source ports are learnt by probing the
// target, and the counters of the queues prove that the replies landed on the workers' queues, 0 and 1, and on no other.
func TestKernelAlignSteers(t *testing.T) {
	if len(allowedCPUs(t)) < 2 {
		testskip.Skip(t, "netns", "two workers on a pair of hosts need two CPUs", "run on a machine with two")
	}
	pair := testnet.NewPair(t, testnet.Config{Queues: 4})
	// XDP on both ends gives the veth receive queues of its own (drivers/net/veth.c, veth_napi_enable).
	arrived := pair.Left.Count(testnet.CountConfig{Action: testnet.Pass})
	pair.Right.Count(testnet.CountConfig{Action: testnet.Pass})
	var server *target
	pair.Right.Do(func() { server = serveUDP(t, "--listen", pair.Right.IPv4.Addr().String()+":0") })
	var p *process
	pair.Left.Do(func() {
		p = start(t, nil, "udp", server.addr, "--rate", "400", "--duration", "1s", "--workers", "2", "--flows", "8", "--align", "--format", "json")
	})
	o := p.end()
	res := o.result(t)
	notes := strings.Join(res.Backend.Notes, "\n")
	for _, want := range []string{"source ports: learnt by probing", "packets received by queue: 0: ", "placement of worker 1: core"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s\n%s", want, notes, o.stderr)
		}
	}
	// Probing visits all queues, eight packets a port; the run itself only those of the workers.
	for q := range 4 {
		n := arrived.Queue(q).Frames
		if q < 2 && n < res.Ledger.Replied/2 {
			t.Errorf("queue %d received %d packets of %d replies", q, n, res.Ledger.Replied)
		}
		if q >= 2 && n > res.Ledger.Replied/2 {
			t.Errorf("queue %d, which has no worker, received %d packets", q, n)
		}
	}
	t.Logf("%s", notes)
}
