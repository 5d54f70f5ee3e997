//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"math"
	"sync/atomic"
	"syscall"
	"testing"

	"blast/internal/ring"
)

// The kernel starts rings at 0, so 2^32 is reached here on a ring in ordinary memory, with the test as the kernel: entries
// and completions keep their order and number while all four indices wrap.
func TestIndexWrap(t *testing.T) {
	const size, total = 8, 64
	var words [4]atomic.Uint32
	for i := range words {
		words[i].Store(math.MaxUint32 - 20)
	}
	sq, err1 := ring.NewProducer(&words[0], &words[1], size)
	kernelSQ, err2 := ring.NewConsumer(&words[0], &words[1], size)
	kernelCQ, err3 := ring.NewProducer(&words[2], &words[3], size)
	cq, err4 := ring.NewConsumer(&words[2], &words[3], size)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	r := &Ring{sq: sq, cq: cq, sqes: make([]SQE, size), cqes: make([]CQE, size)}
	var sent, seen uint64
	for seen < total {
		for sent < total {
			s := r.SQE()
			if s == nil {
				break
			}
			s.PrepNop()
			s.UserData = sent
			sent++
		}
		if room := r.Room(); sent < total && room != 0 {
			t.Fatalf("no entry although there is room for %d", room)
		}
		if sent < total && sent%5 == 0 { // take one back now and then
			sent -= uint64(r.Unget(1))
		}
		if err := r.publish(); err != nil {
			t.Fatal(err)
		}
		take := min(kernelSQ.Peek(3), kernelCQ.Room(3)) // the kernel is slower than we are
		for k := range take {
			e := r.sqes[(kernelSQ.Index()+k)&kernelSQ.Mask()]
			r.cqes[(kernelCQ.Index()+k)&kernelCQ.Mask()] = CQE{UserData: e.UserData}
		}
		kernelSQ.Release(take)
		kernelCQ.Publish(take)
		r.consumed(int(take))
		for ; r.Ready() > 0; r.Advance(1) {
			if c := r.At(0); c.UserData != seen {
				t.Fatalf("completion %d, want %d", c.UserData, seen)
			}
			seen++
		}
	}
	if words[0].Load() > total || r.InFlight() != 0 || r.Queued() != 0 {
		t.Fatalf("tail %d did not wrap; %d in flight, %d queued", words[0].Load(), r.InFlight(), r.Queued())
	}
}

// What enter answers is back-pressure, misuse, or fatal.
func TestEnterError(t *testing.T) {
	r := &Ring{}
	for errno, want := range map[syscall.Errno]error{syscall.EAGAIN: nil, syscall.EBUSY: nil, syscall.EEXIST: ErrThread, syscall.EBADR: ErrLost, syscall.EBADF: syscall.EBADF} {
		if err := r.enterError(errno); !errors.Is(err, want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if r.counters.Again != 1 || r.counters.Busy != 1 {
		t.Errorf("%+v", r.counters)
	}
}
