package lint_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const testskipPath = module + "/internal/testskip"

// testingNames returns the parameters and fields of the file that are a *testing.T, B, F or a testing.TB. An embedded one
// goes by its type.
func (s *source) testingNames() []string {
	var out []string
	s.each(func(n ast.Node) {
		field, ok := n.(*ast.Field)
		if !ok {
			return
		}
		of := field.Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		pkg, name := s.member(of)
		if pkg != "testing" || !slices.Contains([]string{"T", "B", "F", "TB"}, name) {
			return
		}
		for _, id := range field.Names {
			out = append(out, id.Name)
		}
		if len(field.Names) == 0 {
			out = append(out, name)
		}
	})
	return out
}

// skipsNamed also catches a method value (defer t.SkipNow) and a field (h.t.Skip). Skip of a rapid.T throws one example away and
// is no skip of a test.
func skipsNamed(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.dir == "internal/testskip" {
			continue
		}
		names := f.testingNames()
		f.each(func(n ast.Node) {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return
			}
			on := ""
			switch x := sel.X.(type) {
			case *ast.Ident:
				on = x.Name
			case *ast.SelectorExpr:
				on = x.Sel.Name
			}
			handedOn := f.dir == "internal/testnet" && sel.Sel.Name == "SkipNow" // made by testskip.Skip on another thread
			if slices.Contains(names, on) && !handedOn {
				out = append(out, tr.at(n, "call testskip.Skip(t, feature, reason, remedy), which CI can forbid", "%s.%s skips a test without a named feature", on, sel.Sel.Name))
			}
		})
	}
	return out
}

// optionalFeatures are what MUST_RUN does not hold: runs that are asked for by name, through their own make target, and what
// the kernel of the build machines is built without (bond: CONFIG_BONDING; vlan: 802.1Q). These run in the guest of internal/vm, whose init.sh
// forbids to skip them.
var optionalFeatures = []string{"bench", "bond", "fuzz", "vlan", "vm"}

// mustRunLine is the line of the Makefile with the features that make check forbids to skip.
var mustRunLine = regexp.MustCompile(`(?m)^MUST_RUN *[:?]?= *(\S+)$`)

func featuresKnown(tr *tree) []finding {
	var forbidden []string
	if m := mustRunLine.FindStringSubmatch(tr.text["Makefile"]); m != nil {
		forbidden = strings.Split(m[1], ",")
	} else {
		return []finding{{"Makefile", "there is no MUST_RUN line", "write MUST_RUN := with the features, joined by commas, that CI must not skip"}}
	}
	var out []finding
	for _, f := range tr.files {
		f.each(func(n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return
			}
			pkg, name := f.member(call.Fun)
			if id, ok := call.Fun.(*ast.Ident); ok && f.dir == "internal/testskip" {
				pkg, name = testskipPath, id.Name
			}
			if pkg != testskipPath || name != "Skip" {
				return
			}
			lit, ok := call.Args[1].(*ast.BasicLit)
			if !ok {
				out = append(out, tr.at(n, "write the feature as a string literal, so that this rule can see it", "the skipped feature is not a literal"))
				return
			}
			feature, err := strconv.Unquote(lit.Value)
			if err != nil || !slices.Contains(forbidden, feature) && !slices.Contains(optionalFeatures, feature) {
				out = append(out, tr.at(n, "add it to MUST_RUN in the Makefile", "CI may skip the feature %s silently", lit.Value))
			}
		})
	}
	return out
}

// kernelTestsNamed looks for direct use of testnet in a test function; what a helper makes is the helper's to name.
func kernelTestsNamed(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !f.test || !ok || fn.Recv != nil || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") ||
				strings.HasPrefix(fn.Name.Name, "TestKernel") || strings.HasPrefix(fn.Name.Name, "TestRatio") {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				pkg, name := f.member(n)
				if pkg == module+"/internal/testnet" && name == "NewPair" {
					out = append(out, tr.at(fn, "name it TestKernel..., so that make kernel-test finds it", "%s needs namespaces", fn.Name.Name))
					return false
				}
				return true
			})
		}
	}
	return out
}
