//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testskip"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name))
	}
	goleak.VerifyTestMain(m)
}

// testRing makes a ring on the test's own thread and closes it there.
func testRing(t testing.TB, cfg Config, setup setupFunc) *Ring {
	t.Helper()
	if err := Probe(); err != nil {
		testskip.Skip(t, "io_uring", err.Error(), "see the reason")
	}
	runtime.LockOSThread()
	r, err := newRing(cfg, setup)
	if err != nil {
		runtime.UnlockOSThread()
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs on the test's goroutine, which is still locked
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	return r
}

func submitAndWait(t testing.TB, r *Ring, want int) {
	t.Helper()
	if _, err := r.SubmitAndWait(want, 5*time.Second); err != nil {
		t.Fatalf("waiting for %d completions, %d are there: %v", want, r.Ready(), err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10s for %s", what)
		}
	}
}

func openFDs(t testing.TB) []string {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(to, "/proc/") {
			out = append(out, e.Name()+" "+to)
		}
	}
	return out
}

// udpPair is two connected loopback sockets; the second is plain, with a read deadline.
func udpPair(t testing.TB) (fd int, peer *net.UDPConn) {
	t.Helper()
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	_ = peer.SetReadBuffer(4 << 20)
	if err := peer.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: peer.LocalAddr().(*net.UDPAddr).Port}); err != nil {
		t.Fatal(err)
	}
	return fd, peer
}

func local(t testing.TB, fd int) netip.AddrPort {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := sa.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// grow moves the goroutine's stack, several times over, and leaves rubbish where it was.
func grow(depth int) byte {
	var pad [1024]byte
	for i := range pad {
		pad[i] = byte(depth + i)
	}
	if depth == 0 {
		return pad[7]
	}
	return pad[depth%1024] ^ grow(depth-1)
}

func fill(b []byte, seq uint64) {
	for i := range b {
		b[i] = byte(uint64(i)*7 + seq*13 + seq>>8)
	}
	binary.LittleEndian.PutUint64(b, seq)
}

// sendWays are all the ways to send, each as the part that differs.
func sendWays(r *Ring) map[string]func(s *SQE, fd int, b []byte, m *Message, to *Sockaddr) {
	ways := map[string]func(s *SQE, fd int, b []byte, m *Message, to *Sockaddr){
		"SEND":       func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSend(fd, b, 0) },
		"SEND fixed": func(s *SQE, _ int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSend(1, b, 0); s.Flags |= FixedFile },
		"SENDMSG":    func(s *SQE, fd int, b []byte, m *Message, _ *Sockaddr) { m.Payload(b); s.PrepSendMsg(fd, m, 0) },
	}
	if r.Granted().Ops.Has(OpSendZC) {
		ways["SEND_ZC"] = func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSendZC(fd, b, 0, true) }
		ways["SEND_ZC registered buffer"] = func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) {
			s.PrepSendZC(fd, b, 0, true)
			s.FixedBuffer(0)
		}
	}
	if r.Granted().Ops.Has(OpSendMsgZC) {
		ways["SENDMSG_ZC"] = func(s *SQE, fd int, b []byte, m *Message, _ *Sockaddr) {
			m.Payload(b)
			s.PrepSendMsgZC(fd, m, 0, true)
		}
		ways["SEND to address"] = func(s *SQE, fd int, b []byte, _ *Message, to *Sockaddr) { s.PrepSend(fd, b, 0); s.To(to) }
	}
	return ways
}

