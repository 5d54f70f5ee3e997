package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// facts is what there is to know about an interface before it is used.
type facts struct {
	name   string
	index  int
	kind   string // rtnetlink kind ("veth", "bond", ...); "device" for hardware and lo
	encap  string // link layer: "ether", "loopback", ...
	driver string // ethtool driver name; empty when it does not say
	up     bool
	mtu    int
	queues int // real queues where the driver tells, else the allocated ones
	parent int // index of the device below a VLAN
	vlanID int
	mac    [6]byte
	wifi   bool
	node   int // NUMA node, -1 when unknown
	// existing is the id of an attached XDP program, 0 for none.
	existing uint32
	// features as netdev netlink tells (kernel 6.3); known is false where the kernel does not.
	features features
}

// features are the bits of Documentation/netlink/specs/netdev.yaml.
type features struct {
	known                  bool
	basic, zeroCopy        bool
	txTimestamp, txChecked bool // zero-copy transmit metadata
}

// inspect reads everything about an interface of the calling thread's namespace.
func inspect(h *netlink.Handle, name string) (*facts, error) {
	link, err := h.LinkByName(name)
	if err != nil {
		var gone netlink.LinkNotFoundError
		if errors.As(err, &gone) {
			return nil, fmt.Errorf("interface %q: %w", name, unix.ENODEV)
		}
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	f := judgeable(link)
	f.wifi = exists("/sys/class/net/" + name + "/phy80211")
	f.node = numaNode(name)
	if et, err := ethtool.NewEthtool(); err == nil {
		defer et.Close()
		sys.OnFirmStack(func() {
			f.driver, _ = et.DriverName(name)
			if c, err := et.GetChannels(name); err == nil {
				if n := int(c.CombinedCount + max(c.RxCount, c.TxCount)); n > 0 {
					f.queues = n
				}
			}
		})
	}
	f.features, err = netdevFeatures(f.index)
	if err != nil {
		return nil, fmt.Errorf("interface %q: XDP features: %w", name, err)
	}
	return f, nil
}

// judgeable takes from a link what rtnetlink tells.
func judgeable(link netlink.Link) *facts {
	a := link.Attrs()
	f := &facts{
		name: a.Name, index: a.Index, kind: link.Type(), encap: a.EncapType, mtu: a.MTU, node: -1,
		up: a.RawFlags&unix.IFF_UP != 0, queues: max(a.NumTxQueues, a.NumRxQueues, 1), parent: a.ParentIndex,
	}
	copy(f.mac[:], a.HardwareAddr)
	if v, ok := link.(*netlink.Vlan); ok {
		f.vlanID = v.VlanId
	}
	if a.Xdp != nil && a.Xdp.Attached {
		f.existing = a.Xdp.ProgId
	}
	return f
}

// suitable says whether AF_XDP makes sense on an interface, and what to use instead where it does not. The errors wrap
// errors.ErrUnsupported, except that of an interface that is down.
func (f *facts) suitable(h *netlink.Handle) error {
	instead := ""
	switch {
	case f.kind == "bond" || f.kind == "team" || f.kind == "bridge":
		instead = "use one of its ports"
		if names := members(h, f.index); names != "" {
			instead = "use one of its ports: " + names
		}
	case f.kind == "vlan":
		instead = fmt.Sprintf("use %s and put VLAN %d into the frames", nameOf(h, f.parent), f.vlanID)
	case f.kind == "macvlan" || f.kind == "ipvlan" || f.kind == "macvtap" || f.kind == "ipvtap":
		instead = fmt.Sprintf("use %s", nameOf(h, f.parent))
	case f.wifi:
		instead = "use the sendmmsg backend: Wi-Fi drivers have neither XDP nor enough speed to need it"
	case f.encap != "ether" && f.encap != "loopback":
		instead = "use the sendmmsg backend: the interface carries no Ethernet frames"
	case !f.up:
		return fmt.Errorf("interface %q is down; ip link set %s up: %w", f.name, f.name, unix.ENETDOWN)
	default:
		return nil
	}
	kind := f.kind
	switch {
	case f.wifi:
		kind = "Wi-Fi interface"
	case kind == "device":
		kind = f.encap + " interface"
	}
	return fmt.Errorf("interface %q is a %s; %s: %w", f.name, kind, instead, errors.ErrUnsupported)
}

func members(h *netlink.Handle, master int) string {
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // incomplete is good enough for advice
		return ""
	}
	var names []string
	for _, l := range links {
		if l.Attrs().MasterIndex == master {
			names = append(names, l.Attrs().Name)
		}
	}
	return strings.Join(names, ", ")
}

