package lint_test

import (
	"maps"
	"strings"
	"testing"
)

// A ruleCase feeds one rule a small repository.
type ruleCase struct {
	rule string
	why  string // what the case is for
	// file and text are the source under test; more holds what else the repository needs.
	file, text string
	more       map[string]string
	// want is part of the one finding expected; "" for none.
	want string
}

const doc = "// Package a is for a.\n"

// cases holds, for each rule, at least one source that breaks it and one that only looks as if it did.
func cases() []ruleCase {
	return concat(layerCases, dependencyCases, packageCases, fenceCases, errorCases, skipCases, hotCases, lengthCases())
}

func concat(lists ...[]ruleCase) (out []ruleCase) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

var layerCases = []ruleCase{
	{"layers", "a leaf imports nothing of the project", "stats/a.go", `package stats; import _ "blast/pace"`, nil, "stats imports pace"},
	{"layers", "not even an internal package", "pace/a.go", `package pace; import _ "blast/internal/clock"`, nil, "pace imports internal/clock"},
	{"layers", "the test of a leaf keeps to its layer", "pace/a_test.go", `package pace_test; import _ "blast/stats"`, nil, "pace imports stats"},
	{"layers", "the test of a leaf may use test support and itself", "pace/a_test.go", `package pace_test; import (_ "blast/pace"; _ "blast/internal/testskip")`, nil, ""},
	{"layers", "engine never imports a concrete backend", "engine/a.go", `package engine; import _ "blast/backend/mmsg"`, nil, "engine imports backend/mmsg"},
	{"layers", "nor does its test", "engine/a_test.go", `package engine_test; import _ "blast/backend/netudp"`, nil, "engine imports backend/netudp"},
	{"layers", "the fake backend is for tests of the engine", "engine/a_test.go", `package engine_test; import _ "blast/backend/backendtest"`, nil, ""},
	{"layers", "backends never import engine", "backend/mmsg/a.go", `package mmsg; import _ "blast/engine"`, nil, "backend/mmsg imports engine"},
	{"layers", "backends never import each other", "backend/afxdp/a.go", `package afxdp; import _ "blast/backend/xdplive"`, nil, "backend/afxdp imports backend/xdplive"},
	{"layers", "a new backend needs no row", "backend/sixth/a.go", `package sixth; import (_ "blast/backend"; _ "blast/packet"; _ "blast/internal/sys")`, nil, ""},
	{"layers", "a new backend is fenced too", "backend/sixth/a.go", `package sixth; import _ "blast/uring"`, nil, "backend/sixth imports uring"},
	{"layers", "uring knows nothing of blast", "uring/a.go", `package uring; import _ "blast/backend"`, nil, "uring imports backend"},
	{"layers", "uring imports internal only", "uring/a.go", `package uring; import (_ "blast/internal/sys"; _ "blast/internal/ring")`, nil, ""},
	{"layers", "xdp does not know packets", "xdp/a.go", `package xdp; import _ "blast/packet"`, nil, "xdp imports packet"},
	{"layers", "verdict reads stats only", "verdict/a.go", `package verdict; import (_ "blast/stats"; _ "blast/pace")`, nil, "verdict imports pace"},
	{"layers", "report reads stats only", "report/a.go", `package report; import _ "blast/verdict"`, nil, "report imports verdict"},
	{"layers", "the calibrator runs the engine", "calib/a.go", `package calib; import (_ "blast/engine"; _ "blast/serve"; _ "blast/verdict")`, nil, ""},
	{"layers", "the calibrator is handed its backends", "calib/a.go", `package calib; import _ "blast/backend/netudp"`, nil, "calib imports backend/netudp"},
	{"layers", "internal is below everything", "internal/sys/a.go", `package sys; import _ "blast/backend"`, nil, "internal/sys imports backend"},
	{"layers", "an internal package that knows blast is not below everything", "xdp/a.go", `package xdp; import _ "blast/internal/udpsock"`, nil, "xdp imports internal/udpsock"},
	{"layers", "the socket backends share one", "backend/mmsg/a.go", `package mmsg; import (_ "blast/internal/udpsock"; _ "blast/internal/sys")`, nil, ""},
	{"layers", "nobody imports a command", "serve/a.go", `package serve; import _ "blast/cmd/blast"`, nil, "serve imports cmd/blast"},
	{"layers", "the command imports everything", "cmd/blast/a.go", `package main; import (_ "blast/engine"; _ "blast/backend/mmsg")`, nil, ""},
	{"layers", "a package without a row", "attic/a.go", `package attic`, nil, "stands in no layer"},
	{"libraries", "a leaf uses the standard library", "pace/a.go", `package pace; import _ "golang.org/x/sys/unix"`, nil, "pace imports the library"},
	{"libraries", "stats may use its histogram", "stats/a.go", `package stats; import _ "github.com/HdrHistogram/hdrhistogram-go"`, nil, ""},
	{"libraries", "a path that only begins like an allowed one", "stats/a.go", `package stats; import _ "github.com/HdrHistogram/hdrhistogram-gone"`, nil, "imports the library"},
	{"libraries", "tests of leaves may use test libraries", "pace/a_test.go", `package pace; import _ "pgregory.net/rapid"`, nil, ""},
	{"test-support", "a program holds no test helper", "engine/a.go", `package engine; import _ "blast/internal/testnet"`, nil, "imports blast/internal/testnet"},
	{"test-support", "nor package testing", "cmd/blast/a.go", `package main; import _ "testing"`, nil, "imports testing"},
	{"test-support", "tests and helpers do", "internal/testnet/a.go", `package testnet; import _ "testing"`, map[string]string{"engine/a_test.go": `package engine; import _ "blast/internal/testnet"`}, ""},
}

