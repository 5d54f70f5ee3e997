package iouring

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/uring"
)

// Name is the value of --backend.
const Name = "io_uring"

const (
	// defaultBatch is the number of slots of a Commit where none is asked for and no trains make more worthwhile.
	defaultBatch = 64
	// maxBatch bounds the memory of a Sender, and stays below the kernel's limit of queue entries.
	maxBatch = uring.MaxEntries / 2
	// poolBytes bounds the payload memory of a Sender that has many slots under way.
	poolBytes = 32 << 20
)

// Entry is the row of this backend.
func Entry() backend.Entry { return backend.Entry{Name: Name, Open: Open, Probe: Probe, Stamps: true} }

// Probe tells whether io_uring works here, and if not, whether a sysctl, a seccomp filter or the kernel is in the way.
func Probe() error {
	if err := uring.Probe(); err != nil {
		return fmt.Errorf("io_uring: %w", err)
	}
	return nil
}

// Open implements backend.Open.
func Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	if err := check(&cfg); err != nil {
		return nil, nil, fmt.Errorf("io_uring: %w", err)
	}
	plan := udpsock.NewPlan(&cfg)
	socks := &udpsock.Sockets{}
	if err := socks.Open(&cfg, plan); err != nil {
		return nil, nil, fmt.Errorf("io_uring: %w", errors.Join(err, socks.Release()))
	}
	s, err := newSender(&cfg, socks, plan.Limits())
	if err != nil {
		return nil, nil, fmt.Errorf("io_uring: %w", errors.Join(err, socks.Release()))
	}
	if !cfg.Receive {
		return s, nil, nil
	}
	r, err := newReceiver(&cfg, socks, s.stamps.ArrivalClock(), s.ring.Granted().Ops)
	if err != nil {
		return nil, nil, fmt.Errorf("io_uring: %w", errors.Join(err, s.Close()))
	}
	return s, r, nil
}

func check(cfg *backend.Config) error {
	err := udpsock.Check(cfg)
	if cfg.Batch > maxBatch {
		err = errors.Join(err, fmt.Errorf("batch of %d: at most %d, half of the kernel's %d queue entries", cfg.Batch, maxBatch, uring.MaxEntries))
	}
	return err
}

// newSender takes over socks when it succeeds.
func newSender(cfg *backend.Config, socks *udpsock.Sockets, limits backend.Limits) (*Sender, error) {
	s := &Sender{socks: socks, stride: cfg.PayloadBytes, look: udpsock.NewSweep(socks.FDs), flows: make([]flow, len(cfg.Flows)),
		sqpoll: cfg.SQPoll, roomy: limits.SendBuffer / 2}
	if cfg.Fragment {
		s.roomy = 0 // what a packet in pieces takes up cannot be told
	}
	s.trains = udpsock.NewTrains(cfg, &limits)
	limits.Async = true
	limits.Batch = cfg.Batch
	if cfg.Batch == 0 {
		limits.Batch = max(defaultBatch, 4*limits.GSO)
	}
	s.limits = limits
	s.stamps = udpsock.OpenStamps(cfg, socks.FDs, &s.limits, 1)
	pool := s.pool(cfg)
	entries := powerOfTwo(max(limits.Batch, 64))
	if cfg.SQPoll {
		entries = powerOfTwo(max(pool, 64)) // its queue holds what the kernel's thread has not come to yet
	}
	ring, err := uring.New(uring.Config{
		Entries: uint32(entries), CQEntries: uint32(powerOfTwo(2 * max(pool, entries))), // a zero-copy send completes twice
		ArenaBytes: s.arena(pool), SQPoll: cfg.SQPoll, SQPollIdle: idleFor(cfg.SQPoll),
	})
	if err != nil {
		return nil, errors.Join(err, s.stamps.Close())
	}
	s.ring = ring
	if err := s.layOut(cfg, pool); err != nil {
		return nil, errors.Join(err, ring.Close(), s.stamps.Close())
	}
	s.special = s.headers != nil || s.zeroCopy // headers: also with stamps
	s.describe(cfg)
	return s, nil
}

// idleFor is how long the kernel's thread spins after the last send before it sleeps: short enough to give its CPU back between the
// sends of a slow plan, long enough that a fast one never has to wake it.
func idleFor(sqpoll bool) time.Duration {
	if sqpoll {
		return 10 * time.Millisecond
	}
	return 0
}

