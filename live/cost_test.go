package live

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"blast/stats"
)

// BenchmarkPage is one scrape of a run with spread-out latencies, as a scraper with native histograms makes it.
func BenchmarkPage(b *testing.B) {
	p, err := Open(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	l := &stats.Live{Lag: &stats.Hist{}, Latency: &stats.Hist{}, Service: &stats.Hist{}}
	for _, h := range []*stats.Hist{l.Lag, l.Latency, l.Service} {
		for range 1_000_000 {
			h.Record(int64(20_000 + rand.ExpFloat64()*100_000))
		}
	}
	p.Update(l, nil)
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		p.server.Handler.ServeHTTP(w, req)
		b.ReportMetric(float64(w.Body.Len()), "B/page")
	}
}
