package tuning

import (
	"fmt"
	"slices"
	"strings"
)

// nic judges the interface that the traffic takes.
func (c *check) nic(n *NIC) {
	if n.RXQueues == 0 && n.TXQueues == 0 {
		c.out = append(c.out, Finding{Level: Unread, Code: "queues", Name: n.Name + " queues", Found: Unknown, Why: "sysfs shows none for this interface"})
		return
	}
	if n.Virtual || n.MaxQueues == 0 && len(n.IRQs) == 0 {
		c.out = append(c.out, Finding{Level: Fine, Code: "queues", Name: n.Name + " queues", Found: count(n.RXQueues), Wanted: "any",
			Why: n.Driver + " is a virtual interface, or its driver offers no channels: there are no interrupts or queues to align"})
		c.xps(n)
		return
	}
	want := c.w.Workers
	f := Finding{Code: "queues", Name: n.Name + " queues", Found: fmt.Sprintf("%d rx, %d tx", n.RXQueues, n.TXQueues), Wanted: plural(want, "queue"),
		Why: "workers that share a queue wait for its lock, and their replies share a core"}
	if more := min(n.MaxQueues, want); more > min(n.RXQueues, n.TXQueues) {
		f.Apply, f.Command = true, fmt.Sprintf("ethtool -L %s combined %d", n.Name, more)
	} else if min(n.RXQueues, n.TXQueues) < want {
		f.Why += "; the driver offers no more"
	}
	c.when(n.RXQueues < want || n.TXQueues < want, f)
	c.rings(n)
	c.rss(n)
	c.interrupts(n)
	c.xps(n)
	c.coalesce(n)
	c.node(n)
}

func (c *check) rings(n *NIC) {
	have, most := pairs(n.Settings[Rings]), pairs(n.Settings[RingsMax])
	rx, rxMax := number0(have["rx"]), number0(most["rx"])
	if rxMax == 0 {
		return
	}
	c.when(rx < min(1024, rxMax), Finding{Code: "rings", Name: n.Name + " rx ring", Found: count(rx), Wanted: count(min(1024, rxMax)),
		Command: fmt.Sprintf("ethtool -G %s rx %d", n.Name, min(1024, rxMax)), Why: "a burst of replies overruns a short ring (rx_missed)"})
}

func (c *check) rss(n *NIC) {
	text, ok := n.Settings[RSSConfig]
	if !ok || n.RXQueues < 2 {
		return
	}
	h, err := ParseRSS(text)
	if err != nil {
		c.out = append(c.out, Finding{Level: Unread, Code: "rss", Name: n.Name + " RSS table", Found: Unknown, Why: err.Error()})
		return
	}
	used := h.Queues()
	c.when(used < n.RXQueues, Finding{Code: "rss", Name: n.Name + " RSS table", Found: plural(used, "queue"), Wanted: plural(n.RXQueues, "queue"), Apply: true,
		Command: fmt.Sprintf("ethtool -X %s equal %d", n.Name, n.RXQueues), Why: "received packets reach only the queues in the table"})
	c.when(h.Function != "toeplitz" || h.Transform != 0, Finding{Code: "rss-hash", Name: n.Name + " RSS hash", Found: hashName(h), Wanted: "toeplitz",
		Command: fmt.Sprintf("ethtool -X %s hfunc toeplitz", n.Name), Why: "source ports cannot be computed to hit a queue; they are learnt by probing instead"})
	for _, s := range []Setting{UDP4Fields, UDP6Fields} {
		fields, ok := n.Settings[s]
		if !ok {
			continue
		}
		flow := strings.TrimSuffix(string(s), "-fields")
		c.when(!HashesPorts(fields) && c.w.parallel(), Finding{Code: string(s), Name: n.Name + " " + flow + " hash", Found: fields, Wanted: "sdfn", Apply: true,
			Command: fmt.Sprintf("ethtool -N %s rx-flow-hash %s sdfn", n.Name, flow), Why: "without ports (f, n) all replies of one target land on one queue"})
	}
}

func hashName(h RSS) string {
	if h.Transform != 0 {
		return h.Function + " symmetric"
	}
	return h.Function
}

func (c *check) interrupts(n *NIC) {
	cores, queues, known := map[int]bool{}, 0, true
	for i := range n.IRQs {
		q := &n.IRQs[i]
		if q.Queue < 0 || q.TXOnly {
			continue
		}
		queues++
		where := q.where()
		known = known && len(where) > 0
		if len(where) > 0 {
			cores[where[0]] = true
		}
	}
	if queues == 0 || !known {
		return // the gap says why
	}
	want := min(queues, max(c.w.Workers, 1))
	c.when(len(cores) < want, Finding{Code: "irq", Name: n.Name + " interrupts", Found: "on " + plural(len(cores), "core"), Wanted: "on " + plural(want, "core"), Apply: true,
		Command: "echo CPU > /proc/irq/N/smp_affinity_list", Why: "one core does the receiving of several queues; each belongs on its worker's core"})
}

func (c *check) xps(n *NIC) {
	if len(n.XPS) < 2 {
		return
	}
	unset := 0
	for _, list := range n.XPS {
		unset += boolInt(list == "")
	}
	c.when(unset > 0 && c.w.parallel(), Finding{Code: "xps", Name: n.Name + " XPS", Found: fmt.Sprintf("%d of %d unset", unset, len(n.XPS)), Wanted: "a core a queue", Apply: true,
		Command: fmt.Sprintf("echo MASK > /sys/class/net/%s/queues/tx-N/xps_cpus", n.Name), Why: "without it a socket's queue is hashed, and workers share queues (AF_XDP is not concerned)"})
}

func (c *check) coalesce(n *NIC) {
	p, ok := pairs(n.Settings[Coalesce]), n.Settings[Coalesce] != ""
	if !ok {
		return
	}
	adaptive, found := p["adaptive-rx"] == "1" || p["adaptive-tx"] == "1", "rx "+p["rx-usecs"]+" us"
	if adaptive {
		found = "adaptive"
	}
	c.when(adaptive, Finding{Code: "coalesce", Name: n.Name + " coalescing", Found: found, Wanted: "fixed", Apply: true,
		Command: fmt.Sprintf("ethtool -C %s adaptive-rx off adaptive-tx off rx-usecs %s", n.Name, wantUsecs(p)),
		Why:     "the delay of receive interrupts follows the rate: latency at one rate says nothing about another"})
}

// wantUsecs keeps a fixed delay, up to 8 us; longer ones would show in every latency.
func wantUsecs(p map[string]string) string { return fmt.Sprint(min(number0(p["rx-usecs"]), 8)) }

func (c *check) node(n *NIC) {
	if n.Node < 0 {
		return
	}
	var nodes []int
	for _, cpu := range c.inv.CPUs {
		if cpu.Node >= 0 && !slices.Contains(nodes, cpu.Node) {
			nodes = append(nodes, cpu.Node)
		}
	}
	if len(nodes) < 2 {
		return
	}
	var local []int
	for _, cpu := range c.inv.CPUs {
		if cpu.Node == n.Node && cpu.Online && cpu.Allowed {
			local = append(local, cpu.ID)
		}
	}
	f := Finding{Code: "node", Name: n.Name + " NUMA node", Found: fmt.Sprintf("node %d, %s", n.Node, plural(len(local), "CPU")),
		Wanted: plural(c.w.Workers, "CPU"), Why: "packets of workers on another node cross between sockets"}
	if len(local) > 0 {
		f.Command = fmt.Sprintf("blast udp --workers %d --cpus %s", len(local), FormatCPUs(local))
	}
	c.when(len(local) < c.w.Workers, f)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
