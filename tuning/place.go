package tuning

import (
	"cmp"
	"fmt"
	"slices"
)

// Seat is where one worker runs, and what of the NIC is to be there with it.
type Seat struct {
	Worker int `json:"worker"`
	CPU    int `json:"cpu"`
	Node   int `json:"node"`
	// Queue of the NIC that the worker sends and receives on, -1 = none known.
	Queue int `json:"queue"`
	// IRQ is that queue's receive interrupt, -1 = none known; IRQCPU is where it should be delivered.
	IRQ    int `json:"irq"`
	IRQCPU int `json:"irq_cpu"`
}

// Placement is where the threads of a run go.
type Placement struct {
	Seats []Seat `json:"seats"`
	// Spare CPUs are left for receiving threads and everything else of the process; Housekeeping are those of them, and of
	// the rest of the host, that other interrupts should go to.
	Spare        []int `json:"spare"`
	Housekeeping []int `json:"housekeeping"`
	// GOMAXPROCS is workers plus spare threads.
	GOMAXPROCS int `json:"gomaxprocs"`
	// Node is where packet memory should be, -1 = no matter.
	Node int `json:"node"`
	// Notes say what could not be had.
	Notes []string `json:"notes"`
}

// PlaceConfig says what to place. Zero value: one worker, CPUs chosen, interrupts on the workers' own CPUs.
type PlaceConfig struct {
	Workers int
	// CPUs, when not empty, are the workers' in order; Place then chooses queues and interrupts only.
	CPUs []int
	// Queue is the first worker's, for backends that are bound to queues; zero = 0.
	Queue int
	// Beside puts each queue's interrupt on the worker's SMT sibling, or else on a spare CPU of the node: for workers that spin.
	Beside bool
}

// Place chooses a core per worker: on the NIC's node, one thread per physical core, isolated ones first and CPU 0 last (the kernel's
// own work gathers there); one queue per worker, its interrupt with it. It fails when there are fewer usable CPUs than workers, or a
// named CPU is offline, not allowed or named twice.
func Place(inv Inventory, cfg PlaceConfig) (Placement, error) {
	workers := max(cfg.Workers, 1)
	p := Placement{Node: -1, Notes: []string{}}
	if inv.NIC != nil {
		p.Node = inv.NIC.Node
	}
	chosen, err := chooseCPUs(inv, cfg.CPUs, workers, p.Node)
	if err != nil {
		return Placement{}, err
	}
	byID := map[int]CPU{}
	for _, c := range inv.CPUs {
		byID[c.ID] = c
		if c.Online && c.Allowed && !slices.Contains(chosen, c.ID) {
			p.Spare = append(p.Spare, c.ID)
		}
	}
	p.GOMAXPROCS = workers + min(max(len(p.Spare), 1), workers+2)
	for _, c := range inv.CPUs {
		shares := slices.ContainsFunc(c.Siblings, func(s int) bool { return slices.Contains(chosen, s) })
		if c.Online && !c.Isolated && !shares {
			p.Housekeeping = append(p.Housekeeping, c.ID)
		}
	}
	if len(p.Housekeeping) == 0 {
		p.Housekeeping = p.Spare
	}
	for w, cpu := range chosen {
		p.Seats = append(p.Seats, seat(inv, cfg, p, byID, w, cpu))
	}
	p.Notes = append(p.Notes, placeNotes(inv, p, byID)...)
	return p, nil
}

// chooseCPUs takes the named CPUs, or the best ones.
func chooseCPUs(inv Inventory, named []int, workers, node int) ([]int, error) {
	usable := map[int]CPU{}
	var candidates []CPU
	for _, c := range inv.CPUs {
		if c.Online && c.Allowed {
			usable[c.ID] = c
			candidates = append(candidates, c)
		}
	}
	if len(named) > 0 {
		if len(named) != workers {
			return nil, fmt.Errorf("%d CPUs for %d workers; name one each", len(named), workers)
		}
		for i, cpu := range named {
			if slices.Contains(named[:i], cpu) {
				return nil, fmt.Errorf("cpu %d is named twice", cpu)
			}
			if _, ok := usable[cpu]; !ok {
				at := slices.IndexFunc(inv.CPUs, func(c CPU) bool { return c.ID == cpu })
				if at >= 0 && !inv.CPUs[at].Online {
					return nil, fmt.Errorf("cpu %d is offline; echo 1 > /sys/devices/system/cpu/cpu%d/online", cpu, cpu)
				}
				return nil, fmt.Errorf("cpu %d is not among those this process may use", cpu)
			}
		}
		return named, nil
	}
	if len(candidates) < workers {
		return nil, fmt.Errorf("%d workers: more than the %d CPUs this process may use", workers, len(candidates))
	}
	var chosen []int
	for len(chosen) < workers {
		rank := func(c CPU) [4]int {
			return [4]int{
				order(node >= 0 && c.Node >= 0 && c.Node != node),
				order(slices.ContainsFunc(c.Siblings, func(s int) bool { return slices.Contains(chosen, s) })),
				order(!c.Isolated),
				order(slices.Contains(c.Siblings, 0)),
			}
		}
		best := slices.MinFunc(candidates, func(a, b CPU) int {
			return cmp.Or(slices.Compare(sliceOf(rank(a)), sliceOf(rank(b))), cmp.Compare(a.ID, b.ID))
		})
		chosen = append(chosen, best.ID)
		candidates = slices.DeleteFunc(candidates, func(c CPU) bool { return c.ID == best.ID })
	}
	return chosen, nil
}

