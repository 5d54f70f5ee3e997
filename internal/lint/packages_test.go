package lint_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

func onePackageComment(tr *tree) []finding {
	var out []finding
	for _, files := range tr.packages() {
		var with []*source
		name := ""
		for _, f := range files {
			if strings.HasSuffix(f.Name.Name, "_test") {
				continue // external tests belong to the package they test
			}
			name = f.Name.Name
			if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
				with = append(with, f)
			}
		}
		switch {
		case name == "":
			out = append(out, finding{files[0].dir, "holds only external tests, so nothing says what it is for", "add a doc.go with the package comment"})
		case len(with) == 0:
			out = append(out, finding{files[0].dir, "package " + name + " has no package comment",
				"say above one package clause, or in doc.go, what it is for and which privilege and kernel it needs"})
		case len(with) > 1:
			out = append(out, tr.at(with[1].Doc, "keep one: join them, or put a blank line between the comment and the package clause",
				"package %s has %d package comments, the first in %s", name, len(with), path.Base(with[0].path)))
		default:
			want := "Package " + name + " "
			if name == "main" {
				want = "Command "
			}
			if text := with[0].Doc.Text(); !strings.HasPrefix(text, want) && !strings.HasPrefix(text, strings.TrimSpace(want)+"\n") {
				out = append(out, tr.at(with[0].Doc, "begin it with \""+want+"\"", "the package comment is not in the form that go doc shows"))
			}
		}
	}
	return out
}

// emptyNames say nothing about what is inside.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "type", "types", "core", "lib", "libs", "misc", "shared", "base"}

func packageNames(tr *tree) []finding {
	var out []finding
	for _, files := range tr.packages() {
		for _, f := range files {
			name := strings.TrimSuffix(f.Name.Name, "_test")
			if slices.Contains(emptyNames, name) || slices.Contains(emptyNames, path.Base(f.dir)) {
				out = append(out, tr.at(f.Name, "name it after the one thing it provides", "package name %q says nothing", name))
			} else if name != "main" && f.dir != "." && name != path.Base(f.dir) {
				out = append(out, tr.at(f.Name, "give folder and package one name", "package %s lies in folder %s", name, f.dir))
			}
		}
	}
	return out
}

func noInit(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out, tr.at(fn, "call it where it is needed; parts are wired in cmd/blast", "func init acts at import"))
			}
		}
	}
	return out
}

// generatedFilesHaveSource wants a go:generate line in the package of each generated file.
func generatedFilesHaveSource(tr *tree) []finding {
	var out []finding
	for _, files := range tr.packages() {
		renewed := slices.ContainsFunc(files, func(f *source) bool { return len(f.directives("//go:generate ")) > 0 })
		for _, f := range files {
			if ast.IsGenerated(f.File) && !renewed {
				out = append(out, tr.at(f.Name, "add the //go:generate line that writes it, so that make check can renew it", "nothing in %s says how this file is made", f.dir))
			}
		}
	}
	return out
}

// directives returns the comments of the file that begin with a prefix.
func (s *source) directives(prefix string) []*ast.Comment {
	var out []*ast.Comment
	for _, g := range s.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text+" ", prefix) {
				out = append(out, c)
			}
		}
	}
	return out
}
