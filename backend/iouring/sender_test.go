package iouring

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"blast/backend"
	"blast/internal/sys"
	"blast/uring"
)

// socket is a bound socket on loopback that the test reads.
func socket(t *testing.T) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return c, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}

func must(t *testing.T, cfg backend.Config) (backend.Sender, backend.Receiver) {
	t.Helper()
	s, r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// settle reaps until every one of n accepted slots has its fate, and returns what was told.
func settle(t *testing.T, s backend.Sender, n uint64) (sum backend.Completions) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); sum.Sent+sum.Dropped < n; {
		c := s.Reap()
		sum.Sent += c.Sent
		sum.Dropped += c.Dropped
		for i, k := range c.Refused {
			sum.Refused[i] += k
		}
		for i, k := range c.Events {
			sum.Events[i] += k
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slots: %+v", n, sum)
		}
	}
	return sum
}

// deep makes the stack grow and be copied, which moves everything on it.
func deep(n int) byte {
	var b [1024]byte
	if n > 0 {
		b[n%len(b)] = deep(n - 1)
	}
	return b[n%len(b)] + 1
}

// Every byte arrives as written although the stack moves and the collector runs between each two steps.
func TestContent(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  backend.Config
	}{
		{"plain", backend.Config{}},
		{"trains", backend.Config{GSO: 16}},
		{"kernel thread", backend.Config{SQPoll: true}},
		{"zero copy", backend.Config{GSO: 4, ZeroCopy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			own(t)
			conn, to := socket(t)
			c.cfg.Flows, c.cfg.PayloadBytes = []backend.Flow{{Dst: to}}, 1900
			c.cfg.Receive, c.cfg.Now = true, sys.Monotonic
			s, r := must(t, c.cfg)
			defer func() {
				if err := errors.Join(s.Close(), r.Close()); err != nil {
					t.Error(err)
				}
			}()
			buf := make([]byte, 1<<16)
			const rounds, batch = 60, 16
			for round := range rounds {
				slots := s.Reserve(batch)
				for i := range slots {
					n := round*batch + i
					slots[i].Len = 1900 - 37*round/4%1800
					fill(slots[i].Payload[:slots[i].Len], n)
				}
				go deep(0)
				deep(round * 16)
				runtime.GC()
				sent := len(slots)
				if n, err := s.Commit(sent); n != sent || err != nil {
					t.Fatalf("commit of %d: %d, %v", sent, n, err)
				}
				deep(round * 32)
				settle(t, s, uint64(sent))
				for i := range sent {
					n, from, err := conn.ReadFromUDPAddrPort(buf)
					if err != nil {
						t.Fatal(err)
					}
					intact(t, buf[:n], round*batch+i)
					if _, err := conn.WriteToUDPAddrPort(buf[:n], from); err != nil {
						t.Fatal(err)
					}
				}
				deep(round * 48)
				for got := 0; got < sent; {
					n, err := r.Poll(time.Second, func(p *backend.Packet) {
						deep(round)
						intact(t, p.Payload, round*batch+got)
						got++
					})
					if err != nil || n == 0 {
						t.Fatalf("%d of %d replies: %v", got, sent, err)
					}
				}
			}
		})
	}
}

func fill(b []byte, n int) {
	for i := range b {
		b[i] = byte(n + i*7 + i>>8)
	}
}

func intact(t *testing.T, b []byte, n int) {
	t.Helper()
	for i := range b {
		if b[i] != byte(n+i*7+i>>8) {
			t.Fatalf("packet %d: byte %d of %d is %#x", n, i, len(b), b[i])
		}
	}
}

