//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
	"blast/internal/sys"
)

// setupFunc is io_uring_setup(2), or a test double of an older kernel.
type setupFunc func(entries uint32, p *sys.URingParams) (fd int, err error)

// needed is what the package relies on without an alternative; 5.11 has all of it.
const needed = sys.IORING_FEAT_SINGLE_MMAP | sys.IORING_FEAT_NODROP | sys.IORING_FEAT_SUBMIT_STABLE | sys.IORING_FEAT_EXT_ARG

// ladder returns the flag sets to try, best first. Each rung is what one more kernel release understands, so the first one
// the kernel does not refuse with EINVAL is the best it has.
func ladder(cfg Config) []SetupFlags {
	rungs := []SetupFlags{
		SubmitAll | SingleIssuer | DeferTaskrun | NoSQArray, // 6.6
		SubmitAll | SingleIssuer | DeferTaskrun,             // 6.1
		SubmitAll | SingleIssuer | CoopTaskrun,              // 6.0
		SubmitAll | CoopTaskrun,                             // 5.19
		SubmitAll,                                           // 5.18
		0,                                                   // 5.11
	}
	always := CQSize // 5.5
	if cfg.SQPoll {
		// The kernel refuses DEFER_TASKRUN and COOP_TASKRUN together with SQPOLL.
		rungs = []SetupFlags{SubmitAll | SingleIssuer | NoSQArray, SubmitAll | SingleIssuer, SubmitAll, 0}
		always |= SQPoll
		if cfg.SQPollPin {
			always |= SQAff
		}
	}
	if cfg.CQEntries == 2*cfg.Entries && cfg.Avoid&CQSize != 0 {
		always &^= CQSize // the kernel's own size is the one wanted
	}
	var out []SetupFlags
	for _, f := range rungs {
		f = (f | always) &^ (cfg.Avoid &^ (SQPoll | SQAff | CQSize))
		if f&SingleIssuer == 0 {
			f &^= DeferTaskrun // the one needs the other
		}
		if len(out) == 0 || out[len(out)-1] != f {
			out = append(out, f)
		}
	}
	return out
}

// Granted is what the kernel gave, read back after set-up.
type Granted struct {
	Flags     SetupFlags   // as the kernel wrote them back
	Refused   []SetupFlags // sets the kernel refused before, best first
	Features  Features
	SQEntries uint32
	CQEntries uint32
	Ops       OpSet
	// RingIndex tells that the ring's descriptor is registered with the owner's thread, which makes every enter cheaper (5.18).
	RingIndex bool
	// HugePages tells that the arena consists of 2 MiB pages.
	HugePages bool
	// ArenaBytes is the size of the arena mapping, bookkeeping included.
	ArenaBytes int
	// SQThread is the thread id of the kernel's submission thread; 0 without SQPoll, or when it could not be found.
	SQThread int
}