const gomod = "module blast\n\nrequire example.com/a v1.0.0\n\nrequire (\n\texample.com/a/sub v1.2.0\n\texample.com/i v1.0.0 // indirect\n)\n\ntool example.com/t/cmd/x\n"

var dependencyCases = []ruleCase{
	{"dependencies-named", "a direct dependency is explained", "a/a.go", `package a; import (_ "example.com/a"; _ "example.com/a/sub/p")`,
		map[string]string{"go.mod": gomod, "docs/ARCHITECTURE.md": "example.com/a/sub"}, ""},
	{"dependencies-named", "an unexplained one", "a/a.go", `package a`,
		map[string]string{"go.mod": gomod, "docs/ARCHITECTURE.md": "example.com/a"}, "dependency example.com/a/sub is not named"},
	{"dependencies-named", "a tool is a dependency", "a/a.go", `package a`,
		map[string]string{"go.mod": "require example.com/t v1.0.0 // indirect\ntool example.com/t/cmd/x"}, "dependency example.com/t is not named"},
	{"dependencies-named", "imported but marked indirect", "a/a.go", `package a; import _ "example.com/i"`,
		map[string]string{"go.mod": gomod, "docs/ARCHITECTURE.md": "example.com/a/sub example.com/i"}, "marked indirect"},
	{"dependencies-named", "imported but not required", "a/a.go", `package a; import _ "example.org/z"`, nil, "requires no module for example.org/z"},
	{"changelog", "there has to be one", "a/a.go", `package a`, nil, "there is none"},
	{"changelog", "with something in it", "a/a.go", `package a`, map[string]string{"CHANGELOG.md": "# Changes\n"}, ""},
}

