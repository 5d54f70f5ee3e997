package tuning_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var update = flag.Bool("update", false, "rewrite the golden files")

// big is two sockets of 16 cores with two threads each, and a 100 Gbit/s card with 64 queues on the second.
func big() faketree.Config {
	return faketree.Config{Sockets: 2, Cores: 16, SMT: true, Queues: 64, Node: 1, IRQBalance: true}
}

func inventory(t *testing.T, cfg faketree.Config, more map[string]string) tuning.Inventory {
	t.Helper()
	iface := ""
	if cfg.Queues > 0 {
		iface = "eth0"
	}
	inv, err := tuning.Reader{Root: fake(t, cfg, more)}.Inventory(iface)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestInventory(t *testing.T) {
	inv := inventory(t, big(), map[string]string{"sys/devices/system/cpu/isolated": "20-23\n"})
	if len(inv.CPUs) != 64 || len(inv.Gaps) != 0 || !inv.IRQBalance || inv.Quota != 0 {
		t.Errorf("%d CPUs, gaps %v, irqbalance %v, quota %v", len(inv.CPUs), inv.Gaps, inv.IRQBalance, inv.Quota)
	}
	want := tuning.CPU{ID: 52, Online: true, Allowed: true, Node: 1, Siblings: []int{20, 52}, Governor: "powersave"}
	if d := cmp.Diff(want, inv.CPUs[52]); d != "" {
		t.Errorf("CPU 52 (-want +got):\n%s", d)
	}
	n := inv.NIC
	if n.Driver != "mlx5_core" || n.Node != 1 || n.RXQueues != 64 || n.TXQueues != 64 || n.MaxQueues != 64 || n.SpeedMbps != 100000 || len(n.IRQs) != 65 {
		t.Errorf("%+v", n)
	}
	if q := n.IRQs[6]; q.Number != 106 || q.Queue != 5 || q.TXOnly || !slices.Equal(q.CPUs, []int{0}) {
		t.Errorf("%+v", q)
	}
	if q := n.IRQs[0]; q.Queue != -1 {
		t.Errorf("the card's own interrupt is one of a queue: %+v", q)
	}
	if inv.Sysctls.PortFrom != 32768 || inv.Sysctls.FileMax != 1<<63-1 || inv.Limits.NoFileHard != 4096 || inv.MemAvailable != 4<<30 {
		t.Errorf("%+v %+v", inv.Sysctls, inv.Limits)
	}
}

func TestInventoryMarksWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		why  string
		cfg  faketree.Config
		more map[string]string
		gaps []string
	}{
		{"a container without /proc/irq still lists its interrupts", big(), noAffinity(), []string{"interrupt affinity of eth0"}},
		{"one that shows nothing of the card's interrupts has none, which is no gap", faketree.Config{Queues: 4, NoIRQ: true}, nil, nil},
		{"/proc/sys/net is not there", faketree.Config{}, map[string]string{"proc/sys/net/ipv4/ip_local_port_range": "", "proc/sys/net/core/rmem_max": ""},
			[]string{"net.ipv4.ip_local_port_range", "net.ipv4.ip_local_port_range", "net.core.rmem_max"}},
		{"nonsense is not a number", faketree.Config{}, map[string]string{"proc/sys/fs/nr_open": "many\n"}, []string{"fs.nr_open"}},
	} {
		inv := inventory(t, c.cfg, c.more)
		var got []string
		for _, g := range inv.Gaps {
			got = append(got, g.What)
			if g.Why == "" {
				t.Errorf("%s: gap %s without a reason", c.why, g.What)
			}
		}
		if d := cmp.Diff(c.gaps, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, d)
		}
		findings := tuning.Check(inv, tuning.Workload{})
		unknown := 0
		for _, f := range findings {
			if f.Level == tuning.Unread {
				unknown++
			}
		}
		if unknown < len(c.gaps) {
			t.Errorf("%s: %d findings are marked as unknown, %d gaps", c.why, unknown, len(c.gaps))
		}
	}
	r := tuning.Reader{Root: fake(t, faketree.Config{}, nil)}
	if _, err := r.Inventory("eth7"); err == nil || err.Error() != `no interface "eth7"` {
		t.Errorf("an unknown interface: %v", err)
	}
	if _, err := (tuning.Reader{}).Inventory("nosuch7"); err == nil || err.Error() != `no interface "nosuch7"` {
		t.Errorf("an unknown interface of this host: %v", err)
	}
}

