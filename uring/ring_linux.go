//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
	"blast/internal/sys"
)

// Ring is one io_uring. It belongs to the thread that made it; see the package comment.
type Ring struct {
	sq      ring.Producer
	sqes    []SQE
	pending uint32 // entries handed out by SQE and not published yet

	cq   ring.Consumer
	cqes []CQE

	sqFlags    *atomic.Uint32
	sqDropped  *atomic.Uint32
	cqOverflow *atomic.Uint32

	fd         int
	enterFD    int    // fd, or its index with this thread
	enterFlags uint32 // goes with enterFD
	index      int    // -1 when not registered
	tid        int
	rawBatch   int

	arena      Arena
	arenaStart uint64
	arenaBytes uint64
	waitArg    *sys.URingGetEventsArg
	waitTime   *sys.Timespec64

	counters Counters
	inFlight int64 // entries consumed and not seen completing for good
	granted  Granted
	cfg      Config
	facts    facts // of the moment New ran: the kernel takes capabilities for its accounts then
	files    int   // slots of registered files
	buffers  bool  // registered buffers exist
	closed   bool

	rings, entries, region *ring.Region
}

// Counters are the ring's own accounts and the kernel's. All but the last three only grow.
type Counters struct {
	Enters    uint64 // io_uring_enter calls
	Submitted uint64 // entries the kernel consumed (SQPoll: published to its thread)
	Again     uint64 // submissions cut short by EAGAIN: the kernel had no memory for a request
	Busy      uint64 // submissions refused by EBUSY: completions must be taken first
	Backlogs  uint64 // times a full completion queue was seen: completions waited inside the kernel
	Wakeups   uint64 // times the SQPoll thread had to be woken

	Dropped  uint32 // entries the kernel threw away as malformed (sq.dropped); ours never are, so it must stay 0
	Lost     uint32 // completions the kernel could not keep (cq.overflow)
	Overflow bool   // completions are waiting inside the kernel now
}

// Granted says what the kernel gave.
func (r *Ring) Granted() Granted { return r.granted }

// Arena is the memory for everything entries point at.
func (r *Ring) Arena() *Arena { return &r.arena }

// FD is the ring's descriptor, for poll(2). The ring owns it.
func (r *Ring) FD() int { return r.fd }

// Owns tells whether b lies in the ring's arena.
func (r *Ring) Owns(b []byte) bool { return ring.Contains(r.region.Bytes(), b) }

// Counters reads the accounts.
func (r *Ring) Counters() Counters {
	c := r.counters
	if !r.closed {
		c.Dropped, c.Lost, c.Overflow = r.sqDropped.Load(), r.cqOverflow.Load(), r.overflowing()
	}
	return c
}

func (r *Ring) sqpoll() bool { return r.granted.Flags&SQPoll != 0 }

func (r *Ring) overflowing() bool { return r.sqFlags.Load()&sys.IORING_SQ_CQ_OVERFLOW != 0 }

// SQE hands out the next free entry, zeroed, or nil when the queue is full or the ring closed. It goes to the kernel with the
// next Submit, in the order of handing out. With SQPoll the queue may look full for a moment although everything completed.
func (r *Ring) SQE() *SQE {
	if r.closed || r.sq.Room(r.pending+1) <= r.pending {
		return nil
	}
	s := &r.sqes[(r.sq.Index()+r.pending)&r.sq.Mask()]
	r.pending++
	*s = SQE{}
	return s
}

// InFlight is how many entries the kernel consumed and whose last completion was not taken yet. Entries with CQESkipSuccess
// that succeed never leave the count.
func (r *Ring) InFlight() int { return int(r.inFlight) }

// Room is how many more entries SQE can hand out now.
func (r *Ring) Room() int {
	if r.closed {
		return 0
	}
	return max(0, int(r.sq.Free())-int(r.pending))
}

// Unget takes the last n handed-out entries back, as far as they were not submitted; it returns how many. Their memory is the
// caller's again.
func (r *Ring) Unget(n int) int {
	n = min(max(n, 0), int(r.pending))
	r.pending -= uint32(n)
	return n
}

