package engine

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"blast/backend"
	"blast/internal/sys"
	"blast/stats"
)

// socketReplies takes the replies to what an offload sends on ordinary sockets, a thread for each worker: the receiving half of Run beside a
// sender that needs no threads. It shows what sockets can take. It is a backend.OffloadReceiver of Run's goroutine alone.
type socketReplies struct {
	cfg     *Config
	workers []*socketReplier
	threads sync.WaitGroup
	stopped bool
	named   bool
	mode    string
	notes   []string
}

// socketReplier is one worker's sockets, with what its thread has handed over so far.
type socketReplier struct {
	receiver
	snd   backend.Sender // holds the sockets; nothing is sent
	books backend.ReceiverBooks
}

// openSockets opens the sockets of all workers. What they are bound to becomes the workers' flows.
func (r *offloading) openSockets() (_ *socketReplies, err error) {
	s := &socketReplies{cfg: &r.Config}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range r.workers {
		w := &r.workers[i]
		c := r.Backend
		c.Flows, c.Receive, c.Now, c.Worker, c.GSO = w.config.Flows, true, r.Clock.Now, i, 1
		snd, rcv, err := r.ReplySockets(c)
		if err != nil {
			return s, fmt.Errorf("worker %d: sockets for replies: %w", i, err)
		}
		limits := snd.Limits()
		s.workers = append(s.workers, r.replier(i, snd, rcv, len(limits.Sources)))
		s.mode, s.notes = "sockets, "+limits.Mode, append(s.notes, limits.Notes...)
		if len(limits.Sources) != len(c.Flows) {
			return s, fmt.Errorf("worker %d: %d sockets for %d flows: %w", i, len(limits.Sources), len(c.Flows), errors.ErrUnsupported)
		}
		bound := make([]backend.Flow, len(c.Flows))
		for f, src := range limits.Sources {
			bound[f] = backend.Flow{Src: netip.AddrPortFrom(src.Addr().Unmap(), src.Port()), Dst: c.Flows[f].Dst}
		}
		w.config.Flows, w.config.Held = bound, true
		w.config.KernelStamp, w.config.GRO, w.config.SendBuffer, w.config.ReceiveBuffer = false, false, 0, 0
	}
	return s, nil
}

// replier is the receiver of worker i.
func (r *offloading) replier(i int, snd backend.Sender, rcv backend.Receiver, flows int) *socketReplier {
	w := &r.workers[i]
	limit := w.config.Slots
	if r.unpaced {
		limit = 1 << 48
	}
	stride := uint64(0)
	if flows <= math.MaxUint16 {
		stride = uint64(flows)
	}
	p := &socketReplier{snd: snd, receiver: receiver{
		clk: r.Clock, rcv: rcv, src: r.Source(i), rec: &stats.Double[stats.ReceiveInterval]{}, timeout: int64(r.Timeout), interval: int64(r.slice),
		win: newWindow(w.config.First, min(limit-w.config.First, windowSlots), flows, stride), limit: limit,
	}}
	p.expiry.next, p.looks.next = math.MaxInt64, math.MaxInt64
	if r.Names != nil {
		p.names = &names{}
	}
	return p
}

// Begin starts the threads.
func (s *socketReplies) Begin(start int64) error {
	for _, p := range s.workers {
		p.start, p.nextFlip = start, start+p.interval
		s.threads.Go(func() { p.live(s.cfg.ReceiveCPUs) })
	}
	return nil
}

// live is the life of a thread.
func (p *socketReplier) live(cpus []int) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if cpus != nil {
		restore, err := sys.Pin(cpus...)
		if err != nil {
			p.err = fmt.Errorf("cpus %v: %w", cpus, err)
			return
		}
		defer restore()
	}
	p.run()
}

// end stops the threads.
func (s *socketReplies) end() error {
	var errs []error
	for _, p := range s.workers {
		p.stop.Store(true)
	}
	s.threads.Wait()
	s.stopped = true
	for i, p := range s.workers {
		if p.err != nil {
			errs = append(errs, fmt.Errorf("receiver %d: %w", i, p.err))
		}
	}
	return errors.Join(errs...)
}

// Collect hands over what the threads have handed over; with now = math.MaxInt64 it ends them first.
func (s *socketReplies) Collect(now int64, fn func(*backend.ReceiverInterval)) error {
	var err error
	last := now == math.MaxInt64 && !s.stopped
	if last {
		err = s.end()
	}
	for _, p := range s.workers {
		take := func(v *stats.ReceiveInterval) {
			p.books.Replied += v.Replied
			p.books.Late += v.Late
			p.books.Duplicate += v.Duplicate
			p.books.Reordered += v.Reordered
			p.books.Stray += v.Stray
			fn(&backend.ReceiverInterval{Index: max(v.Index, 0), Replied: v.Replied + v.Late, Latency: backend.Buckets(v.Latency.Buckets()),
				Service: backend.Buckets(v.Service.Buckets()), Server: backend.Buckets(v.Server.Buckets())})
			v.Reset()
		}
		p.rec.Take(take)
		if last {
			v := p.rec.Active()
			v.Index = max(p.clk.Now()-p.start, 0) / p.interval
			take(v)
		}
	}
	return err
}

// Books is what has been handed over; Unique and Longest are the newest.
func (s *socketReplies) Books() ([]backend.ReceiverBooks, error) {
	list := make([]backend.ReceiverBooks, len(s.workers))
	for i, p := range s.workers {
		list[i] = p.books
		list[i].Unique, list[i].Longest, list[i].SelfLost = p.answered.Load(), time.Duration(p.maxRTT.Load()), p.rcv.Drops()
	}
	return list, nil
}

// Unseen looks into a window, which is its thread's until Collect has ended that: until then it knows of none.
func (s *socketReplies) Unseen(worker int, from, to uint64, each func(seq uint64)) (uint64, error) {
	if !s.stopped || from >= to {
		return 0, nil
	}
	p := s.workers[worker]
	before := p.win.unreplied(from, nil).unseen
	return p.win.unreplied(to, func(seq uint64) {
		if each != nil && seq >= from {
			each(seq)
		}
	}).unseen - before, nil
}

// Told tells everything once, when Collect has ended the threads.
func (s *socketReplies) Told(fn func(*backend.Reply)) (missed uint64, err error) {
	if !s.stopped {
		return 0, nil
	}
	for i, p := range s.workers {
		if p.names == nil {
			continue
		}
		missed += p.names.unnamed
		for _, l := range []struct {
			kind backend.ReplyKinds
			list []uint64
		}{{backend.ReplyLate, p.names.Late}, {backend.ReplyDuplicate, p.names.Duplicate}, {backend.ReplyReordered, p.names.Reordered}} {
			for _, seq := range l.list {
				if !s.named {
					fn(&backend.Reply{Worker: uint16(i), Seq: seq, Kinds: l.kind})
				}
			}
		}
	}
	s.named = true
	return missed, nil
}

// Mode and Notes are for the report.
func (s *socketReplies) Mode() string { return s.mode }

// Notes are what the sockets were granted.
func (s *socketReplies) Notes() []string {
	return append([]string{"replies are taken by sockets: what they lose is self-loss, and their lateness is in the latencies"}, s.notes...)
}

// Close ends the threads and closes the sockets.
func (s *socketReplies) Close() error {
	errs := []error{}
	if !s.stopped {
		errs = append(errs, s.end())
	}
	for _, p := range s.workers {
		errs = append(errs, p.snd.Close(), p.rcv.Close())
	}
	s.workers = nil
	return errors.Join(errs...)
}
