package xdp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/xdp"
)

// blastChild, set in the environment, turns the test binary into a sender that runs until it is killed.
const blastChild = "XDP_TEST_CHILD_INTERFACE"

func TestMain(m *testing.M) {
	if name := os.Getenv(blastChild); name != "" {
		fmt.Fprintln(os.Stderr, child(name))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child sends and receives on queue 0 at full rate for ever, and says on stdout when it has begun.
func child(name string) error {
	runtime.LockOSThread()
	d, err := xdp.Open(xdp.DeviceConfig{Interface: name, Receive: true, Ports: []uint16{ourPort}})
	if err != nil {
		return err
	}
	s, err := d.Open(xdp.SocketConfig{})
	if err != nil {
		return err
	}
	for begun := false; ; {
		for _, f := range s.Reserve(64) {
			f.Len = 60
		}
		if _, err := s.Commit(len(s.Reserve(64))); err != nil {
			return err
		}
		c, err := s.Reap()
		if err != nil {
			return err
		}
		s.Receive(64)
		if !begun && c.Sent > 0 {
			begun = true
			fmt.Println("sending")
		}
	}
}

// start runs the child in the left namespace and waits until it sends.
func start(t *testing.T, p *testnet.Pair) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), blastChild+"="+p.Left.Interface)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Left.Do(func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatalf("the child did not begin to send: %v", err)
	}
	return cmd
}

// TestKernelKill proves that kill -9 at full rate leaves no program behind and that the next start works at once.
func TestKernelKill(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	for range 3 {
		cmd := start(t, p)
		if attached(t, p.Left) == nil {
			t.Fatal("the child has no program attached")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		p.Left.Do(func() {
			begin := time.Now()
			d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{ourPort}})
			s := socket(t, d, xdp.SocketConfig{})
			if c := send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), 10, numbered(18)); c.Sent != 10 {
				t.Errorf("%+v", c)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the next start took %s", took)
			}
			if err := errors.Join(d.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
		if x := attached(t, p.Left); x != nil {
			t.Fatalf("program %d stayed", x.ProgId)
		}
	}
}

// TestKernelQueueBusy proves that the second socket on a queue fails within its bound and says who has the queue: another process,
// and this one.
func TestKernelQueueBusy(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	cmd := start(t, p)
	try := func(queue int, want string) {
		t.Helper()
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		begin := time.Now()
		_, err := d.Open(xdp.SocketConfig{Queue: queue, BindWait: 100 * time.Millisecond})
		if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("queue %d of %q", queue, p.Left.Interface)) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
	}
	p.Left.Do(func() {
		try(0, fmt.Sprintf("process %d (", cmd.Process.Pid))
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		socket(t, d, xdp.SocketConfig{Queue: 1})
		try(1, fmt.Sprintf("process %d (", os.Getpid()))
	})
}

// TestKernelReopen proves that a queue can be opened again right after it was closed, many times: the kernel takes the old
// socket down in the background.
func TestKernelReopen(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		for range 10 {
			d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true})
			if err != nil {
				t.Fatal(err)
			}
			s, err := d.Open(xdp.SocketConfig{TxFrames: 64, RxFrames: 64})
			if err != nil {
				t.Fatal(err)
			}
			send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), 64, numbered(18))
			if err := errors.Join(d.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// until sends and reaps until an error comes, at most for limit.
func until(s *xdp.Socket, limit time.Duration, also func()) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		for _, f := range s.Reserve(64) {
			f.Len = 60
		}
		if _, err := s.Commit(len(s.Reserve(64))); err != nil {
			return err
		}
		if _, err := s.Reap(); err != nil {
			return err
		}
		if also != nil {
			also()
		}
	}
	return nil
}

// TestKernelDelete proves that ip link del under load ends in a clean error in bounded time, on both halves, and that closing
// works afterwards.
func TestKernelDelete(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{ourPort}})
		s := socket(t, d, xdp.SocketConfig{})
		time.AfterFunc(100*time.Millisecond, p.Right.Delete)
		err := until(s, 10*time.Second, nil)
		if err == nil || !strings.Contains(err.Error(), "interface is gone") || !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("sending ended with %v", err)
		}
		if _, err := s.Wait(5 * time.Second); err == nil || !strings.Contains(err.Error(), "interface is gone") {
			t.Errorf("waiting ended with %v", err)
		}
	})
}