// Queued is how many entries were handed out or published and not consumed by the kernel yet: after a Submit that
// back-pressure cut short, or with SQPoll while the kernel's thread is behind.
func (r *Ring) Queued() int {
	if r.closed {
		return 0
	}
	return int(r.sq.Used() + r.pending)
}

// usable refuses closed rings and foreign threads. Asking for the thread id costs one trivial system call per batch.
func (r *Ring) usable() error {
	if r.closed {
		return os.ErrClosed
	}
	if unix.Gettid() != r.tid {
		return ErrThread
	}
	return nil
}

// publish makes the handed-out entries visible to the kernel, after checking where they point.
func (r *Ring) publish() error {
	if r.pending == 0 {
		return nil
	}
	if !r.cfg.ForeignMemory {
		for k := range r.pending {
			if s := &r.sqes[(r.sq.Index()+k)&r.sq.Mask()]; !s.reaches(r.arenaStart, r.arenaBytes) {
				return fmt.Errorf("%w: entry %d of %d, %v", ErrForeign, k, r.pending, s.Op)
			}
		}
	}
	r.sq.Publish(r.pending)
	if r.sqpoll() {
		r.consumed(int(r.pending)) // sooner or later, by the kernel's thread
	}
	r.pending = 0
	return nil
}

func (r *Ring) consumed(n int) {
	r.counters.Submitted += uint64(n)
	r.inFlight += int64(n)
}

// Submit gives the handed-out entries to the kernel and collects completions, without waiting. It returns how many entries
// were consumed. Fewer than Queued with a nil error is back-pressure: take completions, then call it again; the rest stays
// queued in order. With SQPoll it returns how many were published. Call it with nothing to send as well: most modes
// deliver completions only inside it.
//
// Errors: ErrThread, ErrForeign (take the batch back by Unget), ErrLost, os.ErrClosed, or an errno that makes the ring useless.
func (r *Ring) Submit() (int, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	fresh := int(r.pending)
	if err := r.publish(); err != nil {
		return 0, err
	}
	if r.sqpoll() {
		return fresh, r.prodThread()
	}
	flags := r.enterFlags
	overflow := r.noteOverflow()
	if overflow || r.granted.Flags&(DeferTaskrun|CoopTaskrun) != 0 {
		flags |= sys.IORING_ENTER_GETEVENTS // with min_complete 0 this only runs what is due
	}
	done := 0
	for {
		todo := r.sq.Used()
		if todo == 0 && (done > 0 || flags&sys.IORING_ENTER_GETEVENTS == 0) {
			return done, nil
		}
		n, errno := r.enterNow(todo, flags)
		done += n
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return done, r.enterError(errno)
		}
		if n == 0 || uint32(n) >= todo {
			return done, nil
		}
		// A bad entry stops its batch where SUBMIT_ALL was not granted. It was consumed and will complete with its error;
		// the rest goes with another call. Every turn consumes at least one entry, so this ends.
	}
}

// enterNow is an enter that does not wait.
func (r *Ring) enterNow(todo, flags uint32) (int, syscall.Errno) {
	r.counters.Enters++
	var n int
	var errno syscall.Errno
	if r.rawBatch > 0 && int(todo) <= r.rawBatch {
		n, errno = sys.URingEnterRaw(r.enterFD, todo, flags)
	} else {
		n, errno = sys.URingEnter(r.enterFD, todo, 0, flags, nil)
	}
	if errno != 0 {
		return 0, errno
	}
	r.consumed(n)
	return n, 0
}

// enterError turns what enter said into back-pressure (nil) or an error that ends the ring's use.
func (r *Ring) enterError(errno syscall.Errno) error {
	switch errno {
	case syscall.EAGAIN:
		r.counters.Again++
		return nil
	case syscall.EBUSY:
		r.counters.Busy++
		return nil
	case syscall.EEXIST:
		return ErrThread // the kernel's own check of SINGLE_ISSUER
	case syscall.EBADR:
		return ErrLost // IO_CHECK_CQ_DROPPED in io_cqring_wait
	default:
		return os.NewSyscallError("io_uring_enter", errno)
	}
}

