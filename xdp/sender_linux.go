//blast:hot

package xdp

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// ErrFrameLength is returned by Commit when the length of a frame is outside what may be sent: see [Granted].MaxFrame.
var ErrFrameLength = errors.New("xdp: frame length outside what may be sent")

// Completed is what Reap found.
type Completed struct {
	// Sent frames were completed without a drop; Dropped ones were consumed by the kernel and not sent (copy mode, EBUSY).
	Sent, Dropped uint64
}

// SendStats are the counters of the sending half since Open. They belong to its thread.
type SendStats struct {
	// Committed frames were given to the kernel; Completed ones came back, Dropped is how many of those were not sent.
	Committed, Completed, Dropped uint64
	// Kicks are the system calls made; KicksSpared the Commits that needed none because the kernel was awake.
	Kicks, KicksSpared uint64
	// Again, Busy, NoBuffers and Interrupted count the answers EAGAIN, EBUSY, ENOBUFS and EINTR.
	Again, Busy, NoBuffers, Interrupted uint64
	// Foreign completions named no frame that the kernel had: a kernel bug, see kernel commit 30f241fcf52a.
	Foreign uint64
}

// sender is the sending half. One pass of a worker:
//
//  1. Reserve: free frames into the batch, as many as the transmit ring has room for.
//  2. Commit: descriptors into the transmit ring, one index store for all, then kick.
//  3. Reap: addresses out of the completion ring, frames back onto the stack; kick what is left; watch for progress.
type sender struct {
	frames     []Frame
	free       []*Frame // stack: the frame used last is warm
	batch      []*Frame // handed out, not committed
	frameShift uint
	limit      int // most frames of one batch
	maxLen     int // longest frame
	untagged   int // longest frame without a VLAN tag

	tx      ring.Producer
	txDesc  []unix.XDPDesc
	txFlags *atomic.Uint32
	cq      ring.Consumer
	cqAddr  []uint64

	zeroCopy bool
	kick     func() syscall.Errno
	// explain turns an errno of the kick, or ErrStalled, into an error that says why. Only on failure.
	explain func(cause error) error

	outstanding uint32 // frames the kernel has
	drops       uint64 // EBUSY answers not yet reported by Reap
	stats       SendStats
	dead        error

	now        func() time.Duration // monotonic
	stall      time.Duration
	idleSince  time.Duration // when outstanding frames were first seen not to move; 0 = they move
	lastKick   time.Duration
	stallError error
}

const (
	// minFrameBytes is what the kernel's skb path needs at least: an Ethernet header (net/core/dev.c, eth_type_trans in the peer).
	minFrameBytes = ethernetBytes
	// rekick is how long zero-copy frames may lie before they are kicked although the kernel said that it needs no kick. Lost
	// wake-ups are seen in the field: xdp-tutorial#263, #398, msquic#4278.
	rekick = 100 * time.Microsecond
	// pushAgain is how long a driver has to look at the transmit ring before it is woken once more.
	pushAgain = 20 * time.Microsecond
	// spareKicks bounds the kicks of one call beyond one per frame.
	spareKicks = 8
)

// newSender makes a sender without rings. The length of a frame is limited by the MTU, because nothing in this path of the kernel
// checks it: too long a frame vanishes, or stops the card.
func newSender(frames []Frame, frameBytes, limit, mtu int) *sender {
	room := len(frames[0].Data)
	s := &sender{frames: frames, limit: limit,
		untagged: min(room, mtu+ethernetBytes), maxLen: min(room, mtu+ethernetBytes+vlanBytes),
		free: make([]*Frame, 0, len(frames)), batch: make([]*Frame, 0, limit)}
	for 1<<s.frameShift < frameBytes {
		s.frameShift++
	}
	for i := range frames {
		s.free = append(s.free, &frames[len(frames)-1-i])
	}
	return s
}

// reserve is Socket.Reserve.
func (s *sender) reserve(n int) []*Frame {
	n = min(n, s.limit)
	if n <= 0 {
		return nil
	}
	n = int(s.tx.Room(uint32(n)))
	for len(s.batch) < n && len(s.free) > 0 {
		f := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		f.owner, f.options = ownUser, 0
		s.batch = append(s.batch, f)
	}
	return s.batch[:min(n, len(s.batch))]
}

// commit is Socket.Commit.
func (s *sender) commit(n int) (int, error) {
	if s.dead != nil {
		return 0, s.dead
	}
	if n > len(s.batch) {
		panic("xdp: committed more frames than were reserved")
	}
	var bad error
	at, mask := s.tx.Index(), s.tx.Mask()
	for i, f := range s.batch[:n] {
		if f.Len < minFrameBytes || f.Len > s.untagged && (f.Len > s.maxLen || !f.tagged()) {
			n, bad = i, ErrFrameLength
			break
		}
		s.txDesc[(at+uint32(i))&mask] = unix.XDPDesc{Addr: f.address, Len: uint32(f.Len), Options: f.options}
		f.owner = ownKernel
	}
	if n > 0 {
		s.tx.Publish(uint32(n))
		s.outstanding += uint32(n)
		s.stats.Committed += uint64(n)
		s.batch = s.batch[:copy(s.batch, s.batch[n:])]
		if err := s.push(n); err != nil {
			return n, err
		}
	}
	return n, bad
}

