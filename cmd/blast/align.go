package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"blast/stats"
	"blast/tuning"
	"blast/tuning/change"
	"blast/tuning/steer"
)

// placed is what --align made of a run.
type placed struct {
	session *change.Session
	seats   []tuning.Seat
	notes   []string
	// byQueue counts packets received by queue, nil when the driver does not.
	byQueue steer.Counters
	before  map[int]uint64
}

// bestCPUs are the workers' CPUs when none were named: on the NIC's node, a physical core each.
func (p *udpPlan) bestCPUs(usable []int, workers int) []int {
	inv, err := tuning.Reader{}.Inventory(p.iface)
	if err == nil {
		if place, err := tuning.Place(inv, tuning.PlaceConfig{Workers: workers}); err == nil {
			var cpus []int
			for _, s := range place.Seats {
				cpus = append(cpus, s.CPU)
			}
			slices.Sort(cpus)
			return cpus
		}
	}
	return usable[len(usable)-workers:]
}

// alignHost puts queues, interrupts and XPS of the NIC where the workers are, and chooses source ports whose replies land there. The
// function that it returns puts everything back and has to be called at the end.
func (p *udpPlan) alignHost(on bool) (undo func() error, err error) {
	p.placed = &placed{}
	if warning := (tuning.Reader{}).QuotaWarning(p.engine.Workers); warning != "" {
		fmt.Fprintln(os.Stderr, "blast: warning:", warning)
		p.placed.notes = append(p.placed.notes, warning)
	}
	if !on {
		return func() error { return nil }, nil
	}
	if len(p.engine.CPUs) == 0 {
		return nil, errors.New("--align puts queues where the workers are, and --cpus none lets them move: leave one out")
	}
	s, err := change.Tuner{}.Begin(os.Args)
	if err != nil {
		return nil, fmt.Errorf("--align: %w", err)
	}
	load := tuning.Workload{Connections: len(p.engine.Flows), Workers: p.engine.Workers}
	out, place, err := s.Align(load, p.iface, tuning.PlaceConfig{CPUs: p.engine.CPUs, Queue: p.engine.Backend.Queue}, change.AlignItems())
	if err != nil {
		return nil, fmt.Errorf("--align: %w", err)
	}
	p.placed.session, p.placed.seats = s, place.Seats
	runtime.GOMAXPROCS(max(place.GOMAXPROCS, 2))
	changed := 0
	for _, o := range out {
		switch o.State {
		case change.StateApplied:
			changed++
		case change.StateRefused:
			p.placed.notes = append(p.placed.notes, fmt.Sprintf("align: %s refused: %s", o.Key, o.Why))
		}
	}
	p.placed.notes = append(p.placed.notes, fmt.Sprintf("align: %d settings changed for the run, and put back at its end", changed))
	p.placed.notes = append(p.placed.notes, place.Notes...)
	if note := p.steerFlows(); note != "" {
		p.placed.notes = append(p.placed.notes, "source ports: "+note)
	}
	p.placed.byQueue = steer.DeviceCounters(tuning.Reader{}.Device(), p.iface)
	if p.placed.before, err = p.placed.byQueue(); err != nil {
		p.placed.byQueue = nil
	}
	return s.Undo, nil
}

// reportUndo says what could not be put back; the journal keeps it for blast tune restore.
func reportUndo(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "blast: --align: %v\nblast: try again with: blast tune restore\n", err)
	}
}

