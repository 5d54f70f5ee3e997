package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/stats"
)

// page reads the figures of --metrics at addr on the calling thread, so that it may be in a network namespace; nil where there is no page.
func page(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", addr)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}

// watched waits, at most 20 s, for a page that ok holds for.
func watched(t *testing.T, addr string, read func(func()), ok func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	var got map[string]float64
	if !eventually(t.Context(), 20*time.Second, func() bool {
		read(func() { got = page(t, addr) })
		return got != nil && ok(got)
	}) {
		t.Fatalf("the page does not come to it: %v", got)
	}
	return got
}

// agrees holds a page of the end against the result.
func agrees(t *testing.T, what string, got map[string]float64, res *stats.Result) {
	t.Helper()
	for name, want := range ledgerFigures(res) {
		if v, ok := got[name]; strings.HasPrefix(name, "blast_") && (!ok || v != want) {
			t.Errorf("%s: %s is %v, want the report's %v", what, name, v, want)
		}
	}
	for name, h := range map[string]*stats.Histogram{"latency": &res.Latency, "service": &res.Service, "lag": &res.Lag} {
		if n := got["blast_"+name+"_seconds_count"]; n != float64(h.Count) || got[`blast_`+name+`_seconds_bucket{le="+Inf"}`] != n {
			t.Errorf("%s: %v values of %s, want %d", what, n, name, h.Count)
		}
	}
}

// TestMetricsRounds: two rounds add up, an interrupt ends the lingering but not before the result is printed, and the page is gone then.
func TestMetricsRounds(t *testing.T) {
	server := serveUDP(t)
	at := freeTCP(t)
	p := start(t, nil, "udp", server.addr, "--rate", "500", "--duration", "2s", "--rounds", "2", "--backend", "net", "--format", "json", "--metrics", at, "--metrics-linger", "1h")
	here := func(fn func()) { fn() }
	watched(t, at, here, func(m map[string]float64) bool { return m["blast_sent_packets_total"] > 0 && m["blast_finished"] == 0 })
	got := watched(t, at, here, func(m map[string]float64) bool { return m["blast_rounds_finished"] == 2 })
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	res := p.end().result(t)
	var sent, replied uint64
	for i := range res.Rounds {
		sent += res.Rounds[i].Ledger.Sent
		replied += res.Rounds[i].Ledger.Replied
	}
	if len(res.Rounds) != 2 || got["blast_sent_packets_total"] != float64(sent) || got["blast_replied_packets_total"] != float64(replied) {
		t.Errorf("page %v, rounds with %d sent and %d replied", got, sent, replied)
	}
	if page(t, at) != nil {
		t.Error("the page is still there")
	}
}

// TestMetricsLadder: the steps of a ladder add up as rounds do; its probes are none of them.
func TestMetricsLadder(t *testing.T) {
	server := serveUDP(t)
	at, file := freeTCP(t), filepath.Join(t.TempDir(), "ladder.json")
	p := start(t, nil, "ladder", server.addr, "--from", "200", "--to", "400", "--step", "500ms", "--max-lag", "1s", "--backend", "net", "--format", "json", "--out", file,
		"--metrics", at, "--metrics-linger", "1h")
	if !eventually(t.Context(), 2*time.Minute, func() bool { _, err := os.Stat(file); return err == nil }) {
		t.Fatal("the ladder does not end")
	}
	got := page(t, at)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	l := p.end().ladder(t)
	var sent, replied uint64
	for i := range l.Steps {
		sent += l.Steps[i].Result.Ledger.Sent
		replied += l.Steps[i].Result.Ledger.Replied
	}
	if sent == 0 || got["blast_rounds_finished"] != float64(len(l.Steps)) || got["blast_sent_packets_total"] != float64(sent) || got["blast_replied_packets_total"] != float64(replied) {
		t.Errorf("page %v, %d steps with %d sent and %d replied", got, len(l.Steps), sent, replied)
	}
}

// TestMetricsRefused: what cannot be served ends the command before anything is sent.
func TestMetricsRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	for _, c := range []struct {
		why  string
		args []string
		says string
	}{
		{"a port in use", []string{"--metrics", taken.Addr().String()}, "address already in use"},
		{"an address of another host", []string{"--metrics", "192.0.2.1:9091"}, "cannot assign requested address"},
		{"no port", []string{"--metrics", "9091"}, "want HOST:PORT"},
		{"a page that is not there cannot stay", []string{"--metrics-linger", "5s"}, "say where with --metrics"},
		{"less than nothing", []string{"--metrics", "127.0.0.1:0", "--metrics-linger", "-1s"}, "want 0 or more"},
	} {
		o := blast(t, append([]string{"udp", sink.LocalAddr().String(), "--rate", "1k", "--mode", "oneway", "--duration", "1s"}, c.args...)...)
		if o.code != exitUsage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d with %q: %s", c.why, o.code, exitUsage, c.says, o.stderr)
		}
	}
	_ = sink.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _, err := sink.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes were sent", n)
	}
}

// TestKernelMetrics: the page of runs whose figures come from elsewhere than threads of ours: the in-kernel engine, replies taken in the kernel,
// completions of io_uring. It moves during the run and ends as the result.
func TestKernelMetrics(t *testing.T) {
	for _, o := range offloads() {
		testskip.XDP(t, o.Probe())
	}
	p := testnet.NewPair(t, testnet.Config{Queues: 2})
	kernel, sockets := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4713"), net.JoinHostPort(p.Right.IPv4.Addr().String(), "4714")
	serveOn(t, p.Right, "--xdp", "--listen", kernel)
	serveOn(t, p.Right, "--listen", sockets)
	at := net.JoinHostPort(p.Left.IPv4.Addr().String(), "9091")
	for _, args := range [][]string{{kernel, "--backend", "xdp_live"}, {sockets, "--backend", "sendmmsg", "--receive", "xdp"}, {sockets, "--backend", "io_uring"}} {
		what := strings.Join(args, " ")
		run := in(t, p, nil, append([]string{"udp", "--rate", "2k", "--duration", "3s", "--format", "json", "--metrics", at, "--metrics-linger", "1h"}, args...)...)
		got := watched(t, at, p.Left.Do, func(m map[string]float64) bool {
			return m["blast_replied_packets_total"] > 0 && m["blast_finished"] == 0
		})
		if got["blast_planned_packets_total"] < got["blast_sent_packets_total"] || got["blast_sent_packets_total"] < got["blast_replied_packets_total"] || got["blast_latency_seconds_count"] == 0 {
			t.Errorf("%s: in the middle: %v", what, got)
		}
		got = watched(t, at, p.Left.Do, func(m map[string]float64) bool { return m["blast_finished"] == 1 })
		if err := run.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		agrees(t, what, got, run.end().result(t))
	}
}
