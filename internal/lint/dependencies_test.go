package lint_test

import (
	"slices"
	"strings"
)

// A requirement is one line of go.mod.
type requirement struct {
	path     string
	indirect bool
}

// requirements reads the require lines and the tool lines of a go.mod. It knows only the two forms that the go command
// writes: one line, or a block.
func requirements(gomod string) (required []requirement, tools []string) {
	block := ""
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			continue
		case fields[0] == ")":
			block = ""
			continue
		case len(fields) == 2 && fields[1] == "(":
			block = fields[0]
			continue
		case block != "":
			fields = append([]string{block}, fields...)
		}
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "require":
			required = append(required, requirement{fields[1], strings.HasSuffix(strings.TrimSpace(line), "// indirect")})
		case "tool":
			tools = append(tools, fields[1])
		}
	}
	return required, tools
}

// moduleOf returns the required module that provides a package: the longest path that covers it.
func moduleOf(required []requirement, importPath string) (best requirement) {
	for _, r := range required {
		if under(importPath, r.path) && len(r.path) > len(best.path) {
			best = r
		}
	}
	return best
}

// dependenciesNamed looks at what is imported and not only at go.mod, so that a wrong "// indirect" hides nothing.
func dependenciesNamed(tr *tree) []finding {
	required, tools := requirements(tr.text["go.mod"])
	var out []finding
	direct := map[string]bool{}
	for _, r := range required {
		direct[r.path] = !r.indirect
	}
	for _, p := range tools {
		direct[moduleOf(required, p).path] = true
	}
	wrong := map[string]bool{}
	for _, f := range tr.files {
		for _, im := range f.imports {
			if _, ours := projectPackage(im.path); ours || standard(im.path) {
				continue
			}
			r := moduleOf(required, im.path)
			if r.path == "" {
				out = append(out, tr.at(im.spec, "go get it, and say in docs/ARCHITECTURE.md what it is for", "go.mod requires no module for %s", im.path))
				continue
			}
			if r.indirect && !wrong[r.path] {
				wrong[r.path] = true
				out = append(out, finding{"go.mod", r.path + " is imported but marked indirect", "go mod tidy"})
			}
			direct[r.path] = true
		}
	}
	for _, path := range sortedKeys(direct) {
		if direct[path] && !strings.Contains(tr.text["docs/ARCHITECTURE.md"], path) {
			out = append(out, finding{"docs/ARCHITECTURE.md", "the dependency " + path + " is not named", "say in its table of dependencies what it is for, or drop it"})
		}
	}
	return out
}

// sortedKeys returns the keys of a set in order.
func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func changelogKept(tr *tree) []finding {
	if strings.TrimSpace(tr.text["CHANGELOG.md"]) == "" {
		return []finding{{"CHANGELOG.md", "there is none", "write it: newest first, lines tagged New, Changed, Fixed or Removed"}}
	}
	return nil
}
