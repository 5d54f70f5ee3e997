package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/serve"
)

// Across processes and files: each packet that the target says it touched is the one that blast names, and none else. Only counts and
// names are compared, so a busy machine may slow the run but not fail it; a buffer that overflows on it is told apart and tried again.
func TestNamesAreWhatTheTargetTouched(t *testing.T) {
	for attempt := 1; ; attempt++ {
		truth, names := namesAndTruth(t)
		if attempt < 3 && (truth.Drops > 0 || truth.Runs[0].Full.Count > 0) {
			continue
		}
		r := &truth.Runs[0]
		for _, c := range []struct {
			what string
			told []serve.Name
			seen []serve.Name
		}{
			{"lost", slices.Concat(r.Dropped.Names, r.DroppedReplies.Names), names["lost"]},
			{"duplicate", r.Duplicated.Names, names["duplicate"]},
			{"late", r.Delayed.Names, names["late"]},
			{"reordered", r.Reordered.Names, names["reordered"]},
			{"in flight", []serve.Name{}, names["in_flight"]},
		} {
			if diff := cmp.Diff(inOrder(c.told), inOrder(c.seen)); diff != "" {
				t.Errorf("%s (-told by the target +named by blast):\n%s", c.what, diff)
			}
		}
		if len(names["lost"]) < 10 || len(names["reordered"]) < 10 {
			t.Errorf("%d lost, %d reordered: too few to mean something", len(names["lost"]), len(names["reordered"]))
		}
		return
	}
}

func inOrder(l []serve.Name) []uint64 {
	out := []uint64{}
	for _, n := range l {
		out = append(out, uint64(n.Worker)<<48|n.Seq)
	}
	slices.Sort(out)
	return out
}

// namesAndTruth runs both sides and reads what they wrote.
func namesAndTruth(t *testing.T) (truth serve.Truth, names map[string][]serve.Name) {
	t.Helper()
	dir := t.TempDir()
	told, seen := filepath.Join(dir, "truth.json"), filepath.Join(dir, "names.json")
	s := serveUDP(t, "--servers", "64", "--service", "2ms", "--jitter", "1ms", "--drop", "1%", "--drop-reply", "1%", "--reorder", "1%", "--dup", "1%",
		"--delay", "0.5%", "--delay-by", "3s", "--seed", "21", "--truth", told)
	res, _ := measure(t, s.addr, "--rate", "1000", "--duration", "2s", "--flows", "3", "--timeout", "2s", "--drain", "4s", "--names", seen)
	s.signal(t, syscall.SIGINT)
	if err := s.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	readJSON(t, told, &truth)
	var file map[string]json.RawMessage
	readJSON(t, seen, &file)
	names = map[string][]serve.Name{}
	total := 0
	for _, fate := range []string{"lost", "late", "duplicate", "reordered", "in_flight"} {
		var list []serve.Name
		if err := json.Unmarshal(file[fate], &list); err != nil {
			t.Fatalf("%s: %v", fate, err)
		}
		names[fate] = list
		total += len(list)
	}
	l := &res.Ledger
	if want := l.Lost + l.Late + l.Duplicate + l.Reordered + l.InFlight; uint64(total) != want {
		t.Errorf("%d names for the %s packets of the ledger %+v", total, strconv.FormatUint(want, 10), l)
	}
	return truth, names
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