// pool is the number of slots. Sends end inside the call that submits them, but for those that a kernel thread makes and those whose
// memory the network still reads.
func (s *Sender) pool(cfg *backend.Config) int {
	batch := s.limits.Batch
	if !cfg.SQPoll && !cfg.ZeroCopy {
		return 2 * batch
	}
	return max(2*batch, min(16*batch, poolBytes/max(cfg.PayloadBytes, 1), maxBatch))
}

// arena is what layOut carves, in bytes.
func (s *Sender) arena(pool int) int {
	const slack, message, iovec = 4096, 256, 16
	bytes := pool*s.stride + slack
	if s.limits.GSO > 1 || s.stamps != nil {
		bytes += pool * (message + iovec)
	}
	return bytes
}

// layOut makes the slots and registers sockets and memory with the ring.
func (s *Sender) layOut(cfg *backend.Config, pool int) (err error) {
	var fds []int32
	for _, fd := range slices.Concat(s.socks.FDs, s.stamps.Twins()) { // by flow, and then the twins by flow
		fds = append(fds, int32(fd))
	}
	if err := s.ring.RegisterFiles(fds); err != nil {
		return err
	}
	if s.memory, err = s.ring.Arena().Bytes(max(pool*s.stride, 1), 64); err != nil {
		return err
	}
	s.slots, s.messages, s.done = make([]backend.Slot, pool), make([]message, pool), make([]bool, pool)
	s.held = make([]int, 0, pool)
	for i := range s.slots {
		s.slots[i].Payload = s.memory[i*s.stride : (i+1)*s.stride : (i+1)*s.stride]
	}
	if s.limits.GSO > 1 || s.stamps != nil {
		if s.headers, err = s.ring.Arena().Messages(pool); err != nil {
			return err
		}
		if s.iovecs, err = s.ring.Arena().Iovecs(pool); err != nil {
			return err
		}
	}
	if cfg.ZeroCopy {
		return s.openZeroCopy()
	}
	return nil
}

// openZeroCopy checks that memory may be locked, the capability before the limit, and pins the payloads.
func (s *Sender) openZeroCopy() error {
	if err := s.ring.CheckZeroCopy(len(s.memory)); err != nil {
		return err
	}
	if s.stride == 0 {
		return nil
	}
	if err := s.ring.RegisterBuffers([][]byte{s.memory}); err != nil {
		return err
	}
	s.zeroCopy, s.report = true, true
	return nil
}

// describe writes mode and notes.
func (s *Sender) describe(cfg *backend.Config) {
	l, g := &s.limits, s.ring.Granted()
	mode := "io_uring, fixed files"
	switch {
	case cfg.SQPoll:
		mode += ", SQPOLL"
		l.Notes = append(l.Notes, "SQPOLL: a kernel thread sends, on a CPU of its own; its time is part of the worker's system time and duty")
	case g.Flags&uring.DeferTaskrun != 0:
		mode += ", DEFER_TASKRUN"
	}
	if l.GSO > 1 {
		mode += fmt.Sprintf(", trains of up to %d", l.GSO)
	}
	if cfg.ZeroCopy {
		largest := cfg.PayloadBytes * l.GSO
		l.ZeroCopy = largest >= zeroCopyLeast
		if l.ZeroCopy {
			mode += ", zero copy"
			l.Notes = append(l.Notes, fmt.Sprintf("zero copy: for packets and trains of %d bytes and more; shorter ones are copied, which is cheaper", zeroCopyLeast))
		} else {
			l.Notes = append(l.Notes, fmt.Sprintf("zero copy: asked for, but below %d bytes it costs more than copying, and the largest packet or train has %d", zeroCopyLeast, largest))
		}
	}
	l.Mode = mode
}

// powerOfTwo rounds up.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// misuse is what Commit says of a caller that does not keep to the contract.
func misuse(slots, reserved int) error {
	return fmt.Errorf("io_uring: commit of %d slots, %d reserved", slots, reserved)
}

// fatal is what a Sender or Receiver says of an errno that ends the run.
func fatal(call string, flow int, errno syscall.Errno) error {
	return fmt.Errorf("io_uring: flow %d: %s: %w", flow, call, errno)
}

// broken is what a Sender or Receiver says of an error of its ring.
func broken(err error) error { return fmt.Errorf("io_uring: %w", err) }
