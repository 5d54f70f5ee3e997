package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"blast/backend"
	"blast/calib"
	"blast/stats"
	"blast/tuning"
	"blast/verdict"
)

// TestKernelEcho is the first promise: 20,000 round trips a second for ten seconds, every one answered, the server agrees, VALID.
func TestKernelEcho(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.Name, func(t *testing.T) {
			at := placeOf(t, b.Name)
			untilValid(t, func() *stats.Result {
				server := at.serve(t)
				defer server.kill()
				res := at.measure(t, server.addr, "--rate", "20k", "--duration", "10s", "--backend", b.Name)
				l, counts := &res.Ledger, server.counted(t)
				// Whatever the machine did meanwhile: every slot has its fate, and the server's books say the same as ours.
				if l.Planned != 200_000 || l.Stray+l.Duplicate+l.InFlight != 0 {
					t.Errorf("want 200,000 planned: %+v", *l)
				}
				if counts["received"]+counts["drops"] != l.Sent || counts["replied"] != l.Replied+l.Late+l.SelfLost || counts["drops"] != l.LostUp {
					t.Errorf("the server received %d, replied %d and dropped %d: %+v", counts["received"], counts["replied"], counts["drops"], *l)
				}
				if res.Verdict.Valid && (l.Sent != 200_000 || l.Replied != 200_000) {
					t.Errorf("VALID, but not all of 200,000 sent and answered in time: %+v", *l)
				}
				return res
			})
		})
	}
}

// TestKernelTooFast asks for what no socket can do: INVALID for lag and for rate, with the rate that would have passed.
func TestKernelTooFast(t *testing.T) {
	server := serveUDP(t, "--mode", "sink")
	res, o := measure(t, server.addr, "--mode", "oneway", "--backend", "net", "--rate", "3M", "--duration", "2s")
	if o.code != exitInvalid {
		t.Errorf("exit %d, want %d", o.code, exitInvalid)
	}
	for _, code := range []string{verdict.CodeLag, verdict.CodeRate} {
		i := slices.IndexFunc(res.Verdict.Reasons, func(r stats.Reason) bool { return r.Code == code })
		if i < 0 {
			t.Errorf("no reason %q among:%s", code, reasons(res))
		} else if detail := res.Verdict.Reasons[i].Detail; !strings.Contains(detail, "pps would have passed") {
			t.Errorf("%s does not say which rate would have passed: %s", code, detail)
		}
	}
	if counts := server.counted(t); counts["received"]+counts["drops"] != res.Ledger.Sent {
		t.Errorf("sent %d, but the server received %d and dropped %d", res.Ledger.Sent, counts["received"], counts["drops"])
	}
}

