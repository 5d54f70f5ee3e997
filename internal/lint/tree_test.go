package lint_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the module path of the project; go.mod is checked against it when the tree is read.
const module = "blast"

// A tree is the repository as the rules see it: parsed Go files and the text of the few other files they read.
type tree struct {
	fset  *token.FileSet
	files []*source
	// text holds go.mod, Makefile, CHANGELOG.md and the documents, by slash-separated path; absent files are absent.
	text map[string]string
}

// A source is one Go file.
type source struct {
	path string // slash-separated, from the repository root
	dir  string // package folder; "." for the root
	test bool
	text string
	*ast.File
	imports []imported
}

// An imported is one import of a file.
type imported struct {
	path string
	name string // the name it goes by in the file, guessed from the path when not given
	spec *ast.ImportSpec
}

// A finding is one breach of a rule.
type finding struct{ where, what, remedy string }

func (f finding) String() string { return f.where + ": " + f.what + "; remedy: " + f.remedy }

// wanted says whether the rules read a file that is not Go.
func wanted(name string) bool {
	switch name {
	case "go.mod", "Makefile", "CHANGELOG.md", "docs/ARCHITECTURE.md":
		return true
	}
	return false
}

// repository reads the tree that this test is part of.
func repository(t *testing.T) *tree {
	t.Helper()
	return parse(t, contents(t, repositoryRoot(t)))
}

// repositoryRoot is the nearest folder upwards that holds go.mod.
func repositoryRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory; remedy: run the test inside the repository")
		}
	}
}

// contents reads what parse wants, by slash-separated path.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && skippedFolder(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") && !wanted(rel) {
			return nil
		}
		b, err := os.ReadFile(p)
		files[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// skippedFolder names the folders the go command ignores too, and those that hold no source of ours.
func skippedFolder(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
		name == "testdata" || name == "node_modules" || name == "vendor" || name == "bin"
}

// parse makes a tree of files given by path. It fails the test on a file that is not Go.
func parse(t *testing.T, files map[string]string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet(), text: map[string]string{}}
	for name, text := range files {
		if !strings.HasSuffix(name, ".go") {
			tr.text[name] = text
			continue
		}
		f, err := parser.ParseFile(tr.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s := &source{path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), text: text, File: f}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			im := imported{path: p, name: guessName(p), spec: spec}
			if spec.Name != nil {
				im.name = spec.Name.Name
			}
			s.imports = append(s.imports, im)
		}
		tr.files = append(tr.files, s)
	}
	slices.SortFunc(tr.files, func(a, b *source) int { return cmp.Compare(a.path, b.path) })
	return tr
}

// guessName is the last element of an import path without a major version.
func guessName(p string) string {
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" && strings.Contains(p, "/") {
		base = path.Base(path.Dir(p))
	}
	return base
}

// at makes a finding at a node.
func (tr *tree) at(n ast.Node, remedy, format string, args ...any) finding {
	p := tr.fset.Position(n.Pos())
	return finding{fmt.Sprintf("%s:%d", p.Filename, p.Line), fmt.Sprintf(format, args...), remedy}
}

// packages groups the files by folder, in order of path.
func (tr *tree) packages() [][]*source {
	var out [][]*source
	byDir := map[string][]*source{}
	for _, f := range tr.files {
		byDir[f.dir] = append(byDir[f.dir], f)
	}
	dirs := make([]string, 0, len(byDir))
	for dir := range byDir {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		out = append(out, byDir[dir])
	}
	return out
}

// importsAs returns the import path a name stands for in the file; "" when the name is no import.
func (s *source) importsAs(name string) string {
	for _, im := range s.imports {
		if im.name == name {
			return im.path
		}
	}
	return ""
}

// member resolves pkg.Name to the import path and the name; "" when e is anything else.
func (s *source) member(e ast.Node) (pkg, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return s.importsAs(id.Name), sel.Sel.Name
}

// each calls fn for every node of the file.
func (s *source) each(fn func(ast.Node)) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		if n != nil {
			fn(n)
		}
		return true
	})
}

// program says whether the file belongs to a command or to a tool of the project and not to a library.
func (s *source) program() bool { return s.Name.Name == "main" }

// under says whether a package folder is root or lies below it.
func under(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }
