package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/internal/testskip"
	"blast/stats"
)

// hdrPackage is the second implementation: an independent port to JavaScript.
const hdrPackage = "hdr-histogram-js@3.0.1"

type read struct {
	Count       uint64             `json:"count"`
	Mean        float64            `json:"mean"`
	Percentiles map[string]float64 `json:"percentiles"`
	StartMS     float64            `json:"start_ms"`
	EndMS       float64            `json:"end_ms"`
	HGRM        string             `json:"hgrm"`
}

// installed is a temporary folder in which npm installed a package.
func installed(t *testing.T, name string) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			testskip.Skip(t, "npm", err.Error(), "apt-get install nodejs npm")
		}
	}
	dir := t.TempDir()
	install := exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", name)
	if out, err := install.CombinedOutput(); err != nil {
		testskip.Skip(t, "npm", "npm install "+name+": "+string(out), "npm config set registry URL, of a registry that this machine reaches")
	}
	return dir
}

// readElsewhere reads log with the package.
func readElsewhere(t *testing.T, log []byte) map[string]read {
	t.Helper()
	dir := installed(t, hdrPackage)
	cmd := exec.Command("node", filepath.Join("testdata", "reader.js"), filepath.Join(dir, "node_modules"))
	cmd.Stdin = bytes.NewReader(log)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.Bytes())
	}
	got := map[string]read{}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// What another implementation of HdrHistogram reads from our log and strings must be what we say ourselves.
func TestSecondImplementationReadsOurFiles(t *testing.T) {
	r := echoRun()
	var log bytes.Buffer
	if err := HDRLog(&log, r); err != nil {
		t.Fatal(err)
	}
	got := readElsewhere(t, log.Bytes())
	for _, s := range taggedOf(r) {
		x, ok := got[s.tag]
		if !ok {
			t.Errorf("%s: not read", s.tag)
			continue
		}
		h := s.hist
		if x.Count != h.Count || math.Abs(x.Mean/h.Mean-1) > 1e-3 {
			t.Errorf("%s: n %d mean %v, want %d %v", s.tag, x.Count, x.Mean, h.Count, h.Mean)
		}
		for name, want := range map[string]int64{"50": h.P50, "90": h.P90, "99": h.P99, "99.9": h.P999, "99.99": h.P9999} {
			// Theirs is the top of the bucket; ours never exceeds the exact maximum.
			if min(int64(x.Percentiles[name]), h.Max) != want {
				t.Errorf("%s: p%s %v, want %d", s.tag, name, x.Percentiles[name], want)
			}
		}
		if start := float64(r.Started.UnixMilli()); x.StartMS != start || x.EndMS != start+30e3 {
			t.Errorf("%s: from %v to %v, want from %v for 30 s", s.tag, x.StartMS, x.EndMS, start)
		}
		var ours bytes.Buffer
		if err := HGRM(&ours, r, h); err != nil {
			t.Fatal(err)
		}
		compareHGRM(t, s.tag, ours.String(), x.HGRM, h)
	}
}

// compareHGRM compares two percentile tables line by line; theirs has fewer digits of value.
func compareHGRM(t *testing.T, tag, ours, theirs string, h *stats.Histogram) {
	t.Helper()
	a, b := tableOf(t, ours), tableOf(t, theirs)
	if len(a) != len(b) {
		t.Errorf("%s: %d lines, theirs %d", tag, len(a), len(b))
		return
	}
	for i := range a {
		if math.Abs(a[i][0]-b[i][0]) > 0.000501 || math.Abs(a[i][1]-b[i][1]) > 1e-11 || a[i][2] != b[i][2] {
			t.Errorf("%s: line %d: %v, theirs %v", tag, i, a[i], b[i])
		}
	}
	if last := a[len(a)-1]; last[1] != 1 || last[2] != float64(h.Count) {
		t.Errorf("%s: last line %v, want all %d samples", tag, last, h.Count)
	}
}

// tableOf reads value, percentile and count of each line, as the plotters do.
func tableOf(t *testing.T, hgrm string) [][3]float64 {
	t.Helper()
	var rows [][3]float64
	for _, line := range strings.Split(hgrm, "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "Value" || strings.HasPrefix(line, "#") {
			continue
		}
		var row [3]float64
		for i := range row {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			row[i] = v
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("no lines in %q", hgrm)
	}
	return rows
}

// A merged run reads elsewhere as the merge of its parts.
func TestSecondImplementationReadsMerged(t *testing.T) {
	a, b := echoRun(), echoRun()
	a.Shards, b.Shards, b.Shard = 2, 2, 1
	b.Latency = histOf(5000, 1e6, 90e6)
	whole, err := stats.Merge([]*stats.Result{a, b})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := HDRLog(&log, whole); err != nil {
		t.Fatal(err)
	}
	got := readElsewhere(t, log.Bytes())["latency"]
	if got.Count != a.Latency.Count+b.Latency.Count {
		t.Errorf("n %d, want %d", got.Count, a.Latency.Count+b.Latency.Count)
	}
	if diff := cmp.Diff(float64(whole.Latency.P999), got.Percentiles["99.9"]); diff != "" {
		t.Error(diff)
	}
}
