package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
	r, err := ParseExporter(body)
	if err != nil {
		return Reading{}, fmt.Errorf("node exporter %s: %w", e.url, err)
	}
	r.Source = e.url
	r.setClock(asked, answered)
	return r, nil
}

// ParseExporter reads a page in Prometheus' text format. It is an error when it has no CPU times: then it is another exporter's, or the cpu
// collector is off. Counters that are not there are left out. The steady clock is the wall clock's, for the page has no other.
func ParseExporter(page []byte) (Reading, error) {
	r := Reading{Sample: tuning.Sample{Counters: map[string]uint64{}}}
	cpus := map[int]*tuning.CPUTimes{}
	for line := range strings.Lines(string(page)) {
		m, ok, err := parseSeries(line)
		if err != nil {
			return Reading{}, fmt.Errorf("page: %w", err)
		}
		if ok {
			r.take(m, cpus)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(cpus)) {
		r.Sample.CPUs = append(r.Sample.CPUs, *cpus[n])
	}
	switch {
	case len(cpus) == 0:
		return Reading{}, errors.New("page: it has no node_cpu_seconds_total: not a node_exporter, or one without --collector.cpu")
	case r.Sample.WallNS == 0:
		return Reading{}, errors.New("page: it has no node_time_seconds: run the node_exporter with --collector.time")
	}
	return r, nil
}

// take puts one series where it belongs; counters get the names that tuning.Reader.Counters uses.
func (a *Reading) take(m series, cpus map[int]*tuning.CPUTimes) {
	count := a.Sample.Counters
	switch m.name {
	case "node_time_seconds":
		a.Sample.WallNS, a.Sample.MonotonicNS = int64(m.value*1e9), int64(m.value*1e9)
	case "node_boot_time_seconds":
		a.BootTime = uint64(m.value)
	case "node_uname_info":
		a.Hostname = m.labels["nodename"]
	case "node_cpu_seconds_total":
		takeCPU(m, cpus)
	case "node_softnet_dropped_total":
		count["softnet.dropped"] += uint64(m.value)
	}
	if mib, field, ok := strings.Cut(strings.TrimPrefix(m.name, "node_netstat_"), "_"); ok && (mib == "Udp" || mib == "Udp6") {
		count[strings.ToLower(mib)+"."+field] = uint64(m.value)
	}
	if short, ok := map[string]string{
		"node_network_receive_packets_total": "rx_packets", "node_network_receive_drop_total": "rx_dropped", "node_network_receive_errs_total": "rx_errors",
		"node_network_transmit_packets_total": "tx_packets", "node_network_transmit_drop_total": "tx_dropped", "node_network_transmit_errs_total": "tx_errors",
	}[m.name]; ok {
		count[m.labels["device"]+"."+short] = uint64(m.value)
	}
}

func takeCPU(m series, cpus map[int]*tuning.CPUTimes) {
	n, err := strconv.Atoi(m.labels["cpu"])
	if err != nil {
		return
	}
	c := cpus[n]
	if c == nil {
		c = &tuning.CPUTimes{CPU: n}
		cpus[n] = c
	}
	c.Total += m.value
	switch m.labels["mode"] {
	case "idle", "iowait":
		return
	case "softirq":
		c.Softirq = m.value
	case "steal":
		c.Steal = m.value
	}
	c.Busy += m.value
}

// series is one line of a page.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

// parseSeries reads a line NAME{LABEL="VALUE",...} NUMBER [TIME] of Prometheus' text format, version 0.0.4. Comments and empty lines are
// none.
func parseSeries(line string) (m series, ok bool, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return m, false, nil
	}
	bad := func(what string) (series, bool, error) { return m, false, fmt.Errorf("line %.80q: %s", line, what) }
	at := strings.IndexAny(line, "{ \t")
	if at <= 0 {
		return bad("no name and value")
	}
	rest := ""
	m.name, rest = line[:at], line[at:]
	if rest[0] == '{' {
		if m.labels, rest, ok = parseLabels(rest[1:]); !ok {
			return bad("labels that do not end")
		}
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return bad("no value")
	}
	if m.value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return bad("no number")
	}
	return m, true, nil
}

// parseLabels reads up to the closing brace and returns what follows. A quoted value is a Go string but for its escapes, of which the
// format has three: backslash, quote and line feed.
func parseLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if rest, ok := strings.CutPrefix(text, "}"); ok {
			return labels, rest, true
		}
		name, quoted, found := strings.Cut(text, `="`)
		if !found {
			return nil, "", false
		}
		end := 0
		for end < len(quoted) && quoted[end] != '"' {
			if quoted[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(quoted) {
			return nil, "", false
		}
		labels[strings.TrimSpace(name)] = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(quoted[:end])
		text = quoted[end+1:]
	}
}
