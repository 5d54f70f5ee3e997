package calib

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a profile with every kind of line.
func sample() *Profile {
	round := func(pps float64, valid bool, codes ...string) Round {
		return Round{TargetPPS: pps, AchievedPPS: pps, Valid: valid, Codes: append([]string{}, codes...), Duty: 0.66, LagP99NS: 45_100, LagP999NS: 120_000}
	}
	row := func(backend string, gso, payload, workers int, flat, ceiling float64, code, wall string) Row {
		return Row{
			Backend: backend, Mode: "connected sockets", GSO: gso, PayloadBytes: payload, Workers: workers, Flows: workers, FlatPPS: flat,
			PacketNS: int64(1e9 * float64(workers) / flat), CeilingPPS: ceiling, StayBelowPPS: ceiling / Margin, AchievedPPS: ceiling,
			L1BPS: ceiling * 8 * float64(max(payload+46, 64)+20), L2BPS: ceiling * 8 * float64(max(payload+46, 64)), IPBPS: ceiling * 8 * float64(payload+28),
			PayloadBPS: ceiling * 8 * float64(payload), Duty: 0.66, LagP99NS: 45_100, Wall: wall, WallCode: code, WallPPS: ceiling * 1.05, Trials: 9,
			Rounds: []Round{round(ceiling, true), round(ceiling, false, "lag"), round(ceiling, true)},
			Sink:   &Sink{Sent: 1_000_000, Received: 900_000, Dropped: 99_990, OwnCPU: workers == 1},
		}
	}
	duty := "duty 0.83 > 0.70: one core's system calls; more workers, or trains, go further"
	p := &Profile{
		Schema: Schema, ID: "loopback-01234567-20260102T030405Z", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Against: Loopback,
		Host: stats.Host{Hostname: "lab", Kernel: "6.18.0", CPU: "Example CPU @ 3 GHz", Cores: 2, NIC: "lo", Driver: "loopback", Governor: "performance", Virt: "kvm"},
		Rows: []Row{
			row("sendmmsg", 1, 64, 1, 500_000, 320_000, "duty", duty),
			row("net", 1, 64, 1, 340_000, 219_000, "lag", "lag p99.9 3.00 ms: sending is interrupted"),
			row("sendmmsg", 32, 64, 1, 2_600_000, 1_720_000, "refused", "refused message_size: the kernel takes no more"),
			row("sendmmsg", 1, 1400, 2, 880_000, 551_000, "", "none met: the time ended first"),
		},
		Fingerprint: "0123456789abcdef", ElapsedNS: 151e9,
		Recommended: Recommended{Backend: "sendmmsg", Because: "its ceiling is 1.46 times net on average over the rows that both have"},
		Failed: []Failed{
			{Backend: "af_xdp", GSO: 1, Reason: "af_xdp: unsupported operation: the kernel has no XDP_SOCKETS; rebuild it with CONFIG_XDP_SOCKETS=y, or use --backend sendmmsg"},
			{Backend: "net", GSO: 1, PayloadBytes: 1400, Workers: 1, Reason: "no rate down to 12.3 kpps ended VALID: lag p99.9 81.7 ms", WallCode: "lag"},
			{Backend: "net", GSO: 1, PayloadBytes: 1400, Workers: 2, Reason: "the time of 2m30s did not reach this far; give more, or name fewer backends, payloads and workers"},
		},
	}
	return p
}

// TestText compares with testdata, and keeps to 100 columns.
func TestText(t *testing.T) {
	against := sample()
	against.Against, against.Quick, against.Failed = elsewhere.String(), true, nil
	for i := range against.Rows {
		against.Rows[i].Sink = nil
	}
	empty := sample()
	empty.Rows, empty.Recommended = []Row{}, Recommended{}
	for name, p := range map[string]*Profile{"loopback": sample(), "against": against, "empty": empty} {
		var b bytes.Buffer
		if err := p.Text(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%s: a line has %d characters: %s", name, n, line)
			}
		}
		path := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-want +got), rewrite with -update:\n%s", path, diff)
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrors(t *testing.T) {
	if err := sample().Text(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("text: error %v", err)
	}
	if err := sample().JSON(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("json: error %v", err)
	}
}

// TestJSONPromises: no null anywhere, durations integers in _ns, rates in _pps or _bps.
func TestJSONPromises(t *testing.T) {
	var b bytes.Buffer
	p := newProfile(&Config{Against: elsewhere}, time.Unix(0, 0))
	p.Rows = append(p.Rows, *newRow(cell{Candidate{Entry: entry("net", nil)}, 64, 1}, &found{ceiling: 1000, rounds: []outcome{{target: 1000, valid: true}}}, nil))
	if err := p.JSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "null") {
		t.Errorf("null in %s", b.String())
	}
	var row struct {
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal(b.Bytes(), &row); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"flat_pps", "ceiling_pps", "stay_below_pps", "wall_pps", "l1_bps", "l2_bps", "ip_bps", "payload_bps", "packet_ns", "lag_p99_ns"} {
		if _, ok := row.Rows[0][field].(float64); !ok {
			t.Errorf("%s is %v, want a number", field, row.Rows[0][field])
		}
	}
}

// cpusOfTest are CPUs that this process may use: the engine's test pins its worker to the last one.
func cpusOfTest(t *testing.T) []int {
	t.Helper()
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}