func (r *Ring) noteOverflow() bool {
	if !r.overflowing() {
		return false
	}
	r.counters.Backlogs++
	return true
}

// prodThread wakes the kernel's submission thread when it sleeps, and collects a completion backlog.
func (r *Ring) prodThread() error {
	flags := r.enterFlags
	// The tail was published by a sequentially consistent store, so the flag read here is not older than it.
	if r.sqFlags.Load()&sys.IORING_SQ_NEED_WAKEUP != 0 {
		flags |= sys.IORING_ENTER_SQ_WAKEUP
		r.counters.Wakeups++
	}
	if r.noteOverflow() {
		flags |= sys.IORING_ENTER_GETEVENTS
	}
	if flags == r.enterFlags {
		return nil
	}
	for {
		r.counters.Enters++
		if _, errno := sys.URingEnterRaw(r.enterFD, 0, flags); errno == 0 {
			return nil
		} else if errno != syscall.EINTR {
			return r.enterError(errno)
		}
	}
}

// SubmitAndWait is Submit, then waits until at least want completions are ready (those not taken yet count) or timeout has
// passed; a negative timeout waits for ever. It answers os.ErrDeadlineExceeded when time ran out, and nil with fewer ready when
// back-pressure cut the submission short. With SQPoll it also answers nil at once when nothing is in flight: the kernel's
// thread posts completions a moment before it frees their entries, so a caller that found the queue full may have come here
// with nothing left to wait for. The wait lets the Go scheduler use the P; signals such as the runtime's own do not
// prolong it.
func (r *Ring) SubmitAndWait(want int, timeout time.Duration) (int, error) {
	if want <= 0 || timeout == 0 {
		n, err := r.Submit()
		if err == nil && want > 0 && r.Ready() < want {
			err = os.ErrDeadlineExceeded
		}
		return n, err
	}
	if err := r.usable(); err != nil {
		return 0, err
	}
	fresh := int(r.pending)
	if err := r.publish(); err != nil {
		return 0, err
	}
	var deadline int64
	if timeout > 0 {
		deadline = sys.Monotonic() + int64(timeout)
	}
	done, err := r.wait(uint32(min(want, len(r.cqes))), deadline)
	if r.sqpoll() {
		done = fresh
	}
	return done, err
}

// wait enters until want completions are ready. deadline is of CLOCK_MONOTONIC in ns, 0 for none.
func (r *Ring) wait(want uint32, deadline int64) (int, error) {
	done := 0
	for {
		var todo uint32
		flags := r.enterFlags | sys.IORING_ENTER_GETEVENTS
		if !r.sqpoll() {
			todo = r.sq.Used()
		} else if r.sqFlags.Load()&sys.IORING_SQ_NEED_WAKEUP != 0 {
			flags |= sys.IORING_ENTER_SQ_WAKEUP
			r.counters.Wakeups++
		}
		overflow := r.noteOverflow()
		if todo == 0 && !overflow && (r.cq.Ready() >= want || r.sqpoll() && r.inFlight == 0) {
			return done, nil
		}
		var arg *sys.URingGetEventsArg
		if deadline != 0 {
			left := deadline - sys.Monotonic()
			if left <= 0 && todo == 0 && r.cq.Ready() < want {
				return done, r.lastLook(want)
			}
			r.waitTime.Sec, r.waitTime.Nsec = max(left, 0)/1e9, max(left, 0)%1e9
			arg = r.waitArg
			flags |= sys.IORING_ENTER_EXT_ARG
		}
		r.counters.Enters++
		n, errno := sys.URingEnter(r.enterFD, todo, want, flags, arg)
		switch {
		case errno == 0:
			if !r.sqpoll() {
				done += n
				r.consumed(n)
			}
		case errno == syscall.EINTR:
		case errno == syscall.ETIME:
			return done, r.lastLook(want)
		default:
			return done, r.enterError(errno)
		}
	}
}

