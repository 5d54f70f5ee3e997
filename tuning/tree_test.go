package tuning

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// tree writes files below a new root. Content that starts with "-> " makes a symbolic link.
func tree(t testing.TB, files map[string]string) Reader {
	t.Helper()
	r := Reader{Root: t.TempDir()}
	// Links first: /proc/self must be one before anything is below it.
	for _, links := range []bool{true, false} {
		for name, content := range files {
			if target, link := strings.CutPrefix(content, "-> "); link == links {
				put(t, r, name, target, link)
			}
		}
	}
	return r
}

func put(t testing.TB, r Reader, name, content string, link bool) {
	t.Helper()
	p := r.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if link {
		err = os.Symlink(strings.TrimSpace(content), p)
	} else {
		err = os.WriteFile(p, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// host lays out one of the machines of testdata; each archive's comment says what it is. Changes replace its files.
func host(t testing.TB, name string, changes ...map[string]string) Reader {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string, len(archive.Files))
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	for _, c := range changes {
		for name, content := range c {
			files[name] = content
		}
	}
	return tree(t, files)
}

// rewrite changes a file of the tree in place, as the kernel does under an open descriptor.
func rewrite(t testing.TB, r Reader, name, old, now string) {
	t.Helper()
	p := r.path(name)
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s has no %q", name, old)
	}
	if err := os.WriteFile(p, []byte(strings.Replace(string(b), old, now, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
