package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// CatchUp says what becomes of slots that are late.
type CatchUp uint32

// The catch-up policies.
const (
	Burst CatchUp = iota // send what is due, one a turn
	Skip                 // give up slots later than MaxLag
	Abort                // end at the first slot later than MaxLag
)

// Segment is a stretch of a plan: Slots slots, Each at one instant, the first instant Start ns after the start of the measured part and
// the instants Quot + Rem/Den ns apart, with a remainder of Acc/Den at the first.
type Segment struct {
	Start                            int64
	Slots, Acc, Quot, Rem, Den, Each uint64
}

// SenderConfig is one worker.
type SenderConfig struct {
	// Device is the index of the interface to send by, in the namespace of the calling thread.
	Device int
	// Frames has one complete frame per flow, all of one length and with Header bytes before the payload (42, 46, 62 or 66). The place of
	// the stamp is zero and the UDP checksum right for that. Bytes behind the stamp are those of the first frame.
	Frames [][]byte
	Header int
	// StampBytes is 0, 16 (compact), 48, or 64 with room for a report; StampHead its first 8 bytes, of the compact form the first two.
	StampBytes int
	StampHead  [8]byte
	// Segments is the plan; empty means that the planned times of Slots slots come from Times, in ns from the start of the measured part.
	Segments []Segment
	Times    func() int64
	Slots    uint64
	// First is the first measured slot; those before it are warm-up.
	First uint64
	// Unpaced sends as fast as it goes from the first segment's start on; planned times are then the sent ones, and what is sent from the
	// start of the measured part on is numbered from First.
	Unpaced bool
	CatchUp CatchUp
	MaxLag  time.Duration
	// Batch is the number of turns after which the kernel flushes, a power of two up to 256; zero means 16.
	Batch int
	// MaxTurns bounds one call of the kernel; zero means 2^32-1.
	MaxTurns uint32
	// Interval is the timeline's; zero means 1 s.
	Interval time.Duration
	// Tell makes Unsent name the slots that are not sent.
	Tell bool
	// Departures compares the times at which the device takes frames with the plan; see Gaps. It costs some 30 ns a packet.
	Departures bool
}

// Sender is one worker's program with its maps. Run is called by one locked thread, everything else from any thread.
type Sender struct {
	cfg     SenderConfig
	objects sendObjects
	links   []link.Link
	unsent  *ring         // nil without Tell
	idleNS  float64       // one turn of waiting
	relief  *ebpf.Program // the second instance; nil until a run needs it
	tids    [2]atomic.Int32
	stopped atomic.Bool
	made    atomic.Uint64 // calls of the first instance that have ended
	renewed atomic.Uint64
	bridged atomic.Uint64

	mu              sync.Mutex
	start, deadline int64
	next            int64 // first interval that was not collected
	series          [rotateSend]series
	sent            [rotateSend]uint64 // as last read
	ended           int64              // when Run gave up without the program's doing
	closed          bool
}

// What send.c has as ROTATE, FLUSH, WINDOW and the values of done.
const (
	rotateSend  = 4
	flushTimes  = 4
	windowTurns = 1024

	doneNot      = 0
	doneAborted  = 3
	doneTooShort = 4
)

// NewSender loads the program of one worker and measures a turn of waiting, on the calling thread. It sends nothing.
func NewSender(cfg SenderConfig) (_ *Sender, err error) {
	if cfg.Batch == 0 {
		cfg.Batch = 16
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = sys.MaxLiveTurns
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), s.Close())
		}
	}()
	if err = s.load(); err != nil {
		return nil, err
	}
	if err = s.fill(); err != nil {
		return nil, err
	}
	if err = s.trace(); err != nil {
		return nil, err
	}
	return s, s.measure(32768)
}

