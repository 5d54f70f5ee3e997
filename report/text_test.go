package report

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with testdata/name, or rewrites the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./report -update writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), -update accepts:\n%s", name, diff)
	}
}

// text renders r; width and colour come from o.
func text(t *testing.T, r *stats.Result, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Text(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTextGolden(t *testing.T) {
	interrupted := echoRun()
	interrupted.Interrupted, interrupted.Rate.ElapsedNS = "interrupt", 12e9
	interrupted.Verdict.Warnings = []stats.Reason{{Code: "interrupted", Detail: "the run ended before its plan did (interrupt): the figures cover 12.0 s of 30.0 s"}}
	for _, c := range []struct {
		file, why string
		r         *stats.Result
		o         Options
	}{
		{"echo.txt", "a VALID echo run in which a bit of everything happened", echoRun(), Options{}},
		{"invalid.txt", "an INVALID run: reasons first, every latency marked", invalid(echoRun()), Options{}},
		{"oneway.txt", "--rate max, oneway: no plan, no replies", onewayRun(), Options{}},
		{"dead.txt", "a target that never answers: no table of zeros", deadRun(), Options{}},
		{"interrupted.txt", "an interrupted run", interrupted, Options{}},
		{"rounds.txt", "three rounds, one of them INVALID", roundsRun(), Options{}},
		{"narrow.txt", "60 columns and colour", invalid(echoRun()), Options{Width: 60, Color: true}},
	} {
		t.Run(c.file, func(t *testing.T) { golden(t, c.file, []byte(text(t, c.r, c.o))) })
	}
}

// One of something is one, and no warm-up is none of 0 ns.
func TestTextOfOne(t *testing.T) {
	r := echoRun()
	r.Config.WarmupNS = 0
	n := r.Latency.Count
	r.Ledger = stats.Ledger{Planned: n + 1, Sent: n + 1, Replied: n, Lost: 1, LostUp: 1}
	r.Little = &stats.Little{Samples: 1}
	r.Departures = &stats.Departures{Source: "tx_software", Error: histOf(1, 70, 70)}
	got := strings.Join(strings.Fields(text(t, r, Options{})), " ")
	for _, want := range []string{`the 1 lost has no reply, and the rows "lost counted" rank it slower`, "asked, without warm-up", "(1 look)", "in 1 gap "} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
}

// In an INVALID run no line has a figure of latency or service time without the word INVALID.
func TestNoLatencyWithoutInvalid(t *testing.T) {
	for _, r := range []*stats.Result{invalid(echoRun()), invalid(roundsRun())} {
		r.Verdict.SLOs = []stats.SLO{{Text: "p99<5ms", Detail: "met: latency p99 is " + stats.FormatNS(r.Latency.P99) + ", asked < 5.00 ms"}}
		r.Little = &stats.Little{InFlight: 33, Samples: 1000, RatePPS: 50000, LatencyNS: 655e3}
		figures := map[string]bool{stats.FormatNS(r.Little.LatencyNS): true}
		for _, h := range []*stats.Histogram{&r.Latency, &r.Service, &r.Server} {
			for _, v := range []int64{h.P50, h.P90, h.P99, h.P999, h.P9999, h.Max} {
				figures[stats.FormatNS(v)] = true
			}
		}
		seen := 0
		for line := range strings.Lines(text(t, r, Options{})) {
			for f := range figures {
				// A row of the rounds table has its own verdict; all else must carry the run's.
				if strings.Contains(line, f) && !strings.Contains(line, "VALID") {
					t.Errorf("%s without INVALID: %s", f, line)
				}
				if strings.Contains(line, f) {
					seen++
				}
			}
		}
		if seen < len(figures) {
			t.Errorf("only %d of %d figures are in the report", seen, len(figures))
		}
	}
}

// What a report must let its reader check (measurement.md 5).
func TestReaderCanCheck(t *testing.T) {
	page := strings.Join(strings.Fields(text(t, roundsRun(), Options{})), " ")
	for _, c := range []struct{ what, want string }{
		{"the model", "open loop"},
		{"the target", "10.0.0.2:7000"},
		{"target and achieved rate", "asked 50.0 kpps, sent 50.0 kpps (99.93 %)"},
		{"bit rates with their definition", "L2 = IP + 18"},
		{"where the clock starts", "start at planned send time (latency) and time just before the send call (service time), and stop at the reply"},
		{"that percentiles come from all samples", "one histogram of all samples"},
		{"that none is averaged", "none is averaged"},
		{"errors and timeouts counted inside", "lost counted 1,498,900"},
		{"how the lost count", "rank them slower than any"},
		{"the conservation line", "planned 1,500,000 = sent 1,499,000 + refused 900 + abandoned 80 + kernel dropped 20"},
		{"what became of what was sent", "sent 1,499,000 = replied 1,498,000 + late 200 + lost 700 + in flight 100"},
		{"loss by direction", "on the way up 400 + on the way down 200 + unknown 100"},
		{"that packets in flight are censored", "waiting for at least 120 ms"},
		{"the duration", "30.0 s of 30.0 s asked"},
		{"that the warm-up is left out", "after 2.00 s of warm-up, which is left out of all figures"},
		{"the maximum", "max"},
		{"the number above thresholds", "samples above 1 ms 10 ms 100 ms 1 s"},
		{"connections reused or not", "kept open for the whole run"},
		{"each round", "3 INVALID"},
		{"the median round and its rule", "round 2 of 3, the median by latency p99"},
		{"the machine", "lab1: Linux 6.18.0, 8 x Xeon"},
		{"the generator's own load", "41 %"},
		{"the margin", "4.2 times the target"},
		{"the backend as granted", "sendmmsg: connected sockets"},
		{"the command", "blast udp 10.0.0.2:7000 --rate 50k"},
	} {
		if !strings.Contains(page, c.want) {
			t.Errorf("%s: %q is not in the report", c.what, c.want)
		}
	}
}

// hugeRun has the longest figures that a report must fit.
func hugeRun() *stats.Result {
	r := invalid(echoRun())
	r.Ledger = stats.Ledger{Planned: 864e9, Sent: 864e9, Replied: 864e9}
	for _, h := range []*stats.Histogram{&r.Latency, &r.Service, &r.Server, &r.Lag, &r.Gap} {
		wide := &stats.Hist{}
		wide.RecordN(999e3, 432e9)
		wide.RecordN(3599e9, 432e9)
		*h = wide.Summary()
	}
	r.Workers = nil
	for i := range 64 {
		r.Workers = append(r.Workers, stats.Worker{CPU: 128 + i, Node: 7, Queue: 63, Duty: 1, Sent: 13.5e9, Flows: 65535, LagP99NS: 3599e9, InvoluntarySwitches: 99999,
			GuardNS: 123e3, UserNS: 86400e9, SystemNS: 86400e9})
	}
	r.Rounds, r.Round = []stats.Result{*echoRun(), *invalid(echoRun())}, 2
	r.Rounds[0].Ledger.Lost = 99e9
	return r
}

func TestFitsItsColumns(t *testing.T) {
	for _, c := range []struct {
		why   string
		r     *stats.Result
		o     Options
		width int
	}{
		{"a usual run", echoRun(), Options{}, 100},
		{"an INVALID one", invalid(roundsRun()), Options{}, 100},
		{"64 workers, ten days", hugeRun(), Options{}, 100},
		{"tables take up to 100 on a narrow page", echoRun(), Options{Width: 20}, 100},
	} {
		for line := range strings.Lines(text(t, c.r, c.o)) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > c.width {
				t.Errorf("%s: %d columns: %s", c.why, n, line)
			}
			if strings.HasSuffix(line, " \n") {
				t.Errorf("%s: blanks at the end of %q", c.why, line)
			}
		}
	}
}

// A result without anything in it has a report too, which says that nobody judged it.
func TestEmptyResult(t *testing.T) {
	if page := text(t, &stats.Result{}, Options{}); !strings.HasPrefix(page, "INVALID   nobody has judged this result\n") {
		t.Error(page)
	}
}

// The headline of a VALID run says when an SLO failed.
func TestHeadlineNamesMissedSLOs(t *testing.T) {
	r := echoRun()
	r.Verdict.SLOs[1].Met = false
	if first, _, _ := strings.Cut(text(t, r, Options{}), "\n"); !strings.HasSuffix(first, "; 1 of 2 SLOs not met") {
		t.Error(first)
	}
}

// The first word of the page is the verdict.
func TestVerdictComesFirst(t *testing.T) {
	for want, r := range map[string]*stats.Result{"VALID ": echoRun(), "INVALID ": invalid(echoRun())} {
		if page := text(t, r, Options{}); !strings.HasPrefix(page, want) {
			t.Errorf("starts with %.20q, want %q", page, want)
		}
		if page := text(t, r, Options{Color: true}); !strings.HasPrefix(page, "\x1b[") || strings.Count(page, "\x1b[") != 2 {
			t.Errorf("colour: %.30q", page)
		}
	}
}

// What fails at the writer is told, wherever it fails; the message keeps the cause.
func TestWritersErrorsAreReturned(t *testing.T) {
	r, l, v := echoRun(), knownLadder(), proveRun()
	for name, write := range map[string]func(io.Writer) error{
		"Text":        func(w io.Writer) error { return Text(w, r, Options{}) },
		"Heart":       func(w io.Writer) error { return Heart(w, r, Options{}) },
		"JSON":        func(w io.Writer) error { return JSON(w, r) },
		"CSV":         func(w io.Writer) error { return CSV(w, r) },
		"HDRLog":      func(w io.Writer) error { return HDRLog(w, r) },
		"HGRM":        func(w io.Writer) error { return HGRM(w, r, &r.Latency) },
		"HTML":        func(w io.Writer) error { return HTML(w, r) },
		"Compare":     func(w io.Writer) error { return Compare(w, r, r, Options{}) },
		"HTMLCompare": func(w io.Writer) error { return HTMLCompare(w, r, r) },
		"Ladder":      func(w io.Writer) error { return Ladder(w, l, Options{}) },
		"LadderJSON":  func(w io.Writer) error { return LadderJSON(w, l) },
		"LadderCSV":   func(w io.Writer) error { return LadderCSV(w, l) },
		"HTMLLadder":  func(w io.Writer) error { return HTMLLadder(w, l) },
		"Prove":       func(w io.Writer) error { return Prove(w, v, Options{}) },
		"ProveJSON":   func(w io.Writer) error { return ProveJSON(w, v) },
		"HTMLProve":   func(w io.Writer) error { return HTMLProve(w, v) },
	} {
		var whole bytes.Buffer
		if err := write(&whole); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, room := range []int{0, 1, whole.Len() / 2, whole.Len() - 1} {
			if err := write(&fullDisk{room}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s with room for %d of %d bytes: %v, want ENOSPC", name, room, whole.Len(), err)
			}
		}
		if err := write(&fullDisk{whole.Len()}); err != nil {
			t.Errorf("%s with room for all: %v", name, err)
		}
	}
}

// fullDisk is a writer with room for so many bytes.
type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.room -= n
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}
