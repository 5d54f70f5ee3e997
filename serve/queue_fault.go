package serve

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Fault is what a queueing target does to one request beside serving it.
type Fault uint8

// The faults. A request has at most one of them.
const (
	// FaultNone: served and answered.
	FaultNone Fault = iota
	// FaultDrop: dropped at the door, as if lost on the way up. It takes no service and no flow report counts it.
	FaultDrop
	// FaultDropReply: served, and the reply dropped, as if lost on the way down.
	FaultDropReply
	// FaultReorder: the reply is held until the next reply of its flow has left. Without one within half a second it leaves alone.
	FaultReorder
	// FaultDuplicate: the reply leaves twice.
	FaultDuplicate
	// FaultDelay: the reply leaves later by Faults.DelayBy.
	FaultDelay
	numFaults
)

// Faults are how often each fault is injected, as shares of all requests, and which seed decides where. The zero value injects none.
type Faults struct {
	Drop, DropReply, Reorder, Duplicate, Delay float64
	// DelayBy is the length of FaultDelay; needed with Delay.
	DelayBy time.Duration
	// Seed decides, with the worker and the sequence number of a request, what happens to it: see At.
	Seed uint64
}

// shares are the probabilities in the order of the faults from FaultDrop on.
func (f *Faults) shares() [numFaults - 1]float64 {
	return [...]float64{f.Drop, f.DropReply, f.Reorder, f.Duplicate, f.Delay}
}

// At is the fault of a request. It depends on nothing else, so that whoever knows the seed knows what will be touched before the
// run; a request without our stamp goes by its number of arrival and worker 0.
func (f *Faults) At(worker uint16, seq uint64) Fault {
	draw := mix(f.Seed, saltFault, worker, seq) >> 11
	for i, below := range f.below() {
		if draw < below {
			return Fault(i + 1)
		}
	}
	return FaultNone
}

// below are the shares added up, of 2^53, which is how many draws there are: so a program inside the kernel, where there are whole numbers only,
// decides as At does.
func (f *Faults) below() (list [numFaults - 1]uint64) {
	sum := 0.0
	for i, share := range f.shares() {
		sum += share
		list[i] = uint64(math.Round(min(sum, 1) * (1 << 53)))
	}
	return list
}

// any reports whether there is something to inject.
func (f *Faults) any() bool { return f.below()[numFaults-2] > 0 }

// String lists what is injected, each with a comma before it.
func (f *Faults) String() string {
	var b strings.Builder
	names := [...]string{"drop", "drop reply", "reorder", "duplicate", "delay"}
	for i, share := range f.shares() {
		if share > 0 {
			fmt.Fprintf(&b, ", %s %.4g %%", names[i], share*100)
		}
	}
	if f.Delay > 0 {
		fmt.Fprintf(&b, " by %v", f.DelayBy)
	}
	return b.String()
}

func (f *Faults) check() error {
	sum := 0.0
	for _, share := range f.shares() {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("fault share %g: want 0 to 1", share)
		}
		sum += share
	}
	switch {
	case sum > 1+1e-9:
		return fmt.Errorf("faults: the shares add up to %.3g %%; a request has at most one fault", sum*100)
	case f.Delay > 0 && f.DelayBy <= 0:
		return fmt.Errorf("delay: %v: want how long to hold a delayed reply, more than 0", f.DelayBy)
	}
	return nil
}

// ParseShare reads a share of all requests: "1%", "0.1%" or "0.01".
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || math.IsNaN(v) || v < 0 || v > 1 {
		return 0, fmt.Errorf("share %q: want 0%% to 100%%, such as 1%% or 0.1%%", text)
	}
	return v, nil
}

// Salts keep the draws of one request apart; bpf/echo.c in xdp/live has the first one too.
const (
	saltFault uint64 = 1 + iota
	saltService
)

// mix is a hash of its arguments with the finisher of splitmix64 (Steele, Lea, Flood 2014), once per argument.
func mix(seed, salt uint64, worker uint16, seq uint64) uint64 {
	h := seed
	for _, v := range [...]uint64{salt, uint64(worker), seq} {
		h += 0x9e3779b97f4a7c15 + v
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// serviceOf is the service time of a request: service, and with jitter a time drawn evenly from service-jitter to service+jitter.
func serviceOf(service, jitter time.Duration, seed uint64, worker uint16, seq uint64) int64 {
	if jitter == 0 {
		return int64(service)
	}
	draw := float64(mix(seed, saltService, worker, seq)>>11) / (1 << 53)
	return int64(service) + int64((2*draw-1)*float64(jitter))
}
