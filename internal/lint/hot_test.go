package lint_test

import (
	"go/ast"
	"go/token"
	"slices"
)

// hotMark, on a line of its own above the package clause, says that the file runs once per packet or per batch.
const hotMark = "//blast:hot"

// hotPackages have a per-packet loop; at least one of their files carries the mark.
var hotPackages = []string{"engine", "backend/mmsg", "backend/iouring", "backend/afxdp"}

// hotImports are packages that nothing in a hot file may use.
var hotImports = []string{"fmt", "log", "log/slog", "sync", "context", "reflect"}

// hotTime are the members of package time that wait, or make something that waits.
var hotTime = []string{"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// hot says whether the file carries the mark at its head.
func (s *source) hot() bool {
	return slices.ContainsFunc(s.directives(hotMark+" "), func(c *ast.Comment) bool { return c.Pos() < s.Package })
}

func hotFilesClean(tr *tree) []finding {
	const remedy = "do it before the loop, count instead, or move the cold part to a file without " + hotMark
	var out []finding
	for _, f := range tr.files {
		for _, c := range f.directives(hotMark + " ") {
			if c.Pos() > f.Package {
				out = append(out, tr.at(c, "put it on a line of its own above the package clause", "%s below the package clause marks nothing", hotMark))
			}
		}
		if !f.hot() {
			continue
		}
		for _, im := range f.imports {
			if slices.Contains(hotImports, im.path) {
				out = append(out, tr.at(im.spec, remedy, "a hot file imports %s", im.path))
			}
		}
		f.each(func(n ast.Node) {
			if what := hotSin(f, n); what != "" {
				out = append(out, tr.at(n, remedy, "a hot file %s", what))
			}
		})
	}
	return out
}

// hotSin says what a node does that a hot file must not do; "" for nothing. Indexing a map cannot be told from
// indexing a slice without types, but a map has to be declared somewhere: in a hot file it cannot be.
func hotSin(f *source, n ast.Node) string {
	switch n := n.(type) {
	case *ast.MapType:
		return "uses a map"
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return "uses a channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "receives from a channel"
		}
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectorExpr:
		if pkg, name := f.member(n); pkg == "time" && slices.Contains(hotTime, name) {
			return "calls time." + name
		}
	}
	return ""
}

func hotFilesMarked(tr *tree) []finding {
	var out []finding
	for _, files := range tr.packages() {
		if slices.Contains(hotPackages, files[0].dir) && !slices.ContainsFunc(files, (*source).hot) {
			out = append(out, finding{files[0].dir, "no file is marked as its hot loop", "put " + hotMark + " above the package clause of the file with the per-packet loop"})
		}
	}
	return out
}
