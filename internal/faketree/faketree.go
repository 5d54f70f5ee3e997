// Package faketree writes hosts as trees of files, for tests of tuning: processors, limits, and a network card with its queues,
// interrupts and driver settings, in the places where Linux has them (and ROOT/ethtool for what only drivers know).
package faketree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Config is a host. The zero value has one socket of one core and no network card.
type Config struct {
	// Sockets of Cores each, with two threads each when SMT is set; zero means 1. Threads are numbered as on PCs: first one of every
	// core, then the second ones. Each socket is a NUMA node.
	Sockets, Cores int
	SMT            bool
	// Queues of the card eth0, 0 = no card; Channels of them in use (0 = all). Node is the card's.
	Queues, Channels, Node int
	// NoIRQ leaves /proc/irq and the card's interrupts out, as in a container.
	NoIRQ bool
	// IRQBalance runs.
	IRQBalance bool
	// Virtual makes eth0 a virtual interface: queues, but no device, interrupts or driver settings.
	Virtual bool
}

// Interrupt is the number of the card's first queue interrupt; the one before is its own.
const Interrupt = 101

// Write writes the host below the root, changed by more files (by path; an empty content removes one), and returns the root.
func Write(root string, cfg Config, more map[string]string) (string, error) {
	files := map[string]string{}
	links := map[string]string{"proc/self": "100", "proc/thread-self": "100/task/100"}
	cfg.host(files)
	cfg.cpus(files, links)
	if cfg.Queues > 0 {
		cfg.card(files, links)
	}
	for name, content := range more {
		files[name] = content
		if content == "" {
			delete(files, name)
		}
	}
	for name, target := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			return "", err
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return "", err
		}
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return root, nil
}

// CPUs is the number of logical CPUs.
func (c Config) CPUs() int {
	n := max(c.Sockets, 1) * max(c.Cores, 1)
	if c.SMT {
		n *= 2
	}
	return n
}

func (c Config) host(f map[string]string) {
	f["proc/100/status"] = fmt.Sprintf("Name:\tblast\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-%d\n", c.CPUs()-1)
	f["proc/100/limits"] = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max open files            1024                 4096                 files     \nMax locked memory         8388608              8388608              bytes     \n"
	f["proc/100/cgroup"] = "0::/\n"
	f["proc/100/mountinfo"] = "31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	f["proc/100/comm"] = "blast\n"
	f["proc/stat"] = "cpu  100 0 100 1000 0 0 0 0 0 0\n"
	f["proc/meminfo"] = "MemTotal:       8000000 kB\nMemAvailable:   4194304 kB\n"
	if c.IRQBalance {
		f["proc/812/comm"] = "irqbalance\n"
	}
	for name, value := range map[string]string{
		"kernel/random/boot_id": "11111111-2222-3333-4444-555555555555", "kernel/osrelease": "6.12.0", "kernel/hostname": "fake",
		"fs/nr_open": "1048576", "fs/file-max": "9223372036854775807", "fs/file-nr": "1234\t0\t9223372036854775807",
		"net/ipv4/ip_local_port_range": "32768\t60999", "net/core/rmem_max": "212992", "net/core/wmem_max": "212992",
		"net/core/netdev_max_backlog": "1000", "net/ipv4/tcp_rmem": "4096\t131072\t6291456", "net/ipv4/tcp_wmem": "4096\t16384\t4194304",
		"net/ipv4/tcp_tw_reuse": "2", "kernel/sched_rt_runtime_us": "950000",
		"net/netfilter/nf_conntrack_count": "12", "net/netfilter/nf_conntrack_max": "65536",
	} {
		f["proc/sys/"+name] = value + "\n"
	}
	f["sys/devices/system/clocksource/clocksource0/current_clocksource"] = "tsc\n"
}