func (c *SenderConfig) validate() error {
	switch {
	case len(c.Frames) == 0:
		return errors.New("no flow")
	case c.Batch < 1 || c.Batch > 256 || c.Batch&(c.Batch-1) != 0:
		return fmt.Errorf("batch %d: want a power of two up to 256", c.Batch)
	case !slices.Contains([]int{42, 46, 62, 66}, c.Header):
		return fmt.Errorf("header of %d bytes: want 42, 46, 62 or 66", c.Header)
	case !slices.Contains([]int{0, 16, 48, 64}, c.StampBytes):
		return fmt.Errorf("stamp of %d bytes: want 0, 16, 48 or 64", c.StampBytes)
	case len(c.Segments) == 0 && c.Times == nil:
		return errors.New("no plan")
	case c.Unpaced && len(c.Segments) != 1:
		return fmt.Errorf("%d segments without a plan: want 1", len(c.Segments))
	}
	for i, f := range c.Frames {
		if len(f) != len(c.Frames[0]) || len(f) < c.Header+c.StampBytes {
			return fmt.Errorf("frame %d of %d bytes: want all alike, with room for header and stamp", i, len(f))
		}
	}
	for i, g := range c.Segments {
		if g.Slots == 0 || g.Each == 0 || g.Den == 0 || g.Rem >= g.Den || g.Acc >= g.Den {
			return fmt.Errorf("segment %d: %+v contradicts itself", i, g)
		}
	}
	return nil
}

// ringSlots is the size of the ring of planned times.
const ringSlots = 1 << 19

// load loads programs and maps.
func (s *Sender) load() error {
	spec, err := s.spec(0)
	if err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return nil
}

