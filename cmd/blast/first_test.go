package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"blast/calib"
	"blast/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with testdata/pages/name, or rewrites the file. No line of a page is wider than a terminal of 120 columns.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "pages", name) // testscript takes every text file of testdata itself for a script
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./cmd/blast -run %s -update writes it", err, t.Name())
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), -update accepts:\n%s", name, diff)
	}
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func firstProfile(disturbed bool) *calib.Profile {
	p := &calib.Profile{Created: time.Unix(1e9, 0), Host: stats.Host{NIC: "lo", Cores: 2}}
	for _, r := range []calib.Row{
		{Backend: "sendmmsg", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 146000, StayBelowPPS: 48667},
		{Backend: "io_uring", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 150000, StayBelowPPS: 50000},
		{Backend: "net", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 93000, StayBelowPPS: 31000},
		{Backend: "af_xdp", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 172000, StayBelowPPS: 57333},
		{Backend: "sendmmsg", GSO: 32, PayloadBytes: 64, Workers: 1, Flows: 1, CeilingPPS: 991000, StayBelowPPS: 330333},
		{Backend: "sendmmsg", GSO: 1, PayloadBytes: 1400, Workers: 1, Flows: 1, CeilingPPS: 171000, StayBelowPPS: 57000},
		{Backend: "sendmmsg", GSO: 1, PayloadBytes: 64, Workers: 2, Flows: 2, CeilingPPS: 290000, StayBelowPPS: 96667},
		{Backend: "io_uring", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1000, CeilingPPS: 118000, StayBelowPPS: 39333},
	} {
		if disturbed {
			r.WallCode, r.Duty = "lag", 0.1
		}
		p.Rows = append(p.Rows, r)
	}
	return p
}

// ringsProfile is what blast calibrate --backend af_xdp leaves.
func ringsProfile() *calib.Profile {
	p := firstProfile(false)
	p.Rows = p.Rows[3:4]
	return p
}

// TestFirstPage: what to type next depends on what is known of the machine.
func TestFirstPage(t *testing.T) {
	plain := func(s string) string { return s }
	for _, c := range []struct {
		file, why string
		profiles  []*calib.Profile
	}{
		{"first-new.txt", "nothing was measured: quickstart", nil},
		{"first-rings.txt", "what was measured is shown, and that a run to any target knows nothing from it", []*calib.Profile{ringsProfile()}},
		{"first-measured.txt", "the ceilings, and a run a third of the one that a run on loopback takes", []*calib.Profile{firstProfile(false)}},
		{"first-disturbed.txt", "measured while something else ran: once more", []*calib.Profile{firstProfile(true)}},
	} {
		t.Run(c.file, func(t *testing.T) {
			var b bytes.Buffer
			writeFirst(&b, c.profiles, time.Unix(1e9+3*86400, 0), plain)
			golden(t, c.file, b.String())
		})
	}
}

// TestBestSocket: AF_XDP reaches no IPv4 socket on loopback, so a first run does not take it, and 3 % more is no reason to leave the first
// of the table.
func TestBestSocket(t *testing.T) {
	if r := bestSocket(firstProfile(false)); r == nil || r.Backend != "sendmmsg" || r.PayloadBytes != 64 || r.Workers != 1 || r.Flows != 1 {
		t.Errorf("%+v", r)
	}
	if r := bestSocket(ringsProfile()); r != nil {
		t.Errorf("with AF_XDP alone: %+v", r)
	}
}

func TestShortRate(t *testing.T) {
	for _, c := range []struct {
		pps  float64
		want string
	}{{0.4, "1"}, {7, "7"}, {99, "99"}, {487, "480"}, {1000, "1k"}, {1290, "1.2k"}, {48667, "48k"}, {99999, "99k"}, {481234, "480k"}, {1e6, "1M"}, {1.29e6, "1.2M"}, {33e6, "33M"}} {
		if got := shortRate(c.pps); got != c.want {
			t.Errorf("%g: %q, want %q", c.pps, got, c.want)
		}
	}
}
