//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// Another thread is refused by our own check, and would be by the kernel's.
func TestKernelSecondThread(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 16}, sys.URingSetup)
	r.SQE().PrepNop()
	var wg sync.WaitGroup
	elsewhere := func(fn func()) {
		wg.Go(func() {
			runtime.LockOSThread() // the test's own thread is locked, so this is another; it ends with the goroutine
			fn()
		})
		wg.Wait()
	}
	elsewhere(func() {
		_, submit := r.Submit()
		_, wait := r.SubmitAndWait(1, time.Second)
		_, bufs := r.NewBufRing(1, 8, 64)
		for what, err := range map[string]error{"Submit": submit, "SubmitAndWait": wait, "Close": r.Close(), "NewBufRing": bufs,
			"RegisterFiles": r.RegisterSparseFiles(1), "RegisterBuffers": r.RegisterBuffers([][]byte{r.region.Bytes()})} {
			if !errors.Is(err, ErrThread) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	if r.Granted().Flags&SingleIssuer != 0 {
		elsewhere(func() {
			_, errno := sys.URingEnter(r.fd, 0, 0, sys.IORING_ENTER_GETEVENTS, nil)
			if err := r.enterError(errno); errno != syscall.EEXIST || !errors.Is(err, ErrThread) {
				t.Errorf("the kernel says %v, we say %v", errno, err)
			}
			if err := sys.URingRegisterFiles(r.fd, []int32{-1}); !errors.Is(err, syscall.EEXIST) {
				t.Errorf("register: %v", err)
			}
		})
	}
	if n, err := r.Submit(); n != 1 || err != nil {
		t.Fatalf("the owner's own submission afterwards: %d, %v", n, err)
	}
}

// A completion queue that is too small loses nothing, and says so.
func TestKernelOverflow(t *testing.T) {
	for _, known := range []SetupFlags{known66, known60, known511} {
		r := testRing(t, Config{Entries: 8, CQEntries: 8}, oldKernel(known))
		for i := range uint64(40) {
			s := r.SQE()
			if s == nil {
				t.Fatalf("no entry after %d", i)
			}
			s.PrepNop()
			s.UserData = i
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
		c := r.Counters()
		if !c.Overflow || c.Backlogs == 0 || c.Lost != 0 {
			t.Fatalf("%v: overflow unseen: %+v", known, c)
		}
		seen := uint64(0)
		for seen < 40 {
			if _, err := r.Submit(); err != nil { // brings the backlog
				t.Fatal(err)
			}
			var cqes [3]CQE
			n := r.Completions(cqes[:])
			if n == 0 {
				t.Fatalf("%v: stuck after %d", known, seen)
			}
			for _, c := range cqes[:n] {
				if c.UserData != seen {
					t.Fatalf("%v: completion %d, want %d", known, c.UserData, seen)
				}
				seen++
			}
		}
		if c := r.Counters(); c.Overflow || c.Lost != 0 {
			t.Fatalf("%v: afterwards: %+v", known, c)
		}
	}
}

// A bad entry in the middle completes with its error and stops nobody, with and without SUBMIT_ALL.
func TestKernelPartialSubmission(t *testing.T) {
	for _, known := range []SetupFlags{known66, known511} {
		r := testRing(t, Config{Entries: 16}, oldKernel(known))
		for i := range uint64(9) {
			s := r.SQE()
			s.PrepNop()
			if i%3 == 1 {
				s.Op = 250
			}
			s.UserData = i
		}
		if n, err := r.Submit(); n != 9 || err != nil {
			t.Fatalf("%v: %d, %v", known, n, err)
		}
		submitAndWait(t, r, 9)
		for i := range 9 {
			c := r.At(i)
			var want error
			if c.UserData%3 == 1 {
				want = syscall.EINVAL
			}
			if c.Err() != want {
				t.Errorf("%v: entry %d: %v", known, c.UserData, c.Err())
			}
		}
	}
}

// A full submission queue hands out nil, and the order survives taking entries back.
func TestKernelQueueFull(t *testing.T) {
	r := testRing(t, Config{Entries: 4}, sys.URingSetup)
	for i := range uint64(4) {
		r.SQE().UserData = i
	}
	if r.SQE() != nil || r.Room() != 0 || r.Queued() != 4 {
		t.Fatalf("room %d, queued %d", r.Room(), r.Queued())
	}
	if n := r.Unget(1); n != 1 || r.Room() != 1 {
		t.Fatalf("took back %d, room %d", n, r.Room())
	}
	r.SQE().UserData = 9
	submitAndWait(t, r, 4)
	var got []uint64
	for i := range 4 {
		got = append(got, r.At(i).UserData)
	}
	if !slices.Equal(got, []uint64{0, 1, 2, 9}) {
		t.Fatalf("order %v", got)
	}
}

// Waiting ends at its deadline and no earlier, though the collector's signals interrupt it; TIMEOUT and ASYNC_CANCEL do what
// they say.
func TestKernelTimeouts(t *testing.T) {
	for _, known := range []SetupFlags{known66, known511} {
		r := testRing(t, Config{ArenaBytes: 4096}, oldKernel(known))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Tgkill(os.Getpid(), r.tid, unix.SIGURG)
					time.Sleep(time.Millisecond)
				}
			}
		})
		start := time.Now()
		_, err := r.SubmitAndWait(1, 60*time.Millisecond)
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took < 60*time.Millisecond {
			t.Errorf("%v: %v after %v", known, err, took)
		}
		if _, err := r.SubmitAndWait(1, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("polling: %v", err)
		}
		ts, _ := r.Arena().Timespecs(2)
		ts[0].Set(20 * time.Millisecond)
		ts[1].Set(time.Hour)
		s := r.SQE()
		s.PrepTimeout(&ts[0], 0, 0)
		s.UserData = 1
		if _, err := r.SubmitAndWait(1, -1); err != nil {
			t.Fatal(err)
		}
		if c := r.At(0); c.UserData != 1 || !errors.Is(c.Err(), syscall.ETIME) {
			t.Errorf("%v: timeout: %+v", known, c)
		}
		r.Advance(1)
		s = r.SQE()
		s.PrepTimeout(&ts[1], 0, 0)
		s.UserData = 2
		s = r.SQE()
		s.PrepCancel(2)
		s.UserData = 3
		submitAndWait(t, r, 2)
		got := map[uint64]int32{}
		for i := range 2 {
			got[r.At(i).UserData] = r.At(i).Res
		}
		if diff := cmp.Diff(map[uint64]int32{2: -int32(syscall.ECANCELED), 3: 0}, got); diff != "" {
			t.Errorf("%v: cancel (-want +got):\n%s", known, diff)
		}
		close(stop)
		wg.Wait()
	}
}
