package live

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
)

// reliefBefore is how long before the end of a call the second one is set up, which on a busy machine takes a second.
const reliefBefore = 5 * time.Second

// relieveAll bridges the renewals of calls of so many turns, one after the other, until stop is closed:
//
//  1. when the call comes near its end, another thread calls the second instance of the program, which turns and waits;
//  2. the order names the second instance, and the first hands over at the beginning of a batch: no slot waits for it;
//  3. the first call is ended and made anew, and when it turns, the second hands back in the same way and ends.
//
// Where the second does not come about in time, the gap counts as lag, as it would without it. The thread is not pinned, so it needs a
// CPU to spare for that moment.
func (s *Sender) relieveAll(turns uint64, stop <-chan struct{}) {
	r := relief{s: s, stop: stop, tick: time.NewTicker(time.Millisecond)}
	defer r.tick.Stop()
	before := max(turns/2, turns-min(turns, uint64(float64(reliefBefore)/s.idleNS)))
	for {
		r.made = s.made.Load()
		if !r.until(func() bool { return r.renewing() || s.turned(0).Turn > before }) {
			return
		}
		if !r.renewing() {
			if s.loadRelief() != nil {
				return
			}
			r.relieve(uint32(min(float64(10*reliefBefore)/s.idleNS, math.MaxUint32)))
		}
	}
}

// relief is the bridging of one run.
type relief struct {
	s    *Sender
	stop <-chan struct{}
	tick *time.Ticker
	made uint64 // calls that had ended before the one in hand
}

// until waits until something is so, and reports false when the run ended before.
func (r *relief) until(done func() bool) bool {
	for {
		select {
		case <-r.stop:
			return false
		default:
		}
		if done() {
			return true
		}
		<-r.tick.C
	}
}

// renewing reports whether the call in hand has ended.
func (r *relief) renewing() bool { return r.s.made.Load() != r.made }

// relieve bridges one renewal by a call of at most so many turns.
func (r *relief) relieve(turns uint32) {
	s := r.s
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, _ = s.call(1, s.relief, turns) // when it fails, it never turns
	}()
	defer r.dismiss(ended)
	if !r.until(func() bool { return r.renewing() || s.turned(1).Fresh != 0 }) || r.renewing() || !s.handTo(1, r.until) {
		return
	}
	// Looking first: a signal to the next call, which is being set up, would end that one too.
	ending := func() bool {
		if r.renewing() {
			return true
		}
		s.interrupt(0)
		return false
	}
	if r.until(ending) && r.until(func() bool { return s.turned(0).Fresh != 0 }) && s.handTo(0, r.until) {
		s.bridged.Add(1)
	}
}

// dismiss ends the second call, whatever has happened, and sees to it that nobody hands over to it or waits for it.
func (r *relief) dismiss(ended <-chan struct{}) {
	s := r.s
	s.mu.Lock()
	_ = s.order(0)
	s.mu.Unlock()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-r.tick.C:
			s.interrupt(1)
		}
	}
	_ = s.objects.Instances.Put(uint32(1), &sendInstance{})
	// Was it ended as the owner, then the state has no writer now, and the first instance only looks whether it is its turn.
	if st, err := s.state(); err == nil && st.Owner == 1 {
		st.Owner = 0
		_ = s.put(&st)
	}
}

// handTo orders an instance to do the work and waits until it does.
func (s *Sender) handTo(instance uint32, until func(func() bool) bool) bool {
	s.mu.Lock()
	err := s.order(instance)
	s.mu.Unlock()
	return err == nil && until(func() bool {
		st, err := s.state()
		return err == nil && st.Owner == instance
	})
}

// turned reads what an instance has done in its call.
func (s *Sender) turned(instance uint32) (v sendInstance) {
	_ = s.objects.Instances.Lookup(instance, &v) // zeros mean that it does not turn
	return v
}

// loadRelief loads the second instance upon the maps of the first.
func (s *Sender) loadRelief() error {
	if s.relief != nil {
		return nil
	}
	spec, err := s.spec(1)
	if err != nil {
		return err
	}
	delete(spec.Programs, sendProgTransmitted)
	delete(spec.Programs, sendProgFailed)
	o := &s.objects
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		sendMapDevices: o.Devices, sendMapFeeds: o.Feeds, sendMapFlows: o.Flows, sendMapInstances: o.Instances, sendMapLags: o.Lags,
		sendMapOrders: o.Orders, sendMapSegments: o.Segments, sendMapStates: o.States, sendMapTimes: o.Times,
		sendMapQueues: o.Queues, sendMapUnsents: o.Unsents, sendMapGaps: o.Gaps,
	}})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer c.Close()
	s.relief = c.DetachProgram(sendProgSend)
	return nil
}
