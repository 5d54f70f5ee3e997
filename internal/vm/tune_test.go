package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/tuning"
	"blast/tuning/change"
)

// journal is where blast tune keeps its own.
const journal = "/var/lib/blast/tune.journal"

// settings reads everything that blast tune may change: files byte for byte, and what the driver says.
func settings(t *testing.T, nics ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(path string) {
		if b, err := os.ReadFile(path); err == nil { // some are for writing only
			out[path] = string(b)
		}
	}
	for _, dir := range []string{"/proc/sys/net", "/proc/sys/kernel", "/proc/sys/fs", "/proc/sys/vm"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !moves(path) {
				read(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	patterns := []string{"/proc/irq/*/smp_affinity", "/proc/irq/*/smp_affinity_list"}
	for _, nic := range nics {
		patterns = append(patterns, "/sys/class/net/"+nic+"/queues/*/*")
		for _, s := range []tuning.Setting{tuning.Channels, tuning.Coalesce, tuning.RSSConfig, tuning.UDP4Fields, tuning.UDP6Fields, tuning.Rings} {
			v, err := (tuning.Reader{}).Device().Get(nic, s)
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Fatal(err)
			}
			out[nic+" "+string(s)] = v
		}
	}
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			read(path)
		}
	}
	return out
}

// moves says that a file of /proc/sys is no setting: it changes by itself.
func moves(path string) bool {
	return strings.HasPrefix(path, "/proc/sys/kernel/random/") || slices.Contains([]string{
		"/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/pty/nr", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
		"/proc/sys/fs/inode-state", "/proc/sys/fs/dentry-state", "/proc/sys/fs/aio-nr", "/proc/sys/kernel/perf_event_max_sample_rate",
	}, path)
}

// blast runs the program and returns what it printed.
func blast(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("/bin/blast", args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("blast %s: %v\n%s%s", strings.Join(args, " "), err, out, complaints.String())
	}
	return out
}

// testTune applies everything on a real driver: workers go to the card's node, the interrupts of their queues follow, and restore puts all
// settings back.
func testTune(t *testing.T, names []string) {
	for node, nic := range names {
		before := settings(t, names...)
		var applied struct {
			Changes   []change.Outcome
			Placement tuning.Placement
		}
		if err := json.Unmarshal(blast(t, "tune", "apply", "--json", "--for", "udp", "--workers", "2", "--nic", nic), &applied); err != nil {
			t.Fatal(err)
		}
		for _, c := range applied.Changes {
			t.Logf("%s %s: %q -> %q %s", c.State, c.Key, strings.TrimSpace(c.Old), c.New, c.Why)
		}
		after := settings(t, names...)
		if cmp.Equal(before, after) {
			t.Errorf("%s: nothing changed", nic)
		}
		if len(applied.Placement.Seats) != 2 {
			t.Fatalf("%s: placement %+v", nic, applied.Placement)
		}
		inv, err := tuning.Reader{}.Inventory(nic)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range applied.Placement.Seats {
			if s.Node != node || s.CPU/2 != node {
				t.Errorf("%s on node %d: seat %+v", nic, node, s)
			}
			at := slices.IndexFunc(inv.NIC.IRQs, func(q tuning.IRQ) bool { return q.Queue == s.Queue && !q.TXOnly })
			if at < 0 || !slices.Equal(inv.NIC.IRQs[at].CPUs, []int{s.IRQCPU}) || s.IRQCPU/2 != node {
				t.Errorf("%s: the interrupt of queue %d does not follow its worker: seat %+v, interrupts %+v", nic, s.Queue, s, inv.NIC.IRQs)
			}
		}
		t.Logf("%s", blast(t, "tune", "restore"))
		if d := cmp.Diff(before, settings(t, names...)); d != "" {
			t.Errorf("%s: restored (-before +after):\n%s", nic, d)
		}
	}
}

// testTuneKilled kills blast tune apply (SIGKILL) when its journal has reached some length, and restores, until an apply gets to its end.
func testTuneKilled(t *testing.T, nic string) {
	const step = 3 // lines of the journal from one kill to the next
	before := settings(t, nic)
	kills, halfway := 0, 0
	// On an emulated processor the killer may come too late; then the same line is tried again. full is how many lines a whole run writes.
	full, late := math.MaxInt, 0
	for lines := 1; lines < full && late < 20; {
		cmd := exec.Command("/bin/blast", "tune", "apply", "--for", "udp", "--workers", "2", "--nic", nic)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // its answer is read from ProcessState
			_ = cmd.Wait()
			close(ended)
		}()
		for waiting := true; waiting; {
			if b, err := os.ReadFile(journal); err == nil && bytes.Count(b, []byte("\n")) >= lines {
				_ = cmd.Process.Kill()
			}
			select {
			case <-ended:
				waiting = false
			case <-time.After(100 * time.Microsecond):
			}
		}
		written, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		killed := !cmd.ProcessState.Exited()
		if killed {
			kills++
			lines += step
		} else {
			full = bytes.Count(written, []byte("\n"))
			late++
		}
		if !cmp.Equal(before, settings(t, nic)) {
			halfway++
		}
		blast(t, "tune", "restore")
		if d := cmp.Diff(before, settings(t, nic)); d != "" {
			t.Fatalf("killed %t at line %d: restored (-before +after):\n%s", killed, bytes.Count(written, []byte("\n")), d)
		}
	}
	t.Logf("killed %d times, %d of them when something was changed", kills, halfway)
	if kills < 3 || halfway < 2 {
		t.Errorf("%d kills, %d halfway", kills, halfway)
	}
}
