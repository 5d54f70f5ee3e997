package tuning

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"blast/stats"
)

// Level is how much a finding matters.
type Level string

// The levels, worst first.
const (
	// Wall: the workload as given cannot pass it.
	Wall Level = "wall"
	// Slow: it costs rate, or makes figures uneven.
	Slow Level = "slow"
	// Unread: it could not be read, so nothing is said.
	Unread Level = "unknown"
	// Fine: as it should be.
	Fine Level = "ok"
)

// Finding is one setting, judged.
type Finding struct {
	Level Level `json:"level"`
	// Code is a stable word; Name is for people.
	Code string `json:"code"`
	Name string `json:"name"`
	// Found and Wanted are values as people write them.
	Found  string `json:"found"`
	Wanted string `json:"wanted"`
	Why    string `json:"why"`
	// Command mends it; empty when nothing does. Apply says that blast tune apply does too.
	Command string `json:"command"`
	Apply   bool   `json:"apply"`
	// At is the number of Unit at which this wall is met; 0 = it has no such number.
	At   float64 `json:"at"`
	Unit string  `json:"unit"`
}

// Workload is what the host is to be good for. The zero value asks about nothing in particular: walls are then told by where they
// stand, and none is in the way.
type Workload struct {
	// Protocol is "udp" (the default) or "tcp"; Connections are flows for UDP.
	Protocol    string
	Connections int
	// Rate in packets (UDP) or new connections (TCP) per second.
	Rate float64
	// Workers, Targets and Sources: zero means 1. Targets are destination address and port pairs, Sources local addresses.
	Workers, Targets, Sources int
}

func (w Workload) withDefaults() Workload {
	w.Protocol = cmp.Or(w.Protocol, "udp")
	w.Workers, w.Targets, w.Sources = max(w.Workers, 1), max(w.Targets, 1), max(w.Sources, 1)
	return w
}

// parallel says whether several queues matter: with several workers, or when nothing is said about the load.
func (w Workload) parallel() bool { return w.Workers > 1 || w.Connections == 0 && w.Rate == 0 }

// thing is what a connection is called.
func (w Workload) thing() string {
	if w.Protocol == "tcp" {
		return "connections"
	}
	return "flows"
}

// Figures by which walls are placed.
const (
	// ownFiles are descriptors that blast needs beside its flows: standard streams, poller, counters, rings.
	ownFiles = 64
	// corePPS is what one core sends with batched system calls: 0.3 to 0.5 million a second here (see docs/tuning.md). blast
	// calibrate replaces the rule of thumb by a measurement.
	corePPS = 300_000
	// timeWait is how long the kernel keeps a closed TCP connection's ports (TCP_TIMEWAIT_LEN, include/net/tcp.h), in seconds.
	timeWait = 60
	// tcpBytes is what a TCP socket costs the kernel before its buffers.
	tcpBytes = 4 << 10
	// receiveBuffer is what blast asks for by default.
	receiveBuffer = 4 << 20
)

// Check judges an inventory for a workload: walls first, in the order in which they would be met, then what is slow, what could not be
// read, and what is fine.
func Check(inv Inventory, w Workload) []Finding {
	w = w.withDefaults()
	c := &check{inv: inv, w: w}
	c.files()
	c.ports()
	c.memory()
	c.conntrack()
	c.cores()
	c.host()
	if inv.NIC != nil {
		c.nic(inv.NIC)
	}
	for _, g := range inv.Gaps {
		c.out = append(c.out, Finding{Level: Unread, Code: "gap", Name: g.What, Found: "unknown", Why: g.Why})
	}
	rank := map[Level]int{Wall: 0, Slow: 1, Unread: 2, Fine: 3}
	slices.SortStableFunc(c.out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Level], rank[b.Level]), compareAt(a, b))
	})
	return c.out
}

// compareAt puts the nearest wall first; walls of rate behind those of connections, and what has no number last.
func compareAt(a, b Finding) int {
	class := func(f Finding) int {
		switch {
		case f.At == 0:
			return 2
		case strings.HasSuffix(f.Unit, "/s"):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.At, b.At))
}

