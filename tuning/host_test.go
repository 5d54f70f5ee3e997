package tuning

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"blast/stats"
)

func TestHost(t *testing.T) {
	for _, c := range []struct {
		why, tree, iface string
		want             stats.Host
		fingerprint      string // golden: a change orphans every stored calibration
	}{
		{
			why: "bare metal tells everything", tree: "two-sockets", iface: "ens1f0",
			want: stats.Host{Hostname: "rack7", Kernel: "6.12.9-amd64", CPU: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", Cores: 7,
				NIC: "ens1f0 [8086:10c9]", Driver: "igb", Queues: 2, NICNode: 1, Clocksource: "tsc", Governor: "performance", Virt: "none", IRQBalance: true},
			fingerprint: "d4ab259ed2b43b5e",
		},
		{
			why: "loopback has a kind though no device", tree: "two-sockets", iface: "lo",
			want: stats.Host{Hostname: "rack7", Kernel: "6.12.9-amd64", CPU: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", Cores: 7,
				NIC: "lo", Driver: "loopback", Queues: 1, NICNode: -1, Clocksource: "tsc", Governor: "performance", Virt: "none", IRQBalance: true},
			fingerprint: "ed65b642d504c9c3",
		},
		{
			why: "the outer level's quota of 3.5 leaves 3 whole cores; two governors are both named", tree: "vm-steal", iface: "eth0",
			want: stats.Host{Hostname: "guest", Kernel: "5.15.0-100-generic", CPU: "AMD EPYC 7763 64-Core Processor", Cores: 3,
				NIC: "eth0 [1af4:0001]", Driver: "virtio_net", Clocksource: "kvm-clock", Governor: "performance,schedutil", Virt: "kvm"},
			fingerprint: "b9cdc6bbd04ce2d6",
		},
		{
			why: "a container has no cpufreq and its quota of 1.5 is one core", tree: "container", iface: "eth0",
			want: stats.Host{Hostname: "abc", Kernel: "4.19.0", CPU: "AMD EPYC", Cores: 1,
				NIC: "eth0", Driver: "vlan", NICNode: -1, Clocksource: Unknown, Governor: "none", Virt: "vm+docker"},
			fingerprint: "8b4c0f71be3f8570",
		},
		{
			why: "an interface that is not there keeps the name it was asked for", tree: "container", iface: "eth9",
			want: stats.Host{Hostname: "abc", Kernel: "4.19.0", CPU: "AMD EPYC", Cores: 1,
				NIC: "eth9", Driver: Unknown, NICNode: -1, Clocksource: Unknown, Governor: "none", Virt: "vm+docker"},
			fingerprint: "cec658cf585b1e3d",
		},
	} {
		t.Run(c.tree+"/"+c.iface, func(t *testing.T) {
			got := host(t, c.tree).Host(c.iface)
			if got.GoVersion != runtime.Version() || got.Blast == "" {
				t.Errorf("versions: go %q, blast %q", got.GoVersion, got.Blast)
			}
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(stats.Host{}, "GoVersion", "Blast")); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if f := Fingerprint(got); f != c.fingerprint {
				t.Errorf("fingerprint %s, golden %s", f, c.fingerprint)
			}
		})
	}
}

