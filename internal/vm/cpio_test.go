package vm

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// tree is the guest's root file system: absolute paths and their contents. All files may be executed.
type tree map[string][]byte

// write makes an initramfs of it: a cpio archive in the form "newc" (Documentation/driver-api/early-userspace/buffer-format.rst), not
// compressed, because the guest's processors are slower than its memory.
func (t tree) write(w io.Writer) error {
	entries := map[string][]byte{} // folders have no contents
	for name, data := range t {
		entries[strings.TrimPrefix(name, "/")] = data
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			entries[strings.TrimPrefix(dir, "/")] = nil
		}
	}
	inode := 0
	entry := func(name string, mode int, data []byte) error {
		inode++
		head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
		for _, part := range [][]byte{[]byte(head), data} {
			if _, err := w.Write(part); err != nil {
				return err
			}
			if _, err := w.Write(make([]byte, -len(part)&3)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // a folder sorts before what it holds
		mode := 0o100755
		if entries[name] == nil {
			mode = 0o40755
		}
		if err := entry(name, mode, entries[name]); err != nil {
			return err
		}
	}
	return entry("TRAILER!!!", 0, nil)
}