type check struct {
	inv Inventory
	w   Workload
	out []Finding
}

// number adds a wall that stands at a number of things: in the way when the workload has more.
func (c *check) number(f Finding, need float64) {
	f.Level = Fine
	if need > f.At {
		f.Level = Wall
	}
	c.out = append(c.out, f)
}

// when adds a finding, slow when bad holds.
func (c *check) when(bad bool, f Finding) {
	f.Level = Fine
	if bad {
		f.Level = Slow
	}
	c.out = append(c.out, f)
}

func (c *check) files() {
	l, s, n := c.inv.Limits, c.inv.Sysctls, c.w.Connections
	want := n + ownFiles
	if l.NoFileHard > 0 {
		command := fmt.Sprintf("blast tune exec --nofile %d -- blast ...", max(want, 65536))
		c.number(Finding{Code: "nofile", Name: "open files", Found: count(l.NoFileHard), Wanted: count(uint64(want)), Command: command,
			Why: "each of the " + c.w.thing() + " is a file descriptor (EMFILE; ulimit -n)", At: below(l.NoFileHard), Unit: c.w.thing()}, float64(n))
	}
	if s.NrOpen > 0 {
		c.number(Finding{Code: "nr_open", Name: "fs.nr_open", Found: count(s.NrOpen), Wanted: count(want), Apply: true,
			Command: fmt.Sprintf("sysctl -w fs.nr_open=%d", max(want, 1<<20)), Why: "no process may have more open files than this, whatever its limit",
			At: below(uint64(s.NrOpen)), Unit: c.w.thing()}, float64(n))
	}
	if s.FileMax > 0 {
		c.number(Finding{Code: "file-max", Name: "fs.file-max", Found: count(s.FileMax), Wanted: count(int64(want) + max(s.FilesUsed, 0)), Apply: true,
			Command: fmt.Sprintf("sysctl -w fs.file-max=%d", int64(max(want, 1<<21))+max(s.FilesUsed, 0)), Why: "open files of the whole host (ENFILE)",
			At: below(uint64(s.FileMax - max(s.FilesUsed, 0))), Unit: c.w.thing()}, float64(n))
	}
}

// below leaves room for what else the process opens.
func below(limit uint64) float64 { return math.Max(1, float64(limit)-ownFiles) }

func (c *check) ports() {
	s, w := c.inv.Sysctls, c.w
	if s.PortFrom < 0 || s.PortTo < s.PortFrom {
		return
	}
	ports := float64(s.PortTo-s.PortFrom+1) * float64(w.Sources)
	// A UDP port is taken on a local address whatever the destination (udp_lib_get_port); a TCP one only towards the same
	// destination (inet_hash_connect).
	per := "per source address"
	if w.Protocol == "tcp" {
		ports *= float64(w.Targets)
		per = "per source address and target"
	}
	wanted := "1024-65535"
	if most := 64512 * ports / float64(s.PortTo-s.PortFrom+1); float64(w.Connections) > most {
		wanted = fmt.Sprintf("1024-65535 and %d sources", int(math.Ceil(float64(w.Connections)/most*float64(w.Sources))))
	}
	c.number(Finding{Code: "ports", Name: "source ports", Found: fmt.Sprintf("%d-%d", s.PortFrom, s.PortTo), Wanted: wanted, Apply: true,
		Command: `sysctl -w net.ipv4.ip_local_port_range="1024 65535"`,
		Why:     "ports " + per + " (EADDRNOTAVAIL); then more --src addresses", At: ports, Unit: w.thing()}, float64(w.Connections))
	if w.Protocol != "tcp" || s.TWReuse < 0 {
		return
	}
	// 2 means loopback only, the default since 4.19 (ip-sysctl.rst).
	f := Finding{Code: "tw_reuse", Name: "TIME_WAIT reuse", Found: fmt.Sprint(s.TWReuse), Wanted: "1", Command: "sysctl -w net.ipv4.tcp_tw_reuse=1", Apply: true,
		Why: fmt.Sprintf("a closed connection keeps its ports for %d s", timeWait), At: ports / timeWait, Unit: "connections/s"}
	if s.TWReuse == 1 {
		f.At = 0
		c.when(false, f)
		return
	}
	c.number(f, w.Rate)
}

