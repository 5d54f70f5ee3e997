package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/testskip"
	"blast/stats"
)

// fallback finds the JSON result that is printed behind the report when --out failed.
func fallback(t *testing.T, stdout string) *stats.Result {
	t.Helper()
	i := strings.Index(stdout, "\n{\n")
	if i < 0 {
		t.Fatalf("no JSON on standard output:\n%s", stdout)
	}
	res, err := stats.ReadResult(strings.NewReader(stdout[i:]))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A report that cannot be made costs the report, not the result.
func TestOutputWithoutReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	out, err := openOutput(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.discard()
	var shown bytes.Buffer
	broken := errors.New("no such picture")
	err = out.emit(false, &shown, func(w io.Writer) error {
		fmt.Fprint(w, "half a pa")
		return broken
	}, func(w io.Writer) error {
		_, err := io.WriteString(w, "{}")
		return err
	})
	b, readErr := os.ReadFile(path)
	if !errors.Is(err, broken) || readErr != nil || string(b) != "{}" || shown.Len() > 0 {
		t.Errorf("error %v; file %q (%v), shown %q", err, b, readErr, shown.String())
	}
}

// Where neither the file nor standard output takes the result, nobody says that nothing is lost.
func TestOutputNowhere(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, jsonShown := range []bool{false, true} {
		out, err := openOutput("/dev/full")
		if err != nil {
			t.Fatal(err)
		}
		write := func(w io.Writer) error {
			_, err := io.WriteString(w, "{}")
			return err
		}
		if err := out.emit(jsonShown, full, write, write); !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "nothing is lost") || strings.Count(err.Error(), "/dev/full") != 3 {
			t.Errorf("JSON shown %v: %v", jsonShown, err)
		}
	}
}

