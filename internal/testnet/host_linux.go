package testnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one end of a [Pair]: a namespace and its interface.
type Host struct {
	Name      string           // "left" or "right"
	Interface string           // name of the veth end inside the namespace
	Index     int              // interface index inside the namespace
	MAC       net.HardwareAddr // hardware address of the veth end
	IPv4      netip.Prefix     // address of the veth end with the length of its network
	IPv6      netip.Prefix
	VLAN      *VLAN           // nil unless [Config.VLAN] asked for one
	Netlink   *netlink.Handle // bound to the namespace; usable from any thread; closed by the cleanup

	t  testing.TB
	ns netns.NsHandle
}

// VLAN is the 802.1Q interface on top of one end.
type VLAN struct {
	ID        int
	Interface string
	Index     int
	IPv4      netip.Prefix
	IPv6      netip.Prefix
}

// Do runs fn inside the namespace, on a locked thread of its own that ends afterwards, and waits for it. Sockets,
// files under /proc/sys/net, BPF links and processes started in fn belong to the namespace and stay in it when used
// elsewhere later; goroutines started in fn do not belong to it. A process started in fn must not ask for a parent
// death signal: its parent thread ends with Do. fn may call t.Fatal; a panic in fn goes on in the caller.
func (h *Host) Do(fn func()) {
	var failure any
	done := false
	onNewThread(func() {
		defer func() { failure = recover() }()
		if err := unix.Setns(int(h.ns), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("testnet: enter namespace %s: %v", h.Name, err))
		}
		fn()
		done = true
	})
	switch {
	case failure != nil:
		panic(failure)
	case !done:
		// fn ended by FailNow or SkipNow of some test, which is marked already; its goroutine ends here.
		runtime.Goexit()
	}
}

// onNewThread runs fn on a locked goroutine and waits. The thread goes back to the namespace it came from and then ends
// with the goroutine: whatever fn changed about it (affinity, capabilities, timer slack) is gone, and if it happens to
// be the main thread, which Go parks instead of ending, /proc/self/net still speaks about the host.
func onNewThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, err := netns.Get()
		if err == nil {
			defer func() {
				_ = unix.Setns(int(home), unix.CLONE_NEWNET)
				_ = home.Close()
			}()
		}
		fn()
	}()
	<-done
}

// socketBuffer is the receive buffer of ListenUDP in bytes: a test's burst fits, whatever net.core.rmem_max is.
const socketBuffer = 8 << 20

// ListenUDP opens a UDP socket with a large receive buffer inside the namespace, closed by the test's cleanup. A zero port lets the
// kernel choose.
func (h *Host) ListenUDP(addr netip.AddrPort) *net.UDPConn {
	h.t.Helper()
	var conn *net.UDPConn
	h.Do(func() {
		pc, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", addr.String())
		if err != nil {
			h.t.Fatalf("host %s: %v", h.Name, err)
		}
		conn = pc.(*net.UDPConn)
	})
	h.t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		h.t.Fatalf("host %s: %v", h.Name, err)
	}
	var force error
	if err := raw.Control(func(fd uintptr) {
		force = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer)
	}); err != nil || force != nil {
		h.t.Fatalf("host %s: receive buffer: %v, %v", h.Name, err, force)
	}
	return conn
}

// SetUp brings the veth end up or down.
func (h *Host) SetUp(up bool) {
	h.t.Helper()
	set := h.Netlink.LinkSetDown
	if up {
		set = h.Netlink.LinkSetUp
	}
	if err := set(h.link()); err != nil {
		h.t.Fatalf("host %s: %v", h.Name, err)
	}
}

// Delete removes the veth pair, as a user would do with ip link del.
func (h *Host) Delete() {
	h.t.Helper()
	if err := h.Netlink.LinkDel(h.link()); err != nil {
		h.t.Fatalf("host %s: delete %s: %v", h.Name, h.Interface, err)
	}
}

// Statistics reads the interface counters of the veth end.
func (h *Host) Statistics() netlink.LinkStatistics {
	h.t.Helper()
	return *h.link().Attrs().Statistics
}

// AddRoute sends a network through a gateway.
func (h *Host) AddRoute(dst netip.Prefix, via netip.Addr) {
	h.t.Helper()
	err := h.Netlink.RouteAdd(&netlink.Route{
		LinkIndex: h.Index,
		Dst:       &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())},
		Gw:        via.AsSlice(),
	})
	if err != nil {
		h.t.Fatalf("host %s: route %s via %s: %v", h.Name, dst, via, err)
	}
}

func (h *Host) link() netlink.Link {
	h.t.Helper()
	link, err := h.Netlink.LinkByName(h.Interface)
	if err != nil {
		h.t.Fatalf("host %s: interface %s: %v", h.Name, h.Interface, err)
	}
	return link
}

// close removes the pair (the other end goes with it) and lets go of the namespace.
func (h *Host) close() {
	if h.Netlink != nil {
		if link, err := h.Netlink.LinkByName(h.Interface); err == nil {
			_ = h.Netlink.LinkDel(link)
		}
		h.Netlink.Close()
	}
	_ = h.ns.Close()
}

// String names the host and its addresses.
func (h *Host) String() string {
	return fmt.Sprintf("%s (%s %s %s)", h.Name, h.Interface, h.IPv4, h.IPv6)
}
