package tuning

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Inventory is what Check and Place judge. Numbers that could not be read are -1; why is in Gaps.
type Inventory struct {
	CPUs []CPU `json:"cpus"`
	// Quota is the tightest cgroup quota in CPUs' worth of time; 0 = none.
	Quota       float64 `json:"quota"`
	Clocksource string  `json:"clocksource"`
	Virt        string  `json:"virt"`
	// Steal is the share (0..1) of CPU time that the hypervisor took since boot.
	Steal      float64 `json:"steal"`
	IRQBalance bool    `json:"irqbalance"`
	Limits     Limits  `json:"limits"`
	Sysctls    Sysctls `json:"sysctls"`
	// MemAvailable is in bytes (/proc/meminfo).
	MemAvailable int64 `json:"mem_available_bytes"`
	// NIC is nil when no interface was named.
	NIC  *NIC  `json:"nic,omitempty"`
	Gaps []Gap `json:"gaps"`
}

// Gap is something that could not be read.
type Gap struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// CPU is one logical CPU that is there, online or not.
type CPU struct {
	ID     int  `json:"id"`
	Online bool `json:"online"`
	// Allowed: this process may run on it (affinity and cpuset).
	Allowed bool `json:"allowed"`
	// Isolated from the scheduler (isolcpus=, or an isolated cpuset partition).
	Isolated bool `json:"isolated"`
	// Node is the NUMA node, -1 = unknown; Siblings are the logical CPUs of its physical core, itself included.
	Node     int    `json:"node"`
	Siblings []int  `json:"siblings"`
	Governor string `json:"governor"`
}

// Sysctls are the kernel settings that a run can hit, as /proc/sys has them; -1 = not there.
type Sysctls struct {
	NrOpen         int64 `json:"fs.nr_open"`
	FileMax        int64 `json:"fs.file-max"`
	FilesUsed      int64 `json:"files_used"` // of fs.file-nr
	PortFrom       int64 `json:"port_from"`  // net.ipv4.ip_local_port_range
	PortTo         int64 `json:"port_to"`
	RmemMax        int64 `json:"net.core.rmem_max"`
	WmemMax        int64 `json:"net.core.wmem_max"`
	Backlog        int64 `json:"net.core.netdev_max_backlog"`
	TCPRmemDefault int64 `json:"tcp_rmem_default"`
	TCPWmemDefault int64 `json:"tcp_wmem_default"`
	TWReuse        int64 `json:"net.ipv4.tcp_tw_reuse"`
	ConntrackCount int64 `json:"nf_conntrack_count"`
	ConntrackMax   int64 `json:"nf_conntrack_max"`
	RTRuntimeUS    int64 `json:"kernel.sched_rt_runtime_us"`
}

// NIC is one interface.
type NIC struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Node   int    `json:"node"`
	// Virtual: there is no device behind it, so no interrupts either (lo, veth, bridges).
	Virtual bool `json:"virtual"`
	// RXQueues and TXQueues are those in use, 0 = unknown.
	RXQueues int `json:"rx_queues"`
	TXQueues int `json:"tx_queues"`
	// MaxQueues is the most that the driver offers, 0 = unknown or fixed.
	MaxQueues int `json:"max_queues"`
	// SpeedMbps is the link's, 0 = unknown.
	SpeedMbps int   `json:"speed_mbps"`
	IRQs      []IRQ `json:"irqs"`
	// XPS is the CPU list of each transmit queue, empty = none set.
	XPS []string `json:"xps"`
	// Settings are those the driver answered, in their text form.
	Settings map[Setting]string `json:"settings"`
}

// IRQ is one interrupt of a NIC.
type IRQ struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	// Queue it serves, -1 = none (link changes, configuration). TX only: it never carries received packets.
	Queue  int  `json:"queue"`
	TXOnly bool `json:"tx_only"`
	// CPUs it may be delivered to, as in smp_affinity_list; Effective is where it is delivered. Empty = could not be read.
	CPUs      []int `json:"cpus"`
	Effective []int `json:"effective"`
}