// noAffinity removes /proc/irq from big.
func noAffinity() map[string]string {
	more := map[string]string{}
	for n := range 65 {
		more[fmt.Sprintf("proc/irq/%d/smp_affinity_list", faketree.Interrupt-1+n)] = ""
	}
	return more
}

// TestFindingsGolden keeps the table as people see it, and its 100 columns.
func TestFindingsGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  faketree.Config
		more map[string]string
		load tuning.Workload
	}{
		{"fresh", big(), nil, tuning.Workload{}},
		{"udp", big(), nil, tuning.Workload{Connections: 2000, Rate: 2e6, Workers: 4}},
		{"tcp", big(), nil, tuning.Workload{Protocol: "tcp", Connections: 1_000_000, Rate: 10_000, Workers: 8, Targets: 4}},
		{"container", func() faketree.Config { c := big(); c.IRQBalance = false; return c }(), merge(noAffinity(), map[string]string{
			"sys/fs/cgroup/cpu.max": "150000 100000\n", "proc/sys/net/core/rmem_max": "", "proc/100/status": "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n",
		}), tuning.Workload{Workers: 2, Connections: 100}},
		{"virtual", faketree.Config{Cores: 2, Queues: 2, Virtual: true}, nil, tuning.Workload{Workers: 2}},
	} {
		var got bytes.Buffer
		inv := inventory(t, c.cfg, c.more)
		if err := tuning.WriteFindings(&got, tuning.Check(inv, c.load), c.load, inv.NIC.Name, false); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(got.String()) {
			if len([]rune(line)) > 101 {
				t.Errorf("%s: %d columns: %s", c.name, len(line)-1, line)
			}
		}
		path := filepath.Join("testdata", "check-"+c.name+".txt")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func merge(a, b map[string]string) map[string]string {
	for k, v := range b {
		a[k] = v
	}
	return a
}

func find(findings []tuning.Finding, code string) (tuning.Finding, bool) {
	at := slices.IndexFunc(findings, func(f tuning.Finding) bool { return f.Code == code })
	if at < 0 {
		return tuning.Finding{}, false
	}
	return findings[at], true
}

func TestWallsStandWhereTheyDo(t *testing.T) {
	inv := inventory(t, big(), nil)
	for _, c := range []struct {
		code string
		load tuning.Workload
		at   float64
	}{
		{"nofile", tuning.Workload{}, 4096 - 64},
		{"ports", tuning.Workload{Targets: 3}, 28232}, // a UDP port is taken for all targets
		{"ports", tuning.Workload{Sources: 2}, 2 * 28232},
		{"ports", tuning.Workload{Protocol: "tcp", Targets: 3, Sources: 2}, 6 * 28232},
		{"conntrack", tuning.Workload{}, 65536 - 12},
		{"tw_reuse", tuning.Workload{Protocol: "tcp"}, 28232.0 / 60},
		{"memory", tuning.Workload{Protocol: "tcp"}, 4 << 30 / (4<<10 + 131072 + 16384)},
		{"core-rate", tuning.Workload{Workers: 3}, 900_000},
	} {
		f, ok := find(tuning.Check(inv, c.load), c.code)
		if !ok || int(f.At) != int(c.at) {
			t.Errorf("%s for %+v stands at %v, want %v", c.code, c.load, f.At, c.at)
		}
		if f.Level != tuning.Fine {
			t.Errorf("%s is in the way of a load that says nothing: %+v", c.code, f)
		}
		// One below passes, one above does not.
		for _, d := range []int{0, 1} {
			load := c.load
			if strings.HasSuffix(f.Unit, "/s") {
				load.Rate = float64(int(c.at) + d)
			} else {
				load.Connections = int(c.at) + d
			}
			g, _ := find(tuning.Check(inv, load), c.code)
			if (g.Level == tuning.Wall) != (d == 1) {
				t.Errorf("%s at %d %s: level %s", c.code, int(c.at)+d, f.Unit, g.Level)
			}
			if g.Level == tuning.Wall && g.Command == "" {
				t.Errorf("%s: a wall without a command", c.code)
			}
		}
	}
	walls := tuning.Check(inv, tuning.Workload{Connections: 10_000_000, Rate: 1e9})
	last := 0.0
	for _, f := range walls {
		if f.Level == tuning.Wall && f.At > 0 && !strings.HasSuffix(f.Unit, "/s") {
			if f.At < last {
				t.Errorf("%s at %v comes after one at %v", f.Code, f.At, last)
			}
			last = f.At
		}
	}
	if walls[0].Code != "nofile" {
		t.Errorf("the first wall is %s", walls[0].Code)
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		why   string
		cfg   faketree.Config
		more  map[string]string
		place tuning.PlaceConfig
		cpus  []int
		irqs  []int // CPUs of the interrupts
		first int   // queue of the first worker
		note  string
		err   string
	}{
		{why: "on the card's node, one thread a core", cfg: big(), place: tuning.PlaceConfig{Workers: 4}, cpus: []int{16, 17, 18, 19}, irqs: []int{16, 17, 18, 19}},
		{why: "all cores of the node before any sibling, siblings before the other node", cfg: faketree.Config{Sockets: 2, Cores: 2, SMT: true, Queues: 8, Node: 1},
			place: tuning.PlaceConfig{Workers: 5}, cpus: []int{2, 3, 6, 7, 1}, irqs: []int{2, 3, 6, 7, 1}, note: "1 of 5 workers are off node 1"},
		{why: "CPU 0's core last on the node", cfg: faketree.Config{Sockets: 2, Cores: 2, Queues: 4}, place: tuning.PlaceConfig{Workers: 2}, cpus: []int{1, 0}, irqs: []int{1, 0}},
		{why: "isolated CPUs first", cfg: big(), more: map[string]string{"sys/devices/system/cpu/isolated": "30-31\n"},
			place: tuning.PlaceConfig{Workers: 3}, cpus: []int{30, 31, 16}, irqs: []int{30, 31, 16}},
		{why: "interrupts beside: on the sibling", cfg: big(), place: tuning.PlaceConfig{Workers: 2, Beside: true}, cpus: []int{16, 17}, irqs: []int{48, 49}},
		{why: "interrupts beside without siblings: on a spare CPU of the node", cfg: faketree.Config{Sockets: 2, Cores: 4, Queues: 4, Node: 1},
			place: tuning.PlaceConfig{Workers: 2, Beside: true}, cpus: []int{4, 5}, irqs: []int{6, 7}},
		{why: "named CPUs are kept", cfg: big(), place: tuning.PlaceConfig{Workers: 2, CPUs: []int{5, 40}}, cpus: []int{5, 40}, irqs: []int{5, 40}, note: "2 of 2 workers are off node 1"[7:]},
		{why: "fewer queues than workers are shared", cfg: faketree.Config{Cores: 4, Queues: 2}, place: tuning.PlaceConfig{Workers: 3}, cpus: []int{1, 2, 3}, irqs: []int{1, 2, 3}, note: "2 receive queues for 3 workers"},
		{why: "a backend bound to queue 5 and the next", cfg: big(), place: tuning.PlaceConfig{Workers: 2, Queue: 5}, cpus: []int{16, 17}, irqs: []int{16, 17}, first: 5},
		{why: "a virtual interface has no interrupts to align", cfg: faketree.Config{Cores: 2, Queues: 2, Virtual: true}, place: tuning.PlaceConfig{Workers: 1}, cpus: []int{1}, irqs: []int{-1}},
		{why: "a quota below the workers is said", cfg: faketree.Config{Cores: 4, Queues: 4}, more: map[string]string{"sys/fs/cgroup/cpu.max": "150000 100000\n"},
			place: tuning.PlaceConfig{Workers: 2}, cpus: []int{1, 2}, irqs: []int{1, 2}, note: "quota is 1.5 CPUs for 2 workers"},
		{why: "an offline CPU", cfg: faketree.Config{Cores: 4}, more: map[string]string{"sys/devices/system/cpu/online": "0-2\n"},
			place: tuning.PlaceConfig{Workers: 1, CPUs: []int{3}}, err: "cpu 3 is offline; echo 1 > /sys/devices/system/cpu/cpu3/online"},
		{why: "a CPU outside of the cpuset", cfg: faketree.Config{Cores: 4}, more: map[string]string{"proc/100/status": "Cpus_allowed_list:\t0-1\n"},
			place: tuning.PlaceConfig{Workers: 1, CPUs: []int{3}}, err: "cpu 3 is not among those this process may use"},
		{why: "overlapping CPUs", cfg: faketree.Config{Cores: 4}, place: tuning.PlaceConfig{Workers: 2, CPUs: []int{1, 1}}, err: "cpu 1 is named twice"},
		{why: "too few named", cfg: faketree.Config{Cores: 4}, place: tuning.PlaceConfig{Workers: 2, CPUs: []int{1}}, err: "1 CPUs for 2 workers; name one each"},
		{why: "more workers than CPUs", cfg: faketree.Config{Cores: 4}, place: tuning.PlaceConfig{Workers: 5}, err: "5 workers: more than the 4 CPUs this process may use"},
	} {
		inv := inventory(t, c.cfg, c.more)
		p, err := tuning.Place(inv, c.place)
		if err != nil || c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: error %v, want %q", c.why, err, c.err)
			}
			continue
		}
		var cpus, irqs []int
		for _, s := range p.Seats {
			cpus, irqs = append(cpus, s.CPU), append(irqs, s.IRQCPU)
			if slices.Contains(p.Spare, s.CPU) {
				t.Errorf("%s: CPU %d is a worker's and spare", c.why, s.CPU)
			}
		}
		if !slices.Equal(cpus, c.cpus) || !slices.Equal(irqs, c.irqs) {
			t.Errorf("%s: CPUs %v interrupts %v, want %v and %v", c.why, cpus, irqs, c.cpus, c.irqs)
		}
		if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
			t.Errorf("%s: notes %q, want %q", c.why, notes, c.note)
		}
		if p.Seats[0].Queue >= 0 && (p.Seats[0].Queue != c.first || p.Seats[0].IRQ >= 0 && p.Seats[0].IRQ != faketree.Interrupt+c.first) {
			t.Errorf("%s: seat %+v, want queue %d", c.why, p.Seats[0], c.first)
		}
		if p.GOMAXPROCS <= len(p.Seats) {
			t.Errorf("%s: GOMAXPROCS %d", c.why, p.GOMAXPROCS)
		}
	}
}

