package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// ReceiverConfig is the receiving side of a run.
type ReceiverConfig struct {
	// Ports are the local UDP ports that replies come to.
	Ports []uint16
	// Shares are what the workers send, by worker number; at least one.
	Shares []Share
	Epoch  uint8
	// Timeout is when a reply is late.
	Timeout  time.Duration
	Interval time.Duration
	// Tell is which replies are told one by one, by Told; 0 = none, which costs nothing.
	Tell Kinds
}

// Share is one worker: measured slots First to Limit, going round Flows flows.
type Share struct {
	First, Limit uint64
	Flows        int
}

// Tally is what came back of one worker's slots.
type Tally struct {
	Unique, Replied, Late, Duplicate, Reordered, Stray, Warm, Contended uint64
	Longest                                                             time.Duration
}

// rotate is the number of histograms of one kind that take turns.
const (
	rotateReceive = 2
	kinds         = 3
	// windowMax bounds the memory of one worker's window: 2^21 words of 32 slots, 16 MiB.
	windowMax = 21
	windowMin = 11
)

// Receiver is the receiving program on one interface. Its methods may be called from any thread.
type Receiver struct {
	cfg     ReceiverConfig
	objects receiveObjects
	link    link.Link
	native  bool
	log2    int
	cpus    int
	window  *ebpf.Memory
	told    *ring // nil when nothing is to be told

	mu      sync.Mutex
	start   int64
	next    int64 // first interval that was not collected
	series  []series
	replied [][rotateReceive]uint64 // by CPU, as last read
	closed  bool
}

