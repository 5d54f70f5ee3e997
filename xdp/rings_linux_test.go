package xdp

import (
	"errors"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// starts are ring indices to begin with: the wrap at 2^32 must not be seen.
var starts = []uint32{0, math.MaxUint32, math.MaxUint32 - 5, math.MaxUint32 - 100, math.MaxInt32 - 3}

// TestFrameConservation: whatever the two sides do in whatever order, each frame for sending is in exactly one place, no
// frame is written to while the kernel has it, packets leave in order of commit, and committed = sent + dropped + outstanding.
func TestFrameConservation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const frames = 16
		s, _, k := fake(t, rapid.SampledFrom(starts).Draw(rt, "start"), frames, 0, rapid.IntRange(1, 12).Draw(rt, "batch"))
		k.budget = rapid.IntRange(1, 8).Draw(rt, "budget")
		k.keep = true
		s.zeroCopy = rapid.Bool().Draw(rt, "zero-copy")
		if !s.zeroCopy {
			s.txFlags.Store(unix.XDP_RING_NEED_WAKEUP)
		}
		var next, committed uint64
		var reserved []*Frame
		var sum Completed
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				reserved = s.reserve(rapid.IntRange(0, 14).Draw(rt, "n"))
				for _, f := range reserved {
					put(f, next) // overwritten when reserved again: the kernel must never see it change
					next++
				}
			},
			"commit": func(rt *rapid.T) {
				n := rapid.IntRange(0, len(reserved)).Draw(rt, "n")
				for i := range n {
					put(reserved[i], committed+uint64(i))
				}
				got, err := s.commit(n)
				if err != nil || got != n {
					rt.Fatalf("commit %d: %d, %v", n, got, err)
				}
				committed += uint64(n)
				reserved = nil
			},
			"reap": func(rt *rapid.T) {
				c, err := s.reap(nil)
				if err != nil {
					rt.Fatal(err)
				}
				sum.Sent += c.Sent
				sum.Dropped += c.Dropped
				reserved = nil
			},
			"driver takes": func(rt *rapid.T) { k.take(rapid.IntRange(0, 5).Draw(rt, "n")) },
			"driver completes": func(rt *rapid.T) {
				if len(k.inFlight) > 0 && !k.complete(rapid.IntRange(0, len(k.inFlight)-1).Draw(rt, "i")) {
					rt.Fatal("a packet changed while the kernel had it")
				}
			},
			"kernel changes": func(rt *rapid.T) {
				k.dropping = !s.zeroCopy && rapid.Bool().Draw(rt, "dropping")
				k.refuse = rapid.SampledFrom([]syscall.Errno{0, 0, unix.EAGAIN, unix.ENOBUFS, unix.EINTR}).Draw(rt, "refuse")
			},
			"": func(rt *rapid.T) {
				place := map[uint64]string{}
				at := func(addr uint64, where string) {
					if old, twice := place[addr]; twice {
						rt.Fatalf("frame %d is in %s and in %s", addr/fakeFrame, old, where)
					}
					place[addr] = where
				}
				for _, f := range s.free {
					at(f.address, "the free stack")
				}
				for _, f := range s.batch {
					at(f.address, "the batch")
				}
				out := 0
				for i := range k.tx.Ready() {
					at(k.txDesc[(k.tx.Index()+i)&k.tx.Mask()].Addr, "the transmit ring")
					out++
				}
				for _, f := range k.inFlight {
					at(f.desc.Addr, "flight")
					out++
				}
				for i := range k.cq.Used() {
					at(k.cqAddr[(k.cq.Index()-1-i)&k.cq.Mask()], "the completion ring")
					out++
				}
				if len(place) != frames {
					rt.Fatalf("%d of %d frames are somewhere", len(place), frames)
				}
				if int(s.outstanding) != out || committed != sum.Sent+sum.Dropped+uint64(out) {
					rt.Fatalf("outstanding %d, really %d; committed %d, %+v", s.outstanding, out, committed, sum)
				}
				if s.stats.Dropped+s.drops != s.stats.Busy && !s.zeroCopy {
					rt.Fatalf("%d drops, %d EBUSY", s.stats.Dropped+s.drops, s.stats.Busy)
				}
			},
		})
	})
}

