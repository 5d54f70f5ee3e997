package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"blast/tuning"
)

// Exporter asks a node_exporter. It knows cores, UDP counters and interfaces, offers no no-op echo, and its clock is read in seconds with
// fractions. For one goroutine at a time.
type Exporter struct {
	url  string
	http *http.Client
}

// NewExporter makes a client of the page at a URL such as http://10.0.0.2:9100/metrics. Nothing is sent yet.
func NewExporter(page string) (*Exporter, error) {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("node exporter %q: want the URL of its page, such as http://10.0.0.2:9100/metrics", page)
	}
	if u.Path == "" {
		u.Path = "/metrics"
	}
	return &Exporter{url: u.String(), http: direct()}, nil
}

// Close closes the connection.
func (e *Exporter) Close() { e.http.CloseIdleConnections() }

// Ask reads the page once.
func (e *Exporter) Ask(ctx context.Context) (Reading, error) {
	body, asked, answered, err := get(ctx, e.http, e.url)
	if err != nil {
		return Reading{}, fmt.Errorf("node exporter %s: %w; start it on the target's host (Debian: apt install prometheus-node-exporter)", e.url, err)
	}
	r, err := parseExporter(body)
	if err != nil {
		return Reading{}, fmt.Errorf("node exporter %s: %w", e.url, err)
	}
	r.Source = e.url
	r.setClock(asked, answered)
	return r, nil
}

// parseExporter reads a page in Prometheus' text format. It is an error when it has no CPU times: then it is another exporter's, or the cpu
// collector is off. Counters that are not there are left out. The steady clock is the wall clock's, for the page has no other.
func parseExporter(page []byte) (Reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return Reading{}, fmt.Errorf("page: %w", err)
	}
	s := tuning.Sample{CPUs: exporterCPUs(families["node_cpu_seconds_total"]), Counters: map[string]uint64{}}
	if len(s.CPUs) == 0 {
		return Reading{}, fmt.Errorf("page: it has no node_cpu_seconds_total: not a node_exporter, or one without --collector.cpu")
	}
	now, ok := single(families["node_time_seconds"])
	if !ok {
		return Reading{}, fmt.Errorf("page: it has no node_time_seconds: run the node_exporter with --collector.time")
	}
	s.WallNS, s.MonotonicNS = int64(now*1e9), int64(now*1e9)
	for name, f := range families {
		countExporter(s.Counters, name, f)
	}
	r := Reading{Sample: s}
	if boot, ok := single(families["node_boot_time_seconds"]); ok {
		r.BootTime = uint64(boot)
	}
	if f := families["node_uname_info"]; f != nil && len(f.Metric) > 0 {
		r.Hostname = label(f.Metric[0], "nodename")
	}
	return r, nil
}

// countExporter adds a family under the names that tuning.Reader.Counters uses.
func countExporter(to map[string]uint64, name string, f *dto.MetricFamily) {
	if mib, field, ok := strings.Cut(strings.TrimPrefix(name, "node_netstat_"), "_"); ok && strings.HasPrefix(name, "node_netstat_Udp") {
		if v, ok := single(f); ok && (mib == "Udp" || mib == "Udp6") {
			to[strings.ToLower(mib)+"."+field] = uint64(v)
		}
		return
	}
	if name == "node_softnet_dropped_total" {
		for _, m := range f.Metric {
			to["softnet.dropped"] += uint64(value(m))
		}
		return
	}
	short, ok := map[string]string{
		"node_network_receive_packets_total": "rx_packets", "node_network_receive_drop_total": "rx_dropped", "node_network_receive_errs_total": "rx_errors",
		"node_network_transmit_packets_total": "tx_packets", "node_network_transmit_drop_total": "tx_dropped", "node_network_transmit_errs_total": "tx_errors",
	}[name]
	if !ok {
		return
	}
	for _, m := range f.Metric {
		to[label(m, "device")+"."+short] = uint64(value(m))
	}
}

func exporterCPUs(f *dto.MetricFamily) []tuning.CPUTimes {
	if f == nil {
		return nil
	}
	byCPU := map[int]*tuning.CPUTimes{}
	for _, m := range f.Metric {
		n, err := strconv.Atoi(label(m, "cpu"))
		if err != nil {
			continue
		}
		c := byCPU[n]
		if c == nil {
			c = &tuning.CPUTimes{CPU: n}
			byCPU[n] = c
		}
		v := value(m)
		c.Total += v
		switch label(m, "mode") {
		case "idle", "iowait":
			continue
		case "softirq":
			c.Softirq = v
		case "steal":
			c.Steal = v
		}
		c.Busy += v
	}
	var out []tuning.CPUTimes
	for _, c := range byCPU {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b tuning.CPUTimes) int { return cmp.Compare(a.CPU, b.CPU) })
	return out
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// value is a sample's, whatever type its family says it has.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	}
	return 0
}

func single(f *dto.MetricFamily) (float64, bool) {
	if f == nil || len(f.Metric) != 1 {
		return 0, false
	}
	return value(f.Metric[0]), true
}