// TestKernelOutputLost: a place that cannot take the result after all loses nothing. The result is printed, the message says so, and
// nothing is left behind in its place.
func TestKernelOutputLost(t *testing.T) {
	testskip.Root(t)
	server := serveUDP(t)
	run := func(out string, meanwhile func()) outcome {
		p := start(t, nil, "udp", server.addr, "--rate", "100", "--duration", "500ms", "--backend", "net", "--out", out)
		meanwhile()
		return p.end()
	}
	lost := func(o outcome, says string) {
		t.Helper()
		if o.code != exitRun || !strings.Contains(o.stderr, says) || !strings.Contains(o.stderr, "the result was printed to standard output") {
			t.Errorf("exit %d: %s", o.code, o.stderr)
		}
		if res := fallback(t, o.stdout); res.Ledger.Planned != 50 {
			t.Errorf("planned %d, want 50", res.Ledger.Planned)
		}
	}

	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(full+"/ballast", make([]byte, 12<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	lost(run(full+"/result.json", func() {}), "no space left on device")
	if names := list(t, full); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}

	lost(run("/dev/full", func() {}), "no space left on device")
	if info, err := os.Stat("/dev/full"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("/dev/full is a device no more: %v, %v", info, err)
	}

	gone := t.TempDir() + "/gone"
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	lost(run(gone+"/result.json", func() {
		if !eventually(t.Context(), 5*time.Second, func() bool { return len(list(t, gone)) == 1 }) {
			t.Error("no file was made before the run")
		}
		if err := os.RemoveAll(gone); err != nil {
			t.Error(err)
		}
	}), "no such file or directory")
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestKernelOutputPipe: a full standard output does not take the file with it, and a device can be written to.
func TestKernelOutputPipe(t *testing.T) {
	server := serveUDP(t)
	devFull, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer devFull.Close()
	out := filepath.Join(t.TempDir(), "result.json")
	args := []string{"udp", server.addr, "--rate", "100", "--duration", "300ms", "--out"}
	o := start(t, func(c *exec.Cmd) { c.Stdout = devFull }, append(args, out)...).end()
	if o.code != exitRun || !strings.Contains(o.stderr, "no space left on device") {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
	if res := storedResult(t, out); res.Ledger.Planned != 30 {
		t.Errorf("planned %d, want 30", res.Ledger.Planned)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if o := blast(t, append(args, "/dev/stdout")...); !strings.Contains(o.stdout, `"schema": "blast.result/1"`) {
		t.Errorf("nothing on /dev/stdout: exit %d: %s", o.code, o.stderr)
	}
}

// resultFields are the fields that the design promises to readers of a result, by their path; [] stands for every element.
var resultFields = strings.Fields(`
	schema started command config.given config.mode
	host.kernel host.cpu host.nic host.driver host.clocksource host.governor host.virt
	backend.name backend.mode backend.gso backend.zero_copy backend.batch
	verdict.valid verdict.reasons verdict.warnings verdict.warnings.[].code verdict.warnings.[].detail
	rate.target_pps rate.achieved_pps rate.replied_pps rate.l1_bps rate.l2_bps rate.ip_bps rate.payload_bps
	ledger.planned ledger.sent ledger.refused ledger.abandoned ledger.kernel_dropped ledger.replied ledger.late ledger.duplicate
	ledger.reordered ledger.lost ledger.in_flight
	lag_ns latency_ns service_ns server_ns gap_ns
	timeline.[].t_s timeline.[].planned timeline.[].sent timeline.[].replied timeline.[].lag_p99_ns timeline.[].latency_p99_ns timeline.[].steal
	workers.[].cpu workers.[].node workers.[].queue workers.[].duty workers.[].sent workers.[].lag_p99_ns workers.[].involuntary_switches
	rounds.[].schema rounds.[].ledger.planned rounds.[].verdict.valid`)

// TestKernelJSON holds the JSON of a run of every shape against the design: its fields, no null, and units that keep their promise.
func TestKernelJSON(t *testing.T) {
	server := serveUDP(t)
	o := blast(t, "udp", server.addr, "--rate", "500", "--duration", "300ms", "--rounds", "2", "--slo", "p99<1h", "--format", "json")
	v := decoded(t, o.stdout)
	for _, field := range resultFields {
		mustHold(t, v, field)
	}
	for _, h := range []string{"lag_ns", "latency_ns", "service_ns", "server_ns", "gap_ns"} {
		for _, field := range strings.Fields("count min mean p50 p90 p99 p999 p9999 max over.1ms over.10ms over.100ms over.1s hdr") {
			mustHold(t, v, h+"."+field)
		}
	}
	wellFormed(t, "", v)
	if t.Failed() {
		t.Log(o.stdout)
	}
	// Runs that leave much empty have no null either: nothing replied, nothing calibrated, nothing lost.
	for _, args := range [][]string{
		{"--mode", "oneway", "--rate", "max", "--duration", "50ms"},
		{"--mode", "oneway", "--rate", "1", "--duration", "50ms", "--payload", "0", "--cpus", "none"},
		{"--rate", "10", "--duration", "100ms", "--payload-hex", "0000", "--vary", "0:2:seq", "--match", "0:2", "--backend", "net"},
	} {
		wellFormed(t, "", decoded(t, blast(t, append([]string{"udp", server.addr, "--format", "json"}, args...)...).stdout))
	}
	wellFormed(t, "", decoded(t, blast(t, "probe", "--json").stdout))
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return v
}

func mustHold(t *testing.T, v any, field string) {
	t.Helper()
	at := []any{v}
	for name := range strings.SplitSeq(field, ".") {
		var next []any
		for _, v := range at {
			switch v := v.(type) {
			case []any:
				next = append(next, v...)
			case map[string]any:
				value, ok := v[name]
				if !ok {
					t.Errorf("no field %s", field)
					return
				}
				next = append(next, value)
			default:
				t.Errorf("field %s: %v has no %s", field, v, name)
				return
			}
		}
		at = next
	}
	if len(at) == 0 {
		t.Errorf("field %s: an empty list", field)
	}
}

// wellFormed walks a value: nothing is null, times in fields ending in _ns are whole, and numbers are numbers.
func wellFormed(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		t.Errorf("%s is null", path)
	case map[string]any:
		for name, value := range v {
			wellFormed(t, path+"."+name, value)
		}
	case []any:
		for i, value := range v {
			wellFormed(t, fmt.Sprintf("%s[%d]", path, i), value)
		}
	case json.Number:
		if strings.HasSuffix(path, "_ns") {
			if _, err := strconv.ParseInt(v.String(), 10, 64); err != nil {
				t.Errorf("%s is %s, want whole ns", path, v)
			}
		}
	case string:
		if strings.HasSuffix(path, "_ns") || strings.HasSuffix(path, "_pps") || strings.HasSuffix(path, "_bps") {
			t.Errorf("%s is the string %q, want a number", path, v)
		}
	}
}
