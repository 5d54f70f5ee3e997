package lint_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGeneratedFilesAreCurrent renews every generated file in a copy of the repository and compares: it needs no git,
// and neither an uncommitted change nor a parallel test disturbs it.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	tr := repository(t)
	if !slices.ContainsFunc(tr.files, func(f *source) bool { return len(f.directives("//go:generate ")) > 0 }) {
		return // nothing is generated
	}
	root, dir := repositoryRoot(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "generate", "./...")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go generate ./...: %v\n%s", err, out)
	}
	stale, err := differing(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stale {
		t.Errorf("%s: go generate writes something else; remedy: make generate", name)
	}
}

// differing lists the files below renewed that are not the same below root.
func differing(root, renewed string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(renewed, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != renewed && skippedFolder(d.Name()) && d.Name() != "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(renewed, p)
		if err != nil {
			return err
		}
		now, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		before, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err != nil || !bytes.Equal(before, now) {
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	return out, err
}

// TestDiffering: a comparison that never finds anything would keep stale files for ever.
func TestDiffering(t *testing.T) {
	root, renewed := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(root, "same", "1")
	write(renewed, "same", "1")
	write(root, "a/changed", "1")
	write(renewed, "a/changed", "2")
	write(renewed, "testdata/new", "1")
	write(renewed, ".git/index", "1")
	got, err := differing(root, renewed)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a/changed testdata/new"; strings.Join(got, " ") != want {
		t.Errorf("differing: %q, want %q", strings.Join(got, " "), want)
	}
}
