package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/backend/afxdp"
	"blast/calib"
	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/stats"
)

// needAFXDP skips the test where AF_XDP does not work.
func needAFXDP(t *testing.T) {
	t.Helper()
	testskip.XDP(t, afxdp.Probe())
}

// program is the id of the XDP program on an end of a pair, 0 for none.
func program(t *testing.T, h *testnet.Host) uint32 {
	t.Helper()
	link, err := h.Netlink.LinkByName(h.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// in starts blast at the left end.
func in(t *testing.T, p *testnet.Pair, change func(*exec.Cmd), args ...string) (s *process) {
	t.Helper()
	p.Left.Do(func() { s = start(t, change, args...) })
	return s
}

// TestKernelAFXDPKilled: kill -9 at full rate leaves no program on the interface, and the next start works at once.
func TestKernelAFXDPKilled(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{})
	to := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4705")
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 4705})
	for range 3 {
		before := counter.Total().Frames
		run := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--rate", "max", "--duration", "60s")
		until(t, "packets", func() bool { return counter.Total().Frames > before+1000 })
		if program(t, p.Left) == 0 {
			t.Error("no program while replies are expected")
		}
		if err := run.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = run.Wait()
		if id := program(t, p.Left); id != 0 {
			t.Errorf("program %d is left", id)
		}
	}
	if o := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--mode", "oneway", "--rate", "1k", "--duration", "200ms", "--format", "json").end(); o.result(t).Ledger.Sent == 0 {
		t.Errorf("nothing was sent: %s", o.stderr)
	}
}

// TestKernelAFXDPLinkDeleted: ip link del in the middle of a run ends it soon, with the reason, and what was measured is printed.
func TestKernelAFXDPLinkDeleted(t *testing.T) {
	needAFXDP(t)
	for _, mode := range []string{stats.ModeOneway, stats.ModeEcho} {
		p := testnet.NewPair(t, testnet.Config{})
		to := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4705")
		counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 4705})
		run := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--mode", mode, "--rate", "100k", "--duration", "60s", "--format", "json")
		until(t, "packets", func() bool { return counter.Total().Frames > 1000 })
		p.Left.Delete()
		deleted := time.Now()
		o := run.end()
		if took := time.Since(deleted); took > 10*time.Second {
			t.Errorf("%s: it took %v", mode, took)
		}
		if o.code != exitRun || !strings.Contains(o.stderr, "the interface is gone") {
			t.Errorf("%s: exit %d, want %d: %s", mode, o.code, exitRun, o.stderr)
		}
		res, err := stats.ReadResult(strings.NewReader(o.stdout))
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Ledger.Check(mode); err != nil || res.Ledger.Sent < 1000 || !strings.Contains(res.Interrupted, "gone") {
			t.Errorf("%s: %v, %+v, interrupted %q", mode, err, res.Ledger, res.Interrupted)
		}
	}
}

// TestKernelAFXDPHeld: a second blast on a queue says which process has it; on the other queue it runs beside the first. Two that receive
// cannot share an interface, and the second names the program that is in its way.
func TestKernelAFXDPHeld(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	to := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4705")
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 4705})
	for _, c := range []struct {
		mode, queue string
		code        int
		says        []string
	}{
		{stats.ModeOneway, "0", exitUsage, []string{"queue 0", "held by", "pid"}},
		{stats.ModeOneway, "1", exitOK, nil},
		{stats.ModeEcho, "1", exitUsage, []string{"has an XDP program already: id ", "blast_redirect"}},
	} {
		before := counter.Total().Frames
		first := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--mode", c.mode, "--rate", "1k", "--duration", "60s")
		until(t, "packets", func() bool { return counter.Total().Frames > before+10 })
		o := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--mode", c.mode, "--queue", c.queue, "--rate", "10", "--duration", "300ms", "--max-lag", "1s").end()
		if o.code != c.code && !(c.code == exitOK && o.code == exitInvalid) {
			t.Errorf("%s on queue %s: exit %d, want %d: %s", c.mode, c.queue, o.code, c.code, o.stderr)
		}
		for _, w := range c.says {
			if w == "pid" {
				w = "process " + strconv.Itoa(first.Process.Pid)
			}
			if !strings.Contains(o.stderr, w) {
				t.Errorf("%s on queue %s: %q does not say %q", c.mode, c.queue, o.stderr, w)
			}
		}
		if err := first.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = first.Wait()
	}
}

