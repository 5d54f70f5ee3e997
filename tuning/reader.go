// Package tuning reads the state of the host that a run's figures depend on: what the machine is, which CPUs the process
// may use, what the kernel counted and dropped, and how much CPU time was taken away.
//
// Everything kept in files is read below Reader.Root, so that tests hand it a tree of their own. What has no file (the
// route to an address, the driver behind a virtual interface) is asked of the kernel through netlink and ethtool. Network
// facts are of the calling thread's network namespace: a caller that changes namespaces must hold runtime.LockOSThread.
//
// Reading changes nothing and needs no privilege. What can change a host here is Device.Set alone, and tuning/change, which keeps a
// journal, is who calls it. Reading needs Linux with /proc and /sys mounted; what is missing there
// (a container without cpufreq, a kernel without conntrack) is left out or called "unknown".
package tuning

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
)

// Unknown stands for a fact that the host did not give.
const Unknown = "unknown"

// Reader reads host facts below a root directory. The zero value reads this host. A Reader holds nothing open and may be
// copied and used by many goroutines.
type Reader struct {
	// Root is the directory that holds proc and sys; empty means "/". With another root only files below it are read.
	Root string
}

// path places the absolute path p, as the host has it, below the root.
func (r Reader) path(p string) string {
	if r.Root == "" {
		return filepath.Join("/", p)
	}
	return filepath.Join(r.Root, p)
}

// live says whether the root is this host's, so that questions without a file may go to the kernel.
func (r Reader) live() bool { return r.Root == "" || filepath.Clean(r.Root) == "/" }

// text reads a one-value file, without white space or trailing NULs around the value; empty when it cannot be read.
func (r Reader) text(p string) string {
	b, err := os.ReadFile(r.path(p))
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), " \t\r\n\x00")
}

// known is text, with Unknown for nothing.
func (r Reader) known(p string) string {
	if s := r.text(p); s != "" {
		return s
	}
	return Unknown
}

// exists says whether the path is there.
func (r Reader) exists(p string) bool {
	_, err := os.Stat(r.path(p))
	return err == nil
}

// threadFS is procfs as the calling thread sees the network: /proc/net is a link to the net of the thread group's leader,
// which may be in another namespace (proc(5)), so /proc/thread-self/net is read instead.
func (r Reader) threadFS() (procfs.FS, error) { return procfs.NewFS(r.path("/proc/thread-self")) }

// Path is the place of the host's absolute path p below the root.
func (r Reader) Path(p string) string { return r.path(p) }

// Live says whether the root is this host's own.
func (r Reader) Live() bool { return r.live() }
