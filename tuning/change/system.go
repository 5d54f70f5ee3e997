// Package change changes host settings and puts them back: nothing is changed before what was there is in a journal on disk, so that
// a later run can undo the changes of one that was killed. Nothing else in this project changes the host.
//
// It needs root on a real host (CAP_NET_ADMIN for network settings, CAP_SYS_ADMIN or ownership for the others); without, nothing is
// changed and the error says so. On a tree of files (tuning.Reader.Root) it needs nothing. Network settings are those of the calling
// thread's network namespace.
package change

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"blast/tuning"
)

// System gets and sets settings by key. A key that starts with "/" is a file of the host; any other is "IFACE SETTING", see
// tuning.Device.
type System interface {
	Get(key string) (string, error)
	Set(key, value string) error
}

// Host is the System of a reader's root.
type Host struct{ Reader tuning.Reader }

// deviceKey is the key of a setting that only a driver knows.
func deviceKey(iface string, s tuning.Setting) string { return iface + " " + string(s) }

// Get reads a setting. Files are given byte for byte.
func (h Host) Get(key string) (string, error) {
	if !strings.HasPrefix(key, "/") {
		iface, s, _ := strings.Cut(key, " ")
		return h.Reader.Device().Get(iface, tuning.Setting(s))
	}
	b, err := os.ReadFile(h.Reader.Path(key))
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return string(b), nil
}

// Set writes a setting. A file has to be there: the kernel's files are not made by writing, and those of a tree neither.
func (h Host) Set(key, value string) error {
	if !strings.HasPrefix(key, "/") {
		iface, s, _ := strings.Cut(key, " ")
		return h.Reader.Device().Set(iface, tuning.Setting(s), value)
	}
	f, err := os.OpenFile(h.Reader.Path(key), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// same says whether the wanted value is what is there already: white space and the zeros of a mask aside; of pairs, those wanted.
func same(key, found, wanted string) bool {
	f, w := strings.Fields(found), strings.Fields(wanted)
	switch {
	case strings.Contains(wanted, "="):
		return !slices.ContainsFunc(w, func(pair string) bool { return !slices.Contains(f, pair) })
	case strings.HasSuffix(key, "/xps_cpus"):
		return strings.TrimLeft(strings.Join(f, ""), "0,") == strings.TrimLeft(strings.Join(w, ""), "0,")
	}
	return slices.Equal(f, w)
}