// spec is the collection with the constants of an instance and the sizes of this worker.
func (s *Sender) spec(instance uint32) (*ebpf.CollectionSpec, error) {
	spec, err := loadSend()
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	spec.Maps[sendMapFlows].MaxEntries = uint32(len(s.cfg.Frames))
	spec.Maps[sendMapSegments].MaxEntries = uint32(max(len(s.cfg.Segments), 1))
	mask := uint32(0)
	if s.cfg.Times != nil {
		spec.Maps[sendMapTimes].MaxEntries = ringSlots
		mask = ringSlots - 1
	}
	unpaced, tell, departures := uint32(0), uint32(0), uint32(0)
	if s.cfg.Unpaced {
		unpaced = 1
	}
	if s.cfg.Tell {
		spec.Maps[sendMapUnsents].MaxEntries = toldBytes
		tell = 1
	}
	if s.cfg.Departures {
		spec.Maps[sendMapGaps].MaxEntries = 2
		departures = 1
	}
	for name, value := range map[string]any{
		sendVarME: instance, sendVarHEADER: uint32(s.cfg.Header), sendVarSTAMP: uint32(s.cfg.StampBytes), sendVarUNPACED: unpaced,
		sendVarSTAMP_HEAD: binary.NativeEndian.Uint64(s.cfg.StampHead[:]), sendVarTIMES_MASK: mask,
		sendVarFLOWS: uint32(len(s.cfg.Frames)), sendVarSEGMENTS: uint32(len(s.cfg.Segments)),
		sendVarCATCH_UP: uint32(s.cfg.CatchUp), sendVarMAX_LAG: int64(s.cfg.MaxLag),
		sendVarTELL: tell, sendVarDEPARTURES: departures,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return spec, nil
}

// fill writes device, flows and plan.
func (s *Sender) fill() error {
	if s.cfg.Tell {
		var err error
		if s.unsent, err = newRing(s.objects.Unsents); err != nil {
			return err
		}
	}
	if err := s.objects.Devices.Put(uint32(0), uint32(s.cfg.Device)); err != nil {
		if errors.Is(err, unix.EINVAL) {
			err = unix.ENODEV // dev_map_update_elem says EINVAL for an interface that does not exist
		}
		return fmt.Errorf("interface number %d: %w", s.cfg.Device, err)
	}
	head := s.cfg.Header - 2
	for i, frame := range s.cfg.Frames {
		var bytes [64]byte
		copy(bytes[:head], frame)
		var f sendFlow
		for k := range f.Head {
			f.Head[k] = binary.NativeEndian.Uint64(bytes[8*k:])
		}
		f.Sum = uint64(^binary.NativeEndian.Uint16(frame[head:]))
		if err := s.objects.Flows.Put(uint32(i), &f); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
	}
	for i, g := range s.cfg.Segments {
		k := sendSegment{Start: g.Start, Slots: g.Slots, Acc: g.Acc, Quot: g.Quot, Rem: g.Rem, Den: g.Den, Each: g.Each}
		if err := s.objects.Segments.Put(uint32(i), &k); err != nil {
			return fmt.Errorf("segment %d: %w", i, err)
		}
	}
	return nil
}

// trace hooks the programs that learn what became of the frames.
func (s *Sender) trace() error {
	for _, t := range []struct {
		name string
		prog *ebpf.Program
	}{{"xdp_devmap_xmit", s.objects.Transmitted}, {"xdp_redirect_err", s.objects.Failed}} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: t.name, Program: t.prog})
		if err != nil {
			return fmt.Errorf("tracepoint %s: %w", t.name, err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

func (s *Sender) state() (sendState, error) {
	var st sendState
	if err := s.objects.States.Lookup(uint32(0), &st); err != nil {
		return st, fmt.Errorf("read state: %w", err)
	}
	return st, nil
}

func (s *Sender) put(st *sendState) error {
	if err := s.objects.States.Put(uint32(0), st); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// call lets the kernel run an instance of the program for so many turns, on the calling thread.
func (s *Sender) call(instance uint32, prog *ebpf.Program, turns uint32) (unix.Errno, error) {
	if err := s.objects.Instances.Put(instance, &sendInstance{}); err != nil {
		return 0, fmt.Errorf("write state: %w", err)
	}
	s.tids[instance].Store(int32(unix.Gettid()))
	defer s.tids[instance].Store(0)
	return sys.RunLive(prog.FD(), s.cfg.Frames[0], turns, s.cfg.Batch), nil
}

// measure finds what a turn of waiting costs, by at least 1025 turns without an order to start, as the fastest 1024 in a row. It takes
// some ms and the set-up of a call.
func (s *Sender) measure(turns uint32) error {
	for {
		// Without an order nothing is ever due, as while waiting for one.
		st := sendState{NextFlip: math.MaxInt64, Fastest: math.MaxUint64,
			BatchMask: uint64(s.cfg.Batch - 1)}
		if err := s.put(&st); err != nil {
			return err
		}
		e, err := s.call(0, s.objects.Send, turns)
		if err == nil && e != 0 && e != unix.EINTR {
			err = fmt.Errorf("run program: %w", e)
		}
		if err != nil {
			return err
		}
		st, err = s.state()
		if err != nil {
			return err
		}
		if st.Fastest != math.MaxUint64 {
			s.idleNS = max(float64(st.Fastest)/windowTurns, 1)
			return s.put(&sendState{})
		}
	}
}

// IdleNS is what a turn of waiting costs, in ns: how exactly the wait for a slot ends.
func (s *Sender) IdleNS() float64 { return s.idleNS }

// Quantum is how long a packet waits at most, after its stamp, for the kernel to flush, when every turn of the batch behind it is a wait.
func (s *Sender) Quantum() time.Duration { return time.Duration(s.idleNS * float64(s.cfg.Batch)) }

// Run executes the plan: it sets the call up, waits for Start, and blocks until the plan is done, the deadline or Stop has come, or the
// kernel does not go on. atMost bounds it, the wait for Start included.
func (s *Sender) Run(atMost time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := &feeder{}
	if s.cfg.Times != nil {
		var err error
		if f, err = s.feed(); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	var others sync.WaitGroup
	if s.cfg.Times != nil {
		others.Go(func() { f.run(ended) })
	}
	others.Go(func() { s.watch(ended) })
	err := s.calls(atMost)
	close(ended)
	others.Wait()
	if st, stateErr := s.state(); stateErr == nil && st.Done == doneNot {
		s.mu.Lock()
		s.ended = max(st.Last, st.Start, 1)
		s.mu.Unlock()
	}
	return errors.Join(err, f.err)
}

// calls makes one call after the other, in most cases one.
func (s *Sender) calls(atMost time.Duration) error {
	err := s.put(&sendState{Interval: int64(s.cfg.Interval), First: s.cfg.First, IdleCap: uint64(2*s.idleNS) + 1,
		BatchMask: uint64(s.cfg.Batch - 1), NextFlip: math.MaxInt64})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	var relief sync.WaitGroup
	defer relief.Wait()
	defer close(stop)
	relieved := false
	deadline := int64(0)
	for end := sys.Monotonic() + int64(atMost); !s.stopped.Load() && sys.Monotonic() < end; {
		// A turn that sends takes longer than one that waits, so this is enough, and the watch ends what is too much.
		left := end - sys.Monotonic()
		if deadline != 0 {
			left = min(left, deadline-sys.Monotonic()+int64(100*time.Millisecond))
		}
		turns := max(float64(left)/s.idleNS*1.1, 4096)
		if most := float64(s.cfg.MaxTurns); turns > most {
			turns = most
			if !relieved {
				relieved = true
				relief.Go(func() { s.relieveAll(uint64(most), stop) })
			}
		}
		e, err := s.call(0, s.objects.Send, uint32(turns))
		s.made.Add(1)
		if err != nil {
			return err
		}
		st, err := s.state()
		switch {
		case err != nil:
			return err
		case st.Done == doneTooShort:
			return errors.New("the frame is too short for its stamp")
		case st.Done != doneNot:
			return nil
		case e != 0 && e != unix.EINTR:
			return fmt.Errorf("run program: %w", e)
		}
		if deadline = st.Deadline; st.Start != 0 {
			s.renewed.Add(1)
		}
	}
	return nil
}

// Ready reports whether the program turns and waits for Start: the kernel takes from 24 ms to much longer to set a call up.
func (s *Sender) Ready() (bool, error) {
	st, err := s.state()
	return st.Last != 0, err
}

// Start gives the order: start is the beginning of the measured part in ns of CLOCK_MONOTONIC, at least 1, and nothing is sent from deadline
// on. It is given once.
func (s *Sender) Start(start, deadline int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start != 0 || start <= 0 || deadline <= 0 {
		return fmt.Errorf("start at %d ns: given before, or not a time", start)
	}
	s.start, s.deadline = start, deadline
	return s.order(0)
}

// order writes the order, with the instance that is to do the work. It needs the lock.
func (s *Sender) order(owner uint32) error {
	if err := s.objects.Orders.Put(uint32(0), &sendOrder{Start: s.start, Deadline: s.deadline, Owner: owner}); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	return nil
}

// watch interrupts the call once the plan is done or Stop was called, again and again until Run has ended: a signal that comes before the
// call has begun is lost.
func (s *Sender) watch(ended <-chan struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if st, err := s.state(); err != nil || st.Done != doneNot || s.stopped.Load() {
			s.interrupt(0)
			s.interrupt(1)
		}
	}
}

// interrupt ends the call of an instance after the batch in hand, if it is in one.
func (s *Sender) interrupt(instance int) {
	if tid := s.tids[instance].Load(); tid != 0 {
		_ = sys.Interrupt(int(tid)) // the thread may have ended meanwhile, and one of ours that gets it by mistake does not mind
	}
}

// Stop ends Run within some ms.
func (s *Sender) Stop() { s.stopped.Store(true) }

// SenderInterval is one interval of the timeline.
type SenderInterval struct {
	Index int64
	Sent  uint64
	Lag   Histogram
}

// Collect calls fn for each interval that is over at now and was not collected before; with now = math.MaxInt64 for all that is left,
// as one interval.
func (s *Sender) Collect(now int64, fn func(*SenderInterval)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("sender: %w", os.ErrClosed)
	}
	if now == never {
		v := &SenderInterval{Index: s.next}
		for turn := range int64(rotateSend) {
			if err := s.read((s.next+turn)%rotateSend, v, triesLast); err != nil {
				return err
			}
		}
		s.next++
		fn(v)
		return nil
	}
	for s.start != 0 && s.start+(s.next+1)*int64(s.cfg.Interval)+settle <= now {
		v := &SenderInterval{Index: s.next}
		if err := s.read(s.next%rotateSend, v, triesNow); err != nil {
			return err
		}
		s.next++
		fn(v)
	}
	return nil
}

// read adds what is new in one turn's histogram.
func (s *Sender) read(turn int64, v *SenderInterval, tries int) error {
	if err := s.series[turn].next(s.objects.Lags, uint32(turn), &v.Lag, tries); err != nil {
		return fmt.Errorf("read histogram: %w", err)
	}
	st, err := s.state()
	if err != nil {
		return err
	}
	n := st.IntervalSent[turn]
	v.Sent += n - s.sent[turn]
	s.sent[turn] = n
	return nil
}

// Account is what became of the measured slots. Times are ns of CLOCK_MONOTONIC, 0 = never.
type Account struct {
	// Next is the number of the slot after the last one dealt with.
	Next uint64
	// Redirected = Sent + Dropped + Failed. Dropped frames were refused by a full device, Failed ones never came to it or were not wanted at
	// all; Error is the last reason for that.
	Redirected, Sent, Dropped, Failed uint64
	Error                             unix.Errno
	// Skipped slots were given up by the policy. Gone slots found the device removed.
	Skipped, Gone uint64
	// Ended is when the run ended before its plan, Aborted the lag in ns that ended it.
	Ended, Aborted int64
	LastSent       int64
	// Waited is the time spent in turns that found nothing due, ns.
	Waited int64
	// Renewals is how often the call was made anew, Bridged how often a second one did the work meanwhile, and Gap the longest time, in ns, that
	// the work took to go from one call to the next.
	Renewals, Bridged uint64
	Gap               int64
	// Starved counts the turns that found no planned time in the ring.
	Starved uint64
}

// Account reads the books; exact once Run has returned.
func (s *Sender) Account() (Account, error) {
	st, err := s.state()
	if err != nil {
		return Account{}, err
	}
	a := Account{Next: st.Seq, Redirected: st.Sent, Gone: st.Refused, Skipped: st.Skipped, LastSent: st.LastSent, Waited: int64(st.Waited),
		Renewals: s.renewed.Load(), Bridged: s.bridged.Load(), Gap: st.Gap, Starved: st.Starved, Error: unix.Errno(-st.Error)}
	if st.Sent > 0 {
		a.Dropped, a.Failed = st.Dropped-st.WarmDropped, st.Failed-st.WarmFailed
	}
	a.Sent = a.Redirected - min(a.Dropped+a.Failed, a.Redirected)
	if st.Done > 1 {
		a.Ended = st.Ended
	}
	if st.Done == doneAborted {
		a.Aborted = st.Late
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != 0 {
		a.Ended = s.ended
	}
	return a, nil
}

// FlushTimes is how long after the stamp of its first packet each batch was flushed.
func (s *Sender) FlushTimes() (Histogram, error) {
	var h Histogram
	var from series
	if err := from.next(s.objects.Lags, flushTimes, &h, triesNow); err != nil {
		return h, fmt.Errorf("read flush times: %w", err)
	}
	return h, nil
}

// Gaps are those between consecutive measured packets as the device took them, and how far each is off the planned one, ns; empty without
// Departures. What leaves in one bulk leaves at once.
func (s *Sender) Gaps() (gap, off Histogram, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Departures || s.closed {
		return gap, off, nil
	}
	for key, h := range []*Histogram{&gap, &off} {
		k, ok, err := steady(s.objects.Gaps, uint32(key), triesNow)
		if err != nil {
			return gap, off, fmt.Errorf("read gaps: %w", err)
		}
		if ok {
			h.add(k)
		}
	}
	return gap, off, nil
}

// Close frees everything. It comes after Run and is idempotent.
func (s *Sender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	if s.relief != nil {
		errs = append(errs, s.relief.Close())
	}
	return errors.Join(append(errs, s.unsent.close(), s.objects.Close())...)
}
