package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// Interface is what there is to know about a network interface before it sends or receives here.
type Interface struct {
	Name   string
	Index  int
	MTU    int
	Kind   string // rtnetlink kind: "veth", "bond", ...; "device" for hardware and lo
	Driver string // as ethtool tells; empty when it does not
	// Loopback is lo: no frame can be redirected to it, and programs run in generic mode.
	Loopback bool

	known, transmits bool // what netdev netlink says (kernel 6.3)
}

// Inspect reads an interface of the calling thread's namespace and refuses those on which nothing here makes sense, naming what to use
// instead. The errors wrap errors.ErrUnsupported but for that of an interface that does not exist or is down.
func Inspect(name string) (*Interface, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		var gone netlink.LinkNotFoundError
		if errors.As(err, &gone) {
			err = unix.ENODEV
		}
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	a := l.Attrs()
	i := &Interface{Name: name, Index: a.Index, MTU: a.MTU, Kind: l.Type(), Loopback: a.EncapType == "loopback"}
	switch {
	case i.Kind == "bond" || i.Kind == "team" || i.Kind == "bridge":
		return nil, fmt.Errorf("interface %q is a %s; use one of its ports: %w", name, i.Kind, errors.ErrUnsupported)
	case i.Kind == "vlan" || i.Kind == "macvlan" || i.Kind == "ipvlan" || i.Kind == "macvtap" || i.Kind == "ipvtap":
		return nil, fmt.Errorf("interface %q is a %s; use the interface below it: %w", name, i.Kind, errors.ErrUnsupported)
	case a.EncapType != "ether" && !i.Loopback:
		return nil, fmt.Errorf("interface %q carries no Ethernet frames; use the sendmmsg backend: %w", name, errors.ErrUnsupported)
	case a.RawFlags&unix.IFF_UP == 0:
		return nil, fmt.Errorf("interface %q is down; ip link set %s up: %w", name, name, unix.ENETDOWN)
	}
	if et, err := ethtool.NewEthtool(); err == nil {
		sys.OnFirmStack(func() { i.Driver, _ = et.DriverName(name) })
		et.Close()
	}
	return i, i.readFeatures()
}

// readFeatures asks the netdev family (kernel 6.3) whether the driver has ndo_xdp_xmit now: veth and virtio say so only while their
// conditions hold. An older kernel knows nothing, which is no error.
func (i *Interface) readFeatures() error {
	const (
		cmdDevGet                    = 1
		attrIfindex, attrXDPFeatures = 1, 3
		ndoXmit                      = 1 << 2 // NETDEV_XDP_ACT_NDO_XMIT
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("interface %q: XDP features: %w", i.Name, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	// By hand: nl.Genlmsg of v1.3.1 leaves the reserved half of its header to chance.
	req.AddRawData(append([]byte{cmdDevGet, 1, 0, 0}, nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(i.Index))).Serialize()...))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return fmt.Errorf("interface %q: XDP features: %w", i.Name, err)
	}
	i.known = true
	for _, m := range msgs {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return fmt.Errorf("interface %q: XDP features: %w", i.Name, err)
		}
		for _, a := range attrs {
			if a.Attr.Type&^uint16(unix.NLA_F_NESTED) == attrXDPFeatures && len(a.Value) >= 8 {
				i.transmits = binary.NativeEndian.Uint64(a.Value)&ndoXmit != 0
			}
		}
	}
	return nil
}

// CanTransmit says whether frames can be redirected to the interface now; where not, what is missing and the command that helps. On
// kernels before 6.3, which do not tell, it says yes to all but lo, and the books show failed frames. Drivers such as igb and virtio_net
// also need a program attached to the sending interface, so ask after attaching.
func (i *Interface) CanTransmit() error {
	if i.Loopback {
		return fmt.Errorf("interface %q is a loopback, which has no ndo_xdp_xmit; use the sendmmsg backend, or a veth pair: %w", i.Name, errors.ErrUnsupported)
	}
	if err := i.readFeatures(); err != nil {
		return err
	}
	if !i.known || i.transmits {
		return nil
	}
	remedy := fmt.Sprintf("driver %q has no ndo_xdp_xmit; use the af_xdp or sendmmsg backend", i.Driver)
	switch {
	case i.Kind == "veth":
		remedy = "its peer has neither GRO on nor an XDP program; in the peer's namespace: ethtool -K PEER gro on"
	case i.Driver == "virtio_net":
		remedy = fmt.Sprintf("virtio_net sends redirected frames only with a program attached and a queue pair per CPU; ethtool -L %s combined CPUS, "+
			"on a host that offers as many", i.Name)
	}
	return fmt.Errorf("interface %q: %s: %w", i.Name, remedy, errors.ErrUnsupported)
}

