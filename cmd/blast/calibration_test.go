package main

import (
	"encoding/json"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blast/backend/mmsg"
	"blast/backend/netudp"
	"blast/calib"
	"blast/stats"
	"blast/tuning"
)

// stateHome makes a directory for XDG_STATE_HOME, and what gives it to a command.
func stateHome(t *testing.T) (dir string, with func(*exec.Cmd)) {
	t.Helper()
	dir = t.TempDir()
	return dir, func(c *exec.Cmd) { c.Env = append(c.Env, "XDG_STATE_HOME="+dir) }
}

// storeCalibration puts a calibration of this host, on loopback, below dir: both socket backends have a ceiling of 1,000 pps, and net, the
// second of the table, is recommended.
func storeCalibration(t *testing.T, dir string) (*calib.Profile, string) {
	t.Helper()
	host := tuning.Reader{}.Host(loopback)
	p := &calib.Profile{
		Schema: calib.Schema, ID: "made up", Host: host, Fingerprint: tuning.Fingerprint(host), Against: calib.Loopback,
		Recommended: calib.Recommended{Backend: netudp.Name, Because: "this test says so"}, Failed: []calib.Failed{},
	}
	for _, name := range []string{mmsg.Name, netudp.Name} {
		p.Rows = append(p.Rows, calib.Row{Backend: name, GSO: 1, PayloadBytes: 64, Workers: 1, CeilingPPS: 1000})
	}
	s := calib.Store{Dir: filepath.Join(dir, "blast")}
	if err := s.Save(p); err != nil {
		t.Fatal(err)
	}
	return p, s.Path(p.Fingerprint)
}

