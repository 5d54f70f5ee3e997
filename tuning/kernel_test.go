package tuning

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/stats"
)

func TestKernelHost(t *testing.T) {
	var r Reader
	got := r.Host("lo")
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if want := unix.ByteSliceToString(uts.Release[:]); got.Kernel != want {
		t.Errorf("kernel %q, uname says %q", got.Kernel, want)
	}
	if got.NIC != "lo" || got.Driver != "loopback" {
		t.Errorf("loopback is %q with driver %q", got.NIC, got.Driver)
	}
	for name, v := range map[string]string{"hostname": got.Hostname, "cpu": got.CPU, "clocksource": got.Clocksource,
		"governor": got.Governor, "virt": got.Virt} {
		if v == Unknown || v == "" {
			t.Errorf("%s is %q on a real host", name, v)
		}
	}
	if a, b := Fingerprint(got), Fingerprint((Reader{Root: "/"}).Host("lo")); a != b {
		t.Errorf("two readings of one host: %s and %s", a, b)
	}
	t.Logf("%+v fingerprint %s", got, Fingerprint(got))

	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		t.Fatal(err)
	}
	cpus, err := r.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) != set.Count() || got.Cores < 1 || got.Cores > len(cpus) {
		t.Errorf("CPUs %v, sched_getaffinity has %d, cores %d", cpus, set.Count(), got.Cores)
	}
	for _, cpu := range cpus {
		if !set.IsSet(cpu) {
			t.Errorf("cpu %d is not in the affinity mask", cpu)
		}
	}
}

func TestKernelLimits(t *testing.T) {
	got, err := Reader{}.Limits()
	if err != nil {
		t.Fatal(err)
	}
	var want unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		t.Fatal(err)
	}
	if got.NoFileSoft != want.Cur || got.NoFileHard != want.Max {
		t.Errorf("%+v, getrlimit says %+v", got, want)
	}
}

