package udpsock

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
)

// openHardware adds the stamps of the flows' device, where it has been told to make them: blast tells no device. The note says what a reader
// would otherwise miss; a device that cannot is none.
func (s *Stamps) openHardware(cfg *backend.Config, fds []int) (note string) {
	name, others := leavesBy(fds)
	if name == "" {
		return ""
	}
	info, err := unix.IoctlGetEthtoolTsInfo(fds[0], name)
	const needed = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE
	if err != nil || info.So_timestamping&needed != needed || info.Phc_index < 0 {
		return ""
	}
	state, err := unix.IoctlGetHwTstamp(fds[0], name)
	if err != nil {
		return fmt.Sprintf("by software: %s can stamp packets itself and does not tell whether it does: %v", name, os.NewSyscallError("ioctl SIOCGHWTSTAMP", err))
	}
	if note = switchedOff(name, info, state); note != "" {
		return note
	}
	if others {
		return fmt.Sprintf("by software: %s stamps packets itself, but not all flows leave by it", name)
	}
	phc, err := clock.OpenPHC(int(info.Phc_index), cfg.Now)
	if err != nil {
		return fmt.Sprintf("by software: %s stamps packets itself, but its clock cannot be read: %v", name, err)
	}
	s.phc, s.device = phc, &phc.Device
	s.kinds = s.kinds.With(backend.StampHardware)
	s.arrivals = state.Rx_filter == unix.HWTSTAMP_FILTER_ALL
	note = "departures are stamped by " + name
	switch {
	case s.arrivals && cfg.Receive:
		note = "departures and arrivals are stamped by " + name
	case cfg.Receive:
		note = fmt.Sprintf("%s, arrivals by software: it %s", note, noArrivals(name, info))
	}
	// Many devices have one place for a stamp, which is then not free for a packet of the PTP daemon that has switched them on.
	return note + "; if a PTP daemon misses its own meanwhile: --stamps off"
}

// switchedOff is the note on a device that can stamp departures and has not been told to; empty where it has.
func switchedOff(name string, info *unix.EthtoolTsInfo, state *unix.HwTstampConfig) string {
	if state.Tx_type != unix.HWTSTAMP_TX_OFF {
		return ""
	}
	filter := unix.HWTSTAMP_FILTER_NONE
	if allArrivals(info) {
		filter = unix.HWTSTAMP_FILTER_ALL
	}
	return fmt.Sprintf("by software: %s can stamp packets itself and is not told to: hwstamp_ctl -i %s -t 1 -r %d", name, name, filter)
}

// noArrivals says why a device stamps departures alone.
func noArrivals(name string, info *unix.EthtoolTsInfo) string {
	if allArrivals(info) {
		return fmt.Sprintf("is not told to stamp all packets that arrive: hwstamp_ctl -i %s -t 1 -r 1", name)
	}
	return "cannot stamp all packets that arrive"
}

func allArrivals(info *unix.EthtoolTsInfo) bool {
	return info.Rx_filters>>unix.HWTSTAMP_FILTER_ALL&1 != 0
}

// leavesBy is the interface by which the kernel sends what the first socket sends, empty where that cannot be told; others says that
// some of the rest leave by another.
func leavesBy(fds []int) (name string, others bool) {
	index := 0
	asked := map[[2]netip.Addr]bool{}
	for _, fd := range fds {
		ends, err := addresses(fd)
		if err != nil || asked[ends] {
			continue
		}
		asked[ends] = true
		opts := netlink.RouteGetOptions{SrcAddr: ends[0].AsSlice(), Oif: ends[1].Zone()}
		routes, err := netlink.RouteGetWithOptions(ends[1].WithZone("").AsSlice(), &opts)
		if err != nil || len(routes) == 0 {
			continue
		}
		if index == 0 {
			index = routes[0].LinkIndex
		}
		others = others || index != routes[0].LinkIndex
	}
	link, err := netlink.LinkByIndex(index)
	if index == 0 || err != nil {
		return "", false
	}
	return link.Attrs().Name, others
}

// addresses are those of both ends of a connected socket. The zone of the second is the interface's name.
func addresses(fd int) (ends [2]netip.Addr, err error) {
	for i, name := range []func(int) (unix.Sockaddr, error){unix.Getsockname, unix.Getpeername} {
		sa, err := name(fd)
		if err != nil {
			return ends, err
		}
		a, scope, err := sys.FromSockaddr(sa)
		if err != nil {
			return ends, err
		}
		ends[i] = a.Addr()
		if i == 1 && scope != 0 {
			link, err := netlink.LinkByIndex(int(scope))
			if err != nil {
				return ends, err
			}
			ends[i] = ends[i].WithZone(link.Attrs().Name)
		}
	}
	return ends, nil
}

// receiveFlags make a socket report when packets came by software, and by the device's clock where Packet.Kernel is to be that.
func (s *Stamps) receiveFlags() int {
	flags := unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE
	if s.arrivals {
		flags |= unix.SOF_TIMESTAMPING_RAW_HARDWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE
	}
	return flags
}

// ArrivalClock converts the device's times of packets that arrive; nil where the kernel makes them.
func (s *Stamps) ArrivalClock() *clock.Device {
	if s == nil || !s.arrivals {
		return nil
	}
	return s.device
}

// ClockError is Limits.ClockErrorNS.
func (s *Stamps) ClockError() int64 {
	if s == nil || s.device == nil {
		return 0
	}
	return s.device.Error()
}
