package lint_test

import (
	"strings"
	"testing"
)

// A rule is one sentence about the repository and the function that finds what breaks it.
type rule struct {
	name  string
	check func(*tree) []finding
}

// rules lists everything that is enforced; cases_test.go feeds each of them.
var rules = []rule{
	{"layers", layersKept},                         // a package imports only what its row in the table allows
	{"libraries", librariesFenced},                 // leaves use the standard library and the libraries their row names
	{"test-support", testSupportFenced},            // test helpers stay out of programs
	{"dependencies-named", dependenciesNamed},      // docs/ARCHITECTURE.md says what each dependency is for
	{"package-comment", onePackageComment},         // exactly one package comment per package, in the godoc form
	{"package-name", packageNames},                 // folder and package have one name, and it says something
	{"unsafe", unsafeFenced},                       // unsafe only in internal/sys and internal/ring
	{"raw-syscall", syscallsFenced},                // raw system calls only in internal/sys
	{"init", noInit},                               // parts are wired in cmd/blast, not by side effect
	{"print", librariesSilent},                     // libraries return values; only commands print
	{"wrap", causesWrapped},                        // a cause is wrapped with %w, so that callers can match it
	{"error-text", errorTexts},                     // error texts read as "thing: cause"
	{"skip", skipsNamed},                           // tests skip only through internal/testskip
	{"skip-features", featuresKnown},               // every feature a test may lack is forbidden in CI or listed as optional
	{"hot", hotFilesClean},                         // files marked hot hold nothing that waits, locks, formats or allocates by nature
	{"hot-marked", hotFilesMarked},                 // the packages with a per-packet loop have marked its file
	{"long", longFunctionsReasoned},                // a function over 70 lines says why
	{"format", formatted},                          // gofmt has the last word on layout
	{"marks", noMarks},                             // unfinished work is finished or told, not marked
	{"changelog", changelogKept},                   // CHANGELOG.md exists and says something
	{"kernel-tests", kernelTestsNamed},             // a test that makes namespaces is found by its prefix
	{"generated-header", generatedFilesHaveSource}, // a generated file has a go:generate line to renew it
}

// TestRepository applies every rule to this repository.
func TestRepository(t *testing.T) {
	tr := repository(t)
	if !strings.HasPrefix(tr.text["go.mod"], "module "+module+"\n") {
		t.Fatalf("go.mod does not name module %q; remedy: change the constant in tree_test.go", module)
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range r.check(tr) {
				t.Error(f)
			}
		})
	}
}
