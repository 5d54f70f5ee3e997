package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"blast/agent"
	"blast/backend"
	"blast/stats"
	"blast/tuning"
)

// hostWatch reads this host and the target's around a run: counters before and after, cores at two moments well inside, so that the
// quiet at the ends does not dilute them.
type hostWatch struct {
	v      *prover
	cancel context.CancelFunc
	done   chan struct{}
	here   readings
	there  readings
	room   []stats.RoomUsed // of this process and host, late in the run: its sockets are closed at the end
}

// readings are those of one host: before, early, late, after.
type readings struct {
	at  [4]agent.Reading
	got [4]bool
	err error
}

// The moments inside a run, as shares of its length.
const watchFrom, watchTo = 0.2, 0.9

// watchHosts begins to watch. end has to be called.
func (v *prover) watchHosts(ctx context.Context) *hostWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &hostWatch{v: v, cancel: cancel, done: make(chan struct{})}
	w.read(ctx, 0)
	length := v.flags.duration
	go func() {
		defer close(w.done)
		wait := v.flags.warmup + time.Duration(watchFrom*float64(length))
		for i := 1; i <= 2; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if w.read(ctx, i); i == 2 {
				w.room = v.reader.Rooms()
			}
			wait = time.Duration((watchTo - watchFrom) * float64(length))
		}
	}()
	return w
}

func (w *hostWatch) read(ctx context.Context, i int) {
	w.here.take(i, func() (agent.Reading, error) { return agent.Here(w.v.reader, w.v.plan.iface) })
	if w.v.ask != nil {
		w.there.take(i, func() (agent.Reading, error) { return w.v.ask(ctx) })
	}
}

func (r *readings) take(i int, read func() (agent.Reading, error)) {
	a, err := read()
	if err != nil {
		r.err = err
		return
	}
	r.at[i], r.got[i] = a, true
}

// end takes the last reading and stops the rest.
func (w *hostWatch) end(ctx context.Context) {
	w.cancel()
	<-w.done
	w.read(ctx, 3)
}

// use is what the host did; nil when a reading is missing.
func (r *readings) use() *stats.HostUse {
	for _, got := range r.got {
		if !got {
			return nil
		}
	}
	before, early, late, after := &r.at[0], &r.at[1], &r.at[2], &r.at[3]
	return &stats.HostUse{
		Source: before.Source, CoresNS: late.Sample.MonotonicNS - early.Sample.MonotonicNS,
		Cores: tuning.Cores(early.Sample, late.Sample), Counters: tuning.Moved(before.Sample, after.Sample),
	}
}

// own is this host's, with the time that workers waited by spinning told apart.
func (w *hostWatch) own(res *stats.Result) *stats.HostUse {
	u := w.here.use()
	if u == nil {
		return nil
	}
	u.Rooms = append(w.room, w.v.rooms(res)...)
	for i := range u.Cores {
		c := &u.Cores[i]
		for k := range res.Workers {
			if worker := &res.Workers[k]; worker.CPU == c.CPU {
				c.Waited = min(max(waited(res, worker), 0), c.Busy)
			}
		}
	}
	return u
}

// waited is the share of the time in which a worker was on its CPU without duty: the guard before each packet, spun through.
func waited(res *stats.Result, w *stats.Worker) float64 {
	length := float64(res.Rate.ElapsedNS + res.Config.WarmupNS)
	if length <= 0 {
		return 0
	}
	return float64(w.UserNS+w.SystemNS)/length - w.Duty
}

// others is the target's host; nil when it did not tell.
func (w *hostWatch) others() *stats.HostUse {
	u := w.there.use()
	if u == nil {
		return nil
	}
	first := &w.v.first
	u.ClockOffsetNS, u.ClockWithinNS = int64(first.Offset), int64(first.Within)
	u.SharedCores, u.SharedCounters = first.SameHost(w.v.reader), first.SameNetwork(w.v.reader)
	return u
}

// why says why the target's host did not tell.
func (w *hostWatch) why() string {
	if err := w.there.err; err != nil && !errors.Is(err, context.Canceled) {
		return err.Error()
	}
	return "the run ended before its host was read twice"
}

// rooms are the limits that depend on the run: source ports that the kernel chose towards one target, and the bits of the link.
func (v *prover) rooms(res *stats.Result) []stats.RoomUsed {
	inv, err := v.reader.Inventory(v.plan.iface)
	if err != nil {
		return nil
	}
	var out []stats.RoomUsed
	if from, to := inv.Sysctls.PortFrom, inv.Sysctls.PortTo; from > 0 && to >= from {
		if n := chosenPorts(v.plan.engine.Flows); n > 0 {
			out = append(out, stats.RoomUsed{Name: "source ports towards one target", Used: n, Limit: uint64(to - from + 1)})
		}
	}
	// The speed of an interface without a device behind it means nothing.
	if nic := inv.NIC; nic.SpeedMbps > 0 && !nic.Virtual {
		out = append(out, stats.RoomUsed{Name: "Mbit/s of " + v.plan.iface, Used: uint64(res.Rate.L1BPS / 1e6), Limit: uint64(nic.SpeedMbps)})
	}
	return out
}

// chosenPorts is the largest number of flows from one address to one target whose port was left to the kernel: each needs one of its own.
func chosenPorts(flows []backend.Flow) uint64 {
	type way struct {
		from netip.Addr
		to   netip.AddrPort
	}
	count, most := map[way]uint64{}, uint64(0)
	for _, f := range flows {
		if f.Src.Port() == 0 {
			w := way{f.Src.Addr(), f.Dst}
			count[w]++
			most = max(most, count[w])
		}
	}
	return most
}
