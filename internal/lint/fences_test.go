package lint_test

import (
	"go/ast"
	"slices"
	"strings"
)

func unsafeFenced(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.test || f.dir == "internal/sys" || f.dir == "internal/ring" {
			continue
		}
		for _, im := range f.imports {
			if im.path == "unsafe" {
				out = append(out, tr.at(im.spec, "move the conversion to internal/sys (kernel structs) or internal/ring (shared memory)", "%s imports unsafe", f.dir))
			}
		}
	}
	return out
}

// rawCalls are the ways into the kernel without a typed wrapper, in the packages syscall and golang.org/x/sys/unix.
var rawCalls = []string{"Syscall", "Syscall6", "Syscall9", "SyscallN", "SyscallNoError", "RawSyscall", "RawSyscall6", "RawSyscallNoError", "AllThreadsSyscall", "AllThreadsSyscall6"}

func syscallsFenced(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.dir == "internal/sys" {
			continue
		}
		f.each(func(n ast.Node) {
			pkg, name := f.member(n)
			if (pkg == "syscall" || pkg == "golang.org/x/sys/unix") && slices.Contains(rawCalls, name) {
				out = append(out, tr.at(n, "add a typed wrapper to internal/sys and call that", "%s makes a raw system call (%s)", f.dir, name))
			}
		})
		for _, im := range f.imports {
			if im.name == "." && (im.path == "syscall" || im.path == "golang.org/x/sys/unix") {
				out = append(out, tr.at(im.spec, "import it under its name", "a dot import of %s hides raw system calls", im.path))
			}
		}
	}
	return out
}

// librariesSilent wants libraries to take an io.Writer or return a value. Test support may speak through testing.TB.
func librariesSilent(tr *tree) []finding {
	const remedy = "return the value or take an io.Writer; only cmd/blast prints"
	var out []finding
	for _, f := range tr.files {
		if f.test || f.program() || under(f.dir, "cmd") {
			continue
		}
		for _, im := range f.imports {
			if im.path == "log" || under(im.path, "log/slog") {
				out = append(out, tr.at(im.spec, remedy, "library %s logs", f.dir))
			}
		}
		f.each(func(n ast.Node) {
			switch pkg, name := f.member(n); {
			case pkg == "fmt" && (name == "Print" || name == "Printf" || name == "Println"):
				out = append(out, tr.at(n, remedy, "library %s prints with fmt.%s", f.dir, name))
			case pkg == "os" && (name == "Stdout" || name == "Stderr"):
				out = append(out, tr.at(n, remedy, "library %s uses os.%s", f.dir, name))
			}
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					out = append(out, tr.at(n, remedy, "library %s calls the builtin %s", f.dir, id.Name))
				}
			}
		})
	}
	return out
}

// noMarks looks in comments only: a text that a program prints may say what it likes.
func noMarks(tr *tree) []finding {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}
	var out []finding
	for _, f := range tr.files {
		for _, g := range f.Comments {
			for _, c := range g.List {
				for _, word := range strings.FieldsFunc(c.Text, func(r rune) bool { return r < 'A' || r > 'Z' && r < 'a' || r > 'z' }) {
					if slices.Contains(marks, word) {
						out = append(out, tr.at(c, "do it now, or tell it in the closing note of the change", "the comment marks unfinished work (%s)", word))
					}
				}
			}
		}
	}
	return out
}
