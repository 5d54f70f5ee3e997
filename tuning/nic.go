package tuning

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"

	"blast/internal/sys"
)

// arphrdLoopback is ARPHRD_LOOPBACK of linux/if_arp.h, as /sys/class/net/IF/type has it.
const arphrdLoopback = "772"

// netDir is the interface's directory in sysfs; not ok when there is none, or when it belongs to another interface of the
// same name: a mounted sysfs keeps the network namespace it was mounted in (fs/sysfs/mount.c), the thread may have left it.
func (r Reader) netDir(iface string) (string, bool) {
	if iface == "" || iface == "." || iface == ".." || strings.Contains(iface, "/") {
		return "", false
	}
	dir := "/sys/class/net/" + iface
	if !r.exists(dir) {
		return "", false
	}
	if !r.live() {
		return dir, true
	}
	dev, err := net.InterfaceByName(iface)
	if err != nil {
		return "", false
	}
	address := r.text(dir + "/address")
	if strings.Trim(address, "0:") == "" {
		address = "" // what net has for an interface without an address, or loopback's zeros
	}
	return dir, r.text(dir+"/ifindex") == strconv.Itoa(dev.Index) && address == dev.HardwareAddr.String()
}

// nic describes an interface: its name, and vendor:device in brackets when there is a device behind it.
func (r Reader) nic(iface string) string {
	if iface == "" {
		return Unknown
	}
	dir, ok := r.netDir(iface)
	if !ok {
		return iface
	}
	vendor, device := r.text(dir+"/device/vendor"), r.text(dir+"/device/device")
	if vendor == "" || device == "" {
		return iface
	}
	return iface + " [" + strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x") + "]"
}

// queues is the number of transmit queues in use (sysfs shows real_num_tx_queues of them); 0 when not known.
func (r Reader) queues(iface string) int {
	dir, ok := r.netDir(iface)
	if !ok {
		return 0
	}
	queues, err := filepath.Glob(r.path(dir + "/queues/tx-[0-9]*"))
	if err != nil {
		return 0
	}
	return len(queues)
}

// nicNode is the NUMA node of the device behind an interface; -1 when there is no device or the firmware does not say. A
// device on a bus of its own, such as virtio, has the node of what that bus hangs on.
func (r Reader) nicNode(iface string) int {
	dir, ok := r.netDir(iface)
	if !ok {
		return -1
	}
	device, err := filepath.EvalSymlinks(r.path(dir + "/device"))
	if err != nil {
		return -1
	}
	for ; filepath.Base(device) != "sys" && device != filepath.Dir(device); device = filepath.Dir(device) {
		text, err := os.ReadFile(filepath.Join(device, "numa_node"))
		if err != nil {
			continue
		}
		node, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return -1
		}
		return node
	}
	return -1
}

// driver names the kernel driver of an interface, or what kind of virtual interface it is.
func (r Reader) driver(iface string) string {
	dir, ok := r.netDir(iface)
	if ok {
		if link, err := os.Readlink(r.path(dir + "/device/driver")); err == nil {
			return filepath.Base(link)
		}
		if r.text(dir+"/type") == arphrdLoopback {
			return "loopback"
		}
	}
	if r.live() && iface != "" {
		if name := ethtoolDriver(iface); name != "" {
			return name
		}
	}
	if ok {
		for line := range strings.Lines(r.text(dir + "/uevent")) {
			if kind, found := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); found {
				return kind
			}
		}
	}
	return Unknown
}

// ethtoolDriver asks the driver itself (ETHTOOL_GDRVINFO), which also knows veth, tun and dummy; empty when it will not say.
func ethtoolDriver(iface string) string {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return ""
	}
	defer e.Close()
	var name string
	sys.OnFirmStack(func() { name, err = e.DriverName(iface) })
	if err != nil {
		return ""
	}
	return name
}

// withoutBus asks the driver whether a device is behind the interface: virtual ones are on no bus.
func withoutBus(iface string) bool {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return false
	}
	defer e.Close()
	var bus string
	sys.OnFirmStack(func() { bus, err = e.BusInfo(iface) })
	return err == nil && bus == ""
}