// silentTarget is a bound socket that nobody reads.
func silentTarget(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// TestCeiling: above the stored ceiling a run is INVALID for it, below it VALID with a warning of a small margin, and far below it
// there is nothing to warn of.
func TestCeiling(t *testing.T) {
	dir, with := stateHome(t)
	storeCalibration(t, dir)
	target := silentTarget(t)
	run := func(rate string, more ...string) (*stats.Result, outcome) {
		// The lag is none of this test's business: neighbours load the machine.
		args := append([]string{"udp", target, "--format", "json", "--mode", "oneway", "--payload", "64", "--duration", "300ms", "--rate", rate,
			"--max-lag", "250ms"}, more...)
		o := start(t, with, args...).end()
		return o.result(t), o
	}

	res, o := run("1100")
	if o.code != exitInvalid || !hasCode(res.Verdict.Reasons, "ceiling") {
		t.Errorf("110 %% of the ceiling: exit %d, reasons %v; want INVALID for ceiling", o.code, res.Verdict.Reasons)
	}
	if res.Backend.Name != netudp.Name || !strings.Contains(o.stderr, "this host's calibration recommends it") {
		t.Errorf("backend %s, %q; want the recommended one, with the reason", res.Backend.Name, o.stderr)
	}

	res = untilValid(t, func() *stats.Result {
		res, _ := run("900", "--backend", mmsg.Name)
		if hasCode(res.Verdict.Reasons, "ceiling") || !hasCode(res.Verdict.Warnings, "margin") || hasCode(res.Verdict.Warnings, "no-calibration") {
			t.Errorf("90 %% of the ceiling: reasons %v, warnings %v; want a warning of the margin alone", res.Verdict.Reasons, res.Verdict.Warnings)
		}
		return res
	})
	if c := res.Calibration; c == nil || c.ID != "made up" || c.CeilingPPS != 1000 || math.Abs(c.Margin-1000.0/900) > 0.01 {
		t.Errorf("calibration %+v, want a ceiling of 1000 pps and a margin of 1.11", c)
	}

	if res, _ := run("300"); hasCode(res.Verdict.Reasons, "ceiling") || hasCode(res.Verdict.Warnings, "margin") {
		t.Errorf("30 %% of the ceiling: reasons %v, warnings %v; want none about it", res.Verdict.Reasons, res.Verdict.Warnings)
	}
	if res, _ := run("1100", "--payload", "2000"); !hasCode(res.Verdict.Reasons, "ceiling") {
		t.Errorf("a larger payload than calibrated: reasons %v, want the ceiling of the largest", res.Verdict.Reasons)
	}
	if res, _ := run("6400", "--backend", mmsg.Name, "--gso", "32"); res.Calibration != nil || !hasCode(res.Verdict.Warnings, "no-calibration") {
		t.Errorf("trains were not calibrated: %+v, warnings %v", res.Calibration, res.Verdict.Warnings)
	}
}

// TestDamagedCalibration: a file that cannot be read is told with its name and the remedy, and the run goes on without a ceiling.
func TestDamagedCalibration(t *testing.T) {
	dir, with := stateHome(t)
	_, path := storeCalibration(t, dir)
	if err := os.WriteFile(path, []byte(`{"schema": "blast.calibration/9"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := start(t, with, "udp", silentTarget(t), "--format", "json", "--mode", "oneway", "--duration", "200ms", "--rate", "1100").end()
	if res := o.result(t); res.Calibration != nil || !hasCode(res.Verdict.Warnings, "no-calibration") {
		t.Errorf("calibration %+v, warnings %v; want none and that it is missing", res.Calibration, res.Verdict.Warnings)
	}
	for _, want := range []string{path, `schema "blast.calibration/9"`, "blast calibrate"} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("standard error %q, want %q in it", o.stderr, want)
		}
	}
}

// TestCalibrate runs the command. A busy machine may leave it without a row; then it must say so, fail and store nothing.
func TestCalibrate(t *testing.T) {
	dir, with := stateHome(t)
	o := start(t, with, "calibrate", "--backend", "net", "--payloads", "64", "--workers", "1", "--budget", "3s", "--json").end()
	var p calib.Profile
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		t.Fatalf("%v: %s\n%s", err, o.stdout, o.stderr)
	}
	if p.Schema != calib.Schema || len(p.Rows)+len(p.Failed) != 2 {
		t.Errorf("schema %q, %d rows and %d failed; want two in all, one of them for many flows", p.Schema, len(p.Rows), len(p.Failed))
	}
	stored, err := calib.Store{Dir: filepath.Join(dir, "blast")}.Load(tuning.Fingerprint(tuning.Reader{}.Host(loopback)))
	switch o.code {
	case exitOK:
		if err != nil || stored.ID != p.ID || !strings.Contains(o.stderr, "stored in "+dir) {
			t.Errorf("stored %v, error %v, standard error %q", stored, err, o.stderr)
		}
		if s := p.Rows[0].Sink; s == nil || s.Received == 0 || s.Received+s.Dropped > s.Sent {
			t.Errorf("sink %+v, want that it received something and no more than was sent", s)
		}
	case exitRun:
		if stored != nil || !strings.Contains(o.stderr, "nothing was stored") {
			t.Errorf("stored %v, standard error %q", stored, o.stderr)
		}
		t.Logf("too busy to be calibrated: %s", p.Failed[0].Reason)
	default:
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
}

// TestCalibrateUsage: what cannot be calibrated is refused before anything is sent.
func TestCalibrateUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"workers 9999: want 1 to": {"--workers", "9999"},
		"payload 70000 bytes":     {"--payloads", "70000"},
		`backend "quic": want`:    {"--backend", "quic"},
		"--authorized":            {"--against", "198.51.100.1:9000"},
		"want ADDR:PORT":          {"--against", "somewhere"},
		"budget 10ms":             {"--budget", "10ms"},
	} {
		o := blast(t, append([]string{"calibrate"}, args...)...)
		if o.code != exitUsage || !strings.Contains(o.stderr, want) || o.stdout != "" {
			t.Errorf("%v: exit %d, %q; want exit 2 and %q", args, o.code, o.stderr, want)
		}
	}
}