// Byte for byte, whatever the stack and the collector do between preparing and submitting: catches addresses of slice headers and
// of moved or freed objects, the classic faults of Go bindings.
func TestKernelContent(t *testing.T) {
	for kernel, known := range map[string]SetupFlags{"6.6": known66, "6.0": known60, "5.11": known511} {
		for _, name := range []string{"SEND", "SEND fixed", "SEND to address", "SENDMSG", "SEND_ZC", "SEND_ZC registered buffer", "SENDMSG_ZC"} {
			t.Run(kernel+"/"+name, func(t *testing.T) {
				r := testRing(t, Config{Entries: 64, CQEntries: 256, ArenaBytes: 1 << 20}, oldKernel(known))
				prep := sendWays(r)[name]
				if prep == nil {
					testskip.Skip(t, "io_uring-zc", name+" is unknown to this kernel", "Linux 6.1")
				}
				slots, err := r.Arena().Slots(32, 1400, 64)
				if err != nil {
					t.Fatal(err)
				}
				ms, err := r.Arena().Messages(32)
				if err != nil {
					t.Fatal(err)
				}
				tos, err := r.Arena().Sockaddrs(1)
				if err != nil {
					t.Fatal(err)
				}
				fd, peer := udpPair(t)
				if err := tos[0].Set(peer.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
					t.Fatal(err)
				}
				if err := r.RegisterFiles([]int32{-1, int32(fd)}); err != nil {
					t.Fatal(err)
				}
				if err := r.RegisterBuffers([][]byte{r.region.Bytes()}); err != nil {
					t.Fatal(err)
				}
				contentCheck(t, r, fd, peer, slots, ms, &tos[0], prep)
				if err := r.UnregisterBuffers(); err != nil || r.InFlight() != 0 {
					t.Fatalf("%d in flight, %v", r.InFlight(), err)
				}
			})
		}
	}
}

func contentCheck(t *testing.T, r *Ring, fd int, peer *net.UDPConn, slots [][]byte, ms []Message, to *Sockaddr,
	prep func(*SQE, int, []byte, *Message, *Sockaddr)) {
	t.Helper()
	const total = 256
	got, want := make([]byte, 2048), make([]byte, 1400)
	for seq := uint64(0); seq < total; {
		n := min(len(slots), int(total-seq))
		for k := range n {
			size := 8 + int(seq+uint64(k))*5%1392
			fill(slots[k][:size], seq+uint64(k))
			s := r.SQE()
			prep(s, fd, slots[k][:size], &ms[k], to)
			s.UserData = uint64(k)
		}
		done := make(chan byte)
		go func() { done <- grow(200) }() // another stack, and garbage for the collector
		grow(300)
		<-done
		runtime.GC()
		results, finals, notified := 0, 0, 0
		for finals < n {
			submitAndWait(t, r, 1)
			for ; r.Ready() > 0; r.Advance(1) {
				c := r.At(0)
				if err := c.Err(); err != nil {
					t.Fatalf("send %d: %v", c.UserData, err)
				}
				switch {
				case c.Notification():
					notified++
					if !c.Copied() { // skb_orphan_frags_rx: loopback always copies
						t.Fatal("zero-copy on loopback went without a copy")
					}
				case int(c.Res) != 8+int(seq+c.UserData)*5%1392:
					t.Fatalf("send %d: %d bytes", c.UserData, c.Res)
				default:
					results++
				}
				if c.Done() {
					finals++
				}
			}
		}
		if results != n || notified != 0 && notified != n {
			t.Fatalf("%d results and %d notifications for %d sends", results, notified, n)
		}
		for k := range n {
			size, err := peer.Read(got)
			if err != nil {
				t.Fatal(err)
			}
			w := want[:8+int(seq+uint64(k))*5%1392]
			fill(w, seq+uint64(k))
			if !bytes.Equal(got[:size], w) {
				t.Fatalf("datagram %d: %d bytes differ from the %d sent", seq+uint64(k), size, len(w))
			}
		}
		seq += uint64(n)
	}
}

// GSO by control message: one entry leaves as three datagrams.
func TestKernelSegments(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 16}, sys.URingSetup)
	fd, peer := udpPair(t)
	b, _ := r.Arena().Bytes(2500, 64)
	fill(b, 3)
	iov, _ := r.Arena().Iovecs(2)
	iov[0].Set(b[:700])
	iov[1].Set(b[700:])
	ms, err := r.Arena().Messages(1)
	if err != nil {
		t.Fatal(err)
	}
	ms[0].Vector(iov)
	if err := ms[0].Segment(1000); err != nil {
		t.Fatal(err)
	}
	r.SQE().PrepSendMsg(fd, &ms[0], 0)
	submitAndWait(t, r, 1)
	if c := r.At(0); c.Res != 2500 {
		t.Fatalf("%+v", c)
	}
	var whole []byte
	got := make([]byte, 4096)
	for _, size := range []int{1000, 1000, 500} {
		n, err := peer.Read(got)
		if err != nil || n != size {
			t.Fatalf("%d bytes, %v, want %d", n, err, size)
		}
		whole = append(whole, got[:n]...)
	}
	if !bytes.Equal(whole, b) {
		t.Fatal("content differs")
	}
}

