package tuning

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are the limits of this process and its network namespace that a run can hit.
type Limits struct {
	// NoFileSoft is the number of file descriptors it may have, NoFileHard what it may raise that to (RLIMIT_NOFILE,
	// getrlimit(2)); math.MaxUint64 = unlimited. The Go runtime raises the soft limit to the hard one at start.
	NoFileSoft, NoFileHard uint64
	// Memlock is the memory in bytes it may lock (RLIMIT_MEMLOCK, soft); with the capability IPCLock it binds nothing.
	Memlock uint64
	// IPCLock, NetAdmin and SysResource are effective capabilities: lock any memory, change network settings, raise hard limits.
	IPCLock, NetAdmin, SysResource bool
}

// Limits reads /proc/self/limits, and the capabilities of /proc/self/status where they can be read.
func (r Reader) Limits() (Limits, error) {
	text, err := os.ReadFile(r.path("/proc/self/limits"))
	if err != nil {
		return Limits{}, fmt.Errorf("resource limits: %w", err)
	}
	var l Limits
	if l.NoFileSoft, l.NoFileHard, err = limit(string(text), "Max open files"); err != nil {
		return Limits{}, fmt.Errorf("%w (%s)", err, r.path("/proc/self/limits"))
	}
	// A tree or sandbox that shows no locked memory leaves it 0.
	l.Memlock, _, _ = limit(string(text), "Max locked memory")
	caps := r.capabilities()
	l.IPCLock, l.NetAdmin, l.SysResource = caps&(1<<unix.CAP_IPC_LOCK) != 0, caps&(1<<unix.CAP_NET_ADMIN) != 0, caps&(1<<unix.CAP_SYS_RESOURCE) != 0
	return l, nil
}

// capabilities is the effective set as /proc/self/status shows it, 0 when it cannot be read.
func (r Reader) capabilities() uint64 {
	hex, _ := field(r.text("/proc/self/status"), "CapEff")
	caps, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0
	}
	return caps
}

// limit finds a line of /proc/self/limits and reads its two numbers.
func limit(text, name string) (soft, hard uint64, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return 0, 0, fmt.Errorf("resource limits: bad line %q", strings.TrimSpace(line))
		}
		if soft, err = parseLimit(f[0]); err != nil {
			return 0, 0, err
		}
		hard, err = parseLimit(f[1])
		return soft, hard, err
	}
	return 0, 0, fmt.Errorf("resource limits: no line %q", name)
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource limits: %w", err)
	}
	return n, nil
}