// TestOrder: packets leave in the order of commit, with short commits and reserved frames given back in between.
func TestOrder(t *testing.T) {
	for _, start := range starts {
		s, _, k := fake(t, start, 8, 0, 4)
		for n := uint64(0); n < 100; {
			frames := s.reserve(4)
			for i, f := range frames {
				put(f, n+uint64(i))
			}
			got, err := s.commit(min(len(frames), int(n%4)+1))
			if err != nil {
				t.Fatal(err)
			}
			n += uint64(got)
			if _, err := s.reap(nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range k.sent {
			if n != uint64(i) {
				t.Fatalf("start %d: packet %d left in place %d", start, n, i)
			}
		}
	}
}

// TestReceiveConservation: the same for frames for receiving, and every packet is seen once, unchanged.
func TestReceiveConservation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const frames = 8
		_, r, k := fake(t, rapid.SampledFrom(starts).Draw(rt, "start"), 4, frames, rapid.IntRange(1, 6).Draw(rt, "batch"))
		var delivered, seen uint64
		rt.Repeat(map[string]func(*rapid.T){
			"driver takes buffers": func(rt *rapid.T) { k.accept(rapid.IntRange(0, 5).Draw(rt, "n")) },
			"packet": func(rt *rapid.T) {
				if len(k.buffers) > 0 {
					k.deliver(rapid.IntRange(0, len(k.buffers)-1).Draw(rt, "i"), delivered)
					delivered++
				}
			},
			"receive": func(rt *rapid.T) {
				for _, b := range r.receive(rapid.IntRange(0, 7).Draw(rt, "n")) {
					if n := number(b); n != seen || len(b) != 60 || cap(b) != 60 {
						rt.Fatalf("packet %d of %d bytes (capacity %d), want number %d", n, len(b), cap(b), seen)
					}
					seen++
				}
			},
			"recycle": func(*rapid.T) { r.recycle() },
			"": func(rt *rapid.T) {
				place := map[uint64]bool{}
				at := func(addr uint64) {
					if base := addr &^ (fakeFrame - 1); place[base] {
						rt.Fatalf("frame %d is in two places", base/fakeFrame)
					} else {
						place[base] = true
					}
				}
				for i := range k.fq.Ready() {
					at(k.fqAddr[(k.fq.Index()+i)&k.fq.Mask()])
				}
				for _, addr := range k.buffers {
					at(addr)
				}
				for i := range k.rx.Used() {
					at(k.rxDesc[(k.rx.Index()-1-i)&k.rx.Mask()].Addr)
				}
				for _, addr := range r.held {
					at(addr)
				}
				if len(place) != frames || r.stats.Foreign != 0 {
					rt.Fatalf("%d of %d frames are somewhere, %d foreign", len(place), frames, r.stats.Foreign)
				}
			},
		})
	})
}