// Memory that is not the arena's never reaches the kernel; the batch can be taken back.
func TestKernelForeignMemory(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 4096}, sys.URingSetup)
	fd, _ := udpPair(t)
	heap := make([]byte, 100)
	r.SQE().PrepNop()
	r.SQE().PrepSend(fd, heap, 0)
	if n, err := r.Submit(); n != 0 || !errors.Is(err, ErrForeign) {
		t.Fatalf("%d, %v", n, err)
	}
	if n := r.Unget(100); n != 2 || r.Queued() != 0 {
		t.Fatalf("took %d back, %d queued", n, r.Queued())
	}
	if n, err := r.Submit(); n != 0 || err != nil {
		t.Fatalf("after taking back: %d, %v", n, err)
	}
	if err := r.RegisterBuffers([][]byte{heap}); !errors.Is(err, ErrForeign) {
		t.Fatalf("registered: %v", err)
	}
}

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

// Closing with everything in flight gives everything back: descriptors, mappings, kernel threads, and the socket's port.
func TestKernelCloseInFlight(t *testing.T) {
	if err := Probe(); err != nil {
		testskip.Skip(t, "io_uring", err.Error(), "see the reason")
	}
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

// Multishot receive: content and source are right, an exhausted buffer ring is counted and armed again, and the 16-bit tail of the
// buffer ring wraps.
func TestKernelReceiver(t *testing.T) {
	for source, rounds := range map[bool]uint64{true: 300, false: 3400} {
		t.Run(fmt.Sprintf("source=%v", source), func(t *testing.T) {
			r := testRing(t, Config{Entries: 16, CQEntries: 64, ArenaBytes: BufRingBytes(8, 2048) + 4096}, sys.URingSetup)
			fd, peer := udpPair(t)
			bufs, err := r.NewBufRing(3, 8, 2048)
			if err != nil {
				t.Fatal(err)
			}
			rx, err := r.NewReceiver(ReceiverConfig{FD: fd, UserData: 42, Buffers: bufs, Source: source})
			if err != nil {
				t.Fatal(err)
			}
			to := net.UDPAddrFromAddrPort(local(t, fd))
			want := make([]byte, 1400)
			next := uint64(0)
			for round := range rounds {
				for i := range uint64(20) { // more than there are buffers
					seq := round*20 + i
					w := want[:8+seq%1392]
					fill(w, seq)
					if _, err := peer.WriteToUDP(w, to); err != nil {
						t.Fatal(err)
					}
				}
				for next < (round+1)*20 {
					if !rx.Arm() {
						t.Fatal("could not arm")
					}
					submitAndWait(t, r, 1)
					var cqes [4]CQE
					n := r.Completions(cqes[:])
					for _, c := range cqes[:n] {
						d, ok, err := rx.Take(c)
						if err != nil || c.UserData != 42 {
							t.Fatalf("%+v: %v", c, err)
						}
						if !ok {
							continue
						}
						w := want[:8+next%1392]
						fill(w, next)
						if !bytes.Equal(d.Payload, w) {
							t.Fatalf("datagram %d differs", next)
						}
						if source && d.Source != peer.LocalAddr().(*net.UDPAddr).AddrPort() {
							t.Fatalf("source %v", d.Source)
						}
						next++
						rx.Recycle(d)
					}
				}
			}
			if rx.Starved == 0 || rx.Armed < 2 {
				t.Errorf("20 datagrams for 8 buffers never exhausted them: starved %d, armed %d", rx.Starved, rx.Armed)
			}
			bufs.Commit()
			if bufs.Free() != 8 {
				t.Errorf("%d of 8 buffers are back", bufs.Free())
			}
		})
	}
}

// Holding every buffer stops the receive without spinning; giving one back lets it go on.
func TestKernelReceiverHoldsAll(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: BufRingBytes(2, 256) + 4096}, sys.URingSetup)
	fd, peer := udpPair(t)
	bufs, err := r.NewBufRing(0, 2, 256)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: fd, Buffers: bufs, Source: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := peer.WriteToUDP([]byte{byte(i)}, net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
			t.Fatal(err)
		}
	}
	rx.Arm()
	submitAndWait(t, r, 3) // two datagrams and the end
	var held []Datagram
	var cqes [4]CQE
	for _, c := range cqes[:r.Completions(cqes[:])] {
		if d, ok, err := rx.Take(c); err != nil {
			t.Fatal(err)
		} else if ok {
			held = append(held, d)
		}
	}
	if len(held) != 2 || rx.Starved != 1 || rx.Arm() {
		t.Fatalf("%d held, starved %d", len(held), rx.Starved)
	}
	rx.Recycle(held[0])
	if !rx.Arm() {
		t.Fatal("a free buffer does not arm")
	}
	submitAndWait(t, r, 1)
	if d, ok, err := rx.Take(r.At(0)); !ok || err != nil || d.Payload[0] != 2 || held[1].Payload[0] != 1 {
		t.Fatalf("third datagram: %+v %v %v", d, ok, err)
	}
}

