package calib

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStoreRoundTrip(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "not", "there", "yet")}
	p := sample()
	if _, err := s.Load(p.Fingerprint); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the first save: error %v, want one that wraps os.ErrNotExist", err)
	}
	for range 2 { // the second replaces the first
		if err := s.Save(p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load(p.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("saved and loaded (-saved +loaded):\n%s", diff)
	}
	if _, err := s.Load("fedcba9876543210"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another host: error %v, want one that wraps os.ErrNotExist", err)
	}
	if files, _ := os.ReadDir(s.Dir); len(files) != 1 {
		t.Errorf("the directory holds %v, want the profile alone", files)
	}
}

// TestStoreRefuses: a file that is not this host's calibration is an error that names it, and is not taken for a missing one.
func TestStoreRefuses(t *testing.T) {
	whole, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, content, want string }{
		{"nothing in it", "", "damaged"},
		{"cut short", string(whole[:len(whole)/2]), "damaged"},
		{"something else", "[1, 2]", "damaged"},
		{"another schema", strings.Replace(string(whole), Schema, "blast.calibration/2", 1), `schema "blast.calibration/2", want "blast.calibration/1"`},
		{"a result", `{"schema": "blast.result/1"}`, `schema "blast.result/1"`},
		{"another host's", strings.Replace(string(whole), sample().Fingerprint, "ffffffffffffffff", 1), "fingerprint"},
		{"a ceiling of 0", strings.Replace(string(whole), `"ceiling_pps":320000`, `"ceiling_pps":0`, 1), "not a measurement"},
		{"a field of another type", strings.Replace(string(whole), `"workers":1`, `"workers":"one"`, 1), "damaged"},
		{"no rows", `{"schema": "` + Schema + `", "fingerprint": "` + sample().Fingerprint + `"}`, "no rows"},
	} {
		s := Store{Dir: t.TempDir()}
		path := s.Path(sample().Fingerprint)
		if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := s.Load(sample().Fingerprint)
		if p != nil || err == nil || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: profile %v, error %v; want one with %q and %s", c.name, p, err, c.want, path)
		}
	}
}

// TestStoreUnwritable: an error, and the old profile stays.
func TestStoreUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Store{Dir: filepath.Join(file, "blast")}).Save(sample()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names %s", err, file)
	}
	if err := (Store{Dir: filepath.Join(file, "blast")}).Writable(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("beforehand: error %v, want one that names %s", err, file)
	}
	s := Store{Dir: filepath.Join(t.TempDir(), "not", "there", "yet")}
	if err := s.Writable(); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(s.Dir); err != nil || len(files) != 0 {
		t.Errorf("asking leaves %v behind, %v", files, err)
	}
}

func TestDefaultStore(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	for state, want := range map[string]string{
		"/var/state": "/var/state/blast", "": "/home/someone/.local/state/blast", "relative/is/ignored": "/home/someone/.local/state/blast",
	} {
		t.Setenv("XDG_STATE_HOME", state)
		if s, err := DefaultStore(); err != nil || s.Dir != want {
			t.Errorf("XDG_STATE_HOME %q: %q, %v; want %q", state, s.Dir, err, want)
		}
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	if _, err := DefaultStore(); err == nil {
		t.Error("neither HOME nor XDG_STATE_HOME: no error")
	}
}

// TestCeiling: the nearest row that is not optimistic.
func TestCeiling(t *testing.T) {
	p := &Profile{ID: "cal"}
	add := func(backend string, gso, payload, workers int, ceiling float64) {
		p.Rows = append(p.Rows, Row{Backend: backend, GSO: gso, PayloadBytes: payload, Workers: workers, Flows: workers, CeilingPPS: ceiling})
	}
	p.Rows = append(p.Rows, Row{Backend: "sendmmsg", GSO: 1, PayloadBytes: 64, Workers: 1, Flows: 1000, CeilingPPS: 7e5})
	for _, workers := range []int{2, 1} {
		for i, payload := range []int{512, 18, 1400, 64} {
			add("sendmmsg", 1, payload, workers, float64(1000*payload+workers+10*i))
		}
	}
	add("sendmmsg", 32, 64, 1, 9e6)
	add("net", 1, 64, 2, 5e5)
	for _, c := range []struct {
		name                                 string
		backend                              string
		gso, payload, workers                int
		ok                                   bool
		wantPayload, wantWorkers, wantTrains int
		flows                                int
	}{
		{"the very row", "sendmmsg", 1, 64, 2, true, 64, 2, 0, 0},
		{"no trains is 0 or 1", "sendmmsg", 0, 64, 1, true, 64, 1, 0, 0},
		{"between two payloads: the larger", "sendmmsg", 1, 65, 1, true, 512, 1, 0, 0},
		{"below all payloads: the smallest", "sendmmsg", 1, 0, 1, true, 18, 1, 0, 0},
		{"above all payloads: the largest", "sendmmsg", 1, 9000, 2, true, 1400, 2, 0, 0},
		{"more workers than calibrated", "sendmmsg", 1, 18, 16, true, 18, 2, 0, 0},
		{"fewer workers than calibrated", "net", 1, 64, 1, false, 0, 0, 0, 0},
		{"trains have rows of their own", "sendmmsg", 32, 18, 1, true, 64, 1, 1, 0},
		{"trains of another length", "sendmmsg", 16, 64, 1, false, 0, 0, 0, 0},
		{"another backend", "io_uring", 1, 64, 1, false, 0, 0, 0, 0},
		{"many flows have a row of their own", "sendmmsg", 1, 18, 1, true, 64, 1, 0, 500},
	} {
		got, ok := p.Ceiling(c.backend, c.gso, c.payload, c.workers, max(c.flows, c.workers))
		if ok != c.ok {
			t.Errorf("%s: found %v, want %v", c.name, ok, c.ok)
			continue
		}
		if ok && (got.PayloadBytes != c.wantPayload || got.Workers != c.wantWorkers || got.ID != "cal" || (got.CeilingPPS == 9e6) != (c.wantTrains > 0) || (got.CeilingPPS == 7e5) != (c.flows >= 64)) {
			t.Errorf("%s: %+v, want the row of %d bytes and %d workers", c.name, got, c.wantPayload, c.wantWorkers)
		}
	}
}
