package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"blast/internal/testskip"
	"blast/tuning"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func running(t *testing.T, cfg Config) (*Server, *Client) {
	t.Helper()
	if !cfg.Listen.IsValid() {
		cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := NewClient(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

// An agent tells its cores, counters and clock, and knows that it is asked by its own host.
func TestAsk(t *testing.T) {
	s, c := running(t, Config{})
	r, err := Best(t.Context(), c.Ask)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sample.CPUs) == 0 || r.Sample.CPUs[0].Total <= 0 {
		t.Errorf("CPUs %+v", r.Sample.CPUs)
	}
	if _, ok := r.Sample.Counters["udp.RcvbufErrors"]; !ok {
		t.Errorf("counters %v", r.Sample.Counters)
	}
	if !r.SameHost(tuning.Reader{}) || !r.SameNetwork(tuning.Reader{}) {
		t.Errorf("not the same host: %+v", r)
	}
	// One clock, read twice: the offset is within what the round trip leaves open.
	if r.Within <= 0 || r.Offset.Abs() > r.Within+time.Microsecond {
		t.Errorf("offset %v within %v", r.Offset, r.Within)
	}
	if r.Noop != s.Addr() {
		t.Errorf("no-op at %v, want %v", r.Noop, s.Addr())
	}
	conn, err := net.Dial("udp", r.Noop.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := conn.Read(b); err != nil || string(b[:n]) != "ping" {
		t.Errorf("echo %q, %v", b[:n], err)
	}
}

// An agent that cannot have both of its ports has neither: it is an error, and nothing of it stays.
func TestHalfStarted(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(free.Addr().String())
	udp, err := net.ListenPacket("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	if _, err := Start(Config{Listen: at}); err == nil || !strings.Contains(err.Error(), "no-op echo on the UDP port of the same number") {
		t.Errorf("with the UDP port taken: %v", err)
	}
	tcp, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatalf("the TCP port was kept: %v", err)
	}
	udp.Close()
	if _, err := Start(Config{Listen: at}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("with the TCP port taken: %v", err)
	}
	tcp.Close()
	if _, err := Start(Config{}); err == nil {
		t.Error("started nowhere")
	}
	running(t, Config{Listen: at})
}

// Peers outside the allow list get nothing; what is no GET of / changes and tells nothing.
func TestRefuses(t *testing.T) {
	s, c := running(t, Config{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := c.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), "--agent-allow") {
		t.Errorf("denied peer: %v", err)
	}
	if s.Denied() == 0 {
		t.Error("nobody was counted as denied")
	}
	open, _ := running(t, Config{})
	for _, c := range []struct {
		method, path string
		code         int
	}{{http.MethodPost, "/", 405}, {http.MethodGet, "/etc/passwd", 404}} {
		rec := httptest.NewRecorder()
		open.ServeHTTP(rec, httptest.NewRequest(c.method, c.path, nil))
		if rec.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, rec.Code, c.code)
		}
	}
}

