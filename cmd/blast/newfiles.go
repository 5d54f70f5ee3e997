package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// newFiles writes dir/name plus the extension for each content, over nothing that is there: where one of them is, all of them get the
// next number. It returns the path of each extension, and leaves none behind when it fails.
func newFiles(dir, name string, content map[string][]byte) (map[string]string, error) {
	for n := 1; ; n++ {
		base := name
		if n > 1 {
			base = fmt.Sprintf("%s-%d", name, n)
		}
		paths, err := newSet(filepath.Join(dir, base), content)
		if !errors.Is(err, os.ErrExist) {
			return paths, err
		}
	}
}

// newSet writes all of the files or none.
func newSet(base string, content map[string][]byte) (paths map[string]string, err error) {
	paths = map[string]string{}
	defer func() {
		if err != nil {
			for _, path := range paths {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for ext, b := range content {
		f, err := os.OpenFile(base+ext, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return paths, err
		}
		paths[ext] = base + ext
		_, err = f.Write(b)
		if err = errors.Join(err, f.Close()); err != nil {
			return paths, err
		}
	}
	return paths, nil
}
