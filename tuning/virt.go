package tuning

import (
	"os"
	"slices"
	"strings"
)

// virt says what stands between this process and the hardware: "none", a hypervisor ("kvm", "vmware", ... or "vm" when it
// does not give its name), a container ("docker", ... or "container"), or both as "kvm+docker".
func (r Reader) virt() string {
	machine, container := r.machine(), r.container()
	switch {
	case container == "":
		return machine
	case machine == "none":
		return container
	}
	return machine + "+" + container
}

// hypervisors maps what DMI calls the vendor or product to a name; the first match counts, so products go before vendors.
func hypervisors() [][2]string {
	return [][2]string{
		{"Firecracker", "firecracker"}, {"VirtualBox", "virtualbox"}, {"VMware", "vmware"}, {"Virtual Machine", "hyper-v"},
		{"Google Compute Engine", "gce"}, {"Amazon EC2", "ec2"}, {"OpenStack", "openstack"}, {"Parallels", "parallels"},
		{"Apple Virtualization", "apple"}, {"Bochs", "bochs"}, {"KVM", "kvm"}, {"QEMU", "qemu"}, {"Xen", "xen"},
	}
}

// machine is the hypervisor part. On x86 the CPU flag "hypervisor" decides and the rest only names it: bare metal rented
// from a cloud carries the cloud's DMI too. Elsewhere DMI or the device tree decides.
func (r Reader) machine() string {
	flags, x86 := field(r.text("/proc/cpuinfo"), "flags")
	if x86 && !slices.Contains(strings.Fields(flags), "hypervisor") {
		return "none"
	}
	if t := r.text("/sys/hypervisor/type"); t != "" {
		return t
	}
	// A paravirtual clock gives away a hypervisor that shows no DMI, and tells KVM from QEMU's emulation.
	clocks := r.text("/sys/devices/system/clocksource/clocksource0/available_clocksource")
	clock := ""
	for _, c := range [][2]string{{"kvm-clock", "kvm"}, {"hyperv", "hyper-v"}, {"xen", "xen"}} {
		if strings.Contains(clocks, c[0]) {
			clock = c[1]
		}
	}
	product := r.text("/sys/class/dmi/id/product_name")
	dmi := strings.Join([]string{product, r.text("/sys/class/dmi/id/sys_vendor"),
		r.text("/sys/class/dmi/id/board_vendor"), r.text("/sys/class/dmi/id/bios_vendor")}, "\n")
	for _, h := range hypervisors() {
		if strings.Contains(dmi, h[0]) && !strings.HasSuffix(product, ".metal") {
			if h[1] == "qemu" && clock != "" {
				return clock
			}
			return h[1]
		}
	}
	if dt := r.text("/proc/device-tree/hypervisor/compatible"); dt != "" {
		name, _, _ := strings.Cut(dt, "\x00")
		return strings.TrimPrefix(name, "linux,")
	}
	switch {
	case clock != "":
		return clock
	case x86:
		return "vm"
	case product != "":
		return "none"
	}
	return Unknown
}

// container is the container part, empty for none seen. The marks are those that the run times leave: systemd's
// /run/systemd/container, podman's and docker's files, and container= in the environment of process 1.
func (r Reader) container() string {
	if name := r.text("/run/systemd/container"); name != "" {
		return name
	}
	if r.exists("/run/.containerenv") {
		return "podman"
	}
	if r.exists("/.dockerenv") {
		return "docker"
	}
	if r.exists("/var/run/secrets/kubernetes.io") {
		return "kubernetes"
	}
	env, err := os.ReadFile(r.path("/proc/1/environ"))
	if err != nil {
		return "" // needs root; then the files above are all there is
	}
	for entry := range strings.SplitSeq(string(env), "\x00") {
		if name, ok := strings.CutPrefix(entry, "container="); ok && name != "" {
			return name
		}
	}
	return ""
}
