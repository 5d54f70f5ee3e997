package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Interface is the name of the near end in its namespace.
const Interface = "near0"

const farInterface = "far0"

// The addresses of both ends.
var (
	nearMAC = net.HardwareAddr{0x02, 0xb1, 0xa5, 0x77, 0x00, 0x01}
	farMAC  = net.HardwareAddr{0x02, 0xb1, 0xa5, 0x77, 0x00, 0x02}
	near    = netip.MustParsePrefix("10.87.0.1/24")
	target  = netip.MustParseAddr("10.87.0.2")
)

// Wire is an open pair. Its methods may be called from any thread.
type Wire struct {
	near, far netns.NsHandle
	counts    *ebpf.Map
	link      link.Link
}

// Target is the address of the far end, where every port drops.
func (w *Wire) Target() netip.Addr { return target }

// Open makes the pair with the given number of queues each way. The errors wrap errors.ErrUnsupported where the process may not, or the
// kernel has no veth.
func Open(queues int) (*Wire, error) {
	w := &Wire{near: netns.None(), far: netns.None()}
	err := w.open(queues)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w; run as root, or grant CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF: %w", err, errors.ErrUnsupported)
	} else if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w; modprobe veth: %w", err, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("veth pair: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

func (w *Wire) open(queues int) error {
	for _, ns := range []*netns.NsHandle{&w.near, &w.far} {
		err := onThread(func() (err error) { *ns, err = netns.New(); return err })
		if err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
	}
	h, err := netlink.NewHandleAt(w.near, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	pair := &netlink.Veth{
		// Not the number of the far end in its namespace: see internal/testnet, leftIndex.
		LinkAttrs: netlink.LinkAttrs{Name: Interface, Index: 87, MTU: 1500, TxQLen: 1000, NumTxQueues: queues, NumRxQueues: queues, HardwareAddr: nearMAC},
		PeerName:  farInterface, PeerHardwareAddr: farMAC, PeerNamespace: netlink.NsFd(w.far), PeerMTU: 1500,
		PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues),
	}
	if err := h.LinkAdd(pair); err != nil {
		return err
	}
	if err := w.openFar(); err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: near.Addr().AsSlice(), Mask: net.CIDRMask(near.Bits(), 32)}}
	neighbour := &netlink.Neigh{LinkIndex: pair.Index, IP: target.AsSlice(), HardwareAddr: farMAC, State: netlink.NUD_PERMANENT}
	return errors.Join(h.AddrAdd(pair, address), h.LinkSetUp(pair), h.NeighSet(neighbour))
}

// openFar attaches the program and brings the far end up. It needs no address: nothing gets past the program.
func (w *Wire) openFar() error {
	h, err := netlink.NewHandleAt(w.far, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	end, err := h.LinkByName(farInterface)
	if err != nil {
		return err
	}
	if w.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: "blast_wire", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return fmt.Errorf("counter map: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "blast_wire", Type: ebpf.XDP, License: "GPL", Instructions: dropIPv4(w.counts.FD())})
	if err != nil {
		return fmt.Errorf("XDP program: %w", err)
	}
	defer program.Close()
	err = onThread(func() (err error) {
		if err := unix.Setns(int(w.far), unix.CLONE_NEWNET); err != nil {
			return err
		}
		w.link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: end.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		w.link = nil // not an interface that holds a nil pointer
		return fmt.Errorf("attach the XDP program: %w", err)
	}
	return h.LinkSetUp(end)
}

// dropIPv4 counts and drops IPv4 packets and passes the rest.
func dropIPv4(counts int) asm.Instructions {
	const xdpDrop, xdpPass = 1, 2
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.JNE.Imm(asm.R4, unix.ETH_P_IP, "pass"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counts),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, xdpDrop),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	}
}

// Enter puts the calling thread, which is locked to its goroutine and ends with it, into the near namespace.
func (w *Wire) Enter() error {
	if err := unix.Setns(int(w.near), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace of %s: %w", Interface, err)
	}
	return nil
}

// Received is the number of packets that came out at the far end.
func (w *Wire) Received() (uint64, error) {
	var perCPU []uint64
	if err := w.counts.Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("packets at %s: %w", farInterface, err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// Close takes the pair down. Threads that entered keep an empty namespace until they end.
func (w *Wire) Close() error {
	var errs []error
	if w.link != nil {
		errs = append(errs, w.link.Close())
	}
	if w.counts != nil {
		errs = append(errs, w.counts.Close())
	}
	if w.near.IsOpen() {
		if h, err := netlink.NewHandleAt(w.near, unix.NETLINK_ROUTE); err == nil {
			if pair, err := h.LinkByName(Interface); err == nil {
				errs = append(errs, h.LinkDel(pair))
			}
			h.Close()
		}
		errs = append(errs, w.near.Close())
	}
	if w.far.IsOpen() {
		errs = append(errs, w.far.Close())
	}
	return errors.Join(errs...)
}

// onThread runs fn on a thread that goes back to its namespace and ends.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = fn()
		done <- errors.Join(err, unix.Setns(int(home), unix.CLONE_NEWNET))
	}()
	return <-done
}