var packageCases = []ruleCase{
	{"package-comment", "none", "a/a.go", `package a`, nil, "has no package comment"},
	{"package-comment", "a comment about something else", "a/a.go", "// Copyright.\n\npackage a", nil, "has no package comment"},
	{"package-comment", "a directive is no comment", "a/a.go", "//blast:hot\npackage a", nil, "has no package comment"},
	{"package-comment", "two", "a/a.go", doc + "package a", map[string]string{"a/b.go": doc + "package a"}, "has 2 package comments"},
	{"package-comment", "not in the form of go doc", "a/a.go", "// This is a.\npackage a", nil, "not in the form"},
	{"package-comment", "one, and a test without", "a/a.go", doc + "package a", map[string]string{"a/a_test.go": "package a_test"}, ""},
	{"package-comment", "a command", "cmd/x/a.go", "// Command x does x.\npackage main", nil, ""},
	{"package-comment", "a folder of external tests", "a/a_test.go", "package a_test", nil, "only external tests"},
	{"package-name", "a name that says nothing", "internal/util/a.go", "package util", nil, "says nothing"},
	{"package-name", "not as a folder either", "internal/common/a.go", "package main", nil, "says nothing"},
	{"package-name", "folder and package differ", "backend/mmsg/a.go", "package sendmmsg", nil, "lies in folder"},
	{"package-name", "a command and an external test", "cmd/blast/a.go", "package main", map[string]string{"pace/a_test.go": "package pace_test"}, ""},
	{"init", "an init function", "a/a.go", "package a\nfunc init() {}", nil, "acts at import"},
	{"init", "a method of that name", "a/a.go", "package a\ntype t int\nfunc (t) init() {}", nil, ""},
	{"generated-header", "a file that nothing renews", "a/a.go", "// Code generated by x. DO NOT EDIT.\npackage a", nil, "how this file is made"},
	{"generated-header", "a file with its generator", "a/a.go", "// Code generated by x. DO NOT EDIT.\npackage a", map[string]string{"a/b.go": "package a\n\n//go:generate go run ./gen\n"}, ""},
}

var fenceCases = []ruleCase{
	{"unsafe", "outside its two packages", "xdp/a.go", `package xdp; import "unsafe"`, nil, "xdp imports unsafe"},
	{"unsafe", "a folder below is outside", "internal/sys/x/a.go", `package x; import "unsafe"`, nil, "imports unsafe"},
	{"unsafe", "inside, and in tests", "internal/ring/a.go", `package ring; import "unsafe"`, map[string]string{"xdp/a_test.go": `package xdp; import "unsafe"`}, ""},
	{"raw-syscall", "by package syscall", "uring/a.go", "package uring; import \"syscall\"\nfunc f() { syscall.Syscall6(0, 0, 0, 0, 0, 0, 0) }", nil, "Syscall6"},
	{"raw-syscall", "under another name, as a value", "xdp/a.go", "package xdp; import u \"golang.org/x/sys/unix\"\nvar f = u.RawSyscall", nil, "RawSyscall"},
	{"raw-syscall", "tests too", "xdp/a_test.go", "package xdp; import \"golang.org/x/sys/unix\"\nfunc f() { unix.Syscall(0, 0, 0, 0) }", nil, "Syscall"},
	{"raw-syscall", "a dot import", "xdp/a.go", `package xdp; import . "syscall"`, nil, "dot import"},
	{"raw-syscall", "typed wrappers, other packages, internal/sys", "xdp/a.go", "package xdp; import (\"golang.org/x/sys/unix\"; \"blast/internal/sys\")\nvar a, b = unix.Bind, sys.Syscall",
		map[string]string{"internal/sys/a.go": "package sys; import \"golang.org/x/sys/unix\"\nvar f = unix.Syscall"}, ""},
	{"print", "a library that prints", "a/a.go", "package a; import \"fmt\"\nfunc f() { fmt.Println() }", nil, "prints with fmt.Println"},
	{"print", "a library that logs", "a/a.go", `package a; import "log/slog"; var _ = slog.Info`, nil, "library a logs"},
	{"print", "a library that holds the terminal", "a/a.go", "package a; import \"os\"\nvar w = os.Stderr", nil, "uses os.Stderr"},
	{"print", "the builtin", "a/a.go", "package a\nfunc f() { println() }", nil, "builtin println"},
	{"print", "commands, tests and formatting to a writer", "a/a.go", "package a; import (\"fmt\"; \"io\")\nfunc f(w io.Writer) { fmt.Fprintln(w); _ = fmt.Sprint() }",
		map[string]string{"cmd/blast/a.go": `package main; import "log"; var _ = log.Print`, "a/a_test.go": "package a; import \"fmt\"\nfunc g() { fmt.Println() }"}, ""},
	{"format", "spaces for tabs", "a/a.go", "package a\n\nfunc f() {\n  f()\n}\n", nil, "not formatted"},
	{"format", "as gofmt has it", "a/a.go", "package a\n\nfunc f() {\n\tf()\n}\n", nil, ""},
	{"marks", "a mark", "a/a.go", "package a // TO" + "DO: later", nil, "marks unfinished work"},
	{"marks", "another one, inside a block", "a/a.go", "package a /* \n FIX" + "ME(me) */", nil, "marks unfinished work"},
	{"marks", "in a text, or as part of a word", "a/a.go", "package a // XXX" + "X is a template\nvar s = \"TO" + "DO\"", nil, ""},
}