func TestHostOfNothing(t *testing.T) {
	// An empty root is the worst host: every fact is missing, and none may be an error or a panic.
	got := tree(t, nil).Host("")
	want := stats.Host{Hostname: Unknown, Kernel: Unknown, CPU: Unknown, NIC: Unknown, Driver: Unknown, NICNode: -1, Clocksource: Unknown,
		Governor: Unknown, Virt: Unknown}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(stats.Host{}, "GoVersion", "Blast")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFingerprintCoversWhatTheCeilingDependsOn(t *testing.T) {
	base := stats.Host{Hostname: "a", Kernel: "6.1", CPU: "x", Cores: 4, NIC: "eth0", Driver: "igb", Queues: 2, NICNode: 1, Clocksource: "tsc",
		Governor: "performance", Virt: "none", GoVersion: "go1", Blast: "v1"}
	for name, change := range map[string]func(*stats.Host){
		"kernel":   func(h *stats.Host) { h.Kernel = "6.2" },
		"cpu":      func(h *stats.Host) { h.CPU = "y" },
		"cores":    func(h *stats.Host) { h.Cores = 5 },
		"nic":      func(h *stats.Host) { h.NIC = "eth1" },
		"driver":   func(h *stats.Host) { h.Driver = "ice" },
		"governor": func(h *stats.Host) { h.Governor = "powersave" },
		"virt":     func(h *stats.Host) { h.Virt = "kvm" },
		// Facts must not run into each other.
		"border": func(h *stats.Host) { h.Kernel, h.CPU = "6.1\"\ncpu=\"x", "" },
	} {
		h := base
		change(&h)
		if Fingerprint(h) == Fingerprint(base) {
			t.Errorf("%s: a change leaves the fingerprint as it was", name)
		}
	}
	h := base
	h.Hostname, h.Clocksource, h.GoVersion, h.Blast, h.IRQBalance = "b", "hpet", "go2", "v2", true
	if Fingerprint(h) != Fingerprint(base) {
		t.Error("facts outside of the key change the fingerprint")
	}
}

func TestVirt(t *testing.T) {
	const x86, x86Guest = "flags : fpu tsc\n", "flags : fpu hypervisor\n"
	for _, c := range []struct {
		why   string
		files map[string]string
		want  string
	}{
		{"rented bare metal carries the cloud's DMI but not the CPU flag", map[string]string{"proc/cpuinfo": x86,
			"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "m5.metal\n"}, "none"},
		{"an instance has both", map[string]string{"proc/cpuinfo": x86Guest,
			"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "m5.large\n"}, "ec2"},
		{"arm has no flag: DMI decides", map[string]string{"proc/cpuinfo": "CPU part : 0xd0c\n",
			"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "c7g.large\n"}, "ec2"},
		{"arm bare metal of the same cloud", map[string]string{"proc/cpuinfo": "CPU part : 0xd0c\n",
			"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "c7g.metal\n"}, "none"},
		{"a device tree names the hypervisor", map[string]string{"proc/cpuinfo": "CPU part : 0xd0c\n",
			"proc/device-tree/hypervisor/compatible": "linux,kvm\x00"}, "kvm"},
		{"Hyper-V is told by product: its vendor makes laptops too", map[string]string{"proc/cpuinfo": x86Guest,
			"sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n", "sys/class/dmi/id/product_name": "Virtual Machine\n"}, "hyper-v"},
		{"Xen says so itself", map[string]string{"proc/cpuinfo": x86Guest, "sys/hypervisor/type": "xen\n"}, "xen"},
		{"a paravirtual clock gives KVM away", map[string]string{"proc/cpuinfo": x86Guest,
			"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock acpi_pm\n"}, "kvm"},
		{"QEMU without KVM's clock emulates", map[string]string{"proc/cpuinfo": x86Guest,
			"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "qemu"},
		{"the flag alone", map[string]string{"proc/cpuinfo": x86Guest}, "vm"},
		{"podman on bare metal", map[string]string{"proc/cpuinfo": x86, "run/.containerenv": ""}, "podman"},
		{"process 1 tells of nspawn-like containers", map[string]string{"proc/cpuinfo": x86,
			"proc/1/environ": "PATH=/bin\x00container=lxc\x00"}, "lxc"},
	} {
		if got := tree(t, c.files).virt(); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

func TestCPUModel(t *testing.T) {
	for _, c := range []struct{ why, cpuinfo, want string }{
		{"arm64 gives numbers", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "arm implementer 0x41 part 0xd0c"},
		{"power", "processor\t: 0\ncpu\t\t: POWER9\n", "POWER9"},
		{"nothing known", "processor\t: 0\n", Unknown},
	} {
		if got := tree(t, map[string]string{"proc/cpuinfo": c.cpuinfo}).cpuModel(); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

func TestBlastVersion(t *testing.T) {
	vcs := func(version, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: modified}}}
	}
	for _, c := range []struct {
		why   string
		build *debug.BuildInfo
		want  string
	}{
		{"no build information", nil, Unknown},
		{"a release", vcs("v1.2.3", "false"), "v1.2.3"},
		{"a build from a clean tree", vcs("(devel)", "false"), "devel-0123456789ab"},
		{"a build from a changed tree must show", vcs("", "true"), "devel-0123456789ab+dirty"},
		{"go test stamps nothing", &debug.BuildInfo{}, Unknown},
	} {
		if got := blastVersion(c.build); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
