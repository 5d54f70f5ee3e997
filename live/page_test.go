package live

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"blast/stats"
)

func open(t *testing.T, cfg Config) *Page {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// scrape reads the page as a scraper with native histograms does.
func scrape(t *testing.T, p *Page) map[string]*dto.MetricFamily {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	families := map[string]*dto.MetricFamily{}
	dec := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		f := &dto.MetricFamily{}
		if err := dec.Decode(f); err == io.EOF {
			return families
		} else if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = f
	}
}

// values are the counters and gauges, by name and labels.
func values(families map[string]*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(name, "blast_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				out[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[key] = m.Gauge.GetValue()
			}
		}
	}
	return out
}

func filled(v ...int64) *stats.Hist {
	h := &stats.Hist{}
	for _, v := range v {
		h.Record(v)
	}
	return h
}

// running is a run after two of its intervals, of which the last planned 600.
func running() *stats.Live {
	l := &stats.Live{Lag: filled(10, 20), Latency: filled(1000, 2000, 3000), Service: filled(990), LastNS: 5e8, Last: stats.Second{Planned: 600}}
	l.Result.Ledger = stats.Ledger{Planned: 1000, Sent: 900, Refused: map[string]uint64{"no_buffers": 60}, Abandoned: 30, KernelDropped: 10, Replied: 700, Late: 20,
		Duplicate: 5, Reordered: 6, Lost: 100, InFlight: 80, SelfLost: 7, Stray: 8}
	l.Result.Rate = stats.Rate{TargetPPS: 1000, ElapsedNS: 1e9}
	l.Result.Workers = []stats.Worker{{CPU: 3, Duty: 0.25, Sent: 900}}
	return l
}

// A run in progress, then its result, then a second round: each value where its name says, and counters that only grow.
func TestPage(t *testing.T) {
	p := open(t, Config{RunID: "r", Backend: "net", Target: "a:1", Mode: "echo", Model: "open", Version: "v", Causes: []string{"no_buffers", "permission"}, Codes: []string{"lag", "rate"}})
	before := scrape(t, p)
	if h := before["blast_latency_seconds"].GetMetric()[0].GetHistogram(); h.Schema == nil || h.GetZeroThreshold() == 0 || h.GetSampleCount() != 0 {
		t.Errorf("before anything: %v: want an empty native histogram", h)
	}
	l := running()
	p.Update(l, []string{"lag"})
	got := scrape(t, p)
	want := map[string]float64{
		"info net echo open r a:1 v": 1, "rounds_finished": 0, "finished": 0, "elapsed_seconds": 1, "target_packets_per_second": 1200,
		"planned_packets_total": 1000, "sent_packets_total": 900, "refused_packets_total no_buffers": 60, "refused_packets_total permission": 0,
		"abandoned_packets_total": 30, "kernel_dropped_packets_total": 10, "replied_packets_total": 700, "late_packets_total": 20, "duplicate_replies_total": 5,
		"reordered_replies_total": 6, "stray_packets_total": 8, "self_lost_replies_total": 7, "lost_packets": 100, "in_flight_packets": 80,
		"worker_duty_ratio 3 0": 0.25, "worker_sent_packets 3 0": 900, "valid": 0, "invalid lag": 1, "invalid rate": 0,
	}
	if diff := cmp.Diff(want, values(got)); diff != "" {
		t.Errorf("in progress (-want +got):\n%s", diff)
	}
	latency := got["blast_latency_seconds"].GetMetric()[0].GetHistogram()
	if latency.GetSampleCount() != 3 || latency.GetSampleSum() != 6000e-9 || latency.GetSchema() != schema || len(latency.GetBucket()) != 22 || len(latency.GetPositiveDelta()) == 0 {
		t.Errorf("latency %v: want 3 samples of 6 us in all, native and classic", latency)
	}
	res := &stats.Result{Ledger: l.Result.Ledger, Rate: stats.Rate{TargetPPS: 1000, ElapsedNS: 2e9}, Lag: filled(10, 20, 30).Summary(), Latency: filled(1000, 2000, 3000, 4000).Summary()}
	res.Ledger.Sent, res.Ledger.Planned = 1900, 2000
	res.Verdict.Reasons = []stats.Reason{{Code: "rate"}}
	for range 2 {
		if err := p.Done(res); err != nil {
			t.Fatal(err)
		}
	}
	p.Update(l, nil)
	got = scrape(t, p)
	now := values(got)
	for name, want := range map[string]float64{"sent_packets_total": 2*1900 + 900, "planned_packets_total": 2*2000 + 1000, "refused_packets_total no_buffers": 180, "rounds_finished": 2, "valid": 1, "invalid rate": 0} {
		if now[name] != want {
			t.Errorf("third round: %s is %v, want %v", name, now[name], want)
		}
	}
	if n := got["blast_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 2*4+3 {
		t.Errorf("third round: %d latencies, want 11", n)
	}
	res.Lag.HDR = "nonsense"
	if err := p.Done(res); err == nil {
		t.Error("a histogram that cannot be read was taken")
	}
}

// Names and units are as Prometheus wants them.
func TestNames(t *testing.T) {
	p := open(t, Config{Codes: []string{"lag"}, Causes: []string{"no_buffers"}})
	resp, err := http.Get("http://" + p.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	problems, err := promlint.New(resp.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Nothing else is served, nothing can be changed, and the classic buckets are there for a scraper that asks for text.
func TestServed(t *testing.T) {
	var confined, released atomic.Int32
	p := open(t, Config{RunID: "r1", Confine: func() func() { confined.Add(1); return func() { released.Add(1) } }})
	before := confined.Load()
	p.Update(running(), nil)
	for _, c := range []struct {
		method, path string
		code         int
		says         string
	}{
		{"GET", "/", 200, "blast run r1"}, {"GET", "/metrics", 200, `blast_latency_seconds_bucket{le="1e-06"} 1`}, {"HEAD", "/metrics", 200, ""},
		{"POST", "/metrics", 405, ""}, {"PUT", "/", 405, ""}, {"GET", "/debug/pprof/", 404, ""}, {"GET", "/metrics/", 404, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+p.Addr()+c.path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s: %d, want %d with %q:\n%s", c.method, c.path, resp.StatusCode, c.code, c.says, body)
		}
	}
	if n := confined.Load() - before; n != 4 || released.Load() != confined.Load() {
		t.Errorf("confined %d times, released %d of %d: want 2 pages, 4, by who collects and who writes", n, released.Load(), confined.Load())
	}
}

// A port that is taken is an error that says so.
func TestPortTaken(t *testing.T) {
	p := open(t, Config{})
	if _, err := Open(Config{Addr: p.Addr()}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a taken port: %v", err)
	}
	if _, err := Open(Config{Addr: "nowhere"}); err == nil {
		t.Error("no port at all was taken")
	}
}

// Closing finishes at once, also with an idle connection and one that says nothing.
func TestClose(t *testing.T) {
	p, err := Open(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	scrape(t, p)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("still listening")
	}
}

// What is updated while it is scraped is whole: sent = replied in every view.
func TestConcurrent(t *testing.T) {
	p := open(t, Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(200) {
			l := running()
			l.Result.Ledger = stats.Ledger{Sent: n, Replied: n}
			p.Update(l, nil)
		}
	}()
	for range 20 {
		v := values(scrape(t, p))
		if v["sent_packets_total"] != v["replied_packets_total"] {
			t.Errorf("torn: %v", v)
		}
	}
	<-done
}