func TestAudit(t *testing.T) {
	seats := func(cpus ...int) []tuning.Seat {
		var out []tuning.Seat
		for w, cpu := range cpus {
			out = append(out, tuning.Seat{Worker: w, CPU: cpu, Queue: w})
		}
		return out
	}
	irq := func(queue int, cpus string) map[string]string {
		return map[string]string{fmt.Sprintf("proc/irq/%d/smp_affinity_list", faketree.Interrupt+queue): cpus + "\n"}
	}
	for _, c := range []struct {
		why     string
		more    map[string]string
		seats   []tuning.Seat
		verdict string
		says    string
	}{
		{"the queue's interrupt on the worker's core", irq(0, "16"), seats(16), tuning.Pass, ""},
		{"on its sibling", irq(0, "48"), seats(16), tuning.Pass, ""},
		{"on a spare core of the node", irq(0, "20"), seats(16), tuning.Pass, ""},
		{"on the other node", nil, seats(16), tuning.Fail, "interrupt 101 is delivered on core 0, node 0"},
		{"the worker on the other node", irq(0, "1"), seats(1), tuning.Fail, "core on node 0, eth0 on node 1"},
		{"on another worker's core", merge(irq(0, "17"), irq(1, "18")), seats(16, 17), tuning.Fail, "core 17, which is worker 1's"},
		{"two queues on one spare core", merge(irq(0, "20"), irq(1, "20")), seats(16, 17), tuning.Fail, "core 20 takes the interrupts of worker 1's queue too"},
		{"anywhere", irq(0, "16-31"), seats(16), tuning.Fail, "may be delivered on any of cores 16-31"},
		{"two workers on one physical core", irq(0, "16"), seats(16, 48), tuning.Fail, "shares its physical core with worker 1"},
		{"not pinned", nil, seats(-1), tuning.Fail, "not pinned"},
		{"affinity not readable", noAffinity(), seats(16), tuning.Unsure, "interrupt affinity not readable"},
		{"no queue", nil, []tuning.Seat{{CPU: 16, Queue: -1}}, tuning.Unsure, "no queue of its own"},
	} {
		got := tuning.AuditSeats(inventory(t, big(), c.more), c.seats)
		if len(got) != len(c.seats) || got[0].Verdict != c.verdict || !strings.Contains(got[0].Why, c.says) {
			t.Errorf("%s: %v", c.why, got)
		}
		if line := got[0].String(); !strings.Contains(line, "placement of worker 0: core") || !strings.Contains(line, c.verdict) {
			t.Errorf("%s: %q", c.why, line)
		}
		var table bytes.Buffer
		if err := tuning.WriteAudit(&table, got); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(table.String()) {
			if len(line) > 101 {
				t.Errorf("%s: %d columns: %s", c.why, len(line)-1, line)
			}
		}
	}
	virtual := tuning.AuditSeats(inventory(t, faketree.Config{Cores: 2, Queues: 2, Virtual: true}, nil), []tuning.Seat{{CPU: 1, Queue: 0}})
	if virtual[0].Verdict != tuning.Pass || !strings.Contains(virtual[0].Why, "no interrupts to align") {
		t.Errorf("a virtual interface: %v", virtual[0])
	}
}