func (c *check) memory() {
	s, w := c.inv.Sysctls, c.w
	if w.Protocol == "tcp" && c.inv.MemAvailable > 0 && s.TCPRmemDefault > 0 && s.TCPWmemDefault > 0 {
		per := tcpBytes + s.TCPRmemDefault + s.TCPWmemDefault
		c.number(Finding{Code: "memory", Name: "socket memory", Found: mib(c.inv.MemAvailable) + " free", Wanted: mib(per * int64(w.Connections)), Apply: true,
			Command: `sysctl -w net.ipv4.tcp_rmem="4096 4096 16384" net.ipv4.tcp_wmem="4096 4096 16384"`,
			Why:     fmt.Sprintf("%d KiB a connection once its buffers fill (ENOMEM, ENOBUFS)", per>>10), At: float64(c.inv.MemAvailable / per), Unit: w.thing()}, float64(w.Connections))
	}
	if s.RmemMax >= 0 {
		c.when(s.RmemMax < receiveBuffer && !c.inv.Limits.NetAdmin, Finding{Code: "rmem_max", Name: "receive buffer", Found: mib(s.RmemMax), Wanted: mib(receiveBuffer), Apply: true,
			Command: fmt.Sprintf("sysctl -w net.core.rmem_max=%d", receiveBuffer), Why: "replies that wait while a thread is off its core are dropped (self-loss); CAP_NET_ADMIN passes this limit"})
	}
	if s.WmemMax >= 0 {
		c.when(s.WmemMax < receiveBuffer && !c.inv.Limits.NetAdmin, Finding{Code: "wmem_max", Name: "send buffer", Found: mib(s.WmemMax), Wanted: mib(receiveBuffer), Apply: true,
			Command: fmt.Sprintf("sysctl -w net.core.wmem_max=%d", receiveBuffer), Why: "a full send buffer pushes back (EAGAIN) before the device does"})
	}
	c.when(c.inv.Limits.Memlock < 64<<20 && !c.inv.Limits.IPCLock, Finding{Code: "memlock", Name: "locked memory", Found: memlock(c.inv.Limits), Wanted: "64 MiB or CAP_IPC_LOCK",
		Command: "ulimit -l unlimited", Why: "AF_XDP and io_uring lock their packet memory (ENOBUFS, ENOMEM)"})
}

func memlock(l Limits) string {
	if l.IPCLock {
		return "CAP_IPC_LOCK"
	}
	return mib(int64(min(l.Memlock, math.MaxInt64)))
}

func (c *check) conntrack() {
	s := c.inv.Sysctls
	if s.ConntrackMax <= 0 {
		return
	}
	need := s.ConntrackCount + int64(c.w.Connections)
	c.number(Finding{Code: "conntrack", Name: "conntrack table", Found: fmt.Sprintf("%s of %s", count(s.ConntrackCount), count(s.ConntrackMax)), Wanted: count(need), Apply: true,
		Command: fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", max(2*need, 262144)),
		Why:     "where rules track connections, a full table drops new ones (EPERM)", At: math.Max(1, float64(s.ConntrackMax-s.ConntrackCount)), Unit: c.w.thing()}, float64(c.w.Connections))
}

