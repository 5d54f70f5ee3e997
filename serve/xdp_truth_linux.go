package serve

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"blast/xdp/live"
)

// checkFaults refuses what programs inside the kernel cannot do.
func (c *XDPConfig) checkFaults() error {
	switch {
	case c.Faults.Delay > 0:
		return fmt.Errorf("delay: a program inside the kernel cannot wait; use a queueing target on a socket: %w", errors.ErrUnsupported)
	case c.Faults.any() && c.Mode != Echo:
		return errors.New("faults: they are of replies; want mode echo")
	}
	return c.Faults.check()
}

// inKernel is f as the programs take it, nil when there is nothing to inject.
func (f *Faults) inKernel() *live.TargetFaults {
	if !f.any() {
		return nil
	}
	k := &live.TargetFaults{Seed: f.Seed}
	below := f.below()
	copy(k.Below[:], below[:])
	return k
}

// xdpTruth collects what faulty programs tell. Its zero value is ready; it is guarded by its server's lock.
type xdpTruth struct {
	touched map[uint8]*RunTruth // by epoch, the newest truthRuns
	order   []uint8             // of these, oldest first
	runs    map[uint8]live.Run
	missed  uint64
}

// keep takes the names that have been told since it was last called, so that there is room for more.
func (x *xdpTruth) keep(targets []*live.Target) error {
	if x.touched == nil {
		x.touched = map[uint8]*RunTruth{}
	}
	x.missed = 0
	for _, t := range targets {
		missed, err := t.Touched(x.touch)
		if err != nil {
			return err
		}
		x.missed += missed
	}
	return nil
}

// read takes names and counts.
func (x *xdpTruth) read(targets []*live.Target) error {
	if err := x.keep(targets); err != nil {
		return err
	}
	x.runs = map[uint8]live.Run{}
	for _, t := range targets {
		runs, err := t.Runs()
		if err != nil {
			return err
		}
		for _, r := range runs { // one epoch may come by several interfaces
			all := x.runs[r.Epoch]
			all.Epoch = r.Epoch
			all.Add(&r)
			x.runs[r.Epoch] = all
		}
	}
	return nil
}

func (x *xdpTruth) touch(t live.Touched) {
	r := x.touched[t.Epoch]
	if r == nil {
		if len(x.order) == truthRuns {
			delete(x.touched, x.order[0])
			x.order = x.order[1:]
		}
		r = &RunTruth{Epoch: t.Epoch}
		x.touched[t.Epoch], x.order = r, append(x.order, t.Epoch)
	}
	name := Name{t.Worker, t.Seq}
	switch t.Fault {
	case live.FaultDrop:
		r.Dropped.add(name)
	case live.FaultDropReply:
		r.DroppedReplies.add(name)
	case live.FaultReorder:
		r.Reordered.add(name)
	case live.FaultDuplicate:
		r.Duplicated.add(name)
	}
}

// list is the runs in the order of their beginnings.
func (x *xdpTruth) list() []RunTruth {
	runs := []live.Run{}
	for _, r := range x.runs {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b live.Run) int { return cmp.Compare(a.Began, b.Began) })
	list := []RunTruth{}
	for _, k := range runs[max(len(runs)-truthRuns, 0):] {
		r := running{RunTruth: RunTruth{Epoch: k.Epoch}, began: k.Began, last: k.Last}
		if t := x.touched[k.Epoch]; t != nil {
			r.RunTruth = *t
		}
		r.Dropped.Count, r.DroppedReplies.Count = k.Touched[live.FaultDrop], k.Touched[live.FaultDropReply]
		r.Reordered.Count, r.Duplicated.Count, r.NotReordered = k.Touched[live.FaultReorder], k.Touched[live.FaultDuplicate], k.Vain
		r.Arrivals, r.Answered = k.Arrivals, k.Answered-min(r.Duplicated.Count, k.Answered)
		r.Completions = r.Answered + r.DroppedReplies.Count
		r.Inside = r.Arrivals - min(r.Dropped.Count+r.Completions, r.Arrivals)
		list = append(list, r.truth(nil))
	}
	return list
}

// Truth is what a target with faults did to requests with our stamp, a run for each epoch; nothing without faults. Inside are replies that wait to
// be overtaken. There is no queue: sojourns and their kin stay zero. Names that the programs had no room to tell are in Drops.
func (s *XDPServer) Truth() (Truth, error) {
	t := Truth{Schema: TruthSchema, Runs: []RunTruth{}}
	if !s.faults.any() {
		return t, nil
	}
	t.Queue = fmt.Sprintf("%v inside the kernel%v, seed %d", s.mode, &s.faults, s.faults.Seed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		if err := s.truth.read(s.targets); err != nil {
			return t, fmt.Errorf("serve --xdp: %w", err)
		}
	}
	for _, target := range s.targets {
		perCPU, err := target.Counts()
		if err != nil {
			return t, fmt.Errorf("serve --xdp: %w", err)
		}
		for _, c := range perCPU {
			t.Denied += c.Denied
		}
	}
	t.Drops, t.Runs = s.truth.missed, s.truth.list()
	return t, nil
}
