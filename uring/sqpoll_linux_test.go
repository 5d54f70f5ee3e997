//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"blast/internal/sys"
)

// With SQPOLL a kernel thread sends; its id and CPU time are known.
func TestKernelSQPoll(t *testing.T) {
	r := testRing(t, Config{Entries: 64, ArenaBytes: 1 << 16, SQPoll: true, SQPollIdle: 20 * time.Millisecond, SQPollPin: true, SQPollCPU: 0}, sys.URingSetup)
	fd, peer := udpPair(t)
	b, _ := r.Arena().Bytes(64, 64)
	for i := range uint64(200) {
		if i == 100 {
			eventually(t, "the thread to fall asleep", func() bool { return r.sqFlags.Load()&sys.IORING_SQ_NEED_WAKEUP != 0 })
		}
		fill(b, i)
		r.SQE().PrepSend(fd, b, 0)
		if n, err := r.SubmitAndWait(1, 5*time.Second); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if c := r.At(0); c.Res != 64 {
			t.Fatalf("%+v", c)
		}
		r.Advance(1)
		var got [100]byte
		if n, err := peer.Read(got[:]); err != nil || n != 64 || binary.LittleEndian.Uint64(got[:]) != i {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if r.Counters().Wakeups == 0 {
		t.Error("a sleeping thread was never woken")
	}
	d, err := r.SQThreadTime()
	if err != nil || d <= 0 || r.Granted().SQThread <= 0 {
		t.Errorf("thread %d used %v, %v", r.Granted().SQThread, d, err)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", r.Granted().SQThread))
	if err != nil || !strings.HasPrefix(string(comm), "iou-sqp-") {
		t.Errorf("thread is %q, %v", comm, err)
	}
	// Without waiting: published entries are consumed by themselves.
	for range 50 {
		r.SQE().PrepNop()
	}
	if n, err := r.Submit(); n != 50 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	submitAndWait(t, r, 50)
	eventually(t, "the entries to be free", func() bool { return r.Queued() == 0 && r.Room() == 64 })
}