func (c *check) cores() {
	usable := 0
	for _, cpu := range c.inv.CPUs {
		if cpu.Online && cpu.Allowed {
			usable++
		}
	}
	if usable == 0 {
		return
	}
	w := c.w
	if w.Workers > usable {
		c.out = append(c.out, Finding{Level: Wall, Code: "cores", Name: "usable CPUs", Found: count(usable), Wanted: count(w.Workers),
			Why: "a pinned worker needs a CPU to itself", Command: fmt.Sprintf("blast udp --workers %d", usable)})
	}
	if w.Protocol == "udp" {
		need := int(math.Ceil(w.Rate / corePPS))
		c.number(Finding{Code: "core-rate", Name: "system calls", Found: plural(w.Workers, "worker"), Wanted: plural(max(need, w.Workers), "worker"),
			Command: fmt.Sprintf("blast udp --workers %d --gso 32, or --backend af_xdp", max(need, w.Workers)),
			Why:     "one core sends about 300 k/s with plain sockets; blast calibrate measures it", At: corePPS * float64(w.Workers), Unit: "packets/s"}, w.Rate)
	}
	if q := c.inv.Quota; q > 0 {
		f := Finding{Level: Fine, Code: "quota", Name: "cgroup CPU quota", Found: fmt.Sprintf("%.4g CPUs", q), Wanted: plural(w.Workers, "CPU"), Why: quotaNote(q, w.Workers),
			Command: "raise cpu.max (cpu.cfs_quota_us) of the group"}
		if float64(w.Workers) > q {
			f.Level = Wall
		}
		c.out = append(c.out, f)
	}
}

func (c *check) host() {
	var governors []string
	for _, cpu := range c.inv.CPUs {
		if cpu.Allowed && cpu.Governor != "" && !slices.Contains(governors, cpu.Governor) {
			governors = append(governors, cpu.Governor)
		}
	}
	if len(governors) > 0 {
		c.when(!slices.Equal(governors, []string{"performance"}), Finding{Code: "governor", Name: "CPU governor", Found: strings.Join(governors, ","), Wanted: "performance",
			Command: "cpupower frequency-set -g performance", Apply: true, Why: "the clock speed follows the load, and so would the figures"})
	}
	if stats.Known(c.inv.Clocksource) {
		c.when(c.inv.Clocksource != "tsc" && c.inv.Clocksource != "arch_sys_counter", Finding{Code: "clocksource", Name: "clock source", Found: c.inv.Clocksource, Wanted: "tsc",
			Command: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource", Why: "others may cost a system call or an exit to the hypervisor per reading"})
	}
	const badSteal = 0.02 // the verdict's own limit
	c.when(c.inv.Steal > badSteal, Finding{Code: "steal", Name: "stolen CPU time", Found: fmt.Sprintf("%.1f %%", 100*c.inv.Steal), Wanted: "below 2 %",
		Command: "use a dedicated host, or dedicated virtual CPUs", Why: "since boot; the hypervisor gives this host's cores to others"})
	isolated := slices.ContainsFunc(c.inv.CPUs, func(cpu CPU) bool { return cpu.Isolated })
	found := "none"
	if isolated {
		found = FormatCPUs(isolatedCPUs(c.inv.CPUs))
	}
	c.out = append(c.out, Finding{Level: Fine, Code: "isolcpus", Name: "isolated CPUs", Found: found, Wanted: "optional",
		Command: "kernel parameter isolcpus=LIST nohz_full=LIST", Why: "keeps other programs off the workers' cores"})
	if rt := c.inv.Sysctls.RTRuntimeUS; rt >= 0 {
		c.out = append(c.out, Finding{Level: Fine, Code: "rt", Name: "real-time share", Found: fmt.Sprintf("%d us", rt), Wanted: "any",
			Why: "a spinning real-time thread is stopped for the rest of every second: do not run blast under chrt"})
	}
	c.when(c.inv.IRQBalance, Finding{Code: "irqbalance", Name: "irqbalance", Found: running(c.inv.IRQBalance), Wanted: "stopped",
		Command: "systemctl stop irqbalance", Why: "it moves interrupts off the cores they were put on, in the middle of a run"})
}

func isolatedCPUs(cpus []CPU) []int {
	var out []int
	for _, c := range cpus {
		if c.Isolated {
			out = append(out, c.ID)
		}
	}
	return out
}

func running(on bool) string {
	if on {
		return "running"
	}
	return "stopped"
}

func mib(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

func count[T int | int64 | uint64](n T) string {
	if uint64(n) >= math.MaxInt64 {
		return "unlimited"
	}
	return stats.FormatCount(uint64(n))
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
