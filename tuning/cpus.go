package tuning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds a CPU number in a list: above every NR_CPUS (8192 at most in Kconfig), below what a broken file could cost.
const maxCPU = 1 << 16

// CPUs returns the CPUs this process may run on, ascending: the affinity mask of its first thread, which the kernel keeps
// inside the cpuset (Cpus_allowed_list of /proc/self/status, proc(5)), without those that are offline. Threads that pinned
// themselves do not narrow it unless the first thread did.
func (r Reader) CPUs() ([]int, error) {
	status, err := os.ReadFile(r.path("/proc/self/status"))
	if err != nil {
		return nil, fmt.Errorf("usable CPUs: %w", err)
	}
	list, ok := field(string(status), "Cpus_allowed_list")
	if !ok {
		return nil, fmt.Errorf("usable CPUs: %s has no Cpus_allowed_list", r.path("/proc/self/status"))
	}
	cpus, err := parseCPUList(list)
	if err != nil {
		return nil, fmt.Errorf("usable CPUs: %w", err)
	}
	// The mask may name CPUs that are possible but not there. Without sysfs the mask is all there is to know.
	if online, err := parseCPUList(r.text("/sys/devices/system/cpu/online")); err == nil {
		cpus = slices.DeleteFunc(cpus, func(cpu int) bool {
			_, on := slices.BinarySearch(online, cpu)
			return !on
		})
	}
	if len(cpus) == 0 {
		return nil, errors.New("usable CPUs: none of those allowed is online")
	}
	return cpus, nil
}

// NodeOf returns the NUMA node of a CPU, -1 when the kernel does not say (no such CPU, or a kernel without NUMA).
func (r Reader) NodeOf(cpu int) int {
	// Each CPU's directory links to its node as nodeN (drivers/base/node.c, register_cpu_under_node).
	links, err := filepath.Glob(r.path(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node[0-9]*", cpu)))
	if err != nil || len(links) == 0 {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(links[0]), "node"))
	if err != nil {
		return -1
	}
	return node
}

// cores is the number of CPUs that the process can keep busy: those it may run on, but no more than the whole CPUs of its
// tightest cgroup quota (at least 1). A quota of 1.5 CPUs counts as 1, because a second spinning thread would be throttled.
// 0 means unknown.
func (r Reader) cores() int {
	cpus, err := r.CPUs()
	if err != nil {
		return 0
	}
	n := len(cpus)
	for _, g := range r.cpuGroups() {
		if quota, ok := g.quota(); ok {
			n = min(n, max(1, int(quota)))
		}
	}
	return n
}

// governor is the cpufreq governor of the usable CPUs, several joined by commas; "none" on a machine without cpufreq.
func (r Reader) governor() string {
	cpus, err := r.CPUs()
	if err != nil || !r.exists("/sys/devices/system/cpu") {
		return Unknown
	}
	var found []string
	for _, cpu := range cpus {
		if g := r.text(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu)); g != "" {
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return "none"
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), ",")
}

// cpuModel names the processor: the model name of /proc/cpuinfo, or the numbers by which an arm64 kernel tells it.
func (r Reader) cpuModel() string {
	info := r.text("/proc/cpuinfo")
	for _, key := range []string{"model name", "Processor", "cpu model", "cpu", "machine"} {
		if name, ok := field(info, key); ok && name != "" {
			return strings.Join(strings.Fields(name), " ")
		}
	}
	implementer, ok := field(info, "CPU implementer")
	part, ok2 := field(info, "CPU part")
	if ok && ok2 {
		return "arm implementer " + implementer + " part " + part
	}
	return Unknown
}

// field finds the first "key : value" line of a file such as /proc/cpuinfo or /proc/self/status.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// parseCPUList reads the kernel's list format, such as "0-3,8,10-11" (cpuset(7), "List format"), ascending.
func parseCPUList(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", list, err)
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				return nil, fmt.Errorf("CPU list %q: %w", list, err)
			}
		}
		if first < 0 || last < first || last >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: bad range %q", list, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}