// TestSoakAcrossWrap: a goroutine plays a zero-copy driver on both directions while the indices pass 2^32. With -race it shows that
// frame contents are ordered by the indices alone.
func TestSoakAcrossWrap(t *testing.T) {
	const total = 50_000
	s, r, k := fake(t, math.MaxUint32-total/2, 64, 64, 16)
	s.zeroCopy = true
	done := make(chan struct{})
	go func() { // the driver: loops every packet back
		defer close(done)
		for n := 0; n < total; {
			k.accept(8)
			if len(k.buffers) == 0 || k.take(1) == 0 {
				runtime.Gosched()
				continue
			}
			k.deliver(0, k.inFlight[0].number)
			if !k.complete(0) {
				t.Error("a packet changed while the driver had it")
			}
			n++
		}
	}()
	var sent, completed, received uint64
	for received < total {
		frames := s.reserve(int(min(16, total-sent)))
		for i, f := range frames {
			put(f, sent+uint64(i))
		}
		n, err := s.commit(len(frames))
		if err != nil {
			t.Fatal(err)
		}
		sent += uint64(n)
		c, err := s.reap(nil)
		if err != nil {
			t.Fatal(err)
		}
		completed += c.Sent
		for _, b := range r.receive(16) {
			if number(b) != received {
				t.Fatalf("packet %d came in place %d", number(b), received)
			}
			received++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	<-done
	if c, err := s.reap(nil); err != nil || completed+c.Sent != total {
		t.Fatalf("%d completed, %v", completed+c.Sent, err)
	}
	if at := k.tx.Index(); at != total/2-1 {
		t.Fatalf("the indices did not wrap: %d", at)
	}
}

// TestDropsAreNotSent: frames that the kernel consumes and drops (EBUSY) complete, but do not count as sent.
func TestDropsAreNotSent(t *testing.T) {
	s, _, k := fake(t, math.MaxUint32-2, 64, 0, 64)
	commit := func(n int) {
		t.Helper()
		for _, f := range s.reserve(n) {
			put(f, 0)
		}
		if got, err := s.commit(n); got != n || err != nil {
			t.Fatal(got, err)
		}
	}
	k.dropping = true
	commit(10)
	k.dropping = false
	commit(20)
	c, err := s.reap(nil)
	if err != nil || c != (Completed{Sent: 20, Dropped: 10}) || s.outstanding != 0 {
		t.Fatalf("%+v, %v, %d outstanding", c, err, s.outstanding)
	}
}

// TestKicks says how many system calls a commit costs, and that none of them loops for ever.
func TestKicks(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(s *sender, k *fakeKernel)
		frames int
		kicks  int
		left   int // still in the transmit ring
	}{
		{"one kick for what fits the budget", func(*sender, *fakeKernel) {}, 32, 1, 0},
		{"EAGAIN with progress is kicked again", func(*sender, *fakeKernel) {}, 64, 2, 0},
		{"EAGAIN without progress is left to Reap", func(_ *sender, k *fakeKernel) { k.refuse = unix.EAGAIN }, 64, 1, 64},
		{"ENOBUFS is left to Reap", func(_ *sender, k *fakeKernel) { k.refuse = unix.ENOBUFS }, 8, 1, 8},
		{"EINTR is retried, with a bound", func(_ *sender, k *fakeKernel) { k.refuse = unix.EINTR }, 8, 16, 8},
		{"every EBUSY is one frame", func(_ *sender, k *fakeKernel) { k.dropping = true }, 20, 20, 0},
		{"an awake driver needs no kick", func(s *sender, _ *fakeKernel) { s.zeroCopy = true }, 8, 0, 8},
		{"a sleeping driver is woken once", func(s *sender, _ *fakeKernel) {
			s.zeroCopy = true
			s.txFlags.Store(unix.XDP_RING_NEED_WAKEUP)
		}, 8, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, k := fake(t, math.MaxUint32, 64, 0, 64)
			c.set(s, k)
			for _, f := range s.reserve(c.frames) {
				put(f, 0)
			}
			if n, err := s.commit(c.frames); n != c.frames || err != nil {
				t.Fatal(n, err)
			}
			if k.kicks != c.kicks || int(k.tx.Ready()) != c.left {
				t.Fatalf("%d kicks, %d left in the ring; want %d and %d", k.kicks, k.tx.Ready(), c.kicks, c.left)
			}
			if s.zeroCopy && c.kicks == 0 && s.stats.KicksSpared != 1 {
				t.Error("the spared kick was not counted")
			}
			// Whatever was left behind leaves with the next reaps once the kernel is willing.
			k.refuse, k.dropping = 0, false
			s.txFlags.Store(unix.XDP_RING_NEED_WAKEUP)
			for range 4 {
				if _, err := s.reap(nil); err != nil {
					t.Fatal(err)
				}
			}
			if s.outstanding != 0 {
				t.Errorf("%d outstanding", s.outstanding)
			}
		})
	}
}

// TestRekick: zero-copy frames that lie although the kernel claims to need no kick are kicked after a while.
func TestRekick(t *testing.T) {
	s, _, k := fake(t, 0, 8, 0, 8)
	s.zeroCopy = true
	now := time.Second
	s.now = func() time.Duration { return now }
	put(s.reserve(1)[0], 0)
	if _, err := s.commit(1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.reap(nil); err != nil || k.kicks != 0 {
			t.Fatalf("%d kicks, %v", k.kicks, err)
		}
		now += rekick / 4
	}
	now += rekick
	if _, err := s.reap(nil); err != nil || k.kicks != 1 {
		t.Fatalf("%d kicks, %v", k.kicks, err)
	}
	if c, err := s.reap(nil); err != nil || c.Sent != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
}

// TestWatchdog: frames that never complete end in an error that says so, once formatted; it goes away when they do complete.
func TestWatchdog(t *testing.T) {
	s, _, k := fake(t, math.MaxUint32, 8, 0, 8)
	now := time.Second
	s.now = func() time.Duration { return now }
	k.refuse = unix.EAGAIN
	put(s.reserve(1)[0], 0)
	if _, err := s.commit(1); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if _, err := s.reap(nil); err != nil {
			t.Fatalf("after %s: %v", now, err)
		}
		now += s.stall / 9
	}
	now += s.stall / 8
	_, err := s.reap(nil)
	if !errors.Is(err, ErrStalled) {
		t.Fatalf("after %s: %v", now, err)
	}
	if _, again := s.reap(nil); again != err {
		t.Fatalf("the error is made anew: %v", again)
	}
	// A sender that has nothing outstanding is idle, not stalled.
	k.refuse = 0
	if _, err := s.reap(nil); !errors.Is(err, ErrStalled) {
		t.Fatal(err)
	}
	if c, err := s.reap(nil); err != nil || c.Sent != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	now += time.Hour
	if _, err := s.reap(nil); err != nil {
		t.Fatal(err)
	}
}