var errorCases = []ruleCase{
	errorf("wrap", "a cause by %v", `fmt.Errorf("open: %v", err)`, "formatted by %v"),
	errorf("wrap", "the second of two", `fmt.Errorf("open %*d %%: %s", 3, 4, closeErr)`, "formatted by %s"),
	errorf("wrap", "its text", `fmt.Errorf("open: %s", err.Error())`, "formatted by %s"),
	errorf("wrap", "a context's cause", `fmt.Errorf("open "+name+": %+v", ctx.Err())`, "formatted by %v"),
	errorf("wrap", "wrapped, its type, a number beside it", `fmt.Errorf("open %d %T: %w", n, err, err)`, ""),
	errorf("wrap", "values that are no errors", `fmt.Errorf("open %v %s", errno0, terror)`, ""),
	errorf("error-text", "failed to", `errors.New("failed to open")`, "begins with \"failed\""),
	errorf("error-text", "error", `fmt.Errorf("error opening: %w", err)`, "begins with \"error\""),
	errorf("error-text", "a capital", `errors.New("Cannot open")`, "begins with a capital"),
	errorf("error-text", "a full stop, in two pieces", `errors.New("cannot " + "open.")`, "ends in \".\""),
	errorf("error-text", "empty", `errors.New("")`, "is empty"),
	errorf("error-text", "names keep their case", `errors.New("AF_XDP needs Linux 5.4")`, ""),
	errorf("error-text", "a proper noun", `errors.New("Linux 6.0 or newer needed")`, ""),
	errorf("error-text", "an acronym", `errors.New("IPv6: no route")`, ""),
	errorf("error-text", "a value first", `fmt.Errorf("%s: bad rate", name)`, ""),
}

// errorf makes a case of one expression.
func errorf(rule, why, expr, want string) ruleCase {
	return ruleCase{rule, why, "a/a.go", "package a; import (\"errors\"; \"fmt\")\nfunc f() error { return " + expr + " }", nil, want}
}

const skipHead = "package a\nimport (\"testing\"; \"blast/internal/testskip\"; \"blast/internal/testnet\")\n"