// push makes the kernel send what is in the transmit ring; n frames were just added.
func (s *sender) push(n int) error {
	if s.zeroCopy {
		// Publish stored the index with a full barrier, so this load cannot have been made before it.
		if s.txFlags.Load()&unix.XDP_RING_NEED_WAKEUP == 0 {
			s.stats.KicksSpared++
			return nil
		}
		return s.kickZeroCopy()
	}
	return s.kickCopy(n + spareKicks)
}

// kickZeroCopy wakes the driver, which then works by itself.
func (s *sender) kickZeroCopy() error {
	s.stats.Kicks++
	s.lastKick = s.now()
	switch e := s.kick(); e {
	case 0:
	case unix.EAGAIN:
		s.stats.Again++
	case unix.EBUSY: // a driver in the middle of something; unlike in copy mode no frame is gone
		s.stats.Busy++
	case unix.ENOBUFS:
		s.stats.NoBuffers++
	case unix.EINTR:
		s.stats.Interrupted++
	default:
		return s.failed(e)
	}
	return nil
}

// kickCopy lets the kernel send, at most tries times. One kick sends a budget of frames (32, or XDP_MAX_TX_SKB_BUDGET) and
// answers EAGAIN while descriptors are left, but also when the completion ring, the send buffer or the device queue is full, which
// no kick clears: then nothing moves, and Reap comes first.
func (s *sender) kickCopy(tries int) error {
	for range tries {
		waiting, ready := s.tx.Used(), s.cq.Ready()
		if waiting == 0 {
			return nil
		}
		s.stats.Kicks++
		switch e := s.kick(); e {
		case 0: // no descriptor left, or the queue vanished, which the watchdog sees
			return nil
		case unix.EAGAIN:
			s.stats.Again++
			if s.tx.Used() == waiting && s.cq.Ready() == ready {
				return nil
			}
		case unix.EBUSY: // one frame consumed and dropped, and the kernel stopped behind it
			s.stats.Busy++
			s.drops++
		case unix.ENOBUFS:
			s.stats.NoBuffers++
			return nil
		case unix.EINTR:
			s.stats.Interrupted++
		default:
			return s.failed(e)
		}
	}
	return nil
}

// failed keeps an error that no later kick can cure; an interface that is down may come up again.
func (s *sender) failed(e syscall.Errno) error {
	err := s.explain(e)
	if e != unix.ENETDOWN {
		s.dead = err
	}
	return err
}

// reap is Socket.Reap; each, when not nil, sees every completed frame.
func (s *sender) reap(each func(*Frame)) (Completed, error) {
	n := s.cq.Peek(s.cq.Size())
	at, mask := s.cq.Index(), s.cq.Mask()
	taken := uint32(0)
	for i := range n {
		index := s.cqAddr[(at+i)&mask] >> s.frameShift
		if index >= uint64(len(s.frames)) || s.frames[index].owner != ownKernel {
			s.stats.Foreign++
			continue
		}
		f := &s.frames[index]
		if each != nil {
			each(f)
		}
		f.owner = ownFree
		s.free = append(s.free, f)
		taken++
	}
	var c Completed
	if n > 0 {
		s.cq.Release(n)
		s.outstanding -= taken
		s.stats.Completed += uint64(taken)
		// A dropped frame is completed before its kick answers, so a drop never waits for a later Reap.
		c.Dropped = min(s.drops, uint64(taken))
		c.Sent = uint64(taken) - c.Dropped
		s.drops -= c.Dropped
		s.stats.Dropped += c.Dropped
		s.idleSince, s.stallError = 0, nil
	}
	if s.dead != nil {
		return c, s.dead
	}
	if s.outstanding == 0 {
		return c, nil
	}
	if err := s.nudge(); err != nil {
		return c, err
	}
	if taken > 0 {
		return c, nil
	}
	return c, s.watch()
}

// nudge kicks again what an earlier kick left behind. A driver that has taken everything works by interrupts and is left alone,
// even if it keeps asking to be woken (igb does); only if nothing moves for a while it is kicked whatever it says.
func (s *sender) nudge() error {
	if !s.zeroCopy {
		return s.kickCopy(s.limit + spareKicks)
	}
	waiting := s.tx.Used() > 0 && s.txFlags.Load()&unix.XDP_RING_NEED_WAKEUP != 0
	if !waiting && s.idleSince == 0 {
		return nil
	}
	now := s.now()
	if waiting && now-s.lastKick > pushAgain || s.idleSince != 0 && now-max(s.idleSince, s.lastKick) > rekick {
		return s.kickZeroCopy()
	}
	return nil
}