// lastLook lets the kernel deliver what is due at the deadline: a wait that timed out may leave work of the last moment.
func (r *Ring) lastLook(want uint32) error {
	if r.cq.Ready() < want {
		r.counters.Enters++
		_, errno := sys.URingEnterRaw(r.enterFD, 0, r.enterFlags|sys.IORING_ENTER_GETEVENTS)
		if errno != 0 && errno != syscall.EINTR {
			return r.enterError(errno)
		}
	}
	if r.cq.Ready() >= want {
		return nil
	}
	return os.ErrDeadlineExceeded
}

// Completions moves up to len(buf) completions out of the queue and returns how many. It makes no system call: see Submit.
func (r *Ring) Completions(buf []CQE) int {
	if r.closed {
		return 0
	}
	n := r.cq.Peek(uint32(min(len(buf), len(r.cqes))))
	for k := range n {
		c := r.cqes[(r.cq.Index()+k)&r.cq.Mask()]
		if c.Done() {
			r.inFlight--
		}
		buf[k] = c
	}
	if n > 0 {
		r.cq.Release(n)
	}
	return int(n)
}

// Ready is how many completions are in the queue, read afresh.
func (r *Ring) Ready() int {
	if r.closed {
		return 0
	}
	return int(r.cq.Ready())
}

// At is the i-th completion in the queue, 0 <= i < Ready(), without taking it. It is valid until Advance.
func (r *Ring) At(i int) CQE { return r.cqes[(r.cq.Index()+uint32(i))&r.cq.Mask()] }

// Advance takes the first n completions out of the queue; n may not exceed the last Ready, else it panics.
func (r *Ring) Advance(n int) {
	for i := range n {
		if r.At(i).Done() {
			r.inFlight--
		}
	}
	r.cq.Release(uint32(n))
}

// closePatience bounds how long Close waits for cancelled requests and zero-copy notifications.
const closePatience = 500 * time.Millisecond

// Close cancels what is in flight, waits for it to end, half a second at most, and gives descriptors, mappings and the arena
// back. Only the owner may close (ErrThread otherwise, and nothing is closed). It may be called again. No memory of the
// arena may be touched afterwards. A zero-copy send that the network still holds keeps its pages alive without us.
func (r *Ring) Close() error {
	if r.closed {
		return nil
	}
	if err := r.usable(); err != nil {
		return err
	}
	r.pending = 0
	r.drain()
	if r.files > 0 {
		// Otherwise the kernel's delayed clean-up would hold the sockets, and their ports, a little longer.
		_ = sys.URingUnregisterFiles(r.fd)
	}
	r.closed = true
	return r.release()
}

// drain is best effort: a kernel without cancellation of everything (before 6.0) cancels when the descriptor goes, only later.
func (r *Ring) drain() {
	deadline := sys.Monotonic() + int64(closePatience)
	c := sys.URingSyncCancel{FD: -1, Flags: sys.IORING_ASYNC_CANCEL_ANY | sys.IORING_ASYNC_CANCEL_ALL, Timeout: sys.Timespec64{Nsec: int64(closePatience)}}
	if r.inFlight > 0 && sys.URingSyncCancelAll(r.fd, &c) != nil && r.granted.Flags&SingleIssuer == 0 {
		deadline = 0
	}
	for first := true; first || r.inFlight > 0 && sys.Monotonic() < deadline; first = false {
		var arg *sys.URingGetEventsArg
		var want uint32
		flags := r.enterFlags | sys.IORING_ENTER_GETEVENTS
		if !first && r.cq.Ready() == 0 {
			r.waitTime.Sec, r.waitTime.Nsec = 0, int64(10*time.Millisecond)
			arg, want, flags = r.waitArg, 1, flags|sys.IORING_ENTER_EXT_ARG
		}
		if _, errno := sys.URingEnter(r.enterFD, 0, want, flags, arg); errno != 0 && errno != syscall.ETIME && errno != syscall.EINTR {
			return
		}
		r.Advance(r.Ready())
	}
}
