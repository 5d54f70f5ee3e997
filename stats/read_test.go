package stats

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shard is a plausible echo result: shard i of n, with v as the value of every sample.
func shard(i, n int, values ...int64) *Result {
	h, _ := recorded(values)
	k := uint64(len(values))
	var traffic Traffic
	traffic.Add(48, false, k)
	r := &Result{
		Started: time.Date(2026, 3, 1, 12, 0, i, 0, time.UTC), RunID: "run-1", Shard: i, Shards: n,
		Config:  Config{Mode: ModeEcho, Model: "open", Profile: "const", Paced: true, DurationNS: 2e9, PayloadBytes: 48, Workers: 1, Flows: 4, CPUs: []int{i}, Targets: []string{"10.0.0.1:7"}},
		Host:    Host{Hostname: "h", Cores: 8},
		Backend: Backend{Name: "sendmmsg"},
		Verdict: Verdict{Valid: true},
		Rate:    RateOf(float64(k)/2, traffic, k, 2*time.Second),
		Ledger:  Ledger{Planned: k, Sent: k, Replied: k},
		Lag:     h.Summary(), Latency: h.Summary(), Service: h.Summary(), Server: h.Summary(), Gap: h.Summary(),
		Timeline: []Second{{T: 1, Planned: 1, Sent: 1, LagP50NS: int64(i), LagP99NS: int64(10 - i), LatencyP99NS: 5, Steal: 0.01}, {T: 2, Planned: k - 1, Sent: k - 1}},
		Workers:  []Worker{{CPU: i, Queue: -1, Sent: k}},
		Counters: []Counter{{Name: "Udp.SndbufErrors", Delta: 5}},
	}
	r.Normalize()
	return r
}

func encoded(t *testing.T, r *Result) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadResultRoundTrip(t *testing.T) {
	want := shard(0, 1, 1000, 2000, 3000)
	want.Rounds = []Result{*shard(0, 1, 1000), *shard(0, 1, 2000)}
	want.Round = 1
	got, err := ReadResult(bytes.NewReader(encoded(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A normalized result, even an empty one, has no null in its JSON: every list, table and number is there.
func TestNormalizedHasNoNull(t *testing.T) {
	for _, r := range []*Result{{}, {Rounds: []Result{{}}, Calibration: &Calibration{}},
		{Corrected: &Histogram{}, Little: &Little{}, Segments: &Segments{}, Departures: &Departures{Test: &FitTest{}}, Precision: &Precision{Stationary: &Stationary{}}}} {
		r.Normalize()
		if b := encoded(t, r); bytes.Contains(b, []byte("null")) {
			t.Errorf("null in %s", b)
		}
	}
}

func TestReadResultRefuses(t *testing.T) {
	good := string(encoded(t, shard(0, 1, 1000, 2000)))
	edited := func(change func(*Result)) string {
		r := shard(0, 1, 1000, 2000)
		change(r)
		return string(encoded(t, r))
	}
	farther := func(change func(*Result)) string {
		return edited(func(r *Result) {
			corrected := r.Latency
			r.Corrected, r.Departures = &corrected, &Departures{Error: r.Lag}
			r.Segments = &Segments{Latency: r.Latency, Parts: []Segment{{SegmentLag, r.Lag}}}
			change(r)
		})
	}
	if _, err := ReadResult(strings.NewReader(farther(func(*Result) {}))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ why, file, want string }{
		{"nothing", "", "empty"},
		{"only a line end", "\n", "empty"},
		{"text", "INVALID duty", "byte 1"},
		{"no schema", "{}", "no schema field"},
		{"another schema", `{"schema":"blast.ladder/1"}`, `schema "blast.ladder/1", want "blast.result/1"`},
		{"a later schema", `{"schema":"blast.result/2"}`, `schema "blast.result/2"`},
		{"two results in one file", good + good, "byte"},
		{"a string for a number", strings.Replace(good, `"planned":2`, `"planned":"2"`, 1), "planned"},
		{"an edited percentile", strings.Replace(good, `"p99":`, `"p99":1`, 1), "lag_ns"},
		{"an edited estimate", farther(func(r *Result) { r.Corrected.P99++ }), "corrected_ns"},
		{"an edited latency of followed packets", farther(func(r *Result) { r.Segments.Latency.Max++ }), "segments.latency_ns"},
		{"an edited part of it", farther(func(r *Result) { r.Segments.Parts[0].NS.P50-- }), "segments.parts.lag"},
		{"edited departures", farther(func(r *Result) { r.Departures.Error.Count++ }), "departures.error_ns"},
		{"VALID with a ledger that does not add up", edited(func(r *Result) { r.Ledger.Lost = 1 }), "does not add up"},
		{"shard numbers that cannot be", edited(func(r *Result) { r.Shard = 3 }), "shard 3 of 1"},
		{"a bad round", edited(func(r *Result) { r.Rounds = []Result{*shard(0, 1, 5)}; r.Rounds[0].Latency.Count = 9 }), "round 1: latency_ns"},
	} {
		if _, err := ReadResult(strings.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	if _, err := ReadResult(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failing reader: %v", err)
	}
}

// A file cut anywhere is told from one that is wrong.
func TestReadResultCutShort(t *testing.T) {
	good := encoded(t, shard(0, 1, 1000, 2000))
	for cut := 1; cut < len(good); cut += 1 + len(good)/200 {
		if _, err := ReadResult(bytes.NewReader(good[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d of %d bytes: %v", cut, len(good), err)
		}
	}
}

func TestReadResultAccepts(t *testing.T) {
	bad := shard(0, 1, 1000)
	bad.Verdict, bad.Ledger.Lost = Verdict{Reasons: []Reason{{Code: "ledger", Detail: "1 packet"}}}, 1
	for _, c := range []struct{ why, file string }{
		{"a field of a later blast", strings.Replace(string(encoded(t, shard(0, 1, 5))), `{`, `{"new_field":1,`, 1)},
		{"an INVALID result that says itself that its ledger is wrong", string(encoded(t, bad))},
	} {
		if _, err := ReadResult(strings.NewReader(c.file)); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

func FuzzReadResult(f *testing.F) {
	b, err := json.Marshal(shard(0, 1, 1000, 2000))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"blast.result/1"}`))
	f.Add([]byte(`{"schema":"blast.result/1","shards":1,"lag_ns":{"count":1,"hdr":"HISTFAAA"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadResult(bytes.NewReader(b))
		if err != nil {
			return
		}
		if out, err := json.Marshal(r); err != nil || bytes.Contains(out, []byte(":null")) {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
