package live

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Fault is what a faulty target does to a request.
type Fault uint8

// The faults. Dropping is done by the XDP program; the others need a packet more than came, which an XDP program cannot make: all replies then
// leave by a second program behind the driver (tcx, Linux 6.6).
const (
	FaultNone Fault = iota
	FaultDrop
	FaultDropReply
	FaultReorder   // held until the next answered request of its flow; without one, for ever
	FaultDuplicate // answered twice
	faults
)

// TargetFaults says what becomes of requests with our stamp. It depends on seed, worker and number alone; serve.Faults.At is its definition.
type TargetFaults struct {
	Seed uint64
	// Below are the shares of FaultDrop to FaultDuplicate, added up, of 2^53.
	Below [faults - 1]uint64
}

// repeats reports whether replies have to be cloned.
func (f *TargetFaults) repeats() bool { return f.Below[FaultDuplicate-1] > f.Below[FaultDropReply-1] }

// Touched is one request to which something was done. A fault that comes to nothing touches nobody.
type Touched struct {
	Seq    uint64
	Worker uint16
	Epoch  uint8
	Fault  Fault
}

// Run is what came with one epoch, compact stamps with epoch 0. Began and Last are ns of CLOCK_MONOTONIC.
type Run struct {
	Epoch       uint8
	Began, Last int64
	// Answered are replies, those of duplicates and of overtaken requests included.
	Arrivals, Answered uint64
	// Touched are the requests by Fault, also those that Target.Touched had no room for. Vain were to be overtaken and were not, since another of
	// their flow was waiting.
	Touched [faults]uint64
	Vain    uint64
}

// Add joins what came with the same epoch elsewhere.
func (r *Run) Add(o *Run) {
	if r.Began == 0 || o.Began != 0 && o.Began < r.Began {
		r.Began = o.Began
	}
	r.Last = max(r.Last, o.Last)
	r.Arrivals += o.Arrivals
	r.Answered += o.Answered
	for i, n := range o.Touched {
		r.Touched[i] += n
	}
	r.Vain += o.Vain
}

const (
	// touchedBytes is the room for names between two readings. One takes 24 bytes with its header: 174,762 of them.
	touchedBytes = 1 << 22
	touchBytes   = 16
	lanesMost    = 1 << 16
)

// suffer puts faults into the program before it is loaded.
func (f *TargetFaults) suffer(spec *ebpf.CollectionSpec) error {
	if f == nil {
		return nil
	}
	spec.Maps[echoMapRuns].MaxEntries = 256
	spec.Maps[echoMapTouches].MaxEntries = touchedBytes
	repeats := uint32(0)
	if f.repeats() {
		spec.Maps[echoMapLanes].MaxEntries = lanesMost
		repeats = 1
	}
	for name, value := range map[string]any{echoVarFAULTY: uint32(1), echoVarREPEATS: repeats, echoVarSEED: f.Seed, echoVarBELOW: f.Below} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// behind attaches the program behind the driver where replies are cloned. That one answers whom the program before it lets pass and knows no allow
// list, so it comes after it and goes before it.
func (t *Target) behind(i *Interface, f *TargetFaults) error {
	if f == nil {
		return nil
	}
	var err error
	if t.touches, err = newRing(t.objects.Touches); err != nil || !f.repeats() {
		return err
	}
	t.second, err = link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: t.objects.Repeat, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("interface %q: repeating and reordering needs tcx, Linux 6.6: %w: %w", i.Name, err, errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("interface %q: attach the program that repeats: %w", i.Name, err)
	}
	return nil
}

// Touched calls fn for each request touched since the last call, in order on each CPU. missed is how many there was no room for so far: 174,762
// fit between two calls.
func (t *Target) Touched(fn func(Touched)) (missed uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.touches == nil || t.closed {
		return t.last.Untold, nil
	}
	err = t.touches.drain(func(b []byte) error {
		if len(b) < touchBytes {
			return fmt.Errorf("touch of %d bytes: want %d", len(b), touchBytes)
		}
		fn(Touched{binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint16(b[8:]), b[10], Fault(b[11])})
		return nil
	})
	var perCPU []echoCounts
	if lookupErr := t.objects.Totals.Lookup(uint32(0), &perCPU); lookupErr != nil {
		return 0, errors.Join(err, fmt.Errorf("read counts: %w", lookupErr))
	}
	for _, c := range perCPU {
		missed += c.Untold
	}
	return missed, err
}

// Runs is what came of each epoch so far, where there are faults.
func (t *Target) Runs() ([]Run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.touches == nil || t.closed {
		return nil, nil
	}
	var list []Run
	for epoch := range 256 {
		var perCPU []echoRun
		if err := t.objects.Runs.Lookup(uint32(epoch), &perCPU); err != nil {
			return nil, fmt.Errorf("read epoch %d: %w", epoch, err)
		}
		run := Run{Epoch: uint8(epoch)}
		for _, c := range perCPU {
			run.Add(&Run{Began: c.Began, Last: c.Last, Arrivals: c.Arrivals, Answered: c.Answered, Touched: c.Touched, Vain: c.Vain})
		}
		if run.Arrivals > 0 {
			list = append(list, run)
		}
	}
	return list, nil
}
