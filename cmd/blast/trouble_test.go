package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"blast/stats"
	"blast/verdict"
)

// TestKernelTargetStopped freezes the target for a second in the middle of a run. The plan goes on: the lag is what it was, no packet is
// lost, and the latency is that of the queue that built up. A packet planned tau after the stop waits D - tau, so of n packets at rate r
// the r D late ones are spread evenly over 0 to D: max = D, and p99 is the one with n/100 above it, D - n / (100 r).
func TestKernelTargetStopped(t *testing.T) {
	const rate, n = 1000, 10_000
	var stopped time.Duration
	res := untilValid(t, func() *stats.Result {
		server := serveUDP(t)
		defer server.kill()
		p := start(t, nil, "udp", server.addr, "--rate", strconv.Itoa(rate), "--duration", "10s", "--timeout", "5s", "--format", "json")
		time.Sleep(4 * time.Second)
		began := time.Now()
		server.signal(t, syscall.SIGSTOP)
		time.Sleep(time.Second)
		server.signal(t, syscall.SIGCONT)
		stopped = time.Since(began)
		res := p.end().result(t)
		l, counts := &res.Ledger, server.counted(t)
		if l.Planned != n || l.Replied+l.Late != l.Sent || l.Lost+l.InFlight+l.SelfLost != 0 || counts["received"] != l.Sent {
			t.Errorf("want %d planned, and all that was sent answered: %+v; server %v", n, *l, counts)
		}
		return res
	})
	// The signals take effect within some ms, and the queue of about a thousand is answered within some more.
	const slack = 30 * time.Millisecond
	within := func(what string, got int64, want time.Duration) {
		if off := time.Duration(got) - want; off < -slack || off > slack {
			t.Errorf("%s of the latency is %v, want %v within %v", what, time.Duration(got), want, slack)
		}
	}
	within("max", res.Latency.Max, stopped)
	within("p99", res.Latency.P99, stopped-n/100*time.Second/rate)
	within("p99.9", res.Latency.P999, stopped-n/1000*time.Second/rate)
	if want := rate * (stopped - 100*time.Millisecond).Seconds(); float64(res.Latency.Over.Ms100) < want-rate*slack.Seconds() ||
		float64(res.Latency.Over.Ms100) > want+rate*slack.Seconds() {
		t.Errorf("%d packets took over 100 ms, want about %.0f", res.Latency.Over.Ms100, want)
	}
	// The run was VALID, so lag p99.9 is below a millisecond although a second was lost elsewhere; the worst second shows where.
	worst := 0
	for i := range res.Timeline {
		if res.Timeline[i].LatencyP99NS > res.Timeline[worst].LatencyP99NS {
			worst = i
		}
	}
	if at := res.Timeline[worst].T; at < 4 || at > 6 {
		t.Errorf("the worst second ends at %.0f s, want 4 to 6", at)
	}
}

// TestKernelTargetKilled takes the target away in the middle of a run. It ends on time, what was not answered is lost, and the ICMP
// errors that came back are told apart from that.
func TestKernelTargetKilled(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.Name, func(t *testing.T) {
			at := placeOf(t, b.Name)
			server := at.serve(t)
			p := at.start(t, "udp", server.addr, "--rate", "1k", "--duration", "3s", "--timeout", "500ms", "--format", "json", "--backend", b.Name)
			time.Sleep(1500 * time.Millisecond)
			server.kill()
			o := p.end()
			res := o.result(t)
			if o.took > 6*time.Second {
				t.Errorf("a run of 3 s and a timeout of 500 ms took %v", o.took)
			}
			l := &res.Ledger
			if l.Planned != 3000 || l.Lost < 1000 || l.Replied+l.Late < 500 || l.RefusedTotal() != 0 || res.Interrupted != "" {
				t.Errorf("want 3000 planned, about half answered and half lost, none refused: %+v (interrupted: %s)", *l, res.Interrupted)
			}
			if n := res.Events["conn_refused"]; n < 100 || n > l.Sent {
				t.Errorf("%d ICMP port unreachable were seen for %d lost packets", n, l.Lost)
			}
		})
	}
}

// TestKernelInterrupt: one interrupt ends the run; what was measured until then is printed and written, and marked.
func TestKernelInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			server := serveUDP(t)
			out := t.TempDir() + "/stopped.json"
			p := start(t, nil, "udp", server.addr, "--rate", "1k", "--duration", "60s", "--out", out)
			time.Sleep(1500 * time.Millisecond)
			if err := p.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			o := p.end()
			if o.code != exitOK && o.code != exitInvalid || o.took > 10*time.Second {
				t.Errorf("exit %d after %v: %s", o.code, o.took, o.stderr)
			}
			res := storedResult(t, out)
			l := &res.Ledger
			if err := l.Check(res.Config.Mode); err != nil {
				t.Error(err)
			}
			if res.Interrupted != "interrupt" || !hasCode(res.Verdict.Warnings, verdict.WarnInterrupted) {
				t.Errorf("interrupted %q, warnings %v", res.Interrupted, res.Verdict.Warnings)
			}
			if l.Planned < 500 || l.Planned > 5000 || l.Lost != 0 || server.counted(t)["received"] != l.Sent {
				t.Errorf("want the packets of about 1.5 s, none lost: %+v", *l)
			}
			if res.Rate.TargetPPS < 900 || res.Rate.TargetPPS > 1100 {
				t.Errorf("the target rate of the part that ran is %g pps, want 1000", res.Rate.TargetPPS)
			}
			if !strings.Contains(o.stdout, "interrupted") || !strings.Contains(o.stderr, "Once more to quit at once") {
				t.Errorf("not marked:\n%s\n%s", o.stdout, o.stderr)
			}
		})
	}
}