// NewReceiver loads the program and attaches it; everything passes until Begin. With no Shares it is the program that some drivers need
// on an interface that only sends.
func NewReceiver(i *Interface, cfg ReceiverConfig) (_ *Receiver, err error) {
	r := &Receiver{cfg: cfg, log2: windowMin}
	if r.cfg.Interval <= 0 {
		r.cfg.Interval = time.Second
	}
	if r.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for _, s := range cfg.Shares {
		for r.log2 < windowMax && s.Limit-s.First > 32<<r.log2-64 {
			r.log2++
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := r.load(); err != nil {
		return nil, explain(err)
	}
	if r.window, err = r.objects.Window.Memory(); err != nil {
		return nil, fmt.Errorf("map the window: %w", err)
	}
	if err := r.fill(); err != nil {
		return nil, err
	}
	if cfg.Tell != 0 {
		if r.told, err = newRing(r.objects.Events); err != nil {
			return nil, err
		}
	}
	r.link, r.native, err = i.attach(r.objects.Receive)
	return r, err
}

func (r *Receiver) load() error {
	spec, err := loadReceive()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	workers, flows := max(len(r.cfg.Shares), 1), 0
	for _, s := range r.cfg.Shares {
		flows += s.Flows
	}
	spec.Maps[receiveMapShares].MaxEntries = uint32(workers)
	spec.Maps[receiveMapTallies].MaxEntries = uint32(workers)
	spec.Maps[receiveMapNewest].MaxEntries = uint32(max(flows, 1))
	spec.Maps[receiveMapWindow].MaxEntries = uint32(workers << r.log2)
	if len(r.cfg.Shares) > 0 {
		spec.Maps[receiveMapHistograms].MaxEntries = uint32(r.cpus * rotateReceive * kinds)
	}
	if r.cfg.Tell != 0 {
		spec.Maps[receiveMapEvents].MaxEntries = toldBytes
	}
	for name, value := range map[string]uint32{
		receiveVarTELL:    uint32(r.cfg.Tell),
		receiveVarWORKERS: uint32(len(r.cfg.Shares)), receiveVarWINDOW_MASK: 1<<r.log2 - 1, receiveVarWINDOW_LOG2: uint32(r.log2),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&r.objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return nil
}

func (r *Receiver) fill() error {
	newest := 0
	for i, s := range r.cfg.Shares {
		share := receiveShare{First: s.First, Limit: s.Limit, Stride: uint64(max(s.Flows, 1)), Newest: uint32(newest)}
		if err := r.objects.Shares.Put(uint32(i), &share); err != nil {
			return fmt.Errorf("share of worker %d: %w", i, err)
		}
		newest += s.Flows
	}
	words := map[uint32]uint64{}
	for _, port := range r.cfg.Ports {
		words[uint32(port>>6)] |= 1 << (port & 63)
	}
	for key, bits := range words {
		if err := r.objects.Ports.Put(key, bits); err != nil {
			return fmt.Errorf("ports: %w", err)
		}
	}
	r.series = make([]series, len(r.cfg.Shares[:min(len(r.cfg.Shares), 1)])*r.cpus*rotateReceive*kinds)
	r.replied = make([][rotateReceive]uint64, r.cpus)
	return nil
}

// Native reports whether the driver runs the program; else it runs behind the driver, on socket buffers.
func (r *Receiver) Native() bool { return r.native }

// Begin starts taking replies; start is the beginning of the measured part in ns of CLOCK_MONOTONIC.
func (r *Receiver) Begin(start int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = start
	lanes := make([]receiveLane, r.cpus)
	for i := range lanes {
		lanes[i].NextFlip = start + int64(r.cfg.Interval)
	}
	if err := r.objects.Lanes.Put(uint32(0), lanes); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	plan := receivePlan{Start: start, Interval: int64(r.cfg.Interval), Timeout: int64(r.cfg.Timeout), Epoch: uint32(r.cfg.Epoch), Active: 1}
	if err := r.objects.Plans.Put(uint32(0), &plan); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return nil
}

// ReceiverInterval is one interval of the timeline.
type ReceiverInterval struct {
	Index                    int64
	Replied                  uint64
	Latency, Service, Server Histogram
}

// settle is how long after the end of an interval nobody writes its histograms any more.
const settle = int64(time.Millisecond)

// Collect calls fn for each interval that is over at now and was not collected before; with now = math.MaxInt64 for all that is left,
// as one interval. Then no reply is taken any more: what is read afterwards belongs to the same replies.
func (r *Receiver) Collect(now int64, fn func(*ReceiverInterval)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.series) == 0 || r.start == 0 {
		return nil
	}
	if now == never {
		if err := r.detach(); err != nil {
			return err
		}
		v := &ReceiverInterval{Index: r.next}
		for turn := range int64(rotateReceive) {
			if err := r.read((r.next+turn)%rotateReceive, v, triesLast); err != nil {
				return err
			}
		}
		r.next++
		fn(v)
		return nil
	}
	for r.start+(r.next+1)*int64(r.cfg.Interval)+settle <= now {
		v := &ReceiverInterval{Index: r.next}
		if err := r.read(r.next%rotateReceive, v, triesNow); err != nil {
			return err
		}
		r.next++
		fn(v)
	}
	return nil
}

// read adds what is new in one turn's histograms of all CPUs.
func (r *Receiver) read(turn int64, v *ReceiverInterval, tries int) error {
	for cpu := range r.cpus {
		base := (cpu*rotateReceive + int(turn)) * kinds
		for kind, h := range []*Histogram{&v.Latency, &v.Service, &v.Server} {
			if err := r.series[base+kind].next(r.objects.Histograms, uint32(base+kind), h, tries); err != nil {
				return fmt.Errorf("read histogram: %w", err)
			}
		}
	}
	var lanes []receiveLane
	if err := r.objects.Lanes.Lookup(uint32(0), &lanes); err != nil {
		return fmt.Errorf("read intervals: %w", err)
	}
	for cpu, lane := range lanes {
		n := lane.IntervalReplied[turn]
		v.Replied += n - r.replied[cpu][turn]
		r.replied[cpu][turn] = n
	}
	return nil
}

// Tally reads what came back of one worker's slots so far.
func (r *Receiver) Tally(worker int) (Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t Tally
	var perCPU []receiveCounts
	if err := r.objects.Tallies.Lookup(uint32(worker), &perCPU); err != nil {
		return t, fmt.Errorf("read counts of worker %d: %w", worker, err)
	}
	for _, c := range perCPU {
		t.Unique += c.Unique
		t.Replied += c.Replied
		t.Late += c.Late
		t.Duplicate += c.Duplicate
		t.Reordered += c.Reordered
		t.Stray += c.Stray
		t.Warm += c.Warm
		t.Contended += c.Contended
		t.Longest = max(t.Longest, time.Duration(c.Longest))
	}
	return t, nil
}

// Unseen counts the slots [from, to) of a worker that have no reply and are still in the window, and calls each, which may be nil, for every one.
func (r *Receiver) Unseen(worker int, from, to uint64, each func(seq uint64)) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(1) << r.log2
	if to > 32*size && from < to-32*size {
		from = to - 32*size
	}
	var n uint64
	var word [8]byte
	for base := from &^ 31; base < to; base += 32 {
		at := (uint64(worker)<<r.log2 + base>>5&(size-1)) * 8
		if _, err := r.window.ReadAt(word[:], int64(at)); err != nil {
			return 0, fmt.Errorf("read window: %w", err)
		}
		held := binary.NativeEndian.Uint64(word[:])
		mask := ^uint32(0)
		if base < from {
			mask <<= from - base
		}
		if to-base < 32 {
			mask &= 1<<(to-base) - 1
		}
		seen := uint32(held)
		switch generation := base >> (5 + uint(r.log2)) & 0xffffffff; {
		case held>>32 < generation:
			seen = 0
		case held>>32 > generation:
			mask = 0
		}
		mask &^= seen
		n += uint64(bits.OnesCount32(mask))
		for ; each != nil && mask != 0; mask &= mask - 1 {
			each(base + uint64(bits.TrailingZeros32(mask)))
		}
	}
	return n, nil
}

// detach takes the program off. It needs the lock.
func (r *Receiver) detach() error {
	l := r.link
	if r.link = nil; l == nil {
		return nil
	}
	return l.Close()
}

// Close takes the program off and frees everything. It is idempotent.
func (r *Receiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return errors.Join(r.detach(), r.told.close(), r.objects.Close())
}