func nameOf(h *netlink.Handle, index int) string {
	if link, err := h.LinkByIndex(index); err == nil {
		return link.Attrs().Name
	}
	return fmt.Sprintf("interface number %d", index)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// numaNode reads the node of the interface's device; -1 when it has none. It reads the /sys of the mount namespace, which
// in a network namespace made by a test does not know the interface.
func numaNode(name string) int {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", name, "device/numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}

// netdevFeatures asks the netdev generic netlink family (kernel 6.3) of the calling thread's namespace. A kernel without it
// knows nothing, which is no error.
func netdevFeatures(index int) (features, error) {
	const (
		cmdDevGet                                     = 1
		attrIfindex, attrXDPFeatures, attrXSKFeatures = 1, 3, 6
		xdpBasic, xdpZeroCopy                         = 1 << 0, 1 << 3
		xskTxTimestamp, xskTxChecksum                 = 1 << 0, 1 << 1
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) {
		return features{}, nil
	}
	if err != nil {
		return features{}, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	// Not nl.Genlmsg: netlink v1.3.1 serializes 4 bytes of a 2-byte structure, and newer kernel families refuse a reserved field that
	// is not zero (net/netlink/genetlink.c, genl_header_check).
	req.AddRawData(append([]byte{cmdDevGet, 1, 0, 0}, nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(index))).Serialize()...))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return features{}, err
	}
	f := features{known: true}
	for _, m := range msgs {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return features{}, err
		}
		for _, a := range attrs {
			if len(a.Value) < 8 {
				continue
			}
			bits := binary.NativeEndian.Uint64(a.Value)
			switch a.Attr.Type &^ uint16(unix.NLA_F_NESTED) {
			case attrXDPFeatures:
				f.basic, f.zeroCopy = bits&xdpBasic != 0, bits&xdpZeroCopy != 0
			case attrXSKFeatures:
				f.txTimestamp, f.txChecked = bits&xskTxTimestamp != 0, bits&xskTxChecksum != 0
			}
		}
	}
	return f, nil
}

// waitCarrier waits until the interface has had a carrier for settle in a row, at most limit. Attaching in native mode and
// binding zero-copy take the link of some drivers down (ixgbe for about ten seconds; ice on purpose, 9da75a511c55).
func waitCarrier(h *netlink.Handle, index int, settle, limit time.Duration) error {
	const step = 10 * time.Millisecond
	var since time.Time
	for end := time.Now().Add(limit); ; time.Sleep(step) {
		link, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("interface number %d: %w", index, err)
		}
		now := time.Now()
		switch flags := link.Attrs().RawFlags; {
		case flags&unix.IFF_UP == 0:
			return fmt.Errorf("interface %q went down: %w", link.Attrs().Name, unix.ENETDOWN)
		case flags&unix.IFF_LOWER_UP == 0:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if !since.IsZero() && now.Sub(since) >= settle {
			return nil
		}
		if now.After(end) {
			return fmt.Errorf("interface %q: no steady carrier within %s; is the cable in, is the other end up: %w",
				link.Attrs().Name, limit, unix.ENETDOWN)
		}
	}
}