// TestFatalErrnos: an interface that is down may come back, a lost socket does not.
func TestFatalErrnos(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		stays bool
	}{{unix.ENETDOWN, false}, {unix.ENXIO, true}, {unix.EINVAL, true}, {unix.EBADF, true}} {
		s, _, k := fake(t, 0, 8, 0, 8)
		k.refuse = c.errno
		put(s.reserve(1)[0], 0)
		if n, err := s.commit(1); n != 1 || !errors.Is(err, c.errno) {
			t.Errorf("%v: %d, %v", c.errno, n, err)
		}
		k.refuse = 0
		if _, err := s.reap(nil); (err != nil) != c.stays {
			t.Errorf("%v: afterwards %v", c.errno, err)
		}
		_, err := s.commit(0)
		if (err != nil) != c.stays {
			t.Errorf("%v: commit afterwards %v", c.errno, err)
		}
	}
}

// TestFrameLengths: lengths that the wire would not carry are refused, the frames before them go out.
func TestFrameLengths(t *testing.T) {
	for _, c := range []struct {
		name   string
		len    int
		tagged bool
		ok     bool
	}{
		{"nothing", 0, false, false},
		{"less than an Ethernet header", 13, false, false},
		{"an Ethernet header", 14, false, true},
		{"the MTU", 1514, false, true},
		{"beyond the MTU", 1515, false, false},
		{"the MTU with a tag", 1518, true, true},
		{"beyond the MTU with a tag", 1519, true, false},
		{"beyond the frame", 2049, true, false},
	} {
		s, _, k := fake(t, 0, 8, 0, 8)
		frames := s.reserve(3)
		for _, f := range frames {
			put(f, 0)
		}
		frames[1].Len = c.len
		frames[1].Data[12], frames[1].Data[13] = 8, 0
		if c.tagged {
			frames[1].Data[12], frames[1].Data[13] = 0x81, 0
		}
		n, err := s.commit(3)
		if c.ok && (n != 3 || err != nil) || !c.ok && (n != 1 || !errors.Is(err, ErrFrameLength) || len(k.sent) != 1) {
			t.Errorf("%s: %d committed, %d sent, %v", c.name, n, len(k.sent), err)
		}
	}
}

// TestForeignAddresses: completions and packets that name no frame of ours are counted and change nothing.
func TestForeignAddresses(t *testing.T) {
	s, r, k := fake(t, math.MaxUint32, 4, 4, 4)
	for _, addr := range []uint64{0, 3 * fakeFrame, 4 * fakeFrame, 1 << 40, math.MaxUint64} {
		k.post(addr)
		if c, err := s.reap(nil); err != nil || c != (Completed{}) {
			t.Fatalf("address %#x: %+v, %v", addr, c, err)
		}
	}
	if s.stats.Foreign != 5 || len(s.free) != 4 {
		t.Errorf("%d foreign, %d free", s.stats.Foreign, len(s.free))
	}
	base := uint64(4 * fakeFrame)
	for _, d := range []unix.XDPDesc{
		{Addr: 0, Len: 60}, {Addr: base - 1, Len: 60}, {Addr: base + 4*fakeFrame, Len: 60}, {Addr: math.MaxUint64 - 10, Len: 60},
		{Addr: base + 2000, Len: 60}, {Addr: base, Len: math.MaxUint32},
	} {
		k.rx.Free() // reads the consumer's index afresh
		k.rxDesc[k.rx.Index()&k.rx.Mask()] = d
		k.rx.Publish(1)
		if got := r.receive(4); len(got) != 0 {
			t.Errorf("descriptor %+v: %d packets", d, len(got))
		}
	}
	if r.stats.Foreign != 6 {
		t.Errorf("%d foreign", r.stats.Foreign)
	}
}

// TestNoAllocations: neither half allocates.
func TestNoAllocations(t *testing.T) {
	s, r, k := fake(t, 0, 64, 64, 32)
	k.inFlight, k.buffers = make([]flying, 0, 64), make([]uint64, 0, 64)
	k.sent = make([]uint64, 0, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		for _, f := range s.reserve(32) {
			put(f, 1)
		}
		if _, err := s.commit(32); err != nil {
			t.Fatal(err)
		}
		if _, err := s.reap(nil); err != nil {
			t.Fatal(err)
		}
		k.accept(32)
		for range 32 {
			k.deliver(0, 1)
		}
		if len(r.receive(32)) != 32 {
			t.Fatal("packets lost")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkRings(b *testing.B) {
	s, _, k := fake(b, 0, 256, 0, 64)
	k.budget = 64
	b.ReportAllocs()
	for b.Loop() {
		k.sent = k.sent[:0]
		for _, f := range s.reserve(64) {
			f.Len = 60
		}
		_, _ = s.commit(64)
		_, _ = s.reap(nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/frame")
}
