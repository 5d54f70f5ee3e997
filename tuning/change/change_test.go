package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/faketree"
	"blast/tuning"
)

// fake writes a host below a new directory and returns its root.
func fake(t testing.TB, cfg faketree.Config, more map[string]string) string {
	t.Helper()
	root, err := faketree.Write(t.TempDir(), cfg, more)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// contents reads every file of a tree, but for the journal's folder.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/var/lib/blast/") {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, root)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// world is the host that most tests change: fewer channels than workers, so that every item has something to do.
func world(t testing.TB) string {
	return fake(t, faketree.Config{Sockets: 2, Cores: 4, SMT: true, Queues: 8, Channels: 2, Node: 1}, nil)
}

var demand = tuning.Workload{Protocol: "tcp", Connections: 2_000_000, Rate: 100_000, Workers: 4}

// tune makes every change there is, in the two steps of blast tune apply.
func tune(tuner Tuner, w tuning.Workload, items []Item) ([]Outcome, error) {
	s, err := tuner.Begin([]string{"test"})
	if err != nil {
		return nil, err
	}
	out, _, err := s.Align(w, "eth0", tuning.PlaceConfig{}, items)
	if err != nil {
		return out, err
	}
	return out, s.Close()
}

func TestApplyAndRestoreEveryByte(t *testing.T) {
	root := world(t)
	tuner := Tuner{Reader: tuning.Reader{Root: root}}
	before := contents(t, root)
	out, err := tune(tuner, demand, Items())
	if err != nil {
		t.Fatal(err)
	}
	changed := map[Item]int{}
	for _, o := range out {
		if o.State != StateApplied && o.State != StateAlready {
			t.Errorf("%s: %s %s", o.Key, o.State, o.Why)
		}
		changed[o.Item]++
	}
	for _, item := range Items() {
		if changed[item] == 0 && item != RSS { // new channels bring a new table
			t.Errorf("nothing was changed for item %s", item)
		}
	}
	after := contents(t, root)
	for path, want := range map[string]string{
		"/proc/sys/net/ipv4/ip_local_port_range": "1024 65535\n", "/proc/sys/net/ipv4/tcp_tw_reuse": "1\n",
		"/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "performance\n", "/ethtool/eth0/udp4-fields": "sdfn\n",
		"/ethtool/eth0/channels": "rx=0 tx=0 other=0 combined=4\n",
		"/ethtool/eth0/coalesce": "adaptive-rx=0 adaptive-tx=0 rx-usecs=8 rx-frames=128 tx-usecs=8 tx-frames=128\n",
	} {
		if after[path] != want {
			t.Errorf("%s is %q, want %q", path, after[path], want)
		}
	}
	if _, err := tuner.Begin(nil); !errors.Is(err, ErrJournal) {
		t.Errorf("a second apply: %v", err)
	}
	if _, err := tuner.Restore(false); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, contents(t, root)); d != "" {
		t.Errorf("restored (-before +after):\n%s", d)
	}
	if _, err := tuner.Restore(false); !errors.Is(err, ErrNoJournal) {
		t.Errorf("a second restore: %v", err)
	}
	if _, err := os.Stat(tuner.journal()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal stays: %v", err)
	}
}

