package tuning

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
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
	name, err := e.DriverName(iface)
	if err != nil {
		return ""
	}
	return name
}