func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

func sliceOf(a [4]int) []int { return a[:] }

// seat gives a worker its queue and that queue's interrupt.
func seat(inv Inventory, cfg PlaceConfig, p Placement, byID map[int]CPU, worker, cpu int) Seat {
	s := Seat{Worker: worker, CPU: cpu, Node: byID[cpu].Node, Queue: -1, IRQ: -1, IRQCPU: -1}
	if inv.NIC == nil || inv.NIC.RXQueues == 0 {
		return s
	}
	s.Queue = (cfg.Queue + worker) % inv.NIC.RXQueues
	irq := inv.NIC.queueIRQ(s.Queue)
	if irq == nil {
		return s
	}
	s.IRQ, s.IRQCPU = irq.Number, cpu
	if !cfg.Beside {
		return s
	}
	free := func(c int) bool { return slices.Contains(p.Spare, c) }
	for _, sibling := range byID[cpu].Siblings {
		if free(sibling) {
			s.IRQCPU = sibling
			return s
		}
	}
	var local []int
	for _, c := range p.Spare {
		if byID[c].Node == s.Node {
			local = append(local, c)
		}
	}
	if len(local) > 0 {
		s.IRQCPU = local[worker%len(local)]
	}
	return s
}

// queueIRQ is the interrupt that carries a queue's received packets; nil when not known.
func (n *NIC) queueIRQ(queue int) *IRQ {
	for i := range n.IRQs {
		if q := &n.IRQs[i]; q.Queue == queue && !q.TXOnly {
			return q
		}
	}
	return nil
}

func placeNotes(inv Inventory, p Placement, byID map[int]CPU) []string {
	var notes []string
	away, shared := 0, 0
	for i, s := range p.Seats {
		if p.Node >= 0 && s.Node >= 0 && s.Node != p.Node {
			away++
		}
		for _, other := range p.Seats[:i] {
			if slices.Contains(byID[s.CPU].Siblings, other.CPU) {
				shared++
				break
			}
		}
	}
	if away > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d workers are off node %d, where %s is: the node has no more usable CPUs", away, len(p.Seats), p.Node, inv.NIC.Name))
	}
	if shared > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d workers share a physical core with another: there are no more cores", shared, len(p.Seats)))
	}
	if inv.Quota > 0 && float64(len(p.Seats)) > inv.Quota {
		notes = append(notes, quotaNote(inv.Quota, len(p.Seats)))
	}
	switch n := inv.NIC; {
	case n == nil:
	case n.RXQueues == 0:
		notes = append(notes, n.Name+" shows no queues: nothing to align to")
	case n.RXQueues < len(p.Seats):
		notes = append(notes, fmt.Sprintf("%s has %s for %d workers: they share", n.Name, plural(n.RXQueues, "receive queue"), len(p.Seats)))
	}
	return notes
}

// quotaNote says what a cgroup quota below the number of workers does.
func quotaNote(quota float64, workers int) string {
	return fmt.Sprintf("the cgroup quota is %.4g CPUs for %s: spinning workers will be stopped for part of every period, seen as steal; "+
		"raise the quota (cpu.max, cpu.cfs_quota_us) or use %d", quota, plural(workers, "worker"), max(1, int(quota)))
}

// QuotaWarning is empty while the cgroup quota, if any, covers the workers.
func (r Reader) QuotaWarning(workers int) string {
	for _, level := range r.cpuGroups() {
		if q, ok := level.quota(); ok && float64(workers) > q {
			return quotaNote(q, workers)
		}
	}
	return ""
}

