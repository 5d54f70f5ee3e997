package main

import (
	"net"
	"strings"
	"testing"

	"blast/internal/testnet"
	"blast/internal/testskip"
)

// TestKernelLiveCommand: the in-kernel engine and its target as a user types them. Every packet is answered and counted alike by the run, by
// the target and by the interface, and neither command leaves a program behind, killed or not.
func TestKernelLiveCommand(t *testing.T) {
	for _, o := range offloads() {
		testskip.XDP(t, o.Probe())
	}
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4711")
	server := serveOn(t, p.Right, "--xdp", "--listen", at)

	before := p.Left.Statistics()
	o := in(t, p, nil, "udp", at, "--backend", "xdp_live", "--rate", "100k", "--duration", "1s", "--format", "json").end()
	res := o.result(t)
	left := p.Left.Statistics().TxPackets - before.TxPackets
	l := res.Ledger
	if l.Planned != 100_000 || l.Sent != l.Planned || l.Replied+l.Late != l.Sent || res.Backend.Name != "xdp_live" || res.Latency.Count != l.Sent {
		t.Errorf("ledger %+v of backend %s: want 100000 planned, sent and replied", l, res.Backend.Name)
	}
	if counts := server.counted(t); counts["received"] != l.Sent || counts["replied"] != l.Sent {
		t.Errorf("the target counted %v: want %d", counts, l.Sent)
	}
	if left < l.Sent {
		t.Errorf("%d packets left by the interface: want at least %d", left, l.Sent)
	}
	if id := program(t, p.Left); id != 0 {
		t.Errorf("program %d is left on the sender's end", id)
	}

	run := in(t, p, nil, "udp", at, "--backend", "xdp_live", "--rate", "100k", "--duration", "60s")
	until(t, "packets", func() bool { return p.Left.Statistics().TxPackets > before.TxPackets+left+1000 })
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	server.kill()
	if a, b := program(t, p.Left), program(t, p.Right); a != 0 || b != 0 {
		t.Errorf("programs %d and %d are left after kill -9", a, b)
	}

	for _, c := range []struct {
		name string
		args []string
	}{
		{"a foreign payload needs code per packet", []string{"--payload-hex", "00010203", "--vary", "0:2:seq", "--match", "0:2", "--rate", "1k"}},
		{"a closed model waits for replies", []string{"--model", "closed", "--clients", "2"}},
	} {
		if o := in(t, p, nil, append([]string{"udp", at, "--backend", "xdp_live"}, c.args...)...).end(); o.code != exitUsage {
			t.Errorf("%s: exit %d, want %d: %s", c.name, o.code, exitUsage, o.stderr)
		}
	}
	if o := blast(t, "udp", "127.0.0.1:4711", "--backend", "xdp_live", "--rate", "1k"); o.code != exitUsage {
		t.Errorf("lo has no live frames: exit %d, want %d: %s", o.code, exitUsage, o.stderr)
	}
}

// TestKernelReceiveXDP: every other backend with its replies taken in the kernel. The books are those of the target, latencies are there for
// every reply, and what needs the replies themselves is refused.
func TestKernelReceiveXDP(t *testing.T) {
	needAFXDP(t)
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4712")
	server := serveOn(t, p.Right, "--listen", at)
	var total uint64
	for _, c := range []struct {
		backend string
		more    []string
	}{
		{"net", nil}, {"sendmmsg", []string{"--workers", "2", "--cpus", "none", "--flows", "10", "--warmup", "200ms"}}, {"io_uring", []string{"--flows", "50"}},
		{"sendmmsg", []string{"--payload", "18"}},
	} {
		o := in(t, p, nil, append([]string{"udp", at, "--backend", c.backend, "--receive", "xdp", "--rate", "5k", "--duration", "1s", "--format", "json"}, c.more...)...).end()
		res := o.result(t)
		l := res.Ledger
		if l.Planned != 5000 || l.Sent != 5000 || l.Replied+l.Late != 5000 || l.Stray != 0 || res.Latency.Count != 5000 || res.Service.Count != 5000 {
			t.Errorf("%s %v: ledger %+v, %d latencies: want 5000 planned, sent and replied", c.backend, c.more, l, res.Latency.Count)
		}
		if res.Latency.Min < res.Service.Min || res.Service.Min <= 0 || !strings.Contains(res.Backend.Mode, "XDP") {
			t.Errorf("%s: latency from %d ns, service from %d ns, mode %q", c.backend, res.Latency.Min, res.Service.Min, res.Backend.Mode)
		}
		var replied uint64
		for _, s := range res.Timeline {
			replied += s.Replied
		}
		if replied != 5000 {
			t.Errorf("%s: the timeline has %d replies", c.backend, replied)
		}
		total += 5000
		if id := program(t, p.Left); id != 0 {
			t.Errorf("%s: program %d is left", c.backend, id)
		}
	}
	if n := server.counted(t)["replied"]; n < total {
		t.Errorf("the target replied %d times: want at least %d", n, total)
	}

	server.kill()
	o := in(t, p, nil, "udp", at, "--backend", "sendmmsg", "--receive", "xdp", "--rate", "1k", "--duration", "1s", "--timeout", "300ms", "--format", "json").end()
	if l := o.result(t).Ledger; l.Sent != 1000 || l.Lost+l.InFlight != 1000 || l.Lost < 700 {
		t.Errorf("nobody answers: %+v: want 1000 sent, lost but for the last", l)
	}
	for _, args := range [][]string{
		{"--receive", "xdp", "--model", "closed", "--clients", "2"},
		{"--receive", "xdp", "--payload-hex", "00010203", "--vary", "0:2:seq", "--match", "0:2", "--rate", "1k"},
		{"--receive", "xdp", "--mode", "oneway", "--rate", "1k"},
		{"--receive", "dpdk", "--rate", "1k"},
	} {
		if o := in(t, p, nil, append([]string{"udp", at}, args...)...).end(); o.code != exitUsage {
			t.Errorf("%v: exit %d, want %d: %s", args, o.code, exitUsage, o.stderr)
		}
	}
}