func (c Config) cpus(f, links map[string]string) {
	const dir = "sys/devices/system/cpu"
	n := c.CPUs()
	f[dir+"/present"], f[dir+"/online"], f[dir+"/isolated"] = list(n), list(n), "\n"
	cores := max(c.Sockets, 1) * max(c.Cores, 1)
	for cpu := range n {
		own := fmt.Sprintf("%s/cpu%d", dir, cpu)
		core := cpu % cores
		node := core / max(c.Cores, 1)
		links[fmt.Sprintf("%s/node%d", own, node)] = fmt.Sprintf("../../node/node%d", node)
		siblings := fmt.Sprintf("%d\n", core)
		if c.SMT {
			siblings = fmt.Sprintf("%d,%d\n", core, core+cores)
		}
		f[own+"/topology/thread_siblings_list"] = siblings
		f[own+"/cpufreq/scaling_governor"] = "powersave\n"
	}
}

func list(n int) string {
	if n == 1 {
		return "0\n"
	}
	return fmt.Sprintf("0-%d\n", n-1)
}

func (c Config) card(f, links map[string]string) {
	const dir, device = "sys/class/net/eth0", "sys/devices/pci0000:40/0000:41:00.0"
	used := c.Channels
	if used == 0 {
		used = c.Queues
	}
	f[dir+"/type"], f[dir+"/speed"] = "1\n", "100000\n"
	for q := range used {
		f[fmt.Sprintf("%s/queues/rx-%d/rps_cpus", dir, q)] = "0\n"
		f[fmt.Sprintf("%s/queues/tx-%d/xps_cpus", dir, q)] = "0\n"
	}
	if c.Virtual {
		f[dir+"/uevent"] = "DEVTYPE=veth\nINTERFACE=eth0\n"
		return
	}
	links[dir+"/device"] = "../../../devices/pci0000:40/0000:41:00.0"
	links[device+"/driver"] = "../../../bus/pci/drivers/mlx5_core"
	f[device+"/vendor"], f[device+"/device"], f[device+"/numa_node"] = "0x15b3\n", "0x1017\n", fmt.Sprintf("%d\n", c.Node)
	if !c.NoIRQ {
		c.interrupts(f, used)
	}
	table := make([]string, max(128, 2*c.Queues))
	for i := range table {
		table[i] = fmt.Sprint(i % used)
	}
	for name, value := range map[string]string{
		"channels": fmt.Sprintf("rx=0 tx=0 other=0 combined=%d", used), "channels-max": fmt.Sprintf("rx=0 tx=0 other=0 combined=%d", c.Queues),
		"rings": "rx=1024 tx=1024", "rings-max": "rx=8192 tx=8192",
		"coalesce": "adaptive-rx=1 adaptive-tx=1 rx-usecs=32 rx-frames=128 tx-usecs=8 tx-frames=128",
		"rss": "function=toeplitz transform=0 key=6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa table=" +
			strings.Join(table, ","),
		"udp4-fields": "sd", "udp6-fields": "sd", "offloads": "rx-gro=1 rx-ntuple-filter=0",
	} {
		f["ethtool/eth0/"+name] = value + "\n"
	}
}

// interrupts puts every queue's on CPU 0, as a fresh host may.
func (c Config) interrupts(f map[string]string, used int) {
	var table strings.Builder
	table.WriteString("           CPU0\n")
	for i := range used + 1 {
		number := Interrupt - 1 + i
		name := "mlx5_async0@pci:0000:41:00.0"
		if i > 0 {
			name = fmt.Sprintf("mlx5_comp%d@pci:0000:41:00.0", i-1)
		}
		fmt.Fprintf(&table, "%4d:          1  PCI-MSIX-0000:41:00.0   %d-edge      %s\n", number, i, name)
		f[fmt.Sprintf("sys/devices/pci0000:40/0000:41:00.0/msi_irqs/%d", number)] = "msix\n"
		f[fmt.Sprintf("proc/irq/%d/smp_affinity_list", number)] = "0\n"
	}
	f["proc/interrupts"] = table.String()
}