// The same with freed memory overwritten and a collection at every opportunity.
func TestContentClobbered(t *testing.T) {
	own(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestContent$", "-test.timeout=300s")
	cmd.Env = append(os.Environ(), "GODEBUG=clobberfree=1", "GOGC=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Sender and Receiver are refused on any thread but their own, and work on after that.
func TestOtherThread(t *testing.T) {
	own(t)
	conn, to := socket(t)
	s, r := must(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 8, Receive: true, Now: sys.Monotonic})
	if _, err := r.Poll(0, func(*backend.Packet) {}); err != nil {
		t.Fatal(err)
	}
	elsewhere := func(fn func() error) error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread()
			result <- fn()
		}()
		return <-result
	}
	for what, fn := range map[string]func() error{
		"poll":           func() error { _, err := r.Poll(0, func(*backend.Packet) {}); return err },
		"receiver close": r.Close,
		"sender close":   s.Close,
	} {
		if err := elsewhere(fn); !errors.Is(err, uring.ErrThread) {
			t.Errorf("%s on another thread: %v", what, err)
		}
	}
	s.Reserve(1)[0].Len = 8
	if n, err := s.Commit(1); n != 1 || err != nil {
		t.Fatalf("commit on the right thread: %d, %v", n, err)
	}
	settle(t, s, 1)
	buf := make([]byte, 16)
	_, from, err := conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteToUDPAddrPort(buf[:8], from); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Poll(time.Second, func(*backend.Packet) {}); n != 1 || err != nil {
		t.Fatalf("poll on the right thread: %d, %v", n, err)
	}
	if err := elsewhere(func() error { s.Reserve(1); _, err := s.Commit(1); return err }); !errors.Is(err, uring.ErrThread) {
		t.Errorf("commit on another thread: %v", err)
	}
	if err := errors.Join(s.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// kept is what the process keeps of the kernel: descriptors, threads of rings, and mappings that stay out of forks (VmFlags dc), as
// arenas and queues do and nothing of the Go runtime does.
type kept struct{ files, threads, mappings int }

func holdings(t *testing.T) (k kept) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	k.files = len(files)
	for _, task := range tasks {
		if name, err := os.ReadFile("/proc/self/task/" + task.Name() + "/comm"); err == nil && strings.HasPrefix(string(name), "iou-") {
			k.threads++
		}
	}
	for line := range strings.Lines(string(smaps)) {
		if strings.HasPrefix(line, "VmFlags:") && strings.Contains(line, " dc ") {
			k.mappings++
		}
	}
	return k
}

// Closing while the kernel still sends, or holds memory and receives for us, gives everything back.
func TestCloseInFlight(t *testing.T) {
	own(t)
	_, to := socket(t)
	use := func(cfg backend.Config) {
		cfg.PayloadBytes, cfg.Receive, cfg.Now = 1900, true, sys.Monotonic
		for range 20 {
			cfg.Flows = append(cfg.Flows, backend.Flow{Dst: to})
		}
		s, r := must(t, cfg)
		for range 3 {
			slots := s.Reserve(64)
			for i := range slots {
				slots[i].Len, slots[i].Flow = 1900, i%20
			}
			if _, err := s.Commit(len(slots)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Poll(0, func(*backend.Packet) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	modes := []backend.Config{{}, {SQPoll: true}, {ZeroCopy: true}, {GSO: 8, ZeroCopy: true, SQPoll: true}}
	for _, cfg := range modes {
		use(cfg)
	}
	routines, before := goleak.IgnoreCurrent(), holdings(t)
	before.threads = 0 // those of the rings above may not have ended yet
	for range 3 {
		for _, cfg := range modes {
			use(cfg)
		}
	}
	after := holdings(t)
	for deadline := time.Now().Add(10 * time.Second); after != before && time.Now().Before(deadline); after = holdings(t) {
		time.Sleep(10 * time.Millisecond) // a kernel thread ends after the ring's descriptor
	}
	if after != before {
		t.Errorf("before: %+v; after: %+v", before, after)
	}
	s, _ := must(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, SQPoll: true})
	if open := holdings(t); open.files <= before.files || open.threads == 0 || open.mappings <= before.mappings {
		t.Errorf("an open sender is not seen: %+v", open)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(routines); err != nil {
		t.Error(err)
	}
}

// What cannot be honoured is refused with the numbers and the way out.
func TestBadInput(t *testing.T) {
	own(t)
	_, to := socket(t)
	good := backend.Flow{Dst: to}
	for _, c := range []struct {
		about string
		cfg   backend.Config
		says  []string
	}{
		{"a batch that no queue holds", backend.Config{Flows: []backend.Flow{good}, Batch: maxBatch + 1}, []string{"batch of 16385", "at most 16384", "32768"}},
		{"an interface", backend.Config{Flows: []backend.Flow{good}, Interface: "lo"}, []string{"interface", "route"}},
	} {
		if _, _, err := Open(c.cfg); err == nil {
			t.Errorf("%s: opened", c.about)
		} else {
			for _, w := range append(c.says, "io_uring: ") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %q does not say %q", c.about, err, w)
				}
			}
		}
	}
	for batch, want := range map[int]uint32{1: 64, 65: 128, 1000: 1024, maxBatch: maxBatch} {
		s, _ := must(t, backend.Config{Flows: []backend.Flow{good}, Batch: batch})
		if got := s.(*Sender).ring.Granted().SQEntries; got != want {
			t.Errorf("batch of %d: a queue of %d entries, want %d: the next power of two", batch, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Zero copy is said to be in use only where it pays, and the kernel's copies are told: loopback always copies.
func TestZeroCopyTold(t *testing.T) {
	for _, c := range []struct {
		about    string
		payload  int
		gso      int
		zero     bool
		copied   uint64
		mustNote string
	}{
		{"small packets are copied", 100, 1, false, 0, "costs more than copying"},
		{"large packets are not, but by loopback", 4000, 1, true, 10, "copied 10 of 10"},
		{"trains count by their length", 500, 10, true, 1, "copied 1 of 1"},
	} {
		t.Run(c.about, func(t *testing.T) {
			own(t)
			_, to := socket(t)
			s, _ := must(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: c.payload, GSO: c.gso, ZeroCopy: true})
			slots := s.Reserve(10)
			for i := range slots {
				slots[i].Len = c.payload
			}
			if n, err := s.Commit(10); n != 10 || err != nil {
				t.Fatal(n, err)
			}
			sum := settle(t, s, 10)
			for deadline := time.Now().Add(10 * time.Second); sum.Events[backend.EventCopied] < c.copied && time.Now().Before(deadline); {
				sum.Events[backend.EventCopied] += s.Reap().Events[backend.EventCopied]
			}
			l := s.Limits()
			if l.ZeroCopy != c.zero || sum.Events[backend.EventCopied] != c.copied || !strings.Contains(strings.Join(l.Notes, "\n"), c.mustNote) {
				t.Errorf("%+v, %d copied", l, sum.Events[backend.EventCopied])
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The kernel thread's time is told, and its work is no more than all of it.
func TestSubmissionThreadTime(t *testing.T) {
	own(t)
	_, to := socket(t)
	s, _ := must(t, backend.Config{Flows: []backend.Flow{{Dst: to}}, PayloadBytes: 8, SQPoll: true})
	defer s.Close()
	var cpu, busy time.Duration
	for deadline := time.Now().Add(20 * time.Second); busy == 0 && time.Now().Before(deadline); {
		slots := s.Reserve(64)
		for i := range slots {
			slots[i].Len = 8
		}
		if _, err := s.Commit(len(slots)); err != nil {
			t.Fatal(err)
		}
		s.Reap()
		cpu, busy = s.(backend.KernelThread).KernelTime()
	}
	if busy <= 0 || busy > cpu {
		t.Errorf("CPU time %v, of it work %v", cpu, busy)
	}
	for text, want := range map[string]time.Duration{
		"SqMask:\t0x3f\nSqWorkTime:\t1234\n": 1234 * time.Microsecond,
		"SqTotalTime:\t7\n":                  -1,
		"SqWorkTime:\tmuch\n":                -1,
	} {
		if got, ok := workTime([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}
