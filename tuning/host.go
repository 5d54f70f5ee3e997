package tuning

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"blast/stats"
)

// Host describes the machine as far as a run's figures depend on it; iface is the interface that the traffic leaves by,
// empty when not known. It never fails: a fact that cannot be read is Unknown, Cores and Queues 0, NICNode -1, IRQBalance
// false.
func (r Reader) Host(iface string) stats.Host {
	build, _ := debug.ReadBuildInfo()
	return stats.Host{
		Hostname:    r.known("/proc/sys/kernel/hostname"),
		Kernel:      r.known("/proc/sys/kernel/osrelease"),
		CPU:         r.cpuModel(),
		Cores:       r.cores(),
		NIC:         r.nic(iface),
		Driver:      r.driver(iface),
		Queues:      r.queues(iface),
		NICNode:     r.nicNode(iface),
		Clocksource: r.known("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor:    r.governor(),
		Virt:        r.virt(),
		IRQBalance:  r.running("irqbalance"),
		GoVersion:   runtime.Version(),
		Blast:       blastVersion(build),
	}
}

// Fingerprint is a short stable key for "the same machine, for the purpose of a stored ceiling": 16 hex digits over kernel,
// CPU, cores, virtualisation, governor, NIC and driver. Hostname, clocksource and versions of blast and Go are left out.
// The digits must never change for the same facts, or stored calibrations are orphaned; a new rule needs a new prefix.
func Fingerprint(h stats.Host) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "blast.host/1\nkernel=%q\ncpu=%q\ncores=%d\nvirt=%q\ngovernor=%q\nnic=%q\ndriver=%q\n",
		h.Kernel, h.CPU, h.Cores, h.Virt, h.Governor, h.NIC, h.Driver))
	return hex.EncodeToString(sum[:8])
}

// running says whether a process of that name is there. comm is cut to 15 bytes by the kernel (TASK_COMM_LEN).
func (r Reader) running(name string) bool {
	comms, err := filepath.Glob(r.path("/proc/[0-9]*/comm"))
	if err != nil {
		return false
	}
	for _, p := range comms {
		// A process that ended since the listing is not running.
		if b, err := os.ReadFile(p); err == nil && strings.TrimSpace(string(b)) == name {
			return true
		}
	}
	return false
}

// blastVersion is the module's version, or the commit it was built from, marked when the tree had changes.
func blastVersion(build *debug.BuildInfo) string {
	if build == nil {
		return Unknown
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	set := make(map[string]string, len(build.Settings))
	for _, s := range build.Settings {
		set[s.Key] = s.Value
	}
	revision := set["vcs.revision"]
	if revision == "" {
		return Unknown
	}
	version := "devel-" + revision[:min(12, len(revision))]
	if set["vcs.modified"] == "true" {
		version += "+dirty"
	}
	return version
}
