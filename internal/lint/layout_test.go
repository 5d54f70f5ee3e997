package lint_test

import (
	"go/ast"
	"go/format"
	"go/token"
	"strings"
)

// maxLines is a tripwire, not a law: a longer function says why on the first line of its comment.
const maxLines = 70

// longFunctionsReasoned leaves tests out: a table of cases is long and simple.
func longFunctionsReasoned(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.test || ast.IsGenerated(f.File) {
			continue
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := tr.line(fn.End()) - tr.line(fn.Pos()) + 1
			if lines > maxLines && !tr.longReason(f, fn) {
				out = append(out, tr.at(fn, "split it by idea, or write \"// long: reason\" above its comment", "func %s has %d lines, more than %d", fn.Name.Name, lines, maxLines))
			}
		}
	}
	return out
}

// longReason finds "// long: reason" as a line of the function's comment or as a comment of its own just above.
func (tr *tree) longReason(f *source, fn *ast.FuncDecl) bool {
	top := tr.line(fn.Pos())
	if fn.Doc != nil {
		top = tr.line(fn.Doc.Pos())
	}
	for _, g := range f.Comments {
		last := tr.line(g.End())
		if g != fn.Doc && (last >= top || last < top-2) {
			continue
		}
		for _, c := range g.List {
			reason, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), "long:")
			if ok && strings.TrimSpace(reason) != "" {
				return true
			}
		}
	}
	return false
}

// line is the line number of a position.
func (tr *tree) line(p token.Pos) int { return tr.fset.Position(p).Line }

func formatted(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if want, err := format.Source([]byte(f.text)); err != nil || string(want) != f.text {
			out = append(out, finding{f.path, "not formatted", "make fmt"})
		}
	}
	return out
}