// TestKernelCeiling holds runs against a stored calibration: above its ceiling INVALID, just below VALID with a warning, far below without.
func TestKernelCeiling(t *testing.T) {
	const ceiling = 2000
	state := t.TempDir()
	host := tuning.Reader{}.Host("lo")
	profile := &calib.Profile{
		Schema: calib.Schema, ID: "known-ceiling", Created: time.Now().UTC(), Host: host, Fingerprint: tuning.Fingerprint(host), Against: calib.Loopback,
		Rows:        []calib.Row{{Backend: "net", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: ceiling, Rounds: []calib.Round{}}},
		Recommended: calib.Recommended{Backend: "net", Because: "it is the only one here"}, Failed: []calib.Failed{},
	}
	if err := (calib.Store{Dir: state + "/blast"}).Save(profile); err != nil {
		t.Fatal(err)
	}
	server := serveUDP(t)
	with := func(c *exec.Cmd) { c.Env = append(c.Env, "XDG_STATE_HOME="+state) }
	run := func(rate int) *stats.Result {
		o := start(t, with, "udp", server.addr, "--rate", strconv.Itoa(rate), "--duration", "1s", "--format", "json").end()
		res := o.result(t)
		if c := res.Calibration; c == nil || c.ID != "known-ceiling" || c.CeilingPPS != ceiling {
			t.Fatalf("judged by calibration %+v: %s", c, o.stderr)
		}
		if res.Backend.Name != "net" || !strings.Contains(o.stderr, "calibration recommends it") {
			t.Errorf("auto chose %s, not what the calibration recommends: %s", res.Backend.Name, o.stderr)
		}
		return res
	}
	if res := run(ceiling + 1); res.Verdict.Valid || !hasCode(res.Verdict.Reasons, verdict.CodeCeiling) {
		t.Errorf("above the ceiling: want INVALID for ceiling, got valid %v%s", res.Verdict.Valid, reasons(res))
	}
	for _, c := range []struct {
		rate int
		warn bool
	}{{ceiling * 9 / 10, true}, {ceiling / 4, false}} {
		res := untilValid(t, func() *stats.Result {
			res := run(c.rate)
			if hasCode(res.Verdict.Reasons, verdict.CodeCeiling) || hasCode(res.Verdict.Warnings, verdict.WarnMargin) != c.warn {
				t.Errorf("at %d pps: reasons %v, warnings %v; want a margin warning: %v", c.rate, res.Verdict.Reasons, res.Verdict.Warnings, c.warn)
			}
			return res
		})
		if want := float64(ceiling) / float64(c.rate); res.Calibration.Margin < 0.99*want || res.Calibration.Margin > 1.01*want {
			t.Errorf("at %d pps: margin %g, want %g", c.rate, res.Calibration.Margin, want)
		}
	}

	// A damaged calibration is told and is as none.
	if err := os.WriteFile(calib.Store{Dir: state + "/blast"}.Path(profile.Fingerprint), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := start(t, with, "udp", server.addr, "--rate", strconv.Itoa(ceiling+1), "--duration", "200ms", "--format", "json").end()
	if res := o.result(t); res.Calibration != nil || hasCode(res.Verdict.Reasons, verdict.CodeCeiling) || !strings.Contains(o.stderr, "damaged") {
		t.Errorf("calibration %+v: %s", res.Calibration, o.stderr)
	}
}

// TestKernelCalibrate lets blast calibrate measure this machine and a run find what it stored.
func TestKernelCalibrate(t *testing.T) {
	dir := t.TempDir()
	state := func(c *exec.Cmd) { c.Env = append(c.Env, "XDG_STATE_HOME="+dir) }
	o := start(t, state, "calibrate", "--quick", "--json").end()
	for attempt := 1; o.code == exitRun && attempt < 3; attempt++ { // a machine too busy to measure anything
		t.Logf("attempt %d: %s%s", attempt, o.stdout, o.stderr)
		o = start(t, state, "calibrate", "--quick", "--json").end()
	}
	if o.code != exitOK {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	if o.took > 40*time.Second {
		t.Errorf("it took %v, and should take under 20 s on an idle machine", o.took)
	}
	var p calib.Profile
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		t.Fatal(err)
	}
	if p.Schema != calib.Schema || len(p.Rows) == 0 || !strings.Contains(o.stderr, "stored in ") {
		t.Fatalf("schema %q, %d rows; %s", p.Schema, len(p.Rows), o.stderr)
	}
	server := serveUDP(t)
	res := start(t, state, "udp", server.addr, "--rate", "100", "--duration", "300ms", "--format", "json", "--backend", p.Rows[0].Backend).end().result(t)
	if res.Calibration == nil || res.Calibration.ID != p.ID {
		t.Errorf("the run was judged by calibration %+v, not by %s", res.Calibration, p.ID)
	}
}

// TestKernelSLO: a missed objective is exit 4, a met one exit 0, and only a VALID run can say so.
func TestKernelSLO(t *testing.T) {
	server := serveUDP(t)
	for _, c := range []struct {
		slo  string
		code int
	}{{"p50<1ns", exitSLO}, {"p99<1h", exitOK}, {"loss<0.1%", exitOK}} {
		untilValid(t, func() *stats.Result {
			res, o := measure(t, server.addr, "--rate", "500", "--duration", "500ms", "--slo", c.slo)
			if res.Verdict.Valid && o.code != c.code {
				t.Errorf("slo %s: exit %d, want %d", c.slo, o.code, c.code)
			}
			if len(res.Verdict.SLOs) != 1 || res.Verdict.SLOs[0].Text != c.slo || res.Verdict.SLOs[0].Met != (c.code == exitOK) {
				t.Errorf("slo %s: %+v", c.slo, res.Verdict.SLOs)
			}
			return res
		})
	}
}

// TestKernelRounds repeats a run and names the median round as its headline.
func TestKernelRounds(t *testing.T) {
	server := serveUDP(t)
	out := t.TempDir() + "/rounds.json"
	o := blast(t, "udp", server.addr, "--rate", "1k", "--duration", "400ms", "--rounds", "3", "--out", out)
	res := storedResult(t, out)
	if len(res.Rounds) != 3 {
		t.Fatalf("%d rounds, want 3", len(res.Rounds))
	}
	p99 := []int64{res.Rounds[0].Latency.P99, res.Rounds[1].Latency.P99, res.Rounds[2].Latency.P99}
	slices.Sort(p99)
	if res.Latency.P99 != p99[1] || res.Rounds[res.Round-1].Latency.P99 != p99[1] {
		t.Errorf("the headline is round %d with p99 %d; the rounds have %v", res.Round, res.Latency.P99, p99)
	}
	if !strings.Contains(o.stdout, "median by latency p99") {
		t.Errorf("the report does not say what the headline is:\n%s", o.stdout)
	}
	// Every round is whole; the server saw all of them.
	var sent uint64
	for i := range res.Rounds {
		sent += res.Rounds[i].Ledger.Sent
	}
	if counts := server.counted(t); counts["received"] != sent {
		t.Errorf("the rounds sent %d, the server received %d", sent, counts["received"])
	}
}

// TestKernelShards merges two shards: the percentiles are those of the merged histograms, which HdrHistogram's own library confirms.
func TestKernelShards(t *testing.T) {
	server := serveUDP(t)
	dir := t.TempDir()
	var running []*process
	for i := range 2 {
		running = append(running, start(t, nil, "udp", server.addr, "--rate", "1k", "--duration", "1s", "--shard", fmt.Sprintf("%d/2", i),
			"--run-id", "shards", "--cpus", "none", "--out", fmt.Sprintf("%s/s%d.json", dir, i)))
	}
	for _, p := range running {
		if o := p.end(); o.code != exitOK && o.code != exitInvalid {
			t.Fatalf("exit %d: %s", o.code, o.stderr)
		}
	}
	if o := blast(t, "report", dir+"/s1.json", dir+"/s0.json", "--out", dir+"/whole.json"); o.code != exitOK {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	a, b, whole := storedResult(t, dir+"/s0.json"), storedResult(t, dir+"/s1.json"), storedResult(t, dir+"/whole.json")
	if whole.Ledger.Sent != a.Ledger.Sent+b.Ledger.Sent || whole.Shards != 1 {
		t.Errorf("%d sent, %d shards; want %d and 1", whole.Ledger.Sent, whole.Shards, a.Ledger.Sent+b.Ledger.Sent)
	}
	if counts := server.counted(t); counts["received"] != whole.Ledger.Sent {
		t.Errorf("sent %d, the server received %d", whole.Ledger.Sent, counts["received"])
	}
	for name, h := range map[string][3]*stats.Histogram{
		"latency": {&a.Latency, &b.Latency, &whole.Latency}, "service": {&a.Service, &b.Service, &whole.Service}, "lag": {&a.Lag, &b.Lag, &whole.Lag},
	} {
		merged, all := decodeHDR(t, h[0]), decodeHDR(t, h[2])
		if dropped := merged.Merge(decodeHDR(t, h[1])); dropped != 0 || !merged.Equals(all) {
			t.Errorf("%s: the merged histogram is not the sum of both", name)
		}
		// The library's percentiles are the highest value of a bucket, a thousandth above its lowest.
		if want := merged.ValueAtQuantile(99); h[2].P99 > want || h[2].P99 < want-want/500 {
			t.Errorf("%s: p99 %d ns, the merged histogram says %d ns", name, h[2].P99, want)
		}
	}
}

func decodeHDR(t *testing.T, h *stats.Histogram) *hdrhistogram.Histogram {
	t.Helper()
	d, err := hdrhistogram.Decode([]byte(h.HDR))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func storedResult(t *testing.T, path string) *stats.Result {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res, err := stats.ReadResult(f)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestKernelFlows spreads fifty flows over two source addresses and a port range, in turn.
func TestKernelFlows(t *testing.T) {
	r := receive(t, 64<<20)
	res, _ := measure(t, r.addr, "--mode", "oneway", "--rate", "5k", "--duration", "200ms", "--flows", "50", "--src", "127.0.0.1", "--src", "127.0.0.2",
		"--src-port", "42000-42024")
	got, dropped := r.end(t)
	perFlow := map[string]int{}
	for _, a := range got {
		perFlow[fmt.Sprintf("%v:%d", net.IP(a.addr[:]), a.port)]++
	}
	want := map[string]int{}
	for port := 42000; port <= 42024; port++ {
		for _, src := range []string{"127.0.0.1", "127.0.0.2"} {
			want[fmt.Sprintf("%s:%d", src, port)] = 20
		}
	}
	if res.Ledger.Sent != 1000 || dropped != 0 {
		t.Logf("sent %d of 1000, %d dropped", res.Ledger.Sent, dropped)
		return
	}
	if diff := cmp.Diff(want, perFlow); diff != "" {
		t.Errorf("packets by flow (-want +got):\n%s", diff)
	}
}

// TestKernelIPv6 runs over the loopback of the other family, by address and by name.
func TestKernelIPv6(t *testing.T) {
	server := serveUDP(t, "--listen", "[::1]:0")
	_, port, err := net.SplitHostPort(server.addr)
	if err != nil {
		t.Fatal(err)
	}
	var sent uint64
	for _, args := range [][]string{{server.addr}, {"[::1]:" + port, "--src", "::1", "--backend", "net"}} {
		res, _ := measure(t, append(args, "--rate", "1k", "--duration", "300ms")...)
		sent += res.Ledger.Sent
		if l := &res.Ledger; l.Planned != 300 || l.Replied+l.Late != l.Sent {
			t.Errorf("%v: %+v", args, *l)
		}
		if h := res.Rate.IPBPS - res.Rate.PayloadBPS; res.Rate.PayloadBPS == 0 || h/res.Rate.PayloadBPS < 0.749 || h/res.Rate.PayloadBPS > 0.751 {
			t.Errorf("%v: headers are 48 bytes beside a payload of 64: payload %g, IP %g bit/s", args, res.Rate.PayloadBPS, res.Rate.IPBPS)
		}
	}
	if counts := server.counted(t); counts["received"] != sent {
		t.Errorf("sent %d, the server received %d", sent, counts["received"])
	}
}

// TestKernelAllow: a server answers nobody outside its list, counts those it denied, and says whom it serves.
func TestKernelAllow(t *testing.T) {
	server := serveUDP(t, "--allow", "127.0.0.2/32")
	if line, err := server.line(); err != nil || line != "echo for peers in 127.0.0.2/32" {
		t.Errorf("second line %q, %v", line, err)
	}
	res, _ := measure(t, server.addr, "--rate", "500", "--duration", "200ms", "--timeout", "200ms", "--src", "127.0.0.1")
	counts := server.counted(t)
	if l := &res.Ledger; l.Replied+l.Late != 0 || l.Lost != l.Sent || counts["denied"] != l.Sent || counts["received"] != 0 || counts["replied"] != 0 {
		t.Errorf("from outside: %+v; server %v", *l, counts)
	}
	res, _ = measure(t, server.addr, "--rate", "500", "--duration", "200ms", "--src", "127.0.0.2")
	counts = server.counted(t)
	if l := &res.Ledger; l.Replied+l.Late != l.Sent || counts["received"] != l.Sent {
		t.Errorf("from inside: %+v; server %v", *l, counts)
	}
}

// TestChooseBackend: a named backend that cannot run here is an error that says why; auto goes on to the next and says so.
func TestChooseBackend(t *testing.T) {
	missing := fmt.Errorf("exotic: no such device: modprobe exotic: %w", errors.ErrUnsupported)
	unsure := errors.New("cannot tell: permission denied")
	entry := func(name string, err error) backend.Entry {
		return backend.Entry{Name: name, Probe: func() error { return err }}
	}
	table := func() []backend.Entry {
		return []backend.Entry{entry("exotic", missing), entry("unsure", unsure), entry("plain", nil), entry("last", nil)}
	}
	for _, c := range []struct{ what, name, preferred, want, says string }{
		{"the first that works, and why not those before", "auto", "", "plain", "not exotic: exotic: no such device: modprobe exotic"},
		{"what the calibration recommends", "auto", "last", "last", "this host's calibration recommends it"},
		{"a recommendation that cannot run is passed over, not silently", "auto", "exotic", "plain", "not exotic"},
		{"by name", "last", "plain", "last", ""},
		{"by name, although it could not be told whether it works: the run will show", "unsure", "", "unsure", ""},
	} {
		got, why, err := chooseFrom(table(), c.name, c.preferred)
		if err != nil || got.Name != c.want || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q, %q, %v; want %q because %q", c.what, got.Name, why, err, c.want, c.says)
		}
	}
	if _, _, err := chooseFrom(table(), "exotic", ""); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "modprobe exotic") {
		t.Errorf("a named backend that cannot run: %v", err)
	}
	if _, _, err := chooseFrom(table(), "dpdk", ""); err == nil || !strings.Contains(err.Error(), "want auto, exotic, unsure, plain, last") {
		t.Errorf("an unknown backend: %v", err)
	}
	if _, _, err := chooseFrom(table()[:2], "auto", ""); err == nil || !strings.Contains(err.Error(), "no backend works here") {
		t.Errorf("nothing works: %v", err)
	}
}
