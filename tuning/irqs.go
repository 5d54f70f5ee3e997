package tuning

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// irqs finds the interrupts of an interface: those that the kernel lists for its device, or, where sysfs does not (a container, a
// device without MSI), those of /proc/interrupts that carry its name.
func (g *gaps) irqs(iface, dir string) []IRQ {
	table := g.r.interruptNames()
	virtio, numbers := g.r.msiIRQs(dir)
	if numbers == nil {
		re := regexp.MustCompile(`(^|[^a-zA-Z0-9])` + regexp.QuoteMeta(iface) + `($|[^a-zA-Z0-9])`)
		for n, name := range table {
			if re.MatchString(name) {
				numbers = append(numbers, n)
			}
		}
	}
	if len(numbers) == 0 {
		return []IRQ{}
	}
	slices.Sort(numbers)
	irqs, unread := make([]IRQ, 0, len(numbers)), 0
	for _, n := range numbers {
		name := table[n]
		if name == "" {
			name = g.r.actionName(n)
		}
		if virtio != "" && name != "" && !strings.HasPrefix(name, virtio+"-") {
			continue // of the bus device that virtio hangs on
		}
		irq := IRQ{Number: n, Name: name}
		irq.Queue, irq.TXOnly = queueOf(name)
		var err error
		if irq.CPUs, err = parseCPUList(g.r.text(fmt.Sprintf("/proc/irq/%d/smp_affinity_list", n))); err != nil {
			unread++
		}
		irq.Effective, _ = parseCPUList(g.r.text(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", n))) // not on every architecture
		irqs = append(irqs, irq)
	}
	if unread > 0 {
		g.add("interrupt affinity of "+iface, fmt.Errorf("/proc/irq: %d of %d not there; a container hides it", unread, len(irqs)))
	}
	return irqs
}

// msiIRQs lists the interrupts of the device behind an interface. Those of a virtio device are its parent's, and then its name
// is returned too.
func (r Reader) msiIRQs(dir string) (virtio string, numbers []int) {
	device, err := filepath.EvalSymlinks(r.path(dir + "/device"))
	if err != nil {
		return "", nil
	}
	from := device
	if strings.HasPrefix(filepath.Base(device), "virtio") {
		virtio, from = filepath.Base(device), filepath.Dir(device)
	}
	entries, err := os.ReadDir(filepath.Join(from, "msi_irqs"))
	if err != nil {
		return "", nil
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	return virtio, numbers
}

// interruptNames reads the last column of /proc/interrupts, by number.
func (r Reader) interruptNames() map[int]string {
	out := map[int]string{}
	for line := range strings.Lines(r.text("/proc/interrupts")) {
		number, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.Atoi(number)
		f := strings.Fields(rest)
		if !ok || err != nil || len(f) == 0 {
			continue
		}
		out[n] = f[len(f)-1]
	}
	return out
}

// actionName is the name of an interrupt's handler: a directory below /proc/irq/N (kernel/irq/proc.c, register_handler_proc).
func (r Reader) actionName(n int) string {
	entries, err := os.ReadDir(r.path(fmt.Sprintf("/proc/irq/%d", n)))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.IsDir() {
			return e.Name()
		}
	}
	return ""
}

// queueOf reads the queue from an interrupt's name: eth0-rx-0 and eth0-TxRx-3 (Intel), mlx5_comp3@pci:..., virtio3-input.0,
// eth0-Tx-Rx-1 (ena), gve-ntfy-blk2@pci:.... -1 = none.
func queueOf(name string) (queue int, txOnly bool) {
	name, _, _ = strings.Cut(name, "@")
	m := regexp.MustCompile(`(?i)(rx|tx|comp|input|output|blk|queue|fp|q)[-._]?(\d+)$`).FindStringSubmatch(name)
	if m == nil {
		return -1, false
	}
	queue, err := strconv.Atoi(m[2])
	if err != nil {
		return -1, false
	}
	low := strings.ToLower(name)
	return queue, strings.Contains(low, "output") || strings.Contains(low, "tx") && !strings.Contains(low, "rx")
}

func interfaceExists(iface string) error {
	if _, err := net.InterfaceByName(iface); err != nil {
		return fmt.Errorf("no interface %q", iface)
	}
	return nil
}

// InterruptNames are the names of the host's interrupts by number, as /proc/interrupts has them; empty when it cannot be read.
func (r Reader) InterruptNames() map[int]string { return r.interruptNames() }