// TestKernelCounters sends a known number of datagrams inside a namespace of its own, where nobody else counts.
func TestKernelCounters(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{Lossless: true})
	const n = 100
	to := netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9000)
	sink := pair.Right.ListenUDP(to)
	defer sink.Close()
	source := pair.Left.ListenUDP(netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0))
	defer source.Close()
	read := func(h *testnet.Host) (s Snapshot) {
		h.Do(func() {
			var err error
			if s, err = (Reader{}).Counters(h.Interface, "lo"); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	left, right := read(pair.Left), read(pair.Right)
	for range n {
		if _, err := source.WriteToUDPAddrPort([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(to.Addr(), 9001)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	for range n {
		if _, _, err := sink.ReadFromUDPAddrPort(buf); err != nil {
			t.Fatal(err)
		}
	}
	sent, received := deltas(left.Delta(read(pair.Left))), deltas(right.Delta(read(pair.Right)))
	if sent["udp.OutDatagrams"] != n+1 || sent["left0.tx_packets"] < n+1 {
		t.Errorf("sent %d: counted %d datagrams and %d packets", n+1, sent["udp.OutDatagrams"], sent["left0.tx_packets"])
	}
	if received["udp.InDatagrams"] != n || received["udp.NoPorts"] > 1 || received["right0.rx_packets"] < n {
		t.Errorf("received %d and %d without a port: counted %+v", n, 1, received)
	}
	for _, name := range []string{"udp.SndbufErrors", "udp6.OutDatagrams", "softnet.dropped", "softnet.time_squeeze", "lo.tx_packets"} {
		if _, ok := sent[name]; !ok {
			t.Errorf("%s is missing on a real host", name)
		}
	}
}

func TestKernelNICOfAnotherNamespace(t *testing.T) {
	// /sys is the first namespace's: a veth in another one is known by ethtool only, and a name that both have must
	// not be described by the wrong one's files.
	pair := testnet.NewPair(t, testnet.Config{})
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	pair.Left.Do(func() {
		var r Reader
		if got := r.Host(pair.Left.Interface); got.NIC != pair.Left.Interface || got.Driver != "veth" {
			t.Errorf("nic %q with driver %q", got.NIC, got.Driver)
		}
		for _, link := range links {
			if link.Name == "lo" {
				continue
			}
			if dir, ok := r.netDir(link.Name); ok {
				t.Errorf("%s of another namespace was found in %s", link.Name, dir)
			}
		}
	})
	for _, link := range links {
		if dir, ok := (Reader{}).netDir(link.Name); !ok {
			t.Errorf("%s of this namespace is not in %s", link.Name, dir)
		}
	}
}

func TestKernelInterfaceFor(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{MTU: 1400})
	left := pair.Left
	for _, route := range []struct {
		dst  string
		kind int
	}{{"198.51.100.0/25", unix.RTN_PROHIBIT}, {"198.51.100.128/25", unix.RTN_BLACKHOLE}} {
		_, dst, err := net.ParseCIDR(route.dst)
		if err != nil {
			t.Fatal(err)
		}
		if err := left.Netlink.RouteAdd(&netlink.Route{Dst: dst, Type: route.kind}); err != nil {
			t.Fatal(err)
		}
	}
	_, narrow, err := net.ParseCIDR("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	via := net.IP(pair.Right.IPv4.Addr().AsSlice())
	if err := left.Netlink.RouteAdd(&netlink.Route{Dst: narrow, Gw: via, LinkIndex: left.Index, MTU: 1280}); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Name string
		MTU  int
		Src  string
	}
	const lo, loMTU = "lo", 65536
	v4, v6 := left.IPv4.Addr().String(), left.IPv6.Addr().String()
	for _, c := range []struct {
		why, dst string
		want     answer
	}{
		{"a neighbour", pair.Right.IPv4.Addr().String(), answer{left.Interface, 1400, v4}},
		{"a neighbour by IPv6", pair.Right.IPv6.Addr().String(), answer{left.Interface, 1400, v6}},
		{"IPv4 in IPv6's clothes", "::ffff:" + pair.Right.IPv4.Addr().String(), answer{left.Interface, 1400, v4}},
		{"our own address goes by loopback", v4, answer{lo, loMTU, v4}},
		{"loopback", "127.0.0.1", answer{lo, loMTU, "127.0.0.1"}},
		{"loopback by IPv6", "::1", answer{lo, loMTU, "::1"}},
		{"behind a gateway with a narrower path", "192.0.2.9", answer{left.Interface, 1280, v4}},
	} {
		left.Do(func() {
			name, mtu, src, err := InterfaceFor(netip.MustParseAddr(c.dst))
			if err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
			if d := cmp.Diff(c.want, answer{name, mtu, src.String()}); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
	for _, zone := range []string{left.Interface, strconv.Itoa(left.Index)} {
		left.Do(func() {
			if name, _, _, err := InterfaceFor(netip.MustParseAddr("fe80::1%" + zone)); err != nil || name != left.Interface {
				t.Errorf("zone %s: %q, %v", zone, name, err)
			}
		})
	}
	for _, c := range []struct {
		why, dst, message string
		errno             error
	}{
		{"nowhere to go", "203.0.113.1", "no route to 203.0.113.1: network is unreachable", unix.ENETUNREACH},
		{"nowhere to go by IPv6", "2001:db8::1", "no route to 2001:db8::1: network is unreachable", unix.ENETUNREACH},
		{"prohibited", "198.51.100.1", "prohibited", unix.EACCES},
		{"blackhole", "198.51.100.129", "blackhole", unix.EINVAL},
		{"a zone that is not there", "fe80::1%nope0", "fe80::1 by nope0", nil},
	} {
		left.Do(func() {
			name, _, _, err := InterfaceFor(netip.MustParseAddr(c.dst))
			if err == nil || !strings.Contains(err.Error(), c.message) || c.errno != nil && !errors.Is(err, c.errno) {
				t.Errorf("%s: %q, %v; want %q", c.why, name, err, c.message)
			}
		})
	}
	if _, _, _, err := InterfaceFor(netip.Addr{}); err == nil {
		t.Error("the zero address has a route")
	}
}

// throttledChild makes TestKernelStealUnderQuota's child of this test binary.
const throttledChild = "BLAST_TUNING_THROTTLED"

// TestKernelStealUnderQuota runs a child that spins under a quota of a tenth of a CPU, and has the child's own meter read it.
func TestKernelStealUnderQuota(t *testing.T) {
	if os.Getenv(throttledChild) != "" {
		spinAndRead(t)
		return
	}
	testskip.Root(t)
	dir := quotaGroup(t)
	// The shell joins the group before the test binary starts, so every thread is inside.
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$1/cgroup.procs" && exec "$2" -test.run='^TestKernelStealUnderQuota$' -test.v`,
		"sh", dir, os.Args[0])
	cmd.Env = append(os.Environ(), throttledChild+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "share ") {
		t.Fatalf("child: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// quotaGroup makes a group below this process's own with 10 ms of each 100 ms, and takes it away after the test.
func quotaGroup(t *testing.T) string {
	t.Helper()
	groups := (Reader{}).cpuGroups()
	if len(groups) == 0 {
		testskip.Skip(t, "cgroup", "no cpu controller is mounted", "mount a cgroup hierarchy with the cpu controller")
	}
	dir := filepath.Join(groups[0].dir, fmt.Sprintf("blast-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		testskip.Skip(t, "cgroup", err.Error(), "make the cpu hierarchy writable")
	}
	t.Cleanup(func() {
		if err := unix.Rmdir(dir); err != nil {
			t.Errorf("cgroup left behind: %s: %v", dir, err)
		}
	})
	file, value := "cpu.cfs_quota_us", "10000"
	if groups[0].v2 {
		file, value = "cpu.max", "10000 100000"
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		testskip.Skip(t, "cgroup", err.Error(), "enable the cpu controller for child groups: echo +cpu > cgroup.subtree_control")
	}
	return dir
}

// spinAndRead keeps one CPU busy until the process has used 0.1 s of CPU time: at a tenth of a CPU a second must pass. On an idle
// machine nine tenths of it are withheld; others' load takes from that, because a thread that waits for its turn is not
// throttled, so only a clear trace is asked for.
func spinAndRead(t *testing.T) {
	r := Reader{}
	if got := r.cores(); got != 1 {
		t.Errorf("a quota of a tenth of a CPU gives %d cores, want 1", got)
	}
	cpus, err := r.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	m := started(t, r, cpus[0])
	var begin, now unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &begin); err != nil {
		t.Fatal(err)
	}
	for now.Utime.Nano()+now.Stime.Nano()-begin.Utime.Nano()-begin.Stime.Nano() < 100e6 {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &now); err != nil {
			t.Fatal(err)
		}
	}
	share, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("share %.3f", share)
	if share < 0.05 || share > 1 {
		t.Errorf("share %.3f under a quota of 0.1 CPUs", share)
	}
}

func TestKernelStealMeter(t *testing.T) {
	r := Reader{}
	cpus, err := r.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	m := started(t, r, cpus...)
	if share, err := m.Read(); err != nil || share < 0 || share > 1 {
		t.Errorf("share %v, %v", share, err)
	}
	if n := testing.AllocsPerRun(20, func() {
		if _, err := m.Read(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a reading of the real files", n)
	}
}

func BenchmarkStealMeter(b *testing.B) {
	r := Reader{}
	cpus, err := r.CPUs()
	if err != nil {
		b.Fatal(err)
	}
	m := started(b, r, cpus...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Read(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCounters(b *testing.B) {
	var out []stats.Counter
	before, err := Reader{}.Counters("lo")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		after, err := Reader{}.Counters("lo")
		if err != nil {
			b.Fatal(err)
		}
		out = before.Delta(after)
	}
	if len(out) == 0 {
		b.Error("no counters")
	}
}