var skipCases = []ruleCase{
	{"skip", "a bare skip", "a/a_test.go", skipHead + `func TestA(t *testing.T) { t.Skip("no") }`, nil, "t.Skip skips"},
	{"skip", "under another name, as a method value", "a/a_test.go", skipHead + `func BenchmarkA(x *testing.B) { defer x.SkipNow() }`, nil, "x.SkipNow skips"},
	{"skip", "through a field", "a/a.go", skipHead + `type h struct { tb testing.TB }; func (h h) f() { h.tb.Skipf("no") }`, nil, "tb.Skipf skips"},
	{"skip", "by the rule, and skips that are none", "a/a_test.go", skipHead + `func TestA(t *testing.T) { testskip.Skip(t, "xdp", "", ""); var l lexer; l.Skip() }`, nil, ""},
	{"skip", "the rule itself", "internal/testskip/a.go", "package testskip; import \"testing\"\nfunc Skip(t testing.TB) { t.Skipf(\"\") }", nil, ""},
	{"skip", "handing on a skip that was made on another thread", "internal/testnet/a.go", "package testnet; import \"testing\"\nfunc f(t testing.TB) { if t.Skipped() { t.SkipNow() } }", nil, ""},
	{"skip", "but making one there", "internal/testnet/a.go", "package testnet; import \"testing\"\nfunc f(t testing.TB) { t.Skip() }", nil, "t.Skip skips"},
	{"skip-features", "no list", "a/a.go", `package a`, nil, "no MUST_RUN line"},
	{"skip-features", "a feature nobody forbids to skip", "a/a_test.go", skipHead + `func TestA(t *testing.T) { testskip.Skip(t, "npm", "", "") }`, map[string]string{"Makefile": "MUST_RUN := root,xdp\n"}, `the feature "npm"`},
	{"skip-features", "a feature of the rule's own that nobody forbids to skip", "internal/testskip/a.go", "package testskip; import \"testing\"\nfunc Skip(t testing.TB, feature, reason, remedy string) { t.Skipf(\"\") }\nfunc NPM(t testing.TB) { Skip(t, \"npm\", \"\", \"\") }", map[string]string{"Makefile": "MUST_RUN := root,xdp\n"}, `the feature "npm"`},
	{"skip-features", "a feature hidden in a variable", "a/a_test.go", skipHead + `func f(t *testing.T, x string) { testskip.Skip(t, x, "", "") }`, map[string]string{"Makefile": "MUST_RUN := root,xdp\n"}, "not a literal"},
	{"skip-features", "a forbidden and an optional one", "a/a_test.go", skipHead + `func f(t *testing.T) { testskip.Skip(t, "xdp", "", ""); testskip.Skip(t, "bench", "", "") }`, map[string]string{"Makefile": "MUST_RUN := root,xdp\n"}, ""},
	{"kernel-tests", "namespaces under a plain name", "a/a_test.go", skipHead + `func TestA(t *testing.T) { _ = testnet.NewPair(t) }`, nil, "TestA needs namespaces"},
	{"kernel-tests", "namespaces under the prefix, and none", "a/a_test.go", skipHead + `func TestKernelA(t *testing.T) { _ = testnet.NewPair(t) }; func TestB(t *testing.T) { _ = NewPair(t) }`, nil, ""},
}

var hotCases = []ruleCase{
	hot("an import", `import "fmt"; var _ = fmt.Sprint`, "imports fmt"),
	hot("a lock", `import "sync"; var _ sync.Mutex`, "imports sync"),
	hot("sleeping", "import \"time\"\nfunc f() { time.Sleep(1) }", "calls time.Sleep"),
	hot("a timer, under another name", "import x \"time\"\nfunc f() { x.After(1) }", "calls time.After"),
	hot("a map in a signature", "func f(m map[int]int) {}", "uses a map"),
	hot("a channel in a struct", "type s struct { c chan int }", "uses a channel"),
	hot("waiting on someone else's channel", "func f() { <-s.c }", "receives from a channel"),
	hot("a goroutine", "func f() { go f() }", "starts a goroutine"),
	hot("atomics, durations and indexing", "import (\"sync/atomic\"; \"time\")\nvar n atomic.Int64\nfunc f(a []time.Duration) { a[0]++ }", ""),
	{"hot", "a file without the mark", "a/a.go", "package a; import \"fmt\"\nvar m map[int]int; var _ = fmt.Sprint", nil, ""},
	{"hot", "a mark in the wrong place", "a/a.go", "package a\n\n//blast:hot\nfunc f() {}", nil, "marks nothing"},
	{"hot-marked", "an engine without a hot file", "engine/a.go", "package engine", nil, "no file is marked"},
	{"hot-marked", "a mark that only begins like one", "engine/a.go", "//blast:hotter\n\npackage engine", nil, "no file is marked"},
	{"hot-marked", "a marked file among others", "engine/a.go", "package engine", map[string]string{"engine/b.go": "//blast:hot\n\npackage engine"}, ""},
}

