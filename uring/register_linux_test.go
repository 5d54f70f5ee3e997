//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testskip"
)

func TestKernelFiles(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 4096}, sys.URingSetup)
	fd, peer := udpPair(t)
	if err := r.UpdateFiles(0, []int32{int32(fd)}); err == nil {
		t.Error("a table that is not there was updated")
	}
	if err := r.RegisterSparseFiles(4); err != nil {
		t.Fatal(err)
	}
	if err := r.UpdateFiles(3, []int32{int32(fd), int32(fd)}); err == nil {
		t.Error("an update beyond the table was accepted")
	}
	if err := r.UpdateFiles(2, []int32{int32(fd), 1 << 20}); err == nil || !errors.Is(err, syscall.EBADF) && !strings.Contains(err.Error(), "slot 3") {
		t.Errorf("bad descriptor in the second place: %v", err)
	}
	b, _ := r.Arena().Bytes(8, 8)
	copy(b, "slot two")
	for slot, want := range map[int]error{1: syscall.EBADF, 2: nil} {
		s := r.SQE()
		s.PrepSend(slot, b, 0)
		s.Flags |= FixedFile
		submitAndWait(t, r, 1)
		if err := r.At(0).Err(); err != want {
			t.Errorf("slot %d: %v", slot, err)
		}
		r.Advance(1)
	}
	got := make([]byte, 16)
	if n, err := peer.Read(got); err != nil || string(got[:n]) != "slot two" {
		t.Errorf("%q, %v", got[:n], err)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Cur < MaxFiles {
		err := r.RegisterSparseFiles(int(lim.Cur) + 1)
		if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), fmt.Sprint(lim.Cur)) || !strings.Contains(err.Error(), fmt.Sprintf("ulimit -n %d", lim.Cur+1)) {
			t.Errorf("more files than descriptors allowed: %v", err)
		}
	}
	if err := r.RegisterSparseFiles(MaxFiles + 1); err == nil {
		t.Error("more files than any kernel takes were accepted")
	}
}

// What cannot work is refused with a reason, leaves nothing behind, and does not harm the ring.
func TestKernelBadInput(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 20}, sys.URingSetup)
	bufs, err := r.NewBufRing(3, 4, 64)
	if err != nil || bufs.Group() != 3 || r.FD() < 0 {
		t.Fatal(err)
	}
	fds := openFDs(t)
	old := *r // the same ring on a kernel that knows less
	old.granted.Ops = OpSet{1 << OpSend}
	b, err := r.Arena().Bytes(64, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		err  func() error
		says string
	}{
		{"arena beyond memory", func() error { _, err := New(Config{ArenaBytes: 1 << 46}); return err }, "arena"},
		{"queue depth", func() error { _, err := New(Config{Entries: 1000}); return err }, "powers of two up to 32768"},
		{"CPU that is not there", func() error { _, err := New(Config{SQPoll: true, SQPollPin: true, SQPollCPU: 4000}); return err }, "CPU 4000"},
		{"group in use", func() error { _, err := r.NewBufRing(3, 4, 64); return err }, "group 3 is in use"},
		{"buffers not a power of two", func() error { _, err := r.NewBufRing(4, 5, 64); return err }, "power of two"},
		{"arena full", func() error { _, err := r.NewBufRing(4, 1024, 4096); return err }, "arena full"},
		{"slots beyond the arena", func() error { _, err := r.Arena().Slots(1<<40, 1<<40, 64); return err }, "arena full"},
		{"slots of nothing", func() error { _, err := r.Arena().Slots(1, 0, 64); return err }, "slots"},
		{"messages beyond the arena", func() error { _, err := r.Arena().Messages(1 << 30); return err }, "arena full"},
		{"receiver without buffers", func() error { _, err := r.NewReceiver(ReceiverConfig{}); return err }, "Buffers missing"},
		{"receiver with buffers smaller than its header", func() error { _, err := r.NewReceiver(ReceiverConfig{Buffers: bufs, Control: 64}); return err }, "header alone"},
		{"receiver with absurd control data", func() error { _, err := r.NewReceiver(ReceiverConfig{Buffers: bufs, Control: 1 << 20}); return err }, "control data"},
		{"receiver on an old kernel", func() error { _, err := old.NewReceiver(ReceiverConfig{Buffers: bufs}); return err }, "run Linux 6.0 or newer"},
		{"zero copy on an old kernel", func() error { return old.CheckZeroCopy(1) }, "run Linux 6.0 or newer"},
		{"no files", func() error { return r.RegisterFiles(nil) }, "1 to 1048576"},
		{"bad descriptor", func() error { return r.RegisterFiles([]int32{1 << 20}) }, "bad file descriptor"},
		{"no buffers", func() error { return r.RegisterBuffers(nil) }, "1 to 16384"},
		{"nothing to unregister", func() error { return r.UnregisterBuffers() }, "unregister buffers"},
		{"feature of a newer kernel", func() error { return r.featureError("x", "9.9", syscall.EINVAL) }, "run Linux 9.9"},
	} {
		if err := tc.err(); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if diff := cmp.Diff(fds, openFDs(t)); diff != "" {
		t.Errorf("descriptors leaked:\n%s", diff)
	}
	if err := r.RegisterBuffers([][]byte{b}); err != nil {
		t.Errorf("a good set after all that: %v", err)
	}
	// A completion that names a buffer the group does not have is not believed.
	if _, _, ok := bufs.Take(CQE{Res: 10, Flags: FlagBuffer | 9<<16}); ok {
		t.Error("buffer 9 of 4")
	}
}

func TestKernelNAPI(t *testing.T) {
	r := testRing(t, Config{}, sys.URingSetup)
	if err := r.RegisterNAPI(0, false); err == nil {
		t.Error("no time at all was accepted")
	}
	if err := r.RegisterNAPI(50*time.Microsecond, true); errors.Is(err, errors.ErrUnsupported) {
		testskip.Skip(t, "io_uring", err.Error(), "a kernel from 6.9 with CONFIG_NET_RX_BUSY_POLL")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := r.UnregisterNAPI(); err != nil {
		t.Fatal(err)
	}
}

func TestKernelGranted(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 16, HugePages: true}, sys.URingSetup)
	g := r.Granted()
	if !g.Ops.Has(OpSend) || g.Ops.Has(250) || g.ArenaBytes < 1<<16 || g.Features == 0 {
		t.Errorf("%+v", g)
	}
	t.Log(g, "|", g.Features, "|", g.Ops)
	if r.Arena().Left() < 1<<16-64 {
		t.Errorf("%d bytes of the arena are left", r.Arena().Left())
	}
	if _, err := r.SQThreadTime(); err == nil {
		t.Error("a ring without kernel thread has one")
	}
}
