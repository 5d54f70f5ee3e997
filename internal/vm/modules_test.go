package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a kernel module, ready for insmod.
type module struct {
	name string
	data []byte
}

// modules finds the named modules below a folder, and those that they depend on, in the order in which they have to be loaded.
func modules(ctx context.Context, dir, busybox string, names ...string) ([]module, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko.xz"); ok {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []module
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		if slices.ContainsFunc(out, func(m module) bool { return m.name == name }) {
			return nil
		}
		packed, err := os.Open(files[name])
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		defer packed.Close()
		unpack := exec.CommandContext(ctx, busybox, "unxz", "-c")
		unpack.Stdin = packed
		data, err := unpack.Output()
		if err != nil {
			return fmt.Errorf("module %s: unxz: %w", name, err)
		}
		depends, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, d := range depends {
			if err := add(d); err != nil {
				return err
			}
		}
		out = append(out, module{name, data})
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moduleName is how the kernel writes it: files may have dashes.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// dependencies reads the line depends=A,B of a module's .modinfo (scripts/mod/modpost.c).
func dependencies(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info := f.Section(".modinfo")
	if info == nil {
		return nil, fmt.Errorf("no .modinfo: %w", os.ErrNotExist)
	}
	text, err := info.Data()
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(text), "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok {
			return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" }), nil
		}
	}
	return nil, nil
}
