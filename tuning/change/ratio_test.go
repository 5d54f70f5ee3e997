package change

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/tuning"
)

// TestRatioAligned holds a sender whose packets' receive softirq runs on its own core against one whose softirq runs on the other core
// (RPS of the receiving veth, set and restored by a Tuner). Aligned, the sending thread pays for both sides; misaligned it pays for an
// interrupt to the other core instead, and the packet changes caches. Rates are per second of the sending thread's CPU time, because the
// machine is shared. The ratios are printed; claimed is only that the softirq was where it should be, and that nothing is left changed.
func TestRatioAligned(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	cpus, err := tuning.Reader{}.CPUs()
	if err != nil || len(cpus) < 2 {
		testskip.Skip(t, "bench", "needs two CPUs", "run on a machine with two")
	}
	pair := testnet.NewPair(t, testnet.Config{})
	root := sysfsOf(t, pair.Right)
	key := "/sys/class/net/" + pair.Right.Interface + "/queues/rx-0/rps_cpus"
	sink := pair.Right.ListenUDP(netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9000))
	b := bench{pair: pair, to: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9000), cpu: cpus[0], sink: sink}
	var sent, delivered, trip []float64
	var rates [2][]float64
	for range 7 {
		var got [2]measured
		for misaligned := range 2 {
			tuner := Tuner{System: Host{tuning.Reader{Root: root}}, Journal: filepath.Join(t.TempDir(), "journal")}
			s, err := tuner.Begin(nil)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Apply([]Change{{Item: XPS, Key: key, New: tuning.MaskOf([]int{cpus[misaligned]}) + "\n"}})
			if err != nil || out[0].State != StateApplied {
				t.Fatalf("%+v, %v", out, err)
			}
			before := steered(t)
			got[misaligned] = b.run(t)
			// received_rps counts interrupts that asked a core to work on another's packets.
			if n := steered(t)[cpus[1]] - before[cpus[1]]; (n > 100) != (misaligned == 1) {
				t.Errorf("core %d was asked %d times, misaligned %d", cpus[1], n, misaligned)
			}
			if err := s.Undo(); err != nil {
				t.Fatal(err)
			}
			rates[misaligned] = append(rates[misaligned], got[misaligned].perCPU)
		}
		sent = append(sent, got[0].perCPU/got[1].perCPU)
		delivered = append(delivered, got[0].delivered/got[1].delivered)
		trip = append(trip, float64(got[0].trip)/float64(got[1].trip))
	}
	if v, err := os.ReadFile(filepath.Join(root, key)); err != nil || strings.Trim(string(v), "0,\n") != "" {
		t.Errorf("rps_cpus is left %q, %v", v, err)
	}
	t.Logf("sent per second of the sender's CPU: aligned %.0f, misaligned %.0f; medians of 7, aligned/misaligned: sent %.2f, delivered share %.2f, one-way time %.2f",
		median(rates[0]), median(rates[1]), median(sent), median(delivered), median(trip))
}

// bench is a sender pinned to a core of the left namespace and a socket in the right one.
type bench struct {
	pair *testnet.Pair
	to   netip.AddrPort
	cpu  int
	sink *net.UDPConn
}

// measured is one turn.
type measured struct {
	perCPU    float64       // packets sent per second of the sending thread's CPU time
	delivered float64       // share of the packets that reached the receiver's socket layer
	trip      time.Duration // median time from before the send call to arrival in the receiving socket
}

func (b *bench) run(t *testing.T) (m measured) {
	t.Helper()
	before, n := received(t, b.pair.Right), 0
	b.pair.Left.Do(func() {
		if _, err := sys.Pin(b.cpu); err != nil {
			t.Error(err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		start := sys.ThreadUsage()
		n = flood(fd, b.to, 500*time.Millisecond)
		end := sys.ThreadUsage()
		m.perCPU = float64(n) / (end.User + end.System - start.User - start.System).Seconds()
	})
	time.Sleep(50 * time.Millisecond) // the backlog of the other core
	m.delivered = float64(received(t, b.pair.Right)-before) / float64(n)
	m.trip = b.oneWay(t)
	return m
}

// oneWay sends from the sender's core and waits, spinning on the receiving socket, so that no wake-up is in the time: what is left
// is the way through the softirq.
func (b *bench) oneWay(t *testing.T) time.Duration {
	t.Helper()
	raw, err := b.sink.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var trips []time.Duration
	b.pair.Left.Do(func() {
		if _, err := sys.Pin(b.cpu); err != nil {
			t.Error(err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		addr := unix.SockaddrInet4{Port: int(b.to.Port()), Addr: b.to.Addr().As4()}
		buf := make([]byte, 64)
		_ = raw.Control(func(sink uintptr) {
			for { // empty it
				if _, _, err := unix.Recvfrom(int(sink), buf, unix.MSG_DONTWAIT); err != nil {
					break
				}
			}
			for range 3000 {
				start := sys.Monotonic()
				if unix.Sendto(fd, buf[:18], 0, &addr) != nil {
					continue
				}
				for deadline := start + int64(time.Second); sys.Monotonic() < deadline; {
					if _, _, err := unix.Recvfrom(int(sink), buf, unix.MSG_DONTWAIT); err == nil {
						trips = append(trips, time.Duration(sys.Monotonic()-start))
						break
					}
				}
			}
		})
	})
	if len(trips) == 0 {
		t.Fatal("nothing arrived")
	}
	slices.Sort(trips)
	return trips[len(trips)/2]
}

// steered reads received_rps of each core (/proc/net/softnet_stat, column 10, net/core/net-procfs.c).
func steered(t *testing.T) map[int]uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]uint64{}
	for row, line := range slices.Collect(strings.Lines(string(b))) {
		f := strings.Fields(line)
		if len(f) < 10 {
			t.Fatalf("softnet_stat: %q", line)
		}
		n, err := strconv.ParseUint(f[9], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		cpu := row
		if len(f) > 12 { // the core's own number, kernel 5.10
			index, err := strconv.ParseUint(f[12], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			cpu = int(index)
		}
		out[cpu] = n
	}
	return out
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// flood sends small datagrams for a while and returns how many were accepted.
func flood(fd int, to netip.AddrPort, d time.Duration) int {
	addr := unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	buf := make([]byte, 18)
	n := 0
	for end := sys.Monotonic() + int64(d); sys.Monotonic() < end; {
		for range 32 {
			if unix.Sendto(fd, buf, unix.MSG_DONTWAIT, &addr) == nil {
				n++
			}
		}
	}
	return n
}

// received counts what reached the socket layer of a namespace, read or not.
func received(t *testing.T, h *testnet.Host) uint64 {
	t.Helper()
	var n uint64
	h.Do(func() {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			t.Error(err)
			return
		}
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "Udp: In") || i+1 >= len(lines) {
				continue
			}
			names, values := strings.Fields(line), strings.Fields(lines[i+1])
			for k, name := range names {
				if name == "InDatagrams" || name == "RcvbufErrors" {
					v, _ := strconv.ParseUint(values[k], 10, 64)
					n += v
				}
			}
		}
	})
	return n
}

// sysfsOf mounts the sysfs of a namespace below a new root, where it is unmounted by the test's cleanup.
func sysfsOf(t *testing.T, h *testnet.Host) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "sys")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	h.Do(func() { err = unix.Mount("blast-test", dir, "sysfs", 0, "") })
	if err != nil {
		t.Fatal(fmt.Errorf("mount sysfs: %w", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root
}
