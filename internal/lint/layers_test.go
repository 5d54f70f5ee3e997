package lint_test

import (
	"slices"
	"strings"
)

// A layer says what one package, or with a trailing "/..." every package below a folder, may import.
type layer struct {
	packages string
	// project lists the packages of this project; "x/..." includes everything below x and x itself.
	project []string
	// external lists what it may use outside the standard library, by module path; nil leaves that open.
	external []string
}

// foundation stands for the packages below internal that know nothing of blast. One that has a row of its own is not
// among them and has to be allowed by name.
const foundation = "internal/..."

var (
	none   = []string{}
	leaves = []string{"backend", "pace", "packet", "stats"}
	// testSupport may be imported by any test, whatever the layer of its package. None of it is used by a program.
	testSupport = []string{"backend/backendtest", foundation}
)

// layers is the dependency picture of docs/ARCHITECTURE.md as a table. The longest matching row counts.
var layers = []layer{
	{"backend", none, []string{"golang.org/x/sys"}},
	{"pace", none, none},
	{"packet", none, none},
	{"stats", none, []string{"github.com/HdrHistogram/hdrhistogram-go"}},

	{foundation, []string{foundation}, nil},
	{"internal/vm", []string{"..."}, nil},                      // tests of the whole, in a guest
	{"internal/udpsock", []string{"backend", foundation}, nil}, // what the socket backends share
	{"uring/...", []string{foundation, "uring/..."}, nil},
	{"xdp/...", []string{foundation, "xdp/..."}, nil},

	{"backend/backendtest", plus(leaves, foundation), nil},
	{"backend/netudp", plus(leaves, foundation, "internal/udpsock"), nil},
	{"backend/mmsg", plus(leaves, foundation, "internal/udpsock"), nil},
	{"backend/iouring", plus(leaves, foundation, "internal/udpsock", "uring/..."), nil},
	{"backend/afxdp", plus(leaves, foundation, "internal/udpsock", "xdp/..."), nil},
	{"backend/xdplive", plus(leaves, foundation, "xdp/..."), nil},
	{"backend/...", plus(leaves, foundation), nil}, // the next backend

	{"engine/...", plus(leaves, "engine/...", foundation), nil},
	{"verdict", []string{"stats"}, none},
	{"report", []string{"stats"}, []string{"gonum.org/v1/plot"}},
	{"tuning/...", plus(leaves, foundation, "tuning/..."), nil},
	{"serve/...", plus(leaves, foundation, "serve/...", "uring/...", "xdp/..."), nil},
	{"calib", plus(leaves, "engine/...", foundation, "serve/...", "verdict"), nil},
	{"lab", plus(leaves, "engine/...", foundation, "serve/...", "verdict"), nil},
	{"ladder", []string{"stats"}, none},
	{"prove", plus(leaves, "verdict", foundation), nil},
	{"agent", plus(leaves, foundation, "serve/...", "tuning/..."), nil},
	{"live", []string{"stats"}, nil},
	{"tcpstack/...", plus(leaves, foundation, "tcpstack/..."), nil},

	{"cmd/...", []string{"..."}, nil},
}

// plus is a new slice of both.
func plus(a []string, b ...string) []string { return slices.Concat(a, b) }

// matches says whether a pattern of the table covers a package folder.
func matches(pattern, dir string) bool {
	if root, ok := strings.CutSuffix(pattern, "..."); ok {
		return root == "" || under(dir, strings.TrimSuffix(root, "/"))
	}
	return pattern == dir
}

// allows says whether an entry of a row permits a package.
func allows(pattern, dir string) bool {
	if pattern == foundation {
		l, _ := layerOf(dir)
		return l.packages == foundation
	}
	return matches(pattern, dir)
}

// layerOf returns the row for a package folder: the exact one, or else the longest pattern that covers it.
func layerOf(dir string) (layer, bool) {
	var best layer
	for _, l := range layers {
		if l.packages == dir {
			return l, true
		}
		if matches(l.packages, dir) && len(l.packages) > len(best.packages) {
			best = l
		}
	}
	return best, best.packages != ""
}

// projectPackage returns the folder of an import path of this project.
func projectPackage(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func layersKept(tr *tree) []finding {
	var out []finding
	for _, files := range tr.packages() {
		dir := files[0].dir
		l, ok := layerOf(dir)
		if !ok {
			out = append(out, finding{dir, "the package stands in no layer", "add its row to layers in internal/lint/layers_test.go and to docs/ARCHITECTURE.md"})
			continue
		}
		for _, f := range files {
			for _, im := range f.imports {
				to, ours := projectPackage(im.path)
				if !ours {
					continue
				}
				allowed := l.project
				if f.test { // and the package itself, for its external tests
					allowed = slices.Concat(allowed, testSupport, []string{dir})
				}
				if !slices.ContainsFunc(allowed, func(p string) bool { return allows(p, to) }) {
					out = append(out, tr.at(im.spec, "move the code to a layer that may ("+layerAdvice(l)+"), or hand the value in from cmd/blast",
						"%s imports %s", dir, to))
				}
			}
		}
	}
	return out
}

// layerAdvice says what a row allows.
func layerAdvice(l layer) string {
	if len(l.project) == 0 {
		return l.packages + " imports nothing of the project"
	}
	return l.packages + " imports only " + strings.Join(l.project, ", ")
}

func librariesFenced(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		l, ok := layerOf(f.dir)
		if !ok || l.external == nil || f.test {
			continue
		}
		for _, im := range f.imports {
			if _, ours := projectPackage(im.path); ours || standard(im.path) {
				continue
			}
			if !slices.ContainsFunc(l.external, func(mod string) bool { return under(im.path, mod) }) {
				out = append(out, tr.at(im.spec, "use the standard library, or name the module in the row of "+l.packages+" in internal/lint/layers_test.go and say there why",
					"%s imports the library %s", f.dir, im.path))
			}
		}
	}
	return out
}

// standard says whether an import path belongs to the standard library: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// testSupportFenced keeps test helpers, and package testing with its flags, out of what a program is built from.
func testSupportFenced(tr *tree) []finding {
	helper := func(dir string) bool {
		return slices.Contains([]string{"backend/backendtest", "internal/lint", "internal/testnet", "internal/testskip"}, dir)
	}
	var out []finding
	for _, f := range tr.files {
		if f.test || helper(f.dir) {
			continue
		}
		for _, im := range f.imports {
			if to, ours := projectPackage(im.path); ours && helper(to) || im.path == "testing" {
				out = append(out, tr.at(im.spec, "move the code to a _test.go file or to the helper package", "%s, which programs are built from, imports %s", f.dir, im.path))
			}
		}
	}
	return out
}