func TestNameWall(t *testing.T) {
	r := tuning.Reader{Root: fake(t, faketree.Config{}, nil)}
	free := tuning.Reader{Root: fake(t, faketree.Config{}, map[string]string{"proc/100/status": "CapEff:\t0000000000000000\n",
		"proc/sys/net/netfilter/nf_conntrack_max": ""})}
	for _, c := range []struct {
		r    tuning.Reader
		err  error
		code string
		says string
	}{
		{r, os.NewSyscallError("socket", unix.EMFILE), "nofile", "(1,024)"},
		{r, unix.ENFILE, "file-max", "9223372036854775807"},
		{r, os.NewSyscallError("connect", unix.EADDRNOTAVAIL), "ports", "32768-60999"},
		{r, fmt.Errorf("worker 3: %w", os.NewSyscallError("sendmmsg", unix.EPERM)), "conntrack", "(12 of 65536 now)"},
		{free, os.NewSyscallError("sendmmsg", unix.EPERM), "firewall", "nft list ruleset"},
		{r, os.NewSyscallError("bpf", unix.EPERM), "privilege", "run as root"},
		{r, os.NewSyscallError("sendto", unix.ENOBUFS), "memory", "txqueuelen"},
		{free, os.NewSyscallError("setsockopt XDP_UMEM_REG", unix.ENOBUFS), "memlock", "8 MiB"},
		{r, os.NewSyscallError("setsockopt XDP_UMEM_REG", unix.ENOMEM), "memory", "in setsockopt"},
		{r, &net.OpError{Op: "write", Err: os.NewSyscallError("write", unix.EMSGSIZE)}, "mtu", "--fragment"},
		{r, unix.ENETUNREACH, "route", "ip route get"},
		{r, unix.ENETDOWN, "link", "ip link set"},
		{r, unix.EBUSY, "queue", "AF_XDP"},
		{r, unix.EAGAIN, "wmem_max", "lower rate"},
		{r, unix.EADDRINUSE, "ports", "--src-port"},
		{r, unix.ENOSYS, "", ""},
		{r, errors.New("something else"), "", ""},
	} {
		met, ok := c.r.NameWall(c.err)
		if ok != (c.code != "") || met.Code != c.code || !strings.Contains(met.String(), c.says) {
			t.Errorf("%v: %+v", c.err, met)
		}
	}
	for _, cause := range []string{"no_buffers", "permission", "message_size", "unreachable", "down", "invalid", "full"} {
		if met, ok := r.CauseWall(cause); !ok || met.Remedy == "" {
			t.Errorf("cause %s has no wall", cause)
		}
	}
}

func TestCPUForms(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		list string
		mask string
	}{
		{nil, "", "0"}, {[]int{0}, "0", "1"}, {[]int{0, 1, 2, 3, 8, 10, 11}, "0-3,8,10-11", "d0f"}, {[]int{31, 32}, "31-32", "1,80000000"}, {[]int{64}, "64", "1,00000000,00000000"},
	} {
		if got := tuning.FormatCPUs(c.cpus); got != c.list {
			t.Errorf("list of %v: %q", c.cpus, got)
		}
		if got := tuning.MaskOf(c.cpus); got != c.mask {
			t.Errorf("mask of %v: %q", c.cpus, got)
		}
	}
}
