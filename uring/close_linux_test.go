//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/testskip"
)

// Closing with everything in flight gives everything back: descriptors, mappings, kernel threads, and the socket's port.
func TestKernelCloseInFlight(t *testing.T) {
	testskip.IOUring(t, Probe())
	cycle := func(t *testing.T, cfg Config) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
		at := local(t, fd)
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.RegisterFiles([]int32{int32(fd)}), r.RegisterBuffers([][]byte{r.region.Bytes()[:4096]})); err != nil {
			t.Fatal(err)
		}
		bufs, err := r.NewBufRing(0, 8, 256)
		if err != nil {
			t.Fatal(err)
		}
		rx, err := r.NewReceiver(ReceiverConfig{FD: 0, Fixed: true, Buffers: bufs, Source: true})
		if err != nil || !rx.Arm() {
			t.Fatal(err)
		}
		b, _ := r.Arena().Bytes(64, 64)
		ts, _ := r.Arena().Timespecs(1)
		ts[0].Set(time.Hour)
		r.SQE().PrepRecv(fd, b, 0)
		r.SQE().PrepTimeout(&ts[0], 0, 0)
		s := r.SQE()
		s.PrepRecv(fd, b, 0)
		s.Flags |= Async // a kernel worker thread blocks in it
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		r.SQE().PrepNop() // handed out, never submitted
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(); !errors.Is(err, os.ErrClosed) || r.SQE() != nil || r.Ready() != 0 || r.Completions(make([]CQE, 1)) != 0 {
			t.Fatalf("a closed ring still works: %v", err)
		}
		unix.Close(fd)
		// The port is free at once: no request of the dead ring holds the socket. A polling thread drops its last reference
		// just after the completion, so there it may take a moment.
		again, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		for try := 0; err != nil && cfg.SQPoll && try < 100; try++ {
			time.Sleep(10 * time.Millisecond)
			again, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		}
		if err != nil {
			t.Fatalf("port of the closed socket: %v", err)
		}
		again.Close()
	}
	for name, cfg := range map[string]Config{"deferred": {ArenaBytes: 1 << 17}, "bare": {ArenaBytes: 1 << 17, Avoid: SubmitAll | SingleIssuer | CoopTaskrun | NoSQArray},
		"polling": {ArenaBytes: 1 << 17, SQPoll: true, SQPollIdle: 10 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cycle(t, cfg) // warm up what the runtime and the kernel allocate once
			fds, maps := openFDs(t), ringMaps(t)
			for range 10 {
				cycle(t, cfg)
			}
			if diff := cmp.Diff(fds, openFDs(t)); diff != "" {
				t.Errorf("descriptors:\n%s", diff)
			}
			if now := ringMaps(t); now != maps {
				t.Errorf("%d mappings of rings and arenas, %d before", now, maps)
			}
			var left []string
			for range 100 { // kernel threads end on their own time
				if left = kernelThreads(t); len(left) == 0 {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if len(left) != 0 {
				t.Errorf("kernel threads left: %v", left)
			}
		})
	}
}

// ringMaps counts mappings of ring descriptors, and of memory kept out of forks (dc in VmFlags): the arenas.
func ringMaps(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(b), "[io_uring]")
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "VmFlags:") && slices.Contains(strings.Fields(line), "dc") && !slices.Contains(strings.Fields(line), "io") {
			n++
		}
	}
	return n
}

func kernelThreads(t testing.TB) []string {
	t.Helper()
	es, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		if b, err := os.ReadFile("/proc/self/task/" + e.Name() + "/comm"); err == nil && strings.HasPrefix(string(b), "iou-") {
			out = append(out, strings.TrimSpace(string(b)))
		}
	}
	return out
}