// TestKernelPeerDown proves that frames which the kernel drops because nobody can take them are counted one by one, without a hang,
// and that sending goes on when the peer is back.
func TestKernelPeerDown(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s := socket(t, d, xdp.SocketConfig{})
		f := across(t, p, p.Left.IPv4, p.Right.IPv4, 0)
		p.Right.SetUp(false)
		if c := send(t, s, f, 1000, numbered(18)); c != (xdp.Completed{Dropped: 1000}) {
			t.Errorf("peer down: %+v, %+v", c, s.SendStats())
		}
		p.Right.SetUp(true)
		counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
		if c := send(t, s, f, 1000, numbered(18)); c.Sent != 1000 || counter.Total().Frames != c.Sent {
			t.Errorf("peer up: %+v, arrived %d", c, counter.Total().Frames)
		}
	})
}

// TestKernelFullRate proves that at full rate nothing is lost without being counted: what completes without a drop arrived.
func TestKernelFullRate(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  testnet.Config
	}{
		{"a full peer drops", testnet.Config{}},
		{"a full peer pushes back", testnet.Config{Lossless: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testnet.NewPair(t, c.cfg)
			counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
			p.Left.Do(func() {
				const count = 200_000
				d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
				s := socket(t, d, xdp.SocketConfig{Batch: 2048})
				c := send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), count, numbered(18))
				for end := time.Now().Add(5 * time.Second); counter.Total().Frames < c.Sent && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				if c.Sent+c.Dropped != count || counter.Total().Frames != c.Sent {
					t.Errorf("%+v, arrived %d; %+v", c, counter.Total().Frames, s.SendStats())
				}
			})
		})
	}
}

// TestKernelLinkDown proves that an interface that goes down is reported as such, and works again when it is up.
func TestKernelLinkDown(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s := socket(t, d, xdp.SocketConfig{})
		p.Left.SetUp(false)
		if err := until(s, 5*time.Second, nil); !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "is down") {
			t.Errorf("%v", err)
		}
		p.Left.SetUp(true)
		if err := until(s, 100*time.Millisecond, nil); err != nil {
			t.Errorf("up again: %v", err)
		}
	})
}

// drop takes capabilities from the calling thread, which Do ends afterwards.
func drop(t testing.TB, bits ...int) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	for _, b := range bits {
		data[b/32].Effective &^= 1 << (b % 32)
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
}

// TestKernelCapabilities proves that each missing capability is named, that sending by copy needs CAP_NET_RAW alone, and that Probe says
// the same.
func TestKernelCapabilities(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	for _, c := range []struct {
		name    string
		without []int
		receive bool
		want    []string // named in the error; nil means it works
	}{
		{"no CAP_NET_RAW", []int{unix.CAP_NET_RAW}, false, []string{"CAP_NET_RAW"}},
		{"no CAP_NET_ADMIN, receiving", []int{unix.CAP_NET_ADMIN}, true, []string{"CAP_NET_ADMIN"}},
		{"no CAP_BPF, receiving", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, true, []string{"CAP_BPF"}},
		{"neither of them, receiving", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}, true, []string{"CAP_BPF", "CAP_NET_ADMIN"}},
		{"no CAP_BPF but CAP_SYS_ADMIN, receiving", []int{unix.CAP_BPF}, true, nil},
		{"CAP_NET_RAW alone, sending", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Left.Do(func() {
				drop(t, c.without...)
				d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: c.receive})
				if c.want == nil {
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					s, err := d.Open(xdp.SocketConfig{TxFrames: 64})
					if err != nil {
						t.Fatal(err)
					}
					if got := send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), 200, numbered(18)); got.Sent != 200 {
						t.Errorf("%+v", got)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					return
				}
				probe := xdp.Probe(p.Left.Interface)
				if !errors.Is(err, unix.EPERM) || !errors.Is(probe, errors.ErrUnsupported) {
					t.Errorf("open: %v; probe: %v", err, probe)
				}
				for _, name := range c.want {
					if !strings.Contains(fmt.Sprint(err), name) || !strings.Contains(fmt.Sprint(probe), name) {
						t.Errorf("%s is not named: open: %v; probe: %v", name, err, probe)
					}
				}
			})
		})
	}
}

