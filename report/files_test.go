package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

// The names and kinds of all JSON fields are a contract: schema.txt changes only on purpose.
func TestJSONSchemaGolden(t *testing.T) {
	r := roundsRun()
	r.Rounds = r.Rounds[:1]
	r.Rounds[0] = *onewayRun()
	r.Interrupted = "interrupt"
	r.Verdict.Reasons = []stats.Reason{{Code: "x", Detail: "y"}}
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(b.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	describe(tree, "", paths)
	var lines []string
	for p := range paths {
		if strings.Contains(p, "null") {
			t.Errorf("%s", p)
		}
		if !strings.HasPrefix(p, ".rounds[]") { // a round is a result again
			lines = append(lines, p)
		}
	}
	slices.Sort(lines)
	golden(t, "schema.txt", []byte(strings.Join(lines, "\n")+"\n"))
}

func describe(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			describe(x, path+"."+k, out)
		}
	case []any:
		out[path+"[]"] = true
		for _, x := range v {
			describe(x, path+"[]", out)
		}
	case nil:
		out[path+" null"] = true
	default:
		out[fmt.Sprintf("%s %s", path, map[string]string{"string": "string", "float64": "number", "bool": "boolean"}[fmt.Sprintf("%T", v)])] = true
	}
}

// A report is drawn from the file as well as from the run itself.
func TestJSONReadsBack(t *testing.T) {
	r := roundsRun()
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	got, err := stats.ReadResult(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text(t, r, Options{}), text(t, got, Options{})); diff != "" {
		t.Error(diff)
	}
}

// A number that JSON cannot hold is an error, and nothing is written.
func TestJSONRefusesNotFinite(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		r := echoRun()
		r.Rate.AchievedPPS = v
		var b bytes.Buffer
		if err := JSON(&b, r); err == nil || b.Len() != 0 {
			t.Errorf("%v: err %v, %d bytes written", v, err, b.Len())
		}
	}
}

func TestCSVGolden(t *testing.T) {
	for _, c := range []struct {
		file  string
		write func(io.Writer) error
	}{
		{"timeline.csv", func(w io.Writer) error { return CSV(w, echoRun()) }},
		{"ladder.csv", func(w io.Writer) error { return LadderCSV(w, knownLadder()) }},
	} {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, c.file, b.Bytes())
		rows, err := csv.NewReader(&b).ReadAll() // every row as long as the header
		if err != nil || len(rows) < 2 {
			t.Errorf("%s: %d rows, %v", c.file, len(rows), err)
		}
	}
}

func TestHGRMGolden(t *testing.T) {
	r := invalid(echoRun())
	for _, c := range []struct {
		file string
		h    stats.Histogram
	}{{"latency.hgrm", histOf(1000, 1e6, 2e6, 30e6)}, {"empty.hgrm", stats.Histogram{}}} {
		var b bytes.Buffer
		if err := HGRM(&b, r, &c.h); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("%s: not a number in\n%s", c.file, s)
		}
		golden(t, c.file, b.Bytes())
	}
}

func TestBrokenHistogramIsAnError(t *testing.T) {
	r := echoRun()
	r.Lag.HDR = "broken"
	if err := HDRLog(io.Discard, r); err == nil || !strings.Contains(err.Error(), "lag") {
		t.Errorf("HDRLog: %v", err)
	}
	if err := HGRM(io.Discard, r, &r.Lag); err == nil {
		t.Error("HGRM took a broken histogram")
	}
	if err := HTML(io.Discard, r); err == nil || !strings.Contains(err.Error(), "lag") {
		t.Errorf("HTML: %v", err)
	}
	if err := HTMLCompare(io.Discard, echoRun(), r); err == nil || !strings.Contains(err.Error(), "B") {
		t.Errorf("HTMLCompare: %v", err)
	}
	v := proveRun()
	v.Controls[1].Results[0].Latency.HDR = "broken"
	if err := HTMLProve(io.Discard, v); err == nil || !strings.Contains(err.Error(), stats.ControlGenerator) {
		t.Errorf("HTMLProve: %v", err)
	}
}

func TestCompareGolden(t *testing.T) {
	b := echoRun()
	b.Backend.Name, b.Backend.GSO, b.Host.Kernel, b.RunID = "io_uring", 16, "6.12.1", "9c1d"
	b.Latency = histOf(1498000, 40e3, 600e3)
	b.Precision = precisionOf(b, 38000, 1700)
	b.Ledger.Lost, b.Ledger.LostUp, b.Ledger.Replied = 0, 0, 1498700
	for _, c := range []struct {
		file, why string
		a, b      *stats.Result
	}{
		{"compare.txt", "two backends", echoRun(), b},
		{"compare_invalid.txt", "one run is INVALID: its side is marked", invalid(echoRun()), b},
		{"compare_same.txt", "twice the same", echoRun(), echoRun()},
	} {
		var out bytes.Buffer
		if err := Compare(&out, c.a, c.b, Options{}); err != nil {
			t.Fatal(err)
		}
		golden(t, c.file, out.Bytes())
		for line := range strings.Lines(out.String()) {
			if len(line) > 101 {
				t.Errorf("%s: %d columns: %s", c.file, len(line)-1, line)
			}
			if strings.HasPrefix(line, "latency p") && strings.Contains(line, "INVALID") == (c.a.Verdict.Valid && c.b.Verdict.Valid) {
				t.Errorf("%s: %s", c.file, line)
			}
		}
	}
}
