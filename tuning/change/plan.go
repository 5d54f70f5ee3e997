package change

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"blast/tuning"
)

// Item is a kind of setting that can be asked for or left out.
type Item string

// The items, in the order in which they are applied.
const (
	Sysctl   Item = "sysctl"
	Governor Item = "governor"
	Channels Item = "channels"
	RSS      Item = "rss"
	Hash     Item = "hash"
	Coalesce Item = "coalesce"
	IRQ      Item = "irq"
	XPS      Item = "xps"
)

// Items lists them.
func Items() []Item { return []Item{Sysctl, Governor, Channels, RSS, Hash, Coalesce, IRQ, XPS} }

// AlignItems are those that put queues and interrupts where the workers are.
func AlignItems() []Item { return []Item{Channels, RSS, Hash, IRQ, XPS} }

// About says what an item changes.
func (i Item) About() string {
	return map[Item]string{
		Sysctl:   "ports, open files, buffers and conntrack in /proc/sys, as far as the workload needs them",
		Governor: "the performance governor on every usable CPU",
		Channels: "as many queues of the NIC as workers",
		RSS:      "an RSS table over all queues",
		Hash:     "UDP ports as part of the RSS hash",
		Coalesce: "a fixed receive interrupt delay instead of an adaptive one",
		IRQ:      "each queue's interrupt on its worker's core, other interrupts of the NIC elsewhere",
		XPS:      "each transmit queue for its worker's core",
	}[i]
}

// ParseItems reads a comma-separated list; empty = all.
func ParseItems(list string) ([]Item, error) {
	if list == "" {
		return Items(), nil
	}
	var out []Item
	for word := range strings.SplitSeq(list, ",") {
		item := Item(strings.TrimSpace(word))
		if !slices.Contains(Items(), item) {
			return nil, fmt.Errorf("item %q: want some of %v", word, Items())
		}
		out = append(out, item)
	}
	return out, nil
}

// Plan makes the changes of the given items that findings ask for, first those that change what there is to place (Items up to
// Coalesce). PlanSeats makes the rest, from an inventory that was read after those were applied.
func Plan(inv tuning.Inventory, findings []tuning.Finding, w tuning.Workload, items []Item) []Change {
	var out []Change
	for _, item := range Items() {
		if !slices.Contains(items, item) {
			continue
		}
		for _, f := range findings {
			if f.Apply && (f.Level == tuning.Wall || f.Level == tuning.Slow) {
				out = append(out, changesOf(item, f, inv, w)...)
			}
		}
	}
	return out
}

func sysctl(name, value string) Change {
	return Change{Item: Sysctl, Key: "/proc/sys/" + strings.ReplaceAll(name, ".", "/"), New: value + "\n"}
}

// changesOf mends one finding, when it is of the item.
func changesOf(item Item, f tuning.Finding, inv tuning.Inventory, w tuning.Workload) []Change {
	switch item {
	case Sysctl:
		return sysctls(f)
	case Governor:
		if f.Code == "governor" {
			return governors(inv)
		}
	case Channels:
		if f.Code == "queues" {
			return channels(inv, max(w.Workers, 1))
		}
	case RSS:
		if f.Code == "rss" {
			return []Change{{Item: RSS, Key: deviceKey(inv.NIC.Name, tuning.RSSConfig), New: "table=default"}}
		}
	case Hash:
		if f.Code == string(tuning.UDP4Fields) || f.Code == string(tuning.UDP6Fields) {
			return []Change{{Item: Hash, Key: deviceKey(inv.NIC.Name, tuning.Setting(f.Code)), New: "sdfn"}}
		}
	case Coalesce:
		if f.Code == "coalesce" {
			_, usecs, _ := strings.Cut(f.Command, "rx-usecs ")
			return []Change{{Item: Coalesce, Key: deviceKey(inv.NIC.Name, tuning.Coalesce), New: "adaptive-rx=0 adaptive-tx=0 rx-usecs=" + usecs}}
		}
	}
	return nil
}