// hot makes a case of a file with the mark.
func hot(why, text, want string) ruleCase {
	return ruleCase{"hot", why, "a/a.go", "//blast:hot\n\npackage a\n" + text, nil, want}
}

func lengthCases() []ruleCase {
	function := func(comment string, lines int) string {
		return "package a\n\n" + comment + "func f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
	}
	return []ruleCase{
		{"long", "one line too many", "a/a.go", function("// f does.\n", 71), nil, "func f has 71 lines"},
		{"long", "just short enough", "a/a.go", function("// f does.\n", 70), nil, ""},
		{"long", "a reason in its comment", "a/a.go", function("// long: one switch over all opcodes\n// f does.\n", 71), nil, ""},
		{"long", "a reason above its comment", "a/a.go", function("// long: one switch over all opcodes\n\n// f does.\n", 71), nil, ""},
		{"long", "a word without a reason", "a/a.go", function("// long:\n// f does.\n", 71), nil, "func f has 71 lines"},
		{"long", "the reason of another function", "a/a.go", "package a\n\n// long: a table\nfunc g() {}\n" + strings.TrimPrefix(function("\n", 71), "package a\n"), nil, "func f has 71 lines"},
		{"long", "tests are tables", "a/a_test.go", function("// f does.\n", 71), nil, ""},
	}
}

// TestRules holds every rule to its cases.
func TestRules(t *testing.T) {
	byName := map[string]rule{}
	for _, r := range rules {
		byName[r.name] = r
	}
	for _, c := range cases() {
		t.Run(c.rule+"/"+c.why, func(t *testing.T) {
			r, ok := byName[c.rule]
			if !ok {
				t.Fatalf("no rule %q", c.rule)
			}
			files := maps.Clone(c.more)
			if files == nil {
				files = map[string]string{}
			}
			files[c.file] = c.text
			got := r.check(parse(t, files))
			if c.want == "" && len(got) > 0 {
				t.Errorf("found %v, want nothing", got)
			}
			if c.want != "" && (len(got) != 1 || !strings.Contains(got[0].what, c.want)) {
				t.Errorf("found %v, want one finding with %q", got, c.want)
			}
			for _, f := range got {
				if f.where == "" || f.remedy == "" {
					t.Errorf("%v: names no place or no remedy", f)
				}
			}
		})
	}
}

// TestRulesCanFailAndPass: a rule without both kinds of cases is not known to work.
func TestRulesCanFailAndPass(t *testing.T) {
	broken, kept := map[string]bool{}, map[string]bool{}
	for _, c := range cases() {
		broken[c.rule] = broken[c.rule] || c.want != ""
		kept[c.rule] = kept[c.rule] || c.want == ""
	}
	for _, r := range rules {
		if !broken[r.name] || !kept[r.name] {
			t.Errorf("rule %s: a case that breaks it: %v, one that keeps it: %v; remedy: add both to cases_test.go", r.name, broken[r.name], kept[r.name])
		}
	}
}

// TestMatches covers the patterns of the layer table, on which every import rule rests.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, dir string
		want         bool
	}{
		{"xdp", "xdp", true},
		{"xdp", "xdp/x", false},
		{"xdp/...", "xdp", true},
		{"xdp/...", "xdp/x", true},
		{"xdp/...", "xdplive", false},
		{"...", "anything", true},
	} {
		if got := matches(c.pattern, c.dir); got != c.want {
			t.Errorf("matches(%q, %q) = %v, want %v", c.pattern, c.dir, got, c.want)
		}
	}
}