// TestKernelInterruptTwice: the second interrupt ends a run that still waits for replies at once.
func TestKernelInterruptTwice(t *testing.T) {
	server := serveUDP(t, "--mode", "sink")
	p := start(t, nil, "udp", server.addr, "--rate", "1k", "--duration", "60s", "--timeout", "60s", "--drain", "60s")
	time.Sleep(500 * time.Millisecond)
	for range 2 {
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if o := p.end(); o.code != exitRun || o.took > 5*time.Second {
		t.Errorf("exit %d after %v, want %d within a second", o.code, o.took, exitRun)
	}
}

// TestKernelServeSignals: a server prints its address first, its counts on SIGUSR1, and again when it is told to end, with exit 0.
func TestKernelServeSignals(t *testing.T) {
	server := serveUDP(t, "--mode", "sink", "--listen", "127.0.0.1:0", "--listen", "[::1]:0")
	if line, err := server.line(); err != nil || !strings.HasPrefix(line, "listening [::1]:") {
		t.Errorf("second line %q, %v", line, err)
	}
	if counts := server.counted(t); counts["received"] != 0 {
		t.Errorf("before: %v", counts)
	}
	res, _ := measure(t, server.addr, "--mode", "oneway", "--rate", "1k", "--duration", "100ms")
	if counts := server.counted(t); counts["received"] != res.Ledger.Sent || counts["replied"] != 0 {
		t.Errorf("sent %d, the server says %v", res.Ledger.Sent, counts)
	}
	server.signal(t, syscall.SIGTERM)
	if counts, err := server.nextCounts(); err != nil || counts["received"] != res.Ledger.Sent {
		t.Errorf("at the end: %v, %v", counts, err)
	}
	if err := server.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// TestKernelMemory runs at up to 200,000 packets a second for a quarter of a minute, or a whole one with BLAST_LONG set: the
// resident memory of sender and sink stays flat and below 100 MiB, echo or not.
func TestKernelMemory(t *testing.T) {
	length := 15 * time.Second
	if os.Getenv("BLAST_LONG") != "" {
		length = time.Minute
	}
	rate := min(200_000, 0.5*maxRate(t, placeOf(t, backends()[0].Name), backends()[0].Name))
	for _, c := range []struct {
		mode, serve string
		rate        float64
		length      time.Duration
	}{{"oneway", "sink", rate, length}, {"echo", "echo", rate / 4, length / 2}} {
		t.Run(c.mode, func(t *testing.T) {
			server := serveUDP(t, "--mode", c.serve)
			p := start(t, nil, "udp", server.addr, "--mode", c.mode, "--rate", fmt.Sprintf("%.0f", c.rate), "--duration", c.length.String(), "--format", "json")
			var sender, sink []int
			for ended := time.After(c.length); ; {
				sender, sink = append(sender, residentKiB(t, p.Process.Pid)), append(sink, residentKiB(t, server.cmd.Process.Pid))
				select {
				case <-time.After(250 * time.Millisecond):
					continue
				case <-ended:
				}
				break
			}
			res := p.end().result(t)
			if res.Ledger.Sent == 0 {
				t.Error("nothing was sent")
			}
			t.Logf("%s at %s", c.mode, stats.FormatPPS(res.Rate.AchievedPPS))
			flat(t, "sender", sender)
			flat(t, c.serve, sink)
		})
	}
}

// flat compares the second half of the samples with the second quarter: the first holds what is set up once.
func flat(t *testing.T, who string, kib []int) {
	t.Helper()
	most := func(list []int) (m int) {
		for _, v := range list {
			m = max(m, v)
		}
		return m
	}
	n := len(kib)
	early, late := most(kib[n/4:n/2]), most(kib[n/2:])
	t.Logf("%s: %d KiB at the start, %d KiB before half time, %d KiB after", who, kib[min(2, n-1)], early, late)
	if late > 100<<10 {
		t.Errorf("%s: %d KiB resident, want less than 100 MiB", who, late)
	}
	if late > early+4<<10 {
		t.Errorf("%s: grew from %d to %d KiB", who, early, late)
	}
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("process %d has no VmRSS: it has ended", pid)
	return 0
}

// TestKernelTerminalAbsent: without a terminal there is no progress line, and nothing but the choice of the backend on stderr.
func TestKernelTerminalAbsent(t *testing.T) {
	server := serveUDP(t)
	o := start(t, func(c *exec.Cmd) { c.Stdin = nil }, "udp", server.addr, "--rate", "100", "--duration", "1200ms", "--backend", "net").end()
	if o.stderr != "" || strings.ContainsAny(o.stdout, "\x1b\r") {
		t.Errorf("stderr %q, stdout %q", o.stderr, o.stdout)
	}
}