// Audit is the placement of one worker as it is, judged.
type Audit struct {
	Seat
	// IRQCPUs is where the queue's interrupt is delivered now; empty = not known.
	IRQCPUs []int `json:"irq_cpus"`
	// Verdict is "pass", "fail" or "unknown", and Why says what is wrong or missing.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

// Verdicts of an audit.
const (
	Pass   = "pass"
	Fail   = "fail"
	Unsure = Unknown
)

// AuditSeats judges where the workers of a run are: on the NIC's node, one per physical core, their queue's interrupt on their own core
// or its SMT sibling, or beside it on a CPU of the same node that no worker has. Seats need CPU and Queue only.
func AuditSeats(inv Inventory, seats []Seat) []Audit {
	byID := map[int]CPU{}
	for _, c := range inv.CPUs {
		byID[c.ID] = c
	}
	out := make([]Audit, 0, len(seats))
	for i, s := range seats {
		a := Audit{Seat: s, Verdict: Pass}
		a.IRQ, a.IRQCPU = -1, -1
		if c, known := byID[s.CPU]; known {
			a.Node = c.Node
		}
		a.judge(inv, byID, seats, i)
		out = append(out, a)
	}
	return out
}

func (a *Audit) judge(inv Inventory, byID map[int]CPU, seats []Seat, i int) {
	fail := func(format string, args ...any) {
		if a.Verdict != Fail {
			a.Verdict, a.Why = Fail, fmt.Sprintf(format, args...)
		}
	}
	if a.CPU < 0 {
		fail("not pinned: the scheduler may move it")
		return
	}
	for j, other := range seats {
		if j != i && (other.CPU == a.CPU || slices.Contains(byID[a.CPU].Siblings, other.CPU)) {
			fail("shares its physical core with worker %d", other.Worker)
		}
	}
	n := inv.NIC
	if n == nil {
		a.unsure("no interface known")
		return
	}
	if n.Node >= 0 && a.Node >= 0 && a.Node != n.Node {
		fail("core on node %d, %s on node %d", a.Node, n.Name, n.Node)
	}
	if n.Virtual {
		if a.Verdict == Pass {
			a.Why = n.Name + " is virtual: no interrupts to align"
		}
		return
	}
	if a.Queue < 0 {
		a.unsure("no queue of its own")
		return
	}
	irq := n.queueIRQ(a.Queue)
	if irq == nil {
		a.unsure("no interrupt known for the queue")
		return
	}
	a.IRQ, a.IRQCPUs = irq.Number, irq.where()
	if len(a.IRQCPUs) == 0 {
		a.unsure("interrupt affinity not readable")
		return
	}
	for j, other := range seats {
		if q := n.queueIRQ(other.Queue); j != i && other.Queue >= 0 && other.Queue != a.Queue && q != nil && len(a.IRQCPUs) == 1 && slices.Equal(q.where(), a.IRQCPUs) {
			fail("core %d takes the interrupts of worker %d's queue too", a.IRQCPUs[0], other.Worker)
		}
	}
	for _, cpu := range a.IRQCPUs {
		if slices.Contains(byID[a.CPU].Siblings, cpu) || cpu == a.CPU {
			continue
		}
		owner := slices.IndexFunc(seats, func(s Seat) bool { return s.CPU == cpu })
		switch {
		case owner >= 0:
			fail("interrupt %d is delivered on core %d, which is worker %d's", irq.Number, cpu, seats[owner].Worker)
		case byID[cpu].Node != a.Node:
			fail("interrupt %d is delivered on core %d, node %d", irq.Number, cpu, byID[cpu].Node)
		case len(a.IRQCPUs) > 1:
			fail("interrupt %d may be delivered on any of cores %s", irq.Number, FormatCPUs(a.IRQCPUs))
		}
	}
}

func (a *Audit) unsure(why string) {
	if a.Verdict == Pass {
		a.Verdict, a.Why = Unsure, why
	}
}

// where is the effective delivery where the kernel tells it, else the allowed CPUs.
func (q *IRQ) where() []int {
	if len(q.Effective) > 0 {
		return q.Effective
	}
	return q.CPUs
}

// String is one line for a report.
func (a Audit) String() string {
	irq := "no interrupt known"
	if a.IRQ >= 0 {
		irq = fmt.Sprintf("interrupt %d on core %s", a.IRQ, cmp.Or(FormatCPUs(a.IRQCPUs), "unknown"))
	}
	line := fmt.Sprintf("placement of worker %d: core %s, node %s, queue %s, %s: %s", a.Worker, orUnknown(a.CPU), orUnknown(a.Node), orUnknown(a.Queue), irq, a.Verdict)
	if a.Why != "" {
		line += " (" + a.Why + ")"
	}
	return line
}

func orUnknown(n int) string {
	if n < 0 {
		return Unknown
	}
	return fmt.Sprint(n)
}
