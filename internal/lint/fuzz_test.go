package lint_test

import (
	"go/ast"
	"os"
	"os/exec"
	"strings"
	"testing"

	"blast/internal/testskip"
)

// A fuzzTarget is one Fuzz function: the go command runs only one of them at a time.
type fuzzTarget struct{ dir, name string }

// fuzzTargets lists the Fuzz functions of the tree.
func fuzzTargets(tr *tree) []fuzzTarget {
	var out []fuzzTarget
	for _, f := range tr.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") {
				out = append(out, fuzzTarget{f.dir, fn.Name.Name})
			}
		}
	}
	return out
}

// TestFuzzSmoke runs every fuzz target for BLAST_FUZZ (a -fuzztime such as 5s): enough to see that none has rotted and that nothing
// falls over at once.
func TestFuzzSmoke(t *testing.T) {
	length := os.Getenv("BLAST_FUZZ")
	if length == "" {
		testskip.Skip(t, "fuzz", "BLAST_FUZZ is not set", "make fuzz-smoke")
	}
	root := repositoryRoot(t)
	for _, target := range fuzzTargets(repository(t)) {
		t.Run(target.dir+"/"+target.name, func(t *testing.T) {
			out, err := fuzz(root, target, length)
			for tries := 1; err != nil && endRace(out) && tries < 3; tries++ {
				out, err = fuzz(root, target, length)
			}
			if err != nil {
				t.Errorf("%v\n%s\nremedy: mend the fault and keep the input that go test wrote below testdata/fuzz", err, out)
			}
		})
	}
}

func fuzz(root string, target fuzzTarget, length string) (string, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+target.name+"$", "-fuzztime", length, "./"+target.dir)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// endRace reports whether the go command failed only by how it ends: before Go 1.27 its coordinator may take the end of -fuzztime for a
// failure (golang/go#75804), which is this one line below the target's. What a target found comes with more: a panic, t.Error's line, or
// the input that was written.
func endRace(out string) bool {
	_, failure, found := strings.Cut(out, "--- FAIL: ")
	lines := strings.Split(failure, "\n")
	return found && len(lines) > 2 && strings.TrimSpace(lines[1]) == "context deadline exceeded" && lines[2] == "FAIL" && !strings.Contains(out, "Failing input")
}

// TestEndRace: what is tried again is the race at the end of fuzzing alone.
func TestEndRace(t *testing.T) {
	const tail = "FAIL\nexit status 1\nFAIL\tblast/uring\t3.071s\n"
	for _, c := range []struct {
		why, out string
		want     bool
	}{
		{"the race", "fuzz: elapsed: 3s, execs: 109769 (0/sec)\n--- FAIL: FuzzX (3.07s)\n    context deadline exceeded\n" + tail, true},
		{"a finding", "--- FAIL: FuzzX (0.01s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\n" + tail, false},
		{"a finding that says the same", "--- FAIL: FuzzX (0.01s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzX/1\n" + tail, false},
		{"no build", "blast/uring: context deadline exceeded\n" + tail, false},
	} {
		if got := endRace(c.out); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}