// attach puts a program on the interface, in the driver where it can and else in generic mode. native tells which.
func (i *Interface) attach(prog *ebpf.Program) (l link.Link, native bool, err error) {
	if !i.Loopback {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPDriverMode})
		if err == nil {
			return l, true, nil
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return nil, false, i.occupied(err)
		}
	}
	l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPGenericMode})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, false, i.occupied(err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("interface %q: attach XDP program: %w", i.Name, err)
	}
	return l, false, nil
}

// occupied names the program that is in the way.
func (i *Interface) occupied(cause error) error {
	id := uint32(0)
	if l, err := netlink.LinkByIndex(i.Index); err == nil && l.Attrs().Xdp != nil {
		id = l.Attrs().Xdp.ProgId
	}
	return fmt.Errorf("interface %q has an XDP program already (id %d); see bpftool prog show id %d, and ip link set %s xdp off: %w", i.Name, id, id, i.Name, cause)
}

// Probe says whether live frames work here, whatever the interface: nil, they do; wrapping errors.ErrUnsupported, they do not, and
// the text says what is missing; any other error, it could not tell. It sends nothing.
func Probe() error {
	if names := missingCaps(); len(names) > 0 {
		return fmt.Errorf("in-kernel engine: missing %s; run as root: %w", strings.Join(names, ", "), errors.ErrUnsupported)
	}
	frame := make([]byte, 64)
	s := &Sender{cfg: SenderConfig{Frames: [][]byte{frame}, Header: 42, Batch: 1}}
	if err := s.load(); err != nil {
		return fmt.Errorf("in-kernel engine: %w", explain(err))
	}
	defer s.Close()
	if err := s.trace(); err != nil {
		return fmt.Errorf("in-kernel engine: %w", explain(err))
	}
	if err := s.measure(2048); err != nil {
		return fmt.Errorf("in-kernel engine: %w", explain(err))
	}
	return nil
}

// missingCaps names the capabilities that the calling thread lacks. CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON.
func missingCaps() []string {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return nil // the attempt will speak for itself
	}
	have := uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	has := func(bit uint) bool { return have>>bit&1 != 0 }
	var names []string
	if !has(unix.CAP_NET_ADMIN) {
		names = append(names, "CAP_NET_ADMIN")
	}
	if !has(unix.CAP_BPF) && !has(unix.CAP_SYS_ADMIN) {
		names = append(names, "CAP_BPF")
	}
	if !has(unix.CAP_PERFMON) && !has(unix.CAP_SYS_ADMIN) {
		names = append(names, "CAP_PERFMON")
	}
	return names
}

// explain makes errors.ErrUnsupported of what the kernel answers where something is missing for good.
func explain(err error) error {
	lockdown, _ := os.ReadFile("/sys/kernel/security/lockdown") // no such file: no lockdown
	var u unix.Utsname
	_ = unix.Uname(&u)
	return explainOn(err, string(lockdown), unix.ByteSliceToString(u.Release[:]))
}

// explainOn is explain on a kernel of that release whose lockdown file reads so.
func explainOn(err error, lockdown, release string) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier): // says why by itself, with EACCES or EINVAL
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		why := "BPF is forbidden here although the capabilities are present (a container's seccomp filter?)"
		if lockdown != "" && !strings.Contains(lockdown, "[none]") {
			why = "the kernel is locked down: " + strings.TrimSpace(lockdown)
		}
		return fmt.Errorf("%s: %w: %w", why, err, errors.ErrUnsupported)
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("live frames need Linux 5.18, this is %s: %w: %w", release, err, errors.ErrUnsupported)
	}
	return err
}
