package xdp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestSuitable: interfaces on which AF_XDP is a mistake, with the advice that each gets.
func TestSuitable(t *testing.T) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	attrs := func(encap string) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: "if0", Index: 1 << 30, EncapType: encap, RawFlags: unix.IFF_UP, ParentIndex: 1}
	}
	for _, c := range []struct {
		name string
		link netlink.Link
		wifi bool
		text string // empty: suitable
		err  error
	}{
		{"a network card", &netlink.Device{LinkAttrs: attrs("ether")}, false, "", nil},
		{"veth", &netlink.Veth{LinkAttrs: attrs("ether")}, false, "", nil},
		{"lo", &netlink.Device{LinkAttrs: attrs("loopback")}, false, "", nil},
		{"bond", &netlink.Bond{LinkAttrs: attrs("ether")}, false, "is a bond; use one of its ports", errors.ErrUnsupported},
		{"bridge", &netlink.Bridge{LinkAttrs: attrs("ether")}, false, "is a bridge; use one of its ports", errors.ErrUnsupported},
		{"VLAN", &netlink.Vlan{LinkAttrs: attrs("ether"), VlanId: 83}, false, "is a vlan; use lo and put VLAN 83 into the frames", errors.ErrUnsupported},
		{"macvlan", &netlink.Macvlan{LinkAttrs: attrs("ether")}, false, "is a macvlan; use lo", errors.ErrUnsupported},
		{"Wi-Fi", &netlink.Device{LinkAttrs: attrs("ether")}, true, "is a Wi-Fi interface; use the sendmmsg backend", errors.ErrUnsupported},
		{"WireGuard", &netlink.Wireguard{LinkAttrs: attrs("none")}, false, "carries no Ethernet frames", errors.ErrUnsupported},
		{"down", &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "if0", EncapType: "ether"}}, false, "ip link set if0 up", unix.ENETDOWN},
	} {
		f := judgeable(c.link)
		f.wifi = c.wifi
		err := f.suitable(h)
		if c.text == "" && err != nil || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text) || !errors.Is(err, c.err)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestVLANDevice: a route by a VLAN interface leads to its parent and a tag; tags in tags and other tags are refused.