// Inventory reads the host and, when named, one of its interfaces. It fails only when that interface is not there; everything
// else that cannot be read is a Gap.
func (r Reader) Inventory(iface string) (Inventory, error) {
	g := &gaps{r: r}
	inv := Inventory{
		CPUs: g.cpus(), Clocksource: r.known("/sys/devices/system/clocksource/clocksource0/current_clocksource"), Virt: r.virt(),
		Steal: g.steal(), IRQBalance: r.running("irqbalance"), Sysctls: g.sysctls(),
	}
	for _, level := range r.cpuGroups() {
		if q, ok := level.quota(); ok && (inv.Quota == 0 || q < inv.Quota) {
			inv.Quota = q
		}
	}
	var err error
	if inv.Limits, err = r.Limits(); err != nil {
		g.add("resource limits", err)
	}
	inv.MemAvailable = -1
	memory, _ := field(r.text("/proc/meminfo"), "MemAvailable")
	if kb, err := strconv.ParseInt(strings.TrimSuffix(memory, " kB"), 10, 64); err == nil {
		inv.MemAvailable = kb << 10
	}
	if iface != "" {
		inv.NIC, err = g.nic(iface)
	}
	inv.Gaps = g.list
	return inv, err
}

// gaps reads, and notes what it could not.
type gaps struct {
	r    Reader
	list []Gap
}

func (g *gaps) add(what string, err error) {
	var why string
	var path *fs.PathError
	switch {
	case errors.Is(err, os.ErrPermission):
		why = "needs more privilege: run as root"
	case errors.As(err, &path):
		why = path.Err.Error() + ": " + strings.TrimPrefix(path.Path, strings.TrimSuffix(g.r.Root, "/")) // as the host names it
	default:
		why = err.Error()
	}
	g.list = append(g.list, Gap{what, why})
}

// number reads the at-th number of a file of /proc/sys; -1 and a gap when it is not there.
func (g *gaps) number(what, path string, at int) int64 {
	b, err := os.ReadFile(g.r.path(path))
	if err != nil {
		g.add(what, err)
		return -1
	}
	f := strings.Fields(string(b))
	if at >= len(f) {
		g.add(what, fmt.Errorf("%q has no number %d", strings.TrimSpace(string(b)), at+1))
		return -1
	}
	n, err := strconv.ParseInt(f[at], 10, 64)
	if errors.Is(err, strconv.ErrRange) { // fs.file-max is 2^63-1 or above on large machines
		return 1<<63 - 1
	}
	if err != nil {
		g.add(what, err)
		return -1
	}
	return n
}