// steerFlows gives each flow a source port whose replies land on its worker's queue, and says what it did or why not.
func (p *udpPlan) steerFlows() string {
	queues := map[int]bool{}
	for _, s := range p.placed.seats {
		queues[s.Queue] = true
	}
	if len(queues) < 2 || p.placed.seats[0].Queue < 0 {
		return "" // everything lands on one queue, or nobody knows queues
	}
	for _, f := range p.engine.Flows {
		if f.Src.Port() != 0 {
			return "left as named with --src-port"
		}
	}
	v6 := p.engine.Flows[0].Dst.Addr().Unmap().Is6()
	card, err := steer.Read(tuning.Reader{}.Device(), p.iface, v6)
	if err == nil {
		err = card.Computable()
	}
	learn := err != nil
	if learn && !p.engine.Echo {
		return fmt.Sprintf("not chosen: %v; that needs replies (--mode echo)", err)
	}
	taken, boundErr := tuning.Reader{}.BoundUDP()
	if boundErr != nil {
		return "not chosen: " + boundErr.Error()
	}
	type pair struct {
		src netip.Addr
		dst netip.AddrPort
	}
	groups, order := map[pair][]int{}, []pair{}
	for i, f := range p.engine.Flows {
		src := f.Src.Addr()
		if !src.IsValid() || src.IsUnspecified() {
			if _, _, src, boundErr = tuning.InterfaceFor(f.Dst.Addr()); boundErr != nil {
				return "not chosen: " + boundErr.Error()
			}
		}
		g := pair{src, f.Dst}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	for _, g := range order {
		var want []int
		for _, i := range groups[g] {
			want = append(want, p.placed.seats[i%p.engine.Workers].Queue) // flow i is worker i % workers' (engine)
		}
		queueOf := func(port uint16) int { return card.Queue(netip.AddrPortFrom(g.src, port), g.dst) }
		if learn {
			queueOf = p.learner(g.src, g.dst)
		}
		ports, chooseErr := steer.Choose(steer.Ports{From: 20000, To: 32767, Taken: taken}, want, queueOf)
		if chooseErr != nil {
			return fmt.Sprintf("not chosen: %v", chooseErr)
		}
		for k, i := range groups[g] {
			p.engine.Flows[i].Src = netip.AddrPortFrom(g.src, ports[k])
			taken[ports[k]] = true
		}
	}
	if learn {
		return fmt.Sprintf("learnt by probing, because %v", err)
	}
	return "chosen by the card's Toeplitz hash, so that replies land on each worker's queue"
}

// learner finds the queue of a port by a few round trips to the target. After the first ports without an answer it tries no more.
func (p *udpPlan) learner(src netip.Addr, dst netip.AddrPort) func(port uint16) int {
	const trips, most = 8, 512
	counters := steer.DeviceCounters(tuning.Reader{}.Device(), p.iface)
	tried, answered := 0, false
	return func(port uint16) int {
		if tried++; tried > most || tried > 3 && !answered {
			return -1
		}
		queue, err := steer.Learn(func(port uint16, n int) error {
			err := probeTrips(netip.AddrPortFrom(src, port), dst, max(p.engine.Backend.PayloadBytes, 1), n)
			answered = answered || err == nil
			return err
		}, counters, port, trips)
		if err != nil {
			return -1
		}
		return queue
	}
}

// probeTrips sends n packets of zeros, one by one, and waits for each reply.
func probeTrips(src, dst netip.AddrPort, bytes, n int) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(src), net.UDPAddrFromAddrPort(dst))
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, bytes)
	for range n {
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, bytes)); err != nil {
			return err
		}
	}
	return nil
}

// audit puts the placement of every worker, what --align did, and the walls behind refusals into the result's notes.
func (p *udpPlan) audit(res *stats.Result) {
	notes := &res.Backend.Notes
	if p.placed != nil {
		*notes = append(*notes, p.placed.notes...)
	}
	inv, err := tuning.Reader{}.Inventory(p.iface)
	if err == nil {
		var seats []tuning.Seat
		for i, w := range res.Workers {
			seats = append(seats, tuning.Seat{Worker: i, CPU: w.CPU, Node: w.Node, Queue: p.queueOf(inv, i, w.Queue)})
		}
		for _, a := range tuning.AuditSeats(inv, seats) {
			*notes = append(*notes, a.String())
		}
	}
	p.noteQueues(notes)
	for _, cause := range slices.Sorted(maps.Keys(res.Ledger.Refused)) {
		if met, ok := (tuning.Reader{}).CauseWall(cause); ok && res.Ledger.Refused[cause] > 0 {
			*notes = append(*notes, fmt.Sprintf("refused as %s: %s", cause, met))
		}
	}
}

// queueOf is the queue a worker is on: its backend's, the one that --align gave it, or the only one there is.
func (p *udpPlan) queueOf(inv tuning.Inventory, worker, backend int) int {
	switch {
	case backend >= 0:
		return backend
	case p.placed != nil && worker < len(p.placed.seats):
		return p.placed.seats[worker].Queue
	case inv.NIC != nil && inv.NIC.RXQueues == 1:
		return 0
	}
	return -1
}

// noteQueues says how many packets each queue received, which proves that replies landed where they should.
func (p *udpPlan) noteQueues(notes *[]string) {
	if p.placed == nil || p.placed.byQueue == nil {
		return
	}
	after, err := p.placed.byQueue()
	if err != nil {
		return
	}
	var parts []string
	for queue := range len(after) {
		parts = append(parts, fmt.Sprintf("%d: %s", queue, stats.FormatCount(after[queue]-p.placed.before[queue])))
	}
	*notes = append(*notes, "packets received by queue: "+strings.Join(parts, ", "))
	p.placed.before = after
}

// explainWall adds the wall behind an error and its remedy, where there is one.
func explainWall(err error) error {
	met, ok := (tuning.Reader{}).NameWall(err)
	if !ok {
		return err
	}
	return fmt.Errorf("%w\n  wall: %s\n  past it: %s", err, met.Name, met.Remedy)
}