func TestVLANDevice(t *testing.T) {
	links := map[int]netlink.Link{
		1: &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 1, MTU: 1500}},
		2: &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0.83", Index: 2, ParentIndex: 1, MTU: 1496, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}},
			VlanId: 83, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q},
		3: &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0.83.5", Index: 3, ParentIndex: 2}, VlanId: 5, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q},
		4: &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "qinq", Index: 4, ParentIndex: 1}, VlanId: 5, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD},
	}
	byIndex := func(i int) (netlink.Link, error) {
		if l, ok := links[i]; ok {
			return l, nil
		}
		return nil, unix.ENODEV
	}
	for _, want := range []string{"", "eth0", "eth0.83"} {
		n := &NextHop{via: 2}
		if err := n.device(byIndex, want); err != nil {
			t.Fatal(err)
		}
		if n.Interface != "eth0" || n.Index != 1 || !n.Tagged || n.VLAN != 83 || n.MTU != 1496 || n.SrcMAC != [6]byte{2, 0, 0, 0, 0, 9} {
			t.Errorf("asked for %q: %+v", want, n)
		}
	}
	for _, c := range []struct {
		name string
		via  int
		want string
		text string
	}{
		{"a tag in a tag", 3, "", "VLAN in a VLAN"},
		{"802.1ad", 4, "", "only 802.1Q"},
		{"VLAN asked for, route by the parent", 1, "eth0.83", "leads to eth0, not to eth0.83"},
		{"interface that is gone", 9, "", "interface number 9"},
	} {
		if err := (&NextHop{via: c.via}).device(byIndex, c.want); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestMulticastMAC: the examples of RFC 1112 6.4 (the ninth bit is lost) and RFC 2464 7.
func TestMulticastMAC(t *testing.T) {
	for addr, want := range map[string][6]byte{
		"224.0.0.1":       {1, 0, 0x5e, 0, 0, 1},
		"239.255.255.250": {1, 0, 0x5e, 0x7f, 0xff, 0xfa},
		"ff02::1:3":       {0x33, 0x33, 0, 1, 0, 3},
	} {
		if got := multicastMAC(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %x, want %x", addr, got, want)
		}
	}
}

// TestSocketConfig: defaults, rounding, and all problems at once.
func TestSocketConfig(t *testing.T) {
	c := SocketConfig{TxFrames: 1000}
	if err := c.validate(true); err != nil {
		t.Fatal(err)
	}
	if want := (SocketConfig{TxFrames: 1024, RxFrames: 2048, Batch: 64, BindWait: 2 * time.Second, Stall: 3 * time.Second}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	bad := SocketConfig{Queue: -1, FrameBytes: 3000, TxFrames: -1, RxFrames: 1, Batch: -1, SoftwareSum: true}
	err := bad.validate(false)
	for _, text := range []string{"queue -1", "FrameBytes 3000", "TxFrames -1", "RxFrames 1", "batch -1", "SoftwareSum"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in: %v", text, err)
		}
	}
}

// TestChooseFrame: which frame size fits which MTU, and what cannot be received at all.
func TestChooseFrame(t *testing.T) {
	for _, c := range []struct {
		name     string
		mtu      int
		driver   string
		cfg      SocketConfig
		zeroCopy bool
		want     int // 0: refused
	}{
		{"usual MTU, sending", 1500, "veth", SocketConfig{}, false, 2048},
		{"usual MTU, receiving", 1500, "veth", SocketConfig{RxFrames: 1}, false, 2048},
		{"just fits for sending", 2030, "veth", SocketConfig{}, false, 2048},
		{"just too large for sending", 2031, "veth", SocketConfig{}, false, 4096},
		{"metadata takes room", 2000, "veth", SocketConfig{Metadata: true}, false, 4096},
		{"ena wants whole pages for zero-copy", 1500, "ena", SocketConfig{}, true, 4096},
		{"ena by copy does not", 1500, "ena", SocketConfig{}, false, 2048},
		{"igb receives into whole kilobytes", 1500, "igb", SocketConfig{RxFrames: 1}, true, 4096},
		{"igb by copy does not", 1500, "igb", SocketConfig{RxFrames: 1}, false, 2048},
		{"igb, sending only", 1500, "igb", SocketConfig{}, true, 2048},
		{"igb, short packets", 1000, "igb", SocketConfig{RxFrames: 1}, true, 2048},
		{"igb, too small a frame asked for", 1500, "igb", SocketConfig{RxFrames: 1, FrameBytes: 2048}, true, 0},
		{"jumbo, sending: the sender keeps below", 9000, "veth", SocketConfig{}, false, 4096},
		{"jumbo, receiving", 9000, "veth", SocketConfig{RxFrames: 1}, false, 0},
		{"size asked for, too small for receiving", 2000, "veth", SocketConfig{RxFrames: 1, FrameBytes: 2048}, false, 0},
	} {
		d := &Device{facts: &facts{name: "if0", mtu: c.mtu, driver: c.driver, encap: "ether"}}
		err := d.chooseFrame(&c.cfg, c.zeroCopy)
		if (err != nil) != (c.want == 0) || err == nil && c.cfg.FrameBytes != c.want {
			t.Errorf("%s: %d, %v; want %d", c.name, c.cfg.FrameBytes, err, c.want)
		}
	}
}

// TestModeNames: the words used in reports.
func TestModeNames(t *testing.T) {
	for m, want := range map[Mode]string{Auto: "auto", ZeroCopy: "zero-copy", Native: "native", Generic: "generic", 9: "mode 9"} {
		if got := m.String(); got != want {
			t.Errorf("%d: %q, want %q", m, got, want)
		}
	}
}

// TestSocketInode: the name that /proc gives to sockets.
func TestSocketInode(t *testing.T) {
	if n, ok := socketInode("socket:[12345]"); !ok || n != 12345 {
		t.Error(n, ok)
	}
	for _, s := range []string{"", "pipe:[1]", "socket:[x]", "/dev/null"} {
		if _, ok := socketInode(s); ok {
			t.Errorf("%q was taken for a socket", s)
		}
	}
	if name := process(strconv.Itoa(os.Getpid())); !strings.HasSuffix(name, "this one") {
		t.Errorf("this process is %q", name)
	}
}