// TestKernelMemlock proves that a low RLIMIT_MEMLOCK does not matter with CAP_IPC_LOCK, and is explained without.
func TestKernelMemlock(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old) })
	p := testnet.NewPair(t, testnet.Config{})
	big := xdp.SocketConfig{TxFrames: int(old.Max/2048) * 2}
	if old.Max > 1<<30 {
		big.TxFrames = 1 << 14
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 4096, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s := socket(t, d, big)
		if c := send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), 100, numbered(18)); c.Sent != 100 {
			t.Errorf("%+v", c)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if old.Max > 1<<30 {
		return // nothing that fits into memory is over the limit
	}
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		drop(t, unix.CAP_IPC_LOCK)
		_, err := d.Open(big)
		if !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "CAP_IPC_LOCK") || !strings.Contains(err.Error(), "ulimit -l") {
			t.Errorf("without the capability: %v", err)
		}
	})
}

// TestKernelBadInput proves that what cannot work is refused with what to do instead.
func TestKernelBadInput(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{Queues: 2, MTU: 9000})
	left, err := p.Left.Netlink.LinkByName(p.Left.Interface)
	if err != nil {
		t.Fatal(err)
	}
	add := func(l netlink.Link) {
		t.Helper()
		if err := p.Left.Netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
	}
	attrs := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	add(&netlink.Bridge{LinkAttrs: attrs("br0")})
	port := &netlink.Veth{LinkAttrs: attrs("port0"), PeerName: "port1"}
	add(port)
	br, err := p.Left.Netlink.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Left.Netlink.LinkSetMaster(port, br); err != nil {
		t.Fatal(err)
	}
	below := attrs("mv0")
	below.ParentIndex = left.Attrs().Index
	add(&netlink.Macvlan{LinkAttrs: below})
	for _, c := range []struct {
		name   string
		device xdp.DeviceConfig
		socket xdp.SocketConfig
		cause  error
		text   string
	}{
		{"bridge", xdp.DeviceConfig{Interface: "br0"}, xdp.SocketConfig{}, errors.ErrUnsupported, "port0"},
		{"macvlan", xdp.DeviceConfig{Interface: "mv0"}, xdp.SocketConfig{}, errors.ErrUnsupported, "use left0"},
		{"interface that is down", xdp.DeviceConfig{Interface: "port1"}, xdp.SocketConfig{}, unix.ENETDOWN, "ip link set port1 up"},
		{"no such interface", xdp.DeviceConfig{Interface: "nope0"}, xdp.SocketConfig{}, unix.ENODEV, `"nope0"`},
		{"queue that does not exist", xdp.DeviceConfig{Interface: "left0"}, xdp.SocketConfig{Queue: 2}, unix.EINVAL, "has 2 queues"},
		{"negative queue", xdp.DeviceConfig{Interface: "left0"}, xdp.SocketConfig{Queue: -1}, nil, "queue -1"},
		{"zero-copy where there is none", xdp.DeviceConfig{Interface: "left0", Mode: xdp.ZeroCopy}, xdp.SocketConfig{}, errors.ErrUnsupported, "veth"},
		{"MTU beyond native mode", xdp.DeviceConfig{Interface: "left0", Mode: xdp.Native, Receive: true}, xdp.SocketConfig{}, nil, "MTU 9000"},
		{"MTU beyond one frame for receiving", xdp.DeviceConfig{Interface: "left0", Mode: xdp.Generic, Receive: true}, xdp.SocketConfig{}, nil, "mtu 3822"},
		{"frame size the kernel does not know", xdp.DeviceConfig{Interface: "left0"}, xdp.SocketConfig{FrameBytes: 1024}, nil, "FrameBytes 1024"},
		{"receive frames on a device that only sends", xdp.DeviceConfig{Interface: "left0"}, xdp.SocketConfig{RxFrames: 64}, nil, "without Receive"},
		{"ports on a device that only sends", xdp.DeviceConfig{Interface: "left0", Ports: []uint16{1}}, xdp.SocketConfig{}, nil, "without Receive"},
		{"too many frames", xdp.DeviceConfig{Interface: "left0"}, xdp.SocketConfig{TxFrames: 1 << 21}, nil, "TxFrames"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Left.Do(func() {
				d, err := xdp.Open(c.device)
				if err == nil {
					_, err = d.Open(c.socket)
					_ = d.Close()
				}
				if err == nil || c.cause != nil && !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.text) {
					t.Fatalf("want %q, got %v", c.text, err)
				}
				t.Log(err)
			})
			if x := attached(t, p.Left); x != nil {
				t.Errorf("program %d stayed", x.ProgId)
			}
		})
	}
}