// RECVMSG into the arena tells source, control data and truncation.
func TestKernelRecvMsg(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 14}, sys.URingSetup)
	fd, peer := udpPair(t)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		t.Fatal(err)
	}
	b, _ := r.Arena().Bytes(10, 64)
	ms, err := r.Arena().Messages(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := ms[0].ForReceive(b, MessageControl); err != nil {
		t.Fatal(err)
	}
	r.SQE().PrepRecvMsg(fd, &ms[0], 0)
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.WriteToUDP([]byte("longer than ten"), net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
		t.Fatal(err)
	}
	submitAndWait(t, r, 1)
	if c := r.At(0); c.Res != 10 || string(b) != "longer tha" || !ms[0].Truncated() || ms[0].Source() != peer.LocalAddr().(*net.UDPAddr).AddrPort() {
		t.Fatalf("%+v %q %v %v", c, b, ms[0].Truncated(), ms[0].Source())
	}
	if cms, err := unix.ParseSocketControlMessage(ms[0].Control()); err != nil || len(cms) != 1 || cms[0].Header.Type != unix.SCM_TIMESTAMPNS {
		t.Fatalf("%+v, %v", cms, err)
	}
}

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
		testskip.Skip(t, "io_uring-napi", err.Error(), "a kernel from 6.9 with CONFIG_NET_RX_BUSY_POLL")
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

