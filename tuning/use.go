package tuning

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"blast/internal/sys"
	"blast/stats"
)

// Sample is what a host's cores and counters stood at in one moment. Two of them make a stats.HostUse.
type Sample struct {
	// MonotonicNS is the time on the host's own steady clock, WallNS its wall clock, both in ns. Only the first is for intervals.
	MonotonicNS int64 `json:"monotonic_ns"`
	WallNS      int64 `json:"wall_ns"`
	// CPUs has one entry for each CPU that is online, ascending.
	CPUs []CPUTimes `json:"cpus"`
	// Counters are those of Reader.Counters by name.
	Counters map[string]uint64 `json:"counters"`
}

// CPUTimes is what a CPU has spent since it started, in seconds, as /proc/stat has it in ticks of 10 ms (proc(5)). Softirq and Steal
// are parts of Busy; waiting for a disk is idle time.
type CPUTimes struct {
	CPU     int     `json:"cpu"`
	Busy    float64 `json:"busy_s"`
	Softirq float64 `json:"softirq_s"`
	Steal   float64 `json:"steal_s"`
	Total   float64 `json:"total_s"`
}

// Sample reads cores and counters now, those of the calling thread's network namespace. What could not be read of the counters is left
// out; it is an error only when the cores cannot be read.
func (r Reader) Sample(ifaces ...string) (Sample, error) {
	s := Sample{WallNS: time.Now().UnixNano()}
	cpus, err := r.CPUTimes()
	if err != nil {
		return s, err
	}
	s.CPUs = cpus
	s.MonotonicNS = sys.Monotonic()
	counters, _ := r.Counters(ifaces...) // holds what could be read
	s.Counters = counters.Values()
	return s, nil
}

// CPUTimes reads /proc/stat.
func (r Reader) CPUTimes() ([]CPUTimes, error) {
	fs, err := procfs.NewFS(r.path("/proc"))
	if err != nil {
		return nil, fmt.Errorf("CPU times: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil, fmt.Errorf("CPU times: %w", err)
	}
	var out []CPUTimes
	for _, cpu := range slices.Sorted(maps.Keys(stat.CPU)) {
		t := stat.CPU[cpu]
		busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal // guest times are in user and nice already
		out = append(out, CPUTimes{CPU: int(cpu), Busy: busy, Softirq: t.SoftIRQ, Steal: t.Steal, Total: busy + t.Idle + t.Iowait})
	}
	return out, nil
}

// Values are the counters by name, those that the kernel keeps for each CPU added up.
func (s Snapshot) Values() map[string]uint64 {
	out := make(map[string]uint64, len(s.values))
	for _, v := range s.values {
		name, _, _ := strings.Cut(v.name, "@")
		out[name] += v.n
	}
	return out
}

// Cores is how busy the CPUs were between two samples of one host; those that are not in both are left out.
func Cores(before, after Sample) []stats.CoreUse {
	was := make(map[int]CPUTimes, len(before.CPUs))
	for _, c := range before.CPUs {
		was[c.CPU] = c
	}
	var out []stats.CoreUse
	for _, now := range after.CPUs {
		then, ok := was[now.CPU]
		total := now.Total - then.Total
		if !ok || total <= 0 {
			continue
		}
		share := func(from, to float64) float64 { return min(max((to-from)/total, 0), 1) }
		out = append(out, stats.CoreUse{CPU: now.CPU, Busy: share(then.Busy, now.Busy), Softirq: share(then.Softirq, now.Softirq), Steal: share(then.Steal, now.Steal)})
	}
	return out
}

// Moved is how far each counter went between two samples of one host, by name; a counter that was reset in between is left out.
func Moved(before, after Sample) []stats.Counter {
	var out []stats.Counter
	for _, name := range slices.Sorted(maps.Keys(after.Counters)) {
		then, ok := before.Counters[name]
		if now := after.Counters[name]; ok && now >= then {
			out = append(out, stats.Counter{Name: name, Delta: int64(now - then)})
		}
	}
	return out
}

// Rooms are the countable limits of this process and host and how far they are used: file descriptors, entries of connection tracking.
func (r Reader) Rooms() []stats.RoomUsed {
	var out []stats.RoomUsed
	if l, err := r.Limits(); err == nil {
		if fds, err := os.ReadDir(r.path("/proc/self/fd")); err == nil {
			out = append(out, stats.RoomUsed{Name: "file descriptors", Used: uint64(len(fds)), Limit: l.NoFileSoft})
		}
	}
	s, _ := r.Counters()
	if s.Conntrack.Max > 0 {
		out = append(out, stats.RoomUsed{Name: "connection tracking entries", Used: s.Conntrack.Count, Limit: s.Conntrack.Max})
	}
	return out
}

// BootID names this start of the kernel: two processes that read the same one are on one machine (random(4)). Empty when unknown.
func (r Reader) BootID() string { return r.text("/proc/sys/kernel/random/boot_id") }

// NetNS names the network namespace of the calling thread on this machine, as "net:[4026531840]" (namespaces(7)). Empty when unknown.
func (r Reader) NetNS() string {
	name, err := os.Readlink(r.path("/proc/thread-self/ns/net"))
	if err != nil {
		return ""
	}
	return name
}

// BootTime is when the kernel started, in seconds since 1970 (btime of /proc/stat); 0 when unknown.
func (r Reader) BootTime() uint64 {
	fs, err := procfs.NewFS(r.path("/proc"))
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	return stat.BootTime
}