// TestKernelFallback proves that a step down is taken only when allowed and is told.
func TestKernelFallback(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		if _, err := xdp.Open(xdp.DeviceConfig{Interface: "lo", Mode: xdp.Native, Receive: true}); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("native on lo: %v", err)
		}
		d := open(t, xdp.DeviceConfig{Interface: "lo", Receive: true, Ports: []uint16{ourPort}})
		s := socket(t, d, xdp.SocketConfig{})
		g := s.Granted()
		if g.Mode != xdp.Generic || g.Program != "generic" || len(g.Notes) == 0 || !strings.Contains(g.Notes[0], "native XDP") {
			t.Errorf("%+v", g)
		}
		t.Log(g, g.Notes)
		// The frames come back: lo is both ends.
		zero := make([]byte, 6)
		f := flow(t, netip.MustParseAddrPort("[::1]:9"), netip.AddrPortFrom(netip.IPv6Loopback(), ourPort), zero, zero, 0)
		send(t, s, f, 20, numbered(30))
		collect(t, []*xdp.Socket{s}, 20, func([]byte) {})
	})
}

// TestKernelThreads proves the thread rules: two queues by two threads at once, and the receiving half of each by a third and a
// fourth, sleeping in Wait. Every frame is accounted for, and every packet that the program redirected is received.
func TestKernelThreads(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	echo(t, p, p.Right.IPv4)
	p.Left.Do(func() {
		const count = 5000
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{ourPort}})
		f := across(t, p, p.Left.IPv4, p.Right.IPv4, 0)
		var senders, receivers sync.WaitGroup
		var received, finished atomic.Uint64
		stop := make(chan struct{})
		for q := range 2 {
			s := socket(t, d, xdp.SocketConfig{Queue: q})
			receivers.Go(func() {
				for {
					if _, err := s.Wait(20 * time.Millisecond); err != nil {
						t.Error(err)
						return
					}
					received.Add(uint64(len(s.Receive(64))))
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			senders.Go(func() {
				for sum := uint64(0); sum < count; {
					frames := s.Reserve(min(8, count-int(s.SendStats().Committed)))
					for _, fr := range frames {
						fr.Len = f.Write(fr.Data, 18)
					}
					if _, err := s.Commit(len(frames)); err != nil {
						t.Error(err)
						return
					}
					c, err := s.Reap()
					if err != nil {
						t.Error(err)
						return
					}
					sum += c.Sent + c.Dropped
					finished.Add(c.Sent + c.Dropped)
					time.Sleep(50 * time.Microsecond) // the echo is an ordinary socket
				}
			})
		}
		senders.Wait()
		redirected := func() uint64 {
			r, err := d.Redirects()
			if err != nil {
				t.Error(err)
			}
			return r.Redirected
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && received.Load() < 2*count; {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		close(stop)
		receivers.Wait()
		if got, want := received.Load(), redirected(); got != want || want == 0 || finished.Load() != 2*count {
			t.Errorf("%d frames finished of %d, %d replies redirected, %d received", finished.Load(), 2*count, want, got)
		}
	})
}

// TestKernelMetadata proves that the kernel finishes a checksum and gives a transmit time when asked.
func TestKernelMetadata(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	rx := p.Right.ListenUDP(netip.AddrPortFrom(p.Right.IPv4.Addr(), theirPort))
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s, err := d.Open(xdp.SocketConfig{Metadata: true, SoftwareSum: true})
		if errors.Is(err, errors.ErrUnsupported) {
			testskip.Skip(t, "xdp", err.Error(), "apt-get install -t bookworm-backports linux-image-amd64, and boot it: Linux 6.8 or newer")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if g := s.Granted(); !g.Metadata || !g.TimeOffload || !g.SumOffload {
			t.Fatalf("%+v", g)
		}
		f := across(t, p, p.Left.IPv4, p.Right.IPv4, 0)
		f.partial = true
		frames := s.Reserve(32)
		for i, fr := range frames {
			fr.Len = f.Write(fr.Data, numbered(30)(i, f.Payload(fr.Data)))
			fr.OffloadSum(f.udp, 6)
			if i%2 == 0 {
				fr.AskTime()
			}
		}
		if n, err := s.Commit(len(frames)); n != 32 || err != nil {
			t.Fatal(n, err)
		}
		times, seen := 0, 0
		for end := time.Now().Add(5 * time.Second); s.Outstanding() > 0 && time.Now().Before(end); {
			if _, err := s.ReapFrames(func(fr *xdp.Frame) {
				seen++
				if fr.Time() > 0 {
					times++
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if seen != 32 {
			t.Errorf("saw %d of 32 frames", seen)
		}
		// The field is shared with the request, so a frame that asked for no time shows its request; 16 asked.
		if times < 16 {
			t.Errorf("%d of 16 frames have a time", times)
		}
	})
	_ = rx.SetReadDeadline(time.Now().Add(5 * time.Second))
	for i := range 32 {
		if _, err := rx.Read(make([]byte, 100)); err != nil {
			t.Fatalf("packet %d with a checksum finished by the kernel: %v", i, err)
		}
	}
}

// TestKernelNoAllocations proves that a pass through both halves of a real socket allocates nothing.
func TestKernelNoAllocations(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true, Ports: []uint16{ourPort}})
		s := socket(t, d, xdp.SocketConfig{})
		made := across(t, p, p.Left.IPv4, p.Right.IPv4, 0).frame(make([]byte, 18))
		if n := testing.AllocsPerRun(100, func() {
			frames := s.Reserve(64)
			for _, fr := range frames {
				fr.Len = copy(fr.Data, made)
			}
			_, _ = s.Commit(len(frames))
			_, _ = s.Reap()
			s.Receive(64)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestKernelProbe proves that Probe agrees with Open.
func TestKernelProbe(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		for _, name := range []string{"", "lo", p.Left.Interface} {
			if err := xdp.Probe(name); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		if err := xdp.Probe("nope0"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("nope0: %v", err)
		}
	})
}

// TestKernelNoLeaks proves that neither success nor any failure leaves a descriptor or a mapping behind.
func TestKernelNoLeaks(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	count := func() (fds, maps int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return len(list), strings.Count(string(text), "socket:[")
	}
	cycle := func() {
		d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Open(xdp.SocketConfig{TxFrames: 64, RxFrames: 64})
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []xdp.SocketConfig{{Queue: 5}, {Queue: 0, BindWait: time.Millisecond}, {TxFrames: -1}} {
			if _, err := d.Open(bad); err == nil {
				t.Fatalf("%+v was opened", bad)
			}
		}
		if _, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface, Receive: true}); err == nil {
			t.Fatal("two programs on one interface")
		}
		if _, err := xdp.Open(xdp.DeviceConfig{Interface: "lo", Mode: xdp.Native, Receive: true}); err == nil {
			t.Fatal("native mode on lo")
		}
		if err := errors.Join(d.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	p.Left.Do(func() {
		cycle() // what the libraries keep for good is open now
		fds, maps := count()
		for range 3 {
			cycle()
		}
		if f, m := count(); f > fds || m > maps {
			t.Errorf("descriptors %d -> %d, mappings %d -> %d", fds, f, maps, m)
		}
	})
}

// TestKernelNoCarrier proves that opening waits for the carrier in bounded time and says what is wrong.
func TestKernelNoCarrier(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Right.SetUp(false)
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface, CarrierWait: 50 * time.Millisecond})
		if _, err := d.Open(xdp.SocketConfig{}); !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "no steady carrier") {
			t.Errorf("%v", err)
		}
		time.AfterFunc(50*time.Millisecond, func() { p.Right.SetUp(true) })
		d = open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		socket(t, d, xdp.SocketConfig{})
	})
}

// TestKernelBusyPoll proves that busy polling is set when asked for, and that a refusal is an error and not a silence.
func TestKernelBusyPoll(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	p.Left.Do(func() {
		d := open(t, xdp.DeviceConfig{Interface: p.Left.Interface})
		s := socket(t, d, xdp.SocketConfig{BusyPoll: 20 * time.Microsecond})
		send(t, s, across(t, p, p.Left.IPv4, p.Right.IPv4, 0), 100, numbered(18))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		drop(t, unix.CAP_NET_ADMIN)
		if _, err := d.Open(xdp.SocketConfig{BusyPoll: 20 * time.Microsecond}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("without CAP_NET_ADMIN: %v", err)
		}
	})
}