// sysctls takes the values from the command that the finding gives people, so that both are one.
func sysctls(f tuning.Finding) []Change {
	rest, ok := strings.CutPrefix(f.Command, "sysctl -w ")
	if !ok {
		return nil
	}
	var out []Change
	for rest != "" {
		name, value, _ := strings.Cut(rest, "=")
		if quoted, ok := strings.CutPrefix(value, `"`); ok {
			value, rest, _ = strings.Cut(quoted, `"`)
		} else {
			value, rest, _ = strings.Cut(value, " ")
		}
		rest = strings.TrimSpace(rest)
		out = append(out, sysctl(name, value))
	}
	return out
}

func governors(inv tuning.Inventory) []Change {
	var out []Change
	for _, c := range inv.CPUs {
		if c.Allowed && c.Online && c.Governor != "" {
			out = append(out, Change{Item: Governor, Key: fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", c.ID), New: "performance\n"})
		}
	}
	return out
}

// channels notes first what new channels disturb: the RSS table, interrupts and XPS.
func channels(inv tuning.Inventory, workers int) []Change {
	n := inv.NIC
	have := n.Settings[tuning.Channels]
	if have == "" || n.MaxQueues == 0 {
		return nil
	}
	out := []Change{{Item: RSS, Key: deviceKey(n.Name, tuning.RSSConfig), Keep: true}}
	for _, q := range n.IRQs {
		c := irqChange(q, nil)
		c.Keep = true
		out = append(out, c)
	}
	for q := range n.XPS {
		out = append(out, Change{Item: XPS, Key: xpsKey(n.Name, q), Keep: true})
	}
	want := strconv.Itoa(min(workers, n.MaxQueues))
	value := "combined=" + want
	if !strings.Contains(n.Settings[tuning.ChannelsMax], "combined=") || strings.Contains(n.Settings[tuning.ChannelsMax], "combined=0") {
		value = "rx=" + want + " tx=" + want
	}
	return append(out, Change{Item: Channels, Key: deviceKey(n.Name, tuning.Channels), New: value})
}

func irqChange(q tuning.IRQ, cpus []int) Change {
	return Change{Item: IRQ, Key: fmt.Sprintf("/proc/irq/%d/smp_affinity_list", q.Number), New: tuning.FormatCPUs(cpus) + "\n", IRQ: q.Name}
}

func xpsKey(iface string, queue int) string {
	return fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", iface, queue)
}

// PlanSeats puts interrupts and XPS where the seats say. Interrupts of the NIC that no worker needs go to the housekeeping CPUs, and
// transmit queues that no worker has are left to no CPU.
func PlanSeats(inv tuning.Inventory, p tuning.Placement, items []Item) []Change {
	n := inv.NIC
	if n == nil {
		return nil
	}
	var out []Change
	if slices.Contains(items, IRQ) {
		for _, q := range n.IRQs {
			cpus := p.Housekeeping
			for _, s := range p.Seats {
				// A transmit interrupt of its own goes where its queue's receive interrupt is.
				if q.Queue >= 0 && s.Queue == q.Queue && s.IRQCPU >= 0 {
					cpus = []int{s.IRQCPU}
					break
				}
			}
			if len(cpus) > 0 {
				out = append(out, irqChange(q, cpus))
			}
		}
	}
	if slices.Contains(items, XPS) && len(n.XPS) > 1 {
		for queue := range n.XPS {
			var cpus []int
			for _, s := range p.Seats {
				if s.Queue >= 0 && s.Queue%len(n.XPS) == queue { // so that a pair of queues shares its interrupt's core
					cpus = append(cpus, s.CPU)
				}
			}
			out = append(out, Change{Item: XPS, Key: xpsKey(n.Name, queue), New: tuning.MaskOf(cpus) + "\n"})
		}
	}
	return out
}