// String is one line for a report.
func (g Granted) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sq %d, cq %d, %v", g.SQEntries, g.CQEntries, g.Flags)
	if g.RingIndex {
		b.WriteString(", ring descriptor registered")
	}
	if g.SQThread != 0 {
		fmt.Fprintf(&b, ", kernel thread %d", g.SQThread)
	}
	if g.HugePages {
		b.WriteString(", huge pages")
	}
	for i, f := range g.Refused {
		if i == 0 {
			b.WriteString(", refused: ")
		} else {
			b.WriteString(" | ")
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// New makes a ring for the calling thread, which must be locked (runtime.LockOSThread). Where the kernel does not know
// the newest set-up flags it steps down a ladder; Granted says to where. Errors: a bad Config; *UnsupportedError (matches
// errors.ErrUnsupported) where io_uring is missing, switched off or out of locked memory; anything else the kernel says.
func New(cfg Config) (*Ring, error) { return newRing(cfg, sys.URingSetup) }

func newRing(cfg Config, setup setupFunc) (*Ring, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	var before []int
	if cfg.SQPoll {
		before = sqThreads()
	}
	fd, p, refused, err := climb(cfg, setup)
	if err != nil {
		return nil, explainSetup(err, cfg, readFacts())
	}
	r := &Ring{
		fd: fd, enterFD: fd, tid: unix.Gettid(), cfg: cfg, rawBatch: cfg.RawBatch, index: -1,
		granted: Granted{Flags: SetupFlags(p.Flags), Refused: refused, Features: Features(p.Features), SQEntries: p.SQEntries, CQEntries: p.CQEntries},
		facts:   readFacts(),
	}
	if err := r.build(p); err != nil {
		return nil, errors.Join(err, r.release())
	}
	if r.sqpoll() {
		r.granted.SQThread = sqThread(r.fd, before)
	}
	return r, nil
}

// climb tries the rungs and returns the descriptor, the filled parameters and the flag sets that were refused.
func climb(cfg Config, setup setupFunc) (int, *sys.URingParams, []SetupFlags, error) {
	var refused []SetupFlags
	for _, flags := range ladder(cfg) {
		p := &sys.URingParams{Flags: uint32(flags)}
		if flags&CQSize != 0 {
			p.CQEntries = cfg.CQEntries
		}
		if cfg.SQPoll {
			p.SQThreadIdle = uint32(cfg.SQPollIdle / time.Millisecond)
			p.SQThreadCPU = uint32(cfg.SQPollCPU)
			if !cfg.SQPollPin {
				p.SQThreadCPU = 0
			}
		}
		fd, err := setup(cfg.Entries, p)
		if err == nil {
			return fd, p, refused, nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return -1, nil, refused, err
		}
		refused = append(refused, flags)
	}
	return -1, nil, refused, fmt.Errorf("every flag set was refused (%v): %w", refused, syscall.EINVAL)
}

// build maps what the descriptor offers. On an error the caller releases what is there.
func (r *Ring) build(p *sys.URingParams) error {
	if missing := Features(needed &^ p.Features); missing != 0 {
		return &UnsupportedError{What: "io_uring", Why: "the kernel lacks " + missing.String(), Fix: "run Linux 5.11 or newer"}
	}
	ops, err := probeOps(r.fd)
	if err != nil {
		return fmt.Errorf("uring: probe operations: %w", err)
	}
	r.granted.Ops = ops
	if err := r.mapRings(p); err != nil {
		return err
	}
	if err := r.mapArena(); err != nil {
		return err
	}
	// Best effort: before 5.18 the plain descriptor does, and Granted says so. It must be last: the index holds the ring.
	if i, err := sys.URingRegisterRing(r.fd); err == nil {
		r.index, r.enterFD, r.enterFlags = i, i, sys.IORING_ENTER_REGISTERED_RING
		r.granted.RingIndex = true
	}
	return nil
}

func (r *Ring) mapRings(p *sys.URingParams) error {
	// With SINGLE_MMAP both queues share one mapping; it must reach to the end of the longer one.
	bytes := uint64(p.CQOff.CQEs) + uint64(p.CQEntries)*16
	if r.granted.Flags&NoSQArray == 0 {
		bytes = max(bytes, uint64(p.SQOff.Array)+uint64(p.SQEntries)*4)
	}
	var err error
	if r.rings, err = ring.MapFD(r.fd, sys.IORING_OFF_SQ_RING, int(bytes)); err != nil {
		return fmt.Errorf("uring: map queues: %w", err)
	}
	if r.entries, err = ring.MapFD(r.fd, sys.IORING_OFF_SQES, int(p.SQEntries)*64); err != nil {
		return fmt.Errorf("uring: map entries: %w", err)
	}
	mem := r.rings.Bytes()
	var words [7]*atomic.Uint32
	for i, off := range []uint32{p.SQOff.Head, p.SQOff.Tail, p.SQOff.Flags, p.SQOff.Dropped, p.CQOff.Head, p.CQOff.Tail, p.CQOff.Overflow} {
		if words[i], err = ring.Word(mem, uint64(off)); err != nil {
			return fmt.Errorf("uring: queue layout: %w", err)
		}
	}
	r.sqFlags, r.sqDropped, r.cqOverflow = words[2], words[3], words[6]
	if r.sq, err = ring.NewProducer(words[1], words[0], p.SQEntries); err != nil {
		return fmt.Errorf("uring: submission queue: %w", err)
	}
	if r.cq, err = ring.NewConsumer(words[5], words[4], p.CQEntries); err != nil {
		return fmt.Errorf("uring: completion queue: %w", err)
	}
	if r.sqes, err = ring.Slice[SQE](r.entries.Bytes(), int(p.SQEntries)); err != nil {
		return fmt.Errorf("uring: submission queue: %w", err)
	}
	if r.cqes, err = ring.SliceAt[CQE](mem, uint64(p.CQOff.CQEs), int(p.CQEntries)); err != nil {
		return fmt.Errorf("uring: completion queue: %w", err)
	}
	if r.granted.Flags&NoSQArray == 0 {
		array, err := ring.SliceAt[uint32](mem, uint64(p.SQOff.Array), int(p.SQEntries))
		if err != nil {
			return fmt.Errorf("uring: index array: %w", err)
		}
		for i := range array {
			array[i] = uint32(i) // position i of the queue is entry i, for ever
		}
	}
	return nil
}

// mapArena makes the arena; its first bytes are the ring's own: the argument of a wait with a time limit.
func (r *Ring) mapArena() error {
	const own = 64
	var err error
	r.region, err = ring.Map(ring.MapConfig{Bytes: own + r.cfg.ArenaBytes, Huge: r.cfg.HugePages, Populate: !r.cfg.LazyArena})
	if err != nil {
		return fmt.Errorf("uring: arena: %w", err)
	}
	r.granted.ArenaBytes, r.granted.HugePages = len(r.region.Bytes()), r.region.Huge()
	r.arena.a = ring.NewArena(r.region)
	r.arenaStart, r.arenaBytes = ring.Addr(r.region.Bytes()), uint64(len(r.region.Bytes()))
	arg, err := ring.Carve[sys.URingGetEventsArg](r.arena.a, 1)
	if err != nil {
		return err
	}
	ts, err := ring.Carve[sys.Timespec64](r.arena.a, 1)
	if err != nil {
		return err
	}
	r.waitArg, r.waitTime = &arg[0], &ts[0]
	r.waitArg.Ts = ring.AddrOf(r.waitTime)
	return nil
}

// release gives everything back, whatever build reached. It is idempotent.
func (r *Ring) release() error {
	var errs []error
	if r.index >= 0 {
		errs = append(errs, sys.URingUnregisterRing(r.fd, r.index))
		r.index = -1
	}
	errs = append(errs, r.rings.Close(), r.entries.Close())
	if r.fd >= 0 {
		if err := unix.Close(r.fd); err != nil {
			errs = append(errs, fmt.Errorf("uring: close: %w", err))
		}
		r.fd, r.enterFD = -1, -1
	}
	errs = append(errs, r.region.Close()) // last: the kernel may use it until the ring is gone
	return errors.Join(errs...)
}