func (g *gaps) sysctls() Sysctls {
	n := func(name string, at int) int64 {
		return g.number(name, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"), at)
	}
	s := Sysctls{
		NrOpen: n("fs.nr_open", 0), FileMax: n("fs.file-max", 0), FilesUsed: n("fs.file-nr", 0),
		PortFrom: n("net.ipv4.ip_local_port_range", 0), PortTo: n("net.ipv4.ip_local_port_range", 1),
		RmemMax: n("net.core.rmem_max", 0), WmemMax: n("net.core.wmem_max", 0), Backlog: n("net.core.netdev_max_backlog", 0),
		TCPRmemDefault: n("net.ipv4.tcp_rmem", 1), TCPWmemDefault: n("net.ipv4.tcp_wmem", 1), TWReuse: n("net.ipv4.tcp_tw_reuse", 0),
		RTRuntimeUS: n("kernel.sched_rt_runtime_us", 0), ConntrackCount: -1, ConntrackMax: -1,
	}
	// Without the module there is no table, and that is no gap.
	if g.r.exists("/proc/sys/net/netfilter/nf_conntrack_max") {
		s.ConntrackCount, s.ConntrackMax = n("net.netfilter.nf_conntrack_count", 0), n("net.netfilter.nf_conntrack_max", 0)
	}
	return s
}

// steal is the stolen share of /proc/stat's first line, all CPUs since boot.
func (g *gaps) steal() float64 {
	line, _, _ := strings.Cut(g.r.text("/proc/stat"), "\n")
	rest, ok := strings.CutPrefix(line, "cpu ")
	if !ok {
		return 0
	}
	total, stolen := cpuTimes([]byte(rest))
	if total == 0 {
		return 0
	}
	return float64(stolen) / float64(total)
}

// cpus lists the CPUs of sysfs; without it, those that the process may use, and nothing more about them.
func (g *gaps) cpus() []CPU {
	const dir = "/sys/devices/system/cpu"
	allowed, err := g.r.CPUs()
	if err != nil {
		g.add("usable CPUs", err)
	}
	present, err := parseCPUList(g.r.text(dir + "/present"))
	if err != nil {
		present = allowed
	}
	online, err := parseCPUList(g.r.text(dir + "/online"))
	if err != nil {
		online = allowed
		g.add("CPU topology", fmt.Errorf("%s: nothing there", dir))
	}
	for _, cpu := range online { // a tree may know more CPUs than its list of those present
		if !slices.Contains(present, cpu) {
			present = append(present, cpu)
		}
	}
	slices.Sort(present)
	isolated, _ := parseCPUList(g.r.text(dir + "/isolated")) // empty on most machines
	cpus := make([]CPU, 0, len(present))
	for _, id := range present {
		own := fmt.Sprintf("%s/cpu%d", dir, id)
		siblings, err := parseCPUList(g.r.text(own + "/topology/thread_siblings_list"))
		if err != nil {
			siblings = []int{id}
		}
		cpus = append(cpus, CPU{ID: id, Online: slices.Contains(online, id), Allowed: slices.Contains(allowed, id),
			Isolated: slices.Contains(isolated, id), Node: g.r.NodeOf(id), Siblings: siblings, Governor: g.r.text(own + "/cpufreq/scaling_governor")})
	}
	return cpus
}

// nic reads an interface.
func (g *gaps) nic(iface string) (*NIC, error) {
	dir, ok := g.r.netDir(iface)
	if !ok && g.r.live() {
		// An interface of a namespace whose sysfs is not mounted here still answers ethtool.
		if err := interfaceExists(iface); err != nil {
			return nil, err
		}
		g.add("queues and interrupts of "+iface, errors.New("sysfs shows another network namespace"))
	} else if !ok {
		return nil, fmt.Errorf("no interface %q", iface)
	}
	n := &NIC{Name: iface, Driver: g.r.driver(iface), Node: g.r.nicNode(iface), Settings: map[Setting]string{}, XPS: []string{}, IRQs: []IRQ{}}
	if ok {
		n.TXQueues, n.RXQueues = g.r.queues(iface), g.r.rxQueues(dir)
		n.SpeedMbps = max(0, number0(g.r.text(dir+"/speed")))
		n.Virtual = !g.r.exists(dir + "/device")
		if !n.Virtual {
			n.IRQs = g.irqs(iface, dir)
		}
		for q := range n.TXQueues {
			n.XPS = append(n.XPS, listOfMask(g.r.text(fmt.Sprintf("%s/queues/tx-%d/xps_cpus", dir, q))))
		}
	}
	device := g.r.Device()
	for _, s := range []Setting{Channels, ChannelsMax, Rings, RingsMax, Coalesce, RSSConfig, UDP4Fields, UDP6Fields, Offloads} {
		value, err := device.Get(iface, s)
		switch {
		case err == nil:
			n.Settings[s] = value
		case !errors.Is(err, errors.ErrUnsupported):
			g.add(iface+" "+string(s), err)
		}
	}
	if !ok { // sysfs would show them
		have := pairs(n.Settings[Channels])
		n.RXQueues, n.TXQueues = number0(have["combined"])+number0(have["rx"]), number0(have["combined"])+number0(have["tx"])
		n.Virtual = withoutBus(iface)
	}
	most := pairs(n.Settings[ChannelsMax])
	n.MaxQueues = max(number0(most["combined"]), min(number0(most["rx"]), number0(most["tx"])))
	return n, nil
}

func (r Reader) rxQueues(dir string) int {
	queues, err := filepath.Glob(r.path(dir + "/queues/rx-[0-9]*"))
	if err != nil {
		return 0
	}
	return len(queues)
}

// listOfMask turns a mask such as "00,00000003" into a CPU list, "0-1"; empty for none.
func listOfMask(mask string) string {
	var cpus []int
	words := strings.Split(mask, ",")
	for i, word := range words {
		bits, err := strconv.ParseUint(word, 16, 32)
		if err != nil {
			return ""
		}
		for b := range 32 {
			if bits&(1<<b) != 0 {
				cpus = append(cpus, 32*(len(words)-1-i)+b)
			}
		}
	}
	slices.Sort(cpus)
	return FormatCPUs(cpus)
}

// MaskOf is the mask of a CPU list in the kernel's form: 32 bits a word, the highest first (bitmap_parse, lib/bitmap-str.c).
func MaskOf(cpus []int) string {
	words := make([]uint32, 1)
	for _, cpu := range cpus {
		for cpu/32 >= len(words) {
			words = append(words, 0)
		}
		words[cpu/32] |= 1 << (cpu % 32)
	}
	var b strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		if b.Len() > 0 {
			fmt.Fprintf(&b, ",%08x", words[i])
			continue
		}
		fmt.Fprintf(&b, "%x", words[i])
	}
	return b.String()
}

// FormatCPUs writes a CPU list the short way, "0-3,8".
func FormatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", cpus[j])
		}
		i = j + 1
	}
	return b.String()
}
