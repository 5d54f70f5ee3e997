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
			cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+target.name+"$", "-fuzztime", length, "./"+target.dir)
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\nremedy: mend the fault and keep the input that go test wrote below testdata/fuzz", err, out)
			}
		})
	}
}
