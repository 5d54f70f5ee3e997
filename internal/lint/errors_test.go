package lint_test

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errorCall returns the text and the arguments of errors.New and fmt.Errorf with a constant text.
func (s *source) errorCall(n ast.Node) (text string, args []ast.Expr, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", nil, false
	}
	pkg, name := s.member(call.Fun)
	if !(pkg == "errors" && name == "New" || pkg == "fmt" && name == "Errorf") {
		return "", nil, false
	}
	text, ok = constantText(call.Args[0])
	return text, call.Args[1:], ok
}

// constantText joins string literals; a name in between stands for itself as one unknown word.
func constantText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.ParenExpr:
		return constantText(e.X)
	case *ast.BinaryExpr:
		left, okLeft := constantText(e.X)
		right, okRight := constantText(e.Y)
		if !okLeft && okRight {
			return "?" + right, true
		}
		if okLeft && !okRight {
			return left + "?", true
		}
		return left + right, okLeft && okRight
	}
	return "", false
}

// causesWrapped has no types to go by, so it knows an error by its name: err, errX, xErr, or a call of Err or Error.
func causesWrapped(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.test {
			continue // the errors of a test go to its reader, not to a caller
		}
		f.each(func(n ast.Node) {
			text, args, ok := f.errorCall(n)
			if !ok {
				return
			}
			for i, verb := range verbs(text) {
				if i < len(args) && verb != 'w' && verb != 'T' && namesError(args[i]) {
					out = append(out, tr.at(args[i], "use %w, so that errors.Is and errors.As see the cause", "a cause is formatted by %%%c", verb))
				}
			}
		})
	}
	return out
}

// namesError says whether an expression looks like an error.
func namesError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		n := e.Name
		return n == "err" || strings.HasSuffix(n, "Err") || strings.HasPrefix(n, "err") && len(n) > 3 && unicode.IsUpper(rune(n[3]))
	case *ast.SelectorExpr:
		return namesError(e.Sel) || strings.HasPrefix(e.Sel.Name, "Err") && e.Sel.Name != "Error"
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && len(e.Args) == 0 {
			return sel.Sel.Name == "Err" || sel.Sel.Name == "Error" && namesError(sel.X)
		}
	}
	return false
}

// verbs returns the verb of each operand of a format, '*' for a width or precision taken from an operand. Indexed
// operands (%[1]d) are not used with errors here: the index is skipped.
func verbs(format string) []rune {
	var out []rune
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.*[]", format[i]) >= 0; i++ {
			if format[i] == '*' {
				out = append(out, '*')
			}
		}
		if i < len(format) && format[i] != '%' {
			r, _ := utf8.DecodeRuneInString(format[i:])
			out = append(out, r)
		}
	}
	return out
}

// properNouns may begin an error text.
var properNouns = []string{"Ethernet", "HdrHistogram", "Linux", "Poisson", "Prometheus"}

func errorTexts(tr *tree) []finding {
	var out []finding
	for _, f := range tr.files {
		if f.test {
			continue
		}
		f.each(func(n ast.Node) {
			text, _, ok := f.errorCall(n)
			if !ok {
				return
			}
			first, _, _ := strings.Cut(text, " ")
			switch lower := strings.ToLower(text); {
			case text == "":
				out = append(out, tr.at(n, "say what was being done: \"thing: cause\"", "the error text is empty"))
			case strings.HasPrefix(lower, "failed to") || strings.HasPrefix(lower, "error") && !strings.HasPrefix(lower, "errors"):
				out = append(out, tr.at(n, "say only what was being done: \"thing: cause\"", "the error text begins with %q", first))
			case sentenceCase(first) && !hasPrefixOf(first, properNouns):
				out = append(out, tr.at(n, "begin in lower case: the text is joined to others by colons", "the error text begins with a capital (%q)", first))
			case strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "\n"):
				out = append(out, tr.at(n, "end without a stop: the text is joined to others by colons", "the error text ends in %q", text[len(text)-1:]))
			}
		})
	}
	return out
}

// sentenceCase says whether a word is a capital followed by small letters only: IPv4, AF_XDP and EAGAIN are names.
func sentenceCase(word string) bool {
	word = strings.TrimRight(word, ":,;%")
	for i, r := range word {
		if i == 0 && !unicode.IsUpper(r) || i > 0 && !unicode.IsLower(r) {
			return false
		}
	}
	return word != ""
}

func hasPrefixOf(word string, list []string) bool {
	for _, p := range list {
		if strings.HasPrefix(word, p) {
			return true
		}
	}
	return false
}