// An ICMP error ends the receive with its errno; the next Arm goes on.
func TestKernelReceiverError(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: BufRingBytes(4, 256) + 4096}, sys.URingSetup)
	fd, peer := udpPair(t)
	bufs, err := r.NewBufRing(0, 4, 256)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: fd, Buffers: bufs, UserData: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := peer.LocalAddr().(*net.UDPAddr)
	peer.Close()
	b, _ := r.Arena().Bytes(8, 8)
	rx.Arm()
	s := r.SQE()
	s.PrepSend(fd, b, 0)
	s.UserData = 2
	submitAndWait(t, r, 2)
	for ; r.Ready() > 0; r.Advance(1) {
		c := r.At(0)
		if c.UserData == 2 {
			continue
		}
		if _, ok, err := rx.Take(c); ok || !errors.Is(err, syscall.ECONNREFUSED) || c.More() {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	again, err := net.ListenUDP("udp4", at)
	if err != nil {
		t.Skipf("somebody took port %d meanwhile: %v", at.Port, err)
	}
	defer again.Close()
	if !rx.Arm() || rx.Armed != 2 {
		t.Fatal("not armed again")
	}
	if _, err := again.WriteToUDP([]byte("back"), net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
		t.Fatal(err)
	}
	submitAndWait(t, r, 1)
	if d, ok, err := rx.Take(r.At(0)); !ok || err != nil || string(d.Payload) != "back" {
		t.Fatalf("%q %v %v", d.Payload, ok, err)
	}
}

// Nothing in the loop allocates: sending in three ways, taking completions, receiving, waiting.
func TestKernelAllocs(t *testing.T) {
	r := testRing(t, Config{Entries: 64, CQEntries: 256, ArenaBytes: 1<<17 + BufRingBytes(64, 256)}, sys.URingSetup)
	fd, _ := udpPair(t)
	self, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(self)
	if err := unix.Bind(self, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	slots, _ := r.Arena().Slots(15, 100, 64)
	ms, _ := r.Arena().Messages(15)
	to, _ := r.Arena().Sockaddrs(1)
	bufs, err := r.NewBufRing(0, 64, 256)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.RegisterFiles([]int32{int32(fd), int32(self)}), to[0].Set(local(t, self))); err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: 1, Fixed: true, UserData: 99, Buffers: bufs, Source: true})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Granted().Ops.HasSendTo() {
		testskip.Skip(t, "io_uring-sendto", "SEND takes no address here", "Linux 6.1")
	}
	cqes := make([]CQE, 64)
	var failed error
	received := 0
	take := func() {
		for n := r.Completions(cqes); n > 0; n = r.Completions(cqes) {
			for _, c := range cqes[:n] {
				if c.UserData != 99 {
					continue
				}
				if d, ok, err := rx.Take(c); ok {
					received++
					rx.Recycle(d)
				} else if err != nil {
					failed = err
				}
			}
		}
	}
	if n := testing.AllocsPerRun(200, func() {
		rx.Arm()
		for i, b := range slots {
			s := r.SQE()
			switch i % 3 {
			case 0:
				s.PrepSend(0, b, unix.MSG_DONTWAIT)
				s.Flags |= FixedFile
			case 1:
				ms[i].Payload(b)
				s.PrepSendMsg(fd, &ms[i], unix.MSG_DONTWAIT)
			default:
				s.PrepSend(self, b, unix.MSG_DONTWAIT)
				s.To(&to[0])
			}
		}
		if _, err := r.Submit(); err != nil {
			failed = err
		}
		take()
		if _, err := r.SubmitAndWait(1, time.Microsecond); err != nil && err != os.ErrDeadlineExceeded {
			failed = err
		}
		take()
	}); n != 0 || failed != nil || received < 500 {
		t.Fatalf("%v allocations per batch, %d received, %v", n, received, failed)
	}
}

func BenchmarkSendFixedFile(b *testing.B) {
	for _, mode := range []struct {
		name string
		cfg  Config
	}{
		{"deferred", Config{}},
		{"deferred-syscall", Config{RawBatch: -1}},
		{"deferred-unchecked", Config{ForeignMemory: true}},
		{"coop", Config{Avoid: DeferTaskrun}},
		{"bare", Config{Avoid: SubmitAll | SingleIssuer | CoopTaskrun | NoSQArray}},
	} {
		b.Run(mode.name, func(b *testing.B) { benchmarkSend(b, mode.cfg) })
	}
}

func benchmarkSend(b *testing.B, cfg Config) {
	const batch = 64
	cfg.Entries, cfg.CQEntries, cfg.ArenaBytes = batch, 4*batch, batch*128
	r := testRing(b, cfg, sys.URingSetup)
	fd, _ := udpPair(b) // nobody reads: the receiver's buffer fills and the kernel drops, which costs the sender the same path
	if err := r.RegisterFiles([]int32{int32(fd)}); err != nil {
		b.Fatal(err)
	}
	slots, err := r.Arena().Slots(batch, 64, 64)
	if err != nil {
		b.Fatal(err)
	}
	cqes := make([]CQE, batch)
	sent := 0
	b.ReportAllocs()
	b.ResetTimer()
	for sent < b.N {
		for i := range min(batch, b.N-sent) {
			s := r.SQE()
			s.PrepSend(0, slots[i], unix.MSG_DONTWAIT)
			s.Flags |= FixedFile
		}
		n, err := r.Submit()
		if err != nil {
			b.Fatal(err)
		}
		sent += n
		for done := 0; done < n; {
			k := r.Completions(cqes)
			for _, c := range cqes[:k] {
				if c.Res != 64 {
					b.Fatalf("%+v", c)
				}
			}
			if done += k; k == 0 {
				if _, err := r.SubmitAndWait(1, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "pps")
}

func BenchmarkGettid(b *testing.B) {
	for b.Loop() {
		unix.Gettid()
	}
}