// TestMain lets the test program be the child that is killed.
func TestMain(m *testing.M) {
	if root := os.Getenv("BLAST_CHANGE_ROOT"); root != "" {
		child(root, os.Getenv("BLAST_CHANGE_MODE"), os.Getenv("BLAST_CHANGE_STEP"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child applies or restores, and kills itself before the named step.
func child(root, mode, at string) {
	n := 0
	tuner := Tuner{Reader: tuning.Reader{Root: root}, Progress: func(string) {
		if fmt.Sprint(n) == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
	}}
	var err error
	if mode == "apply" {
		_, err = tune(tuner, demand, Items())
	} else {
		_, err = tuner.Restore(false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// spawn runs the child and says whether it was killed.
func spawn(t testing.TB, root, mode string, step int) bool {
	t.Helper()
	p, err := os.StartProcess("/proc/self/exe", []string{"change.test"}, &os.ProcAttr{
		Env:   append(os.Environ(), "BLAST_CHANGE_ROOT="+root, "BLAST_CHANGE_MODE="+mode, fmt.Sprintf("BLAST_CHANGE_STEP=%d", step)),
		Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	status := state.Sys().(syscall.WaitStatus)
	if !status.Signaled() && status.ExitStatus() != 0 {
		t.Fatalf("%s, step %d: exit %d", mode, step, status.ExitStatus())
	}
	return status.Signaled()
}

// TestKilledAtEveryStep kills an apply before every step it takes; what a restore then leaves is what was there, byte for byte.
func TestKilledAtEveryStep(t *testing.T) {
	root := world(t)
	before := contents(t, root)
	tuner := Tuner{Reader: tuning.Reader{Root: root}}
	steps := 0
	for ; spawn(t, root, "apply", steps); steps++ {
		if _, err := tuner.Restore(false); err != nil && !errors.Is(err, ErrNoJournal) {
			t.Fatalf("step %d: %v", steps, err)
		}
		if d := cmp.Diff(before, contents(t, root)); d != "" {
			t.Fatalf("killed before step %d (-before +after):\n%s", steps, d)
		}
	}
	if steps < 100 {
		t.Errorf("only %d steps", steps)
	}
	// And a restore that is killed at every step is finished by the next one. The whole apply of the last turn is there.
	killed := 0
	for spawn(t, root, "restore", 2) { // each gets a little further: begin, one setting, killed
		if killed++; killed > steps {
			t.Fatal("restore makes no progress")
		}
	}
	if d := cmp.Diff(before, contents(t, root)); d != "" {
		t.Errorf("restore killed %d times (-before +after):\n%s", killed, d)
	}
	t.Logf("apply killed at %d steps, restore %d times", steps, killed)
}

// TestTornJournal cuts the journal at every byte, as a crash of the host may: what the cut record announced was not done yet, so the
// values of the whole records are what is put back.
func TestTornJournal(t *testing.T) {
	root := world(t)
	before := contents(t, root)
	tuner := Tuner{Reader: tuning.Reader{Root: root}}
	s, err := tuner.Begin([]string{"test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply([]Change{sysctl("net.core.rmem_max", "4194304")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(tuner.journal())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	announced := len(lines[0]) + len(lines[1]) // from here on the change may have been made
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(tuner.journal(), whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		value := before["/proc/sys/net/core/rmem_max"]
		if cut >= announced {
			value = "4194304\n"
		}
		if err := os.WriteFile(filepath.Join(root, "proc/sys/net/core/rmem_max"), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := tuner.Restore(false); err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		if d := cmp.Diff(before, contents(t, root)); d != "" {
			t.Fatalf("cut at %d of %d (-before +after):\n%s", cut, len(whole), d)
		}
	}
}

// stubborn is a System that refuses some settings.
type stubborn struct {
	Host
	refuse func(key, value string) error
}

func (s stubborn) Set(key, value string) error {
	if err := s.refuse(key, value); err != nil {
		return err
	}
	return s.Host.Set(key, value)
}

func stubbornTuner(root string, refuse func(key, value string) error) Tuner {
	r := tuning.Reader{Root: root}
	return Tuner{Reader: r, System: stubborn{Host{r}, refuse}}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		why    string
		refuse func(root string) func(key, value string) error
		// refused are the keys that end as such; all = the whole session ends with an error and nothing changed.
		refused []string
		all     bool
		says    string
	}{
		{why: "managed interrupts answer EIO: they are named and the others move", refused: []string{"/proc/irq/101/smp_affinity_list", "/proc/irq/102/smp_affinity_list"},
			refuse: func(string) func(string, string) error {
				return func(key, _ string) error {
					if key == "/proc/irq/101/smp_affinity_list" || key == "/proc/irq/102/smp_affinity_list" {
						return &fs.PathError{Op: "write", Path: key, Err: unix.EIO}
					}
					return nil
				}
			}, says: "manages this interrupt itself (EIO)"},
		{why: "newer kernels answer EPERM, which is not a missing privilege", refused: []string{"/proc/irq/101/smp_affinity_list"},
			refuse: func(string) func(string, string) error {
				return func(key, _ string) error {
					if key == "/proc/irq/101/smp_affinity_list" {
						return &fs.PathError{Op: "write", Path: key, Err: unix.EPERM}
					}
					return nil
				}
			}, says: "manages this interrupt itself (EPERM)"},
		{why: "a driver that refuses channels while an RSS table is set gets them after a reset",
			refuse: func(root string) func(string, string) error {
				return func(key, _ string) error {
					if table, _ := os.ReadFile(filepath.Join(root, "ethtool/eth0/rss")); key == "eth0 channels" && strings.Contains(string(table), "0,0,0") {
						return unix.EINVAL
					}
					return nil
				}
			}},
		{why: "one that always refuses is said to, and its table is what it was", refused: []string{"eth0 channels"},
			refuse: func(string) func(string, string) error {
				return func(key, _ string) error {
					if key == "eth0 channels" {
						return unix.EOPNOTSUPP
					}
					return nil
				}
			}, says: "does not offer it (EOPNOTSUPP), also with the RSS table reset"},
		{why: "a container mounts /proc/sys read-only: nothing is half applied", all: true, says: "read-only file system",
			refuse: func(string) func(string, string) error {
				return func(key, _ string) error {
					if strings.HasPrefix(key, "/proc/sys/net/netfilter") {
						return &fs.PathError{Op: "open", Path: key, Err: unix.EROFS}
					}
					return nil
				}
			}},
		{why: "no privilege for the card, found late: what was set before is put back", all: true, says: "operation not permitted",
			refuse: func(string) func(string, string) error {
				return func(key, value string) error {
					if key == "eth0 udp6-fields" && value == "sdfn" {
						return unix.EPERM
					}
					return nil
				}
			}},
	} {
		t.Run(c.why, func(t *testing.T) {
			uneven := "function=toeplitz transform=0 key=6d5a table=" + strings.TrimSuffix(strings.Repeat("0,0,0,1,", 32), ",") + "\n"
			root := fake(t, faketree.Config{Sockets: 2, Cores: 4, Queues: 8, Channels: 2, Node: 1}, map[string]string{"ethtool/eth0/rss": uneven})
			before := contents(t, root)
			tuner := stubbornTuner(root, c.refuse(root))
			out, err := tune(tuner, demand, Items())
			if c.all {
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "everything was put back") {
					t.Errorf("error %v", err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				var refused []string
				for _, o := range out {
					if o.State == StateRefused {
						refused = append(refused, o.Key)
						if !strings.Contains(o.Why, c.says) {
							t.Errorf("%s: %q does not say %q", o.Key, o.Why, c.says)
						}
					}
				}
				if d := cmp.Diff(c.refused, refused); d != "" {
					t.Errorf("refused (-want +got):\n%s", d)
				}
				if _, err := tuner.Restore(false); err != nil {
					t.Error(err)
				}
			}
			if d := cmp.Diff(before, contents(t, root)); d != "" {
				t.Errorf("(-before +after):\n%s", d)
			}
		})
	}
}

func TestRestoreKnowsTheWorldWentOn(t *testing.T) {
	const rmem = "/proc/sys/net/core/rmem_max"
	edit := func(root, path, value string) {
		if err := os.WriteFile(filepath.Join(root, path), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		why   string
		since func(root string)
		force bool
		state string
		value string
		err   error
	}{
		{why: "nothing happened", since: func(string) {}, state: StateRestored, value: "212992\n"},
		{why: "somebody else set it since: theirs stays", since: func(root string) { edit(root, rmem, "777\n") }, state: StateForeign, value: "777\n"},
		{why: "unless forced", since: func(root string) { edit(root, rmem, "777\n") }, force: true, state: StateRestored, value: "212992\n"},
		{why: "it went back by itself", since: func(root string) { edit(root, rmem, "212992\n") }, state: StateBack, value: "212992\n"},
		{why: "the host was rebooted, with its usual value", state: StateBack, value: "212992\n", since: func(root string) {
			edit(root, rmem, "212992\n")
			edit(root, "proc/sys/kernel/random/boot_id", "another\n")
		}},
		{why: "the host was rebooted and starts with a value of its own, equal to ours", state: StateForeign, value: "4194304\n", since: func(root string) {
			edit(root, "proc/sys/kernel/random/boot_id", "another\n")
		}},
	} {
		root := fake(t, faketree.Config{}, nil)
		tuner := Tuner{Reader: tuning.Reader{Root: root}}
		s, err := tuner.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply([]Change{sysctl("net.core.rmem_max", "4194304")}); err != nil {
			t.Fatal(err)
		}
		if _, err := tuner.Restore(false); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: a restore while the session is open: %v", c.why, err)
		}
		if st, err := tuner.Status(); err != nil || !st.Busy || len(st.Changes) != 1 || st.Changes[0].State != StateApplied {
			t.Errorf("%s: status %+v, %v", c.why, st, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		c.since(root)
		out, err := tuner.Restore(c.force)
		if !errors.Is(err, c.err) || len(out) != 1 || out[0].State != c.state {
			t.Errorf("%s: %+v, %v", c.why, out, err)
		}
		if got, _ := os.ReadFile(filepath.Join(root, rmem)); string(got) != c.value {
			t.Errorf("%s: value %q, want %q", c.why, got, c.value)
		}
		if _, err := tuner.Status(); !errors.Is(err, ErrNoJournal) {
			t.Errorf("%s: status afterwards: %v", c.why, err)
		}
	}
}

func TestForeignJournal(t *testing.T) {
	root := world(t)
	tuner := Tuner{Reader: tuning.Reader{Root: root}, Journal: filepath.Join(t.TempDir(), "j")}
	if err := os.WriteFile(tuner.Journal, []byte("{\"schema\":\"other/9\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"begin":   func() error { _, err := tuner.Begin(nil); return err },
		"restore": func() error { _, err := tuner.Restore(true); return err },
		"status":  func() error { _, err := tuner.Status(); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "not a journal of this blast") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestItems(t *testing.T) {
	root := world(t)
	tuner := Tuner{Reader: tuning.Reader{Root: root}}
	before := contents(t, root)
	out, err := tune(tuner, demand, []Item{Hash})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(out, func(o Outcome) bool { return o.Item != Hash }) || len(out) != 2 {
		t.Errorf("%+v", out)
	}
	if _, err := tuner.Restore(false); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, contents(t, root)); d != "" {
		t.Error(d)
	}
	if _, err := ParseItems("irq,foo"); err == nil {
		t.Error("an unknown item passes")
	}
	for _, i := range Items() {
		if i.About() == "" {
			t.Errorf("item %s says nothing about itself", i)
		}
	}
}

// FuzzJournal reads journals that anything may have happened to: they are refused or understood, never a panic.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"schema":"blast.tune.journal/1","boot":"x","pid":1,"command":["a"]}` + "\n" + `{"n":1,"change":{"item":"irq","key":"/proc/irq/1","new":"1","irq":"a"},"old":"0"}` + "\n" + `{"done":1,"after":"1"}` + "\n"))
	f.Add([]byte(`{"schema":"blast.tune.journal/1"}` + "\n" + `{"refused":9}` + "\n"))
	f.Add([]byte(`{"schema":"blast.tune.journal/1"}` + "\n" + `{"n":1,"change":{"item":"channels","key":"x"}}` + "\n" + `{"restoring":true}` + "\n{"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		tuner := Tuner{Reader: tuning.Reader{Root: root}, System: silent{}, Journal: filepath.Join(t.TempDir(), "journal")}
		if err := os.WriteFile(tuner.Journal, b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, statusErr := tuner.Status()
		_, restoreErr := tuner.Restore(true)
		if statusErr != nil && restoreErr == nil && len(b) > 0 && b[len(b)-1] == '\n' && b[0] == '{' {
			t.Errorf("status refuses (%v) what restore accepts", statusErr)
		}
	})
}

// silent is a System that has every setting and keeps none.
type silent struct{}

func (silent) Get(string) (string, error) { return "", nil }
func (silent) Set(string, string) error   { return nil }