// TestKernelAFXDPCapabilities: each missing capability is named; with them, and without any other, it works.
func TestKernelAFXDPCapabilities(t *testing.T) {
	needAFXDP(t)
	testskip.Root(t)
	p := testnet.NewPair(t, testnet.Config{})
	conn := p.Right.ListenUDP(netip.AddrPortFrom(p.Right.IPv4.Addr(), 0))
	names := map[int]string{unix.CAP_NET_RAW: "CAP_NET_RAW", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_BPF: "CAP_BPF"}
	for _, without := range [][]int{{unix.CAP_NET_RAW}, {unix.CAP_NET_ADMIN}, {unix.CAP_BPF}, {unix.CAP_NET_ADMIN, unix.CAP_BPF}, nil} {
		var run *process
		p.Left.Do(func() { // whose thread, with its bounding set, ends
			for bit := range unix.CAP_LAST_CAP + 1 {
				_, need := names[bit]
				for _, w := range without {
					need = need && w != bit
				}
				if need || bit == unix.CAP_IPC_LOCK {
					continue
				}
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			run = start(t, nil, "udp", conn.LocalAddr().String(), "--backend", "af_xdp", "--mode", "oneway", "--rate", "100", "--duration", "100ms", "--max-lag", "1s")
		})
		o := run.end()
		if without == nil {
			if o.code != exitOK && o.code != exitInvalid {
				t.Errorf("with what it needs: exit %d: %s", o.code, o.stderr)
			}
			continue
		}
		if o.code != exitUsage {
			t.Errorf("without %v: exit %d: %s", without, o.code, o.stderr)
		}
		for _, w := range without {
			if !strings.Contains(o.stderr, names[w]) || !strings.Contains(o.stderr, "setcap") {
				t.Errorf("without %s: %q", names[w], o.stderr)
			}
		}
	}
}

// TestKernelAFXDPMemlock: a low RLIMIT_MEMLOCK does not matter with CAP_IPC_LOCK.
func TestKernelAFXDPMemlock(t *testing.T) {
	needAFXDP(t)
	testskip.Root(t)
	p := testnet.NewPair(t, testnet.Config{})
	conn := p.Right.ListenUDP(netip.AddrPortFrom(p.Right.IPv4.Addr(), 0))
	o := in(t, p, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `ulimit -l 64 && exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}, "udp", conn.LocalAddr().String(), "--backend", "af_xdp", "--mode", "oneway", "--rate", "1k", "--duration", "100ms", "--format", "json").end()
	if res := o.result(t); res.Ledger.Sent == 0 {
		t.Errorf("%+v: %s", res.Ledger, o.stderr)
	}
}

// TestKernelAFXDPPeerStalls: a peer that is down takes nothing. What the kernel drops for it is counted, and the run ends on time.
func TestKernelAFXDPPeerStalls(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{})
	to := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4705")
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 4705})
	run := in(t, p, nil, "udp", to, "--backend", "af_xdp", "--mode", "oneway", "--rate", "10k", "--duration", "2s", "--format", "json")
	until(t, "packets", func() bool { return counter.Total().Frames > 1000 })
	p.Right.SetUp(false)
	o := run.end()
	res := o.result(t)
	if o.took > 10*time.Second || res.Ledger.KernelDropped < 1000 {
		t.Errorf("after %v: %+v", o.took, res.Ledger)
	}
	if got := counter.Total().Frames; got != res.Ledger.Sent {
		t.Errorf("%d sent, %d arrived", res.Ledger.Sent, got)
	}
}

// TestKernelAFXDPBadInput: what cannot be done is refused with the reason and what to do instead.
func TestKernelAFXDPBadInput(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{})
	to := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4705")
	for _, c := range []struct {
		what string
		args []string
		says string
	}{
		{"a queue that does not exist", []string{to, "--queue", "7"}, "queue 7 of left0: it has 1"},
		{"more workers than queues", []string{to, "--workers", "2", "--cpus", "none"}, "queue 1 of left0: it has 1"},
		{"an interface that the route does not take", []string{to, "--iface", "lo"}, "the route leads to left0, not to lo"},
		{"more than the path takes", []string{to, "--payload", "1473"}, "takes 1472 bytes whole"},
		{"a neighbour that does not answer", []string{"10.83.0.99:9"}, "10.83.0.99 on left0 does not answer"},
		{"IPv4 on lo", []string{"127.0.0.1:9"}, "use ::1, or a veth pair"},
		{"more than a frame takes", []string{"[::1]:9", "--payload", "5000"}, "frames of 4096 bytes"},
		{"trains", []string{to, "--gso", "8"}, "--backend sendmmsg has trains"},
		{"zero-copy where there is none", []string{to, "--zerocopy"}, "driver veth does not offer it"},
		{"an interface without the backend that has use for it", []string{to, "--iface", "left0", "--backend", "auto"}, "--iface and --queue are switches of one backend"},
	} {
		begun := time.Now()
		args := append([]string{"udp", "--backend", "af_xdp", "--mode", "oneway", "--rate", "10", "--duration", "100ms"}, c.args...)
		if o := in(t, p, nil, args...).end(); o.code != exitUsage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q: %s", c.what, o.code, exitUsage, c.says, o.stderr)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("%s: it took %v", c.what, took)
		}
	}
}

// TestKernelAFXDPBridge: an address on a bridge is reached by a device that AF_XDP cannot use; its ports are named.
func TestKernelAFXDPBridge(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{})
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := p.Left.Netlink.LinkAdd(bridge); errors.Is(err, unix.EOPNOTSUPP) {
		testskip.Skip(t, "netns", err.Error(), "modprobe bridge, or build a kernel with it")
	} else if err != nil {
		t.Fatal(err)
	}
	link, err := p.Left.Netlink.LinkByName(p.Left.Interface)
	if err != nil {
		t.Fatal(err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 85, 0, 1), Mask: net.CIDRMask(24, 32)}}
	for _, err := range []error{p.Left.Netlink.LinkSetMaster(link, bridge), p.Left.Netlink.AddrAdd(bridge, addr), p.Left.Netlink.LinkSetUp(bridge),
		p.Left.Netlink.NeighSet(&netlink.Neigh{LinkIndex: bridge.Index, IP: net.IPv4(10, 85, 0, 2), State: netlink.NUD_PERMANENT, HardwareAddr: p.Right.MAC})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o := in(t, p, nil, "udp", "10.85.0.2:9", "--backend", "af_xdp", "--mode", "oneway", "--rate", "10", "--duration", "100ms").end()
	if o.code != exitUsage || !strings.Contains(o.stderr, `"br0" is a bridge; use one of its ports: left0`) {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
}

// TestKernelAFXDPEcho: round trips over both queues, by both families, with the books of the target's kernel: what it answered came back.
func TestKernelAFXDPEcho(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	for _, host := range []netip.Addr{p.Right.IPv4.Addr(), p.Right.IPv6.Addr()} {
		for workers := 1; workers <= 2; workers++ {
			t.Run(fmt.Sprintf("%v, %d workers", host, workers), func(t *testing.T) {
				at := place{p.Left.Do, p.Right.Do, host}
				server := at.serve(t)
				res := at.measure(t, server.addr, "--backend", "af_xdp", "--rate", "5k", "--duration", "1s", "--flows", "20", "--workers", strconv.Itoa(workers), "--cpus", "none")
				l, counts := res.Ledger, server.counted(t)
				if counts["received"]+counts["drops"] != l.Sent || l.Replied+l.Late != counts["replied"] || l.Stray+l.Duplicate+l.SelfLost != 0 || l.Sent == 0 {
					t.Errorf("%+v, the server counted %v", l, counts)
				}
				for i, w := range res.Workers {
					if w.Queue != i {
						t.Errorf("worker %d says queue %d", i, w.Queue)
					}
				}
				if !strings.Contains(res.Backend.Mode, "native copy on left0") {
					t.Errorf("mode %q", res.Backend.Mode)
				}
				t.Logf("sent %d, latency p50 %s p99 %s, %q", l.Sent, stats.FormatNS(res.Latency.P50), stats.FormatNS(res.Latency.P99), res.Backend.Notes)
			})
		}
	}
}

// TestKernelCalibrateVeth: a calibration over the veth pair counts at its far end what was sent, for AF_XDP with one and two workers too. A
// busy machine may leave rows without a ceiling; then they say so.
func TestKernelCalibrateVeth(t *testing.T) {
	needAFXDP(t)
	testskip.Root(t)
	o := blast(t, "calibrate", "--veth", "--backend", "af_xdp", "--backend", "sendmmsg", "--payloads", "18", "--workers", "1", "--quick", "--budget", "6s", "--json")
	var p calib.Profile
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		t.Fatalf("%v: %s\n%s", err, o.stdout, o.stderr)
	}
	if p.Against != calib.Veth || len(p.Rows)+len(p.Failed) != 3 {
		t.Errorf("against %s, %d rows and %d failed; want three in all", p.Against, len(p.Rows), len(p.Failed))
	}
	for _, r := range p.Rows {
		if r.Sink == nil || r.Sink.Sent == 0 || r.Sink.Received != r.Sink.Sent {
			t.Errorf("%s: the far end says %+v", r.Backend, r.Sink)
		}
	}
	for _, f := range p.Failed {
		if f.WallCode == "" {
			t.Errorf("%s: %s", f.Backend, f.Reason)
		}
	}
	o = blast(t, "calibrate", "--against", "127.0.0.1:9", "--backend", "af_xdp", "--payloads", "18", "--workers", "1", "--quick")
	if o.code == exitOK || !strings.Contains(o.stdout, "name the interface with --nic") {
		t.Errorf("through an interface that nobody named: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// TestKernelAutoAFXDP: auto takes AF_XDP where the calibration of the very interface recommends it and its packets get through; otherwise
// it goes on in the order of the table and says why not.
func TestKernelAutoAFXDP(t *testing.T) {
	needAFXDP(t)
	v4, v6 := netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("[::1]:9")
	for _, c := range []struct {
		about, calibrated, iface string
		targets                  []netip.AddrPort
		chosen, says             string
	}{
		{"as calibrated", "lo", "lo", []netip.AddrPort{v6}, "af_xdp", "calibration recommends it"},
		{"IPv4 does not get through lo", "lo", "lo", []netip.AddrPort{v6, v4}, "sendmmsg", "not af_xdp: IPv4 frames put on lo"},
		{"another interface was calibrated", "lo", "eth9", []netip.AddrPort{v6}, "sendmmsg", "not af_xdp: the calibration is of lo and the targets are reached by eth9"},
		{"nothing was calibrated", "", "lo", []netip.AddrPort{v6}, "sendmmsg", "no calibration says otherwise"},
	} {
		f, p := udpFlags{backend: "auto"}, udpPlan{iface: c.iface}
		if c.calibrated != "" {
			p.profile = &calib.Profile{Host: stats.Host{NIC: c.calibrated}, Recommended: calib.Recommended{Backend: afxdp.Name}}
		}
		entry, why, err := chooseFrom(f.table(&p, c.targets), f.backend, p.preferred())
		if err != nil || entry.Name != c.chosen || !strings.Contains(why, c.says) {
			t.Errorf("%s: %s, because %q, %v; want %s and %q", c.about, entry.Name, why, err, c.chosen, c.says)
		}
	}
}
