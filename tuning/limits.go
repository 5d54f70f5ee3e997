package tuning

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Limits are the resource limits of this process that a run can hit.
type Limits struct {
	// NoFileSoft is the number of file descriptors it may have, NoFileHard what it may raise that to (RLIMIT_NOFILE,
	// getrlimit(2)); math.MaxUint64 = unlimited. The Go runtime raises the soft limit to the hard one at start.
	NoFileSoft, NoFileHard uint64
}

// Limits reads /proc/self/limits.
func (r Reader) Limits() (Limits, error) {
	text, err := os.ReadFile(r.path("/proc/self/limits"))
	if err != nil {
		return Limits{}, fmt.Errorf("resource limits: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return Limits{}, fmt.Errorf("resource limits: bad line %q", strings.TrimSpace(line))
		}
		soft, err := parseLimit(f[0])
		if err != nil {
			return Limits{}, err
		}
		hard, err := parseLimit(f[1])
		if err != nil {
			return Limits{}, err
		}
		return Limits{NoFileSoft: soft, NoFileHard: hard}, nil
	}
	return Limits{}, fmt.Errorf("resource limits: %s has no open files", r.path("/proc/self/limits"))
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource limits: open files: %w", err)
	}
	return n, nil
}