// A peer that stalls before or in its header, or in a body that nobody wants, keeps no connection; a header without end is cut short.
func TestStalledPeers(t *testing.T) {
	s, _ := running(t, Config{})
	const ask = "GET / HTTP/1.1\r\nHost: x\r\n"
	var stalled []net.Conn
	for _, says := range []string{"", "GET / HT", ask, ask + "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 10), ask + "X: " + strings.Repeat("x", 1<<15) + "\r\n\r\n"} {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(says)); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, c)
	}
	for i, c := range stalled {
		if err := c.SetReadDeadline(time.Now().Add(slowest + 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("peer %d is still connected", i)
		}
	}
}

// Each way in which there is no agent names the command that helps.
func TestClientErrors(t *testing.T) {
	answer := func(text string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	ill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ill", http.StatusInternalServerError) }))
	t.Cleanup(ill.Close)
	newer, err := json.Marshal(Answer{Schema: "blast.agent/2", Blast: "v9.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ why, addr, says string }{
		{"nobody listens", "127.0.0.1:1", "start it on the target's host with: blast serve --agent 127.0.0.1:1"},
		{"another program", answer("<html>"), "no blast agent"},
		{"a server in trouble", strings.TrimPrefix(ill.URL, "http://"), `it answers "500 Internal Server Error"; start it on the target's host`},
		{"no address for its echo", answer(`{"schema":"blast.agent/1","noop":"nowhere"}`), `no-op echo at "nowhere"`},
		{"other JSON", answer(`{"a":1}`), "no blast agent"},
		{"another version", answer(string(newer)), "it speaks blast.agent/2 (blast v9.0.0), this blast speaks blast.agent/1: put the same blast on both hosts, then: blast serve --agent"},
	} {
		client, err := NewClient(c.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.why, err, c.says)
		}
		client.Close()
	}
	if _, err := NewClient("10.0.0.2"); err == nil {
		t.Error("an address without a port was taken")
	}
	e, err := NewExporter("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), "node exporter http://127.0.0.1:1/metrics: ") || !strings.Contains(err.Error(), "start it on the target's host") {
		t.Errorf("no exporter: %v", err)
	}
}

// A wildcard agent's echo is where the agent was asked, and clocks are told apart by more than the round trip.
func TestReadingOfAnother(t *testing.T) {
	ahead := Answer{Schema: Schema, BootID: "another", Noop: "0.0.0.0:7", Sample: tuning.Sample{}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ahead.Sample.WallNS = time.Now().Add(42 * time.Second).UnixNano()
		_ = json.NewEncoder(w).Encode(ahead)
	}))
	t.Cleanup(srv.Close)
	c, err := NewClient(strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r, err := Best(t.Context(), c.Ask)
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddrPort("127.0.0.1:7"); r.Noop != want {
		t.Errorf("no-op at %v, want %v", r.Noop, want)
	}
	_, port, err := net.SplitHostPort(c.addr)
	if err != nil {
		t.Fatal(err)
	}
	named, err := NewClient("localhost:" + port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(named.Close)
	if at, err := named.noop("0.0.0.0:7"); err != nil || !at.Addr().IsLoopback() || at.Port() != 7 {
		t.Errorf("no-op of an agent asked by name at %v: %v", at, err)
	}
	if (r.Offset-42*time.Second).Abs() > r.Within+time.Microsecond || r.SameHost(tuning.Reader{}) {
		t.Errorf("offset %v within %v, same host %v", r.Offset, r.Within, r.SameHost(tuning.Reader{}))
	}
}

// The page of Debian's prometheus-node-exporter 1.5.0, as it was on a machine with two CPUs.
func TestParseExporter(t *testing.T) {
	page, err := os.ReadFile("testdata/node_exporter_1.5.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseExporter(page)
	if err != nil {
		t.Fatal(err)
	}
	if r.Hostname != "vm" || r.BootTime != 1795985089 || len(r.Sample.CPUs) != 2 || r.Sample.WallNS/1e9 < 1795985089 {
		t.Errorf("%+v", r)
	}
	for _, c := range r.Sample.CPUs {
		if c.Busy <= 0 || c.Busy >= c.Total || c.Softirq <= 0 || c.Softirq > c.Busy {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"udp.InDatagrams", "udp.RcvbufErrors", "udp6.InDatagrams", "softnet.dropped", "eth0.tx_dropped"} {
		if _, ok := r.Sample.Counters[name]; !ok {
			t.Errorf("no %s in %v", name, r.Sample.Counters)
		}
	}
}

func TestParseExporterRefuses(t *testing.T) {
	for _, c := range []struct{ why, page, says string }{
		{"another exporter", "up 1\n", "no node_cpu_seconds_total"},
		{"without a clock", `node_cpu_seconds_total{cpu="0",mode="user"} 1` + "\n", "no node_time_seconds"},
		{"not a page", "<html>\n", "page: text format parsing error in line 1"},
		{"cut short", `node_cpu_seconds_total{cpu="0`, "page: text format parsing error"},
	} {
		if _, err := parseExporter([]byte(c.page)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.why, err, c.says)
		}
	}
}

// TestKernelExporter asks the node_exporter of Debian's package, where it is installed.
func TestKernelExporter(t *testing.T) {
	path, err := exec.LookPath("prometheus-node-exporter")
	if err != nil {
		testskip.Skip(t, "node-exporter", "no prometheus-node-exporter in PATH", "apt install prometheus-node-exporter")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	cmd := exec.CommandContext(t.Context(), path, "--web.listen-address="+at)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	e, err := NewExporter("http://" + at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := e.Ask(ctx)
	for err != nil && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		r, err = e.Ask(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	own, err := tuning.Reader{}.Sample()
	if err != nil {
		t.Fatal(err)
	}
	if !r.SameHost(tuning.Reader{}) || len(r.Sample.CPUs) != len(own.CPUs) || r.Offset.Abs() > r.Within+time.Second {
		t.Errorf("%+v, own CPUs %d", r, len(own.CPUs))
	}
	// It read before this did, so nothing of it can be ahead.
	for name, n := range own.Counters {
		if theirs, ok := r.Sample.Counters[name]; ok && strings.HasPrefix(name, "udp.") && theirs > n {
			t.Errorf("%s: %d, and later %d", name, theirs, n)
		}
	}
}
