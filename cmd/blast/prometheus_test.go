package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"blast/internal/testskip"
	"blast/stats"
)

// TestPrometheus: the page of --metrics as Prometheus from Debian's packages reads it, once with native histograms and once without. The
// target drops, doubles and holds back packets, so that no counter agrees by being 0. What both servers have after the last scrape is the ledger, and
// the p99 that they compute is the report's within a bucket.
func TestPrometheus(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		testskip.Skip(t, "prometheus", err.Error(), "apt-get install prometheus, and stop the service that it starts")
	}
	server := serveUDP(t, "--servers", "16", "--service", "1ms", "--drop", "2%", "--dup", "1%", "--reorder", "1%", "--seed", "7")
	page := freeTCP(t)
	native, classic := startPrometheus(t, path, page, "--enable-feature=native-histograms"), startPrometheus(t, path, page)
	for _, s := range []*prometheus{native, classic} { // Prometheus takes 5 s from its start to its first scrape, here of a page that is not there yet
		if !eventually(t.Context(), 30*time.Second, func() bool { _, ok := s.query(t, "up"); return ok }) {
			t.Fatal("a Prometheus does not begin to scrape")
		}
	}
	p := start(t, nil, "udp", server.addr, "--rate", "2k", "--duration", "5s", "--timeout", "300ms", "--backend", "net", "--format", "json",
		"--metrics", page, "--metrics-linger", "60s")
	for _, s := range []*prometheus{native, classic} {
		if !eventually(t.Context(), 20*time.Second, func() bool {
			sent, ok := s.query(t, "blast_sent_packets_total")
			ended, _ := s.query(t, "blast_finished")
			return ok && sent > 0 && ended == 0
		}) {
			t.Fatal("nothing was scraped during the run")
		}
	}
	for _, s := range []*prometheus{native, classic} {
		if !eventually(t.Context(), 20*time.Second, func() bool { ended, _ := s.query(t, "blast_finished"); return ended == 1 }) {
			t.Fatal("the end of the run was not scraped")
		}
	}
	want := []map[string]float64{native.figures(t), classic.figures(t)}
	p99, ok := native.query(t, "histogram_quantile(0.99, blast_latency_seconds)")
	coarse, okCoarse := classic.query(t, "histogram_quantile(0.99, blast_latency_seconds_bucket)")
	counted, _ := native.query(t, "histogram_count(blast_latency_seconds)")
	summed, _ := native.query(t, "histogram_sum(blast_latency_seconds)")
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := p.end()
	if o.took > 50*time.Second {
		t.Errorf("took %v: an interrupt ends the lingering", o.took)
	}
	res := o.result(t)
	if l := &res.Ledger; l.Planned != 10_000 || l.Lost == 0 || l.Duplicate == 0 || l.Reordered == 0 {
		t.Errorf("ledger %+v: want 10000 planned, some lost, doubled and reordered", *l)
	}
	for i, got := range want {
		for name, want := range ledgerFigures(res) {
			if got[name] != want {
				t.Errorf("server %d: %s is %v, want the report's %v", i, name, got[name], want)
			}
		}
	}
	if exact := float64(res.Latency.P99) / 1e9; !ok || math.Abs(math.Log2(p99/exact)) > 1.01/128 {
		t.Errorf("p99 of native buckets %v (%v), of the report %v: want the same within a bucket of 1/128 octave", p99, ok, exact)
	} else {
		t.Logf("p99: report %v s, native %v s, classic %v s", exact, p99, coarse)
	}
	low, high := classicBucket(float64(res.Latency.P99) / 1e9)
	if !okCoarse || coarse < low || coarse > high {
		t.Errorf("p99 of classic buckets %v (%v): want between %v and %v, as the report's %d ns", coarse, okCoarse, low, high, res.Latency.P99)
	}
	sum, err := res.Latency.Sum.Float64()
	if err != nil || counted != float64(res.Latency.Count) || math.Abs(summed-sum/1e9) > 1e-12*summed {
		t.Errorf("latencies: %v of %v s in all, want %d of %v ns (%v)", counted, summed, res.Latency.Count, res.Latency.Sum, err)
	}
}

// ledgerFigures are the series that a report has to agree with, by name.
func ledgerFigures(res *stats.Result) map[string]float64 {
	l := &res.Ledger
	valid := 0.0
	if res.Verdict.Valid {
		valid = 1
	}
	return map[string]float64{
		"blast_planned_packets_total": float64(l.Planned), "blast_sent_packets_total": float64(l.Sent), "sum(blast_refused_packets_total)": float64(l.RefusedTotal()),
		"blast_abandoned_packets_total": float64(l.Abandoned), "blast_kernel_dropped_packets_total": float64(l.KernelDropped),
		"blast_replied_packets_total": float64(l.Replied), "blast_late_packets_total": float64(l.Late), "blast_duplicate_replies_total": float64(l.Duplicate),
		"blast_reordered_replies_total": float64(l.Reordered), "blast_stray_packets_total": float64(l.Stray), "blast_self_lost_replies_total": float64(l.SelfLost),
		"blast_lost_packets": float64(l.Lost), "blast_in_flight_packets": float64(l.InFlight), "blast_valid": valid,
	}
}

// classicBucket is the bucket, 1-2-5 a decade, that holds v.
func classicBucket(v float64) (low, high float64) {
	for decade := 1e-6; ; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if low, high = high, step*decade; v <= high {
				return low, high * (1 + 1e-9)
			}
		}
	}
}

// prometheus is a running server of its own.
type prometheus struct{ api string }

// startPrometheus starts a server that scrapes page every second, with its files in a folder of the test, and waits until it answers.
func startPrometheus(t *testing.T, path, page string, more ...string) *prometheus {
	t.Helper()
	dir, addr := t.TempDir(), freeTCP(t)
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: blast\n  static_configs: [{targets: ['%s']}]\n", page)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr}, more...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	s := &prometheus{api: "http://" + addr}
	if !eventually(t.Context(), 20*time.Second, func() bool {
		resp, err := http.Get(s.api + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}) {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("prometheus is not ready: %s", said)
	}
	return s
}

// query is the value of an expression with one result.
func (s *prometheus) query(t *testing.T, expr string) (float64, bool) {
	t.Helper()
	resp, err := http.Get(s.api + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %+v, %v", expr, answer, err)
	}
	if len(answer.Data.Result) != 1 {
		return 0, false
	}
	text, _ := answer.Data.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// figures are the values of the series of ledgerFigures.
func (s *prometheus) figures(t *testing.T) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for name := range ledgerFigures(&stats.Result{}) {
		if v, ok := s.query(t, name); ok {
			got[name] = v
		}
	}
	return got
}

// freeTCP is an address of loopback with a port that was free a moment ago.
func freeTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
