package vm

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/testnet"
)

// testTimestamps reads the times that the cards themselves take: of a datagram sent, and of a frame of the precision time protocol
// received, the only kind whose arrival the emulated card takes.
func testTimestamps(t *testing.T, pair *testnet.Pair) {
	for _, h := range []*testnet.Host{pair.Left, pair.Right} {
		h.Do(func() { takeTimes(t, h.Interface) })
		carrier(t, h)
	}
	t.Run("sent", func(t *testing.T) {
		port := echo(t, pair.Right)
		if err := roundTrips(pair.Left, netip.AddrPortFrom(pair.Left.IPv4.Addr(), 0), netip.AddrPortFrom(pair.Right.IPv4.Addr(), port), 1); err != nil { // neighbours are resolved
			t.Fatal(err)
		}
		var fd int
		pair.Left.Do(func() { fd = socket(t, unix.AF_INET, unix.SOCK_DGRAM, 0, unix.SOF_TIMESTAMPING_TX_HARDWARE) })
		defer unix.Close(fd)
		var times []time.Duration
		for range 3 {
			if err := unix.Sendto(fd, []byte("when"), 0, &unix.SockaddrInet4{Port: int(port), Addr: pair.Right.IPv4.Addr().As4()}); err != nil {
				t.Fatal(err)
			}
			at, ok := hardwareTime(t, fd, unix.MSG_ERRQUEUE)
			if !ok {
				t.Fatal("no hardware time")
			}
			times = append(times, at)
		}
		ascending(t, times)
	})
	t.Run("received", func(t *testing.T) {
		const sync = 0x88f7 // Ethernet type of IEEE 1588, annex F of its version 2
		var out, in int
		pair.Left.Do(func() { out = socket(t, unix.AF_PACKET, unix.SOCK_RAW, 0, 0) })
		defer unix.Close(out)
		pair.Right.Do(func() {
			in = socket(t, unix.AF_PACKET, unix.SOCK_RAW, sync, unix.SOF_TIMESTAMPING_RX_HARDWARE)
			multicast := unix.PacketMreq{Ifindex: int32(pair.Right.Index), Type: unix.PACKET_MR_MULTICAST, Alen: 6, Address: [8]byte{0x01, 0x1b, 0x19}}
			if err := unix.SetsockoptPacketMreq(in, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &multicast); err != nil {
				t.Fatal(err)
			}
		})
		defer unix.Close(in)
		frame := append(net.HardwareAddr{0x01, 0x1b, 0x19, 0, 0, 0}, pair.Left.MAC...)
		frame = binary.BigEndian.AppendUint16(frame, sync)
		frame = append(frame, make([]byte, 46)...)
		frame[15] = 2 // version; the message type before it is 0, Sync
		frame[17] = 44
		// The emulated card has one place for a time, and frames that come before the driver has emptied it get none.
		var times []time.Duration
		for range 10 {
			if err := unix.Sendto(out, frame, 0, &unix.SockaddrLinklayer{Ifindex: pair.Left.Index, Protocol: swapped(sync)}); err != nil {
				t.Fatal(err)
			}
			if at, ok := hardwareTime(t, in, 0); ok {
				times = append(times, at)
			}
		}
		ascending(t, times)
	})
}

// takeTimes makes a card take the times of what it sends, and of frames of the precision time protocol that it receives.
func takeTimes(t *testing.T, name string) {
	t.Helper()
	stampConfig(t, name, unix.HWTSTAMP_TX_ON, unix.HWTSTAMP_FILTER_PTP_V2_L2_EVENT)
	if got := stampState(t, name); got.Tx_type != unix.HWTSTAMP_TX_ON || got.Rx_filter == unix.HWTSTAMP_FILTER_NONE {
		t.Fatalf("%s: %+v", name, got)
	}
}

// stampConfig tells a card what to stamp (SIOCSHWTSTAMP).
func stampConfig(t *testing.T, name string, tx, filter int32) {
	t.Helper()
	fd := dgram(t)
	defer unix.Close(fd)
	if err := unix.IoctlSetHwTstamp(fd, name, &unix.HwTstampConfig{Tx_type: tx, Rx_filter: filter}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// stampState is what a card has been told to stamp (SIOCGHWTSTAMP).
func stampState(t *testing.T, name string) *unix.HwTstampConfig {
	t.Helper()
	fd := dgram(t)
	defer unix.Close(fd)
	got, err := unix.IoctlGetHwTstamp(fd, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return got
}

func dgram(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// socket opens one that reports hardware times and waits at most 10 s. protocol is in host order.
func socket(t *testing.T, family, kind int, protocol uint16, times int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, int(swapped(protocol)))
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, times|unix.SOF_TIMESTAMPING_RAW_HARDWARE)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// hardwareTime waits for a message and returns the third of its times, the raw hardware one (Documentation/networking/timestamping.rst);
// not ok when it has none.
func hardwareTime(t *testing.T, fd, flags int) (time.Duration, bool) {
	t.Helper()
	data, control := make([]byte, 256), make([]byte, 512)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) { // the error queue does not wait
		_, n, _, _, err := unix.Recvmsg(fd, data, control, flags)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING && len(m.Data) >= 48 {
				s, ns := binary.NativeEndian.Uint64(m.Data[32:]), binary.NativeEndian.Uint64(m.Data[40:])
				return time.Duration(s)*time.Second + time.Duration(ns), s != 0 || ns != 0
			}
		}
		return 0, false
	}
	t.Fatal("no message came within 10 s")
	return 0, false
}

// swapped is a number in the order of the network.
func swapped(n uint16) uint16 { return n<<8 | n>>8 }

// ascending says that times of a running clock came.
func ascending(t *testing.T, times []time.Duration) {
	t.Helper()
	t.Logf("times of the card: %v", times)
	if len(times) == 0 {
		t.Error("no hardware time")
	}
	for i := 1; i < len(times); i++ {
		if times[i] <= times[i-1] {
			t.Errorf("time %d is not after the one before: %v", i, times)
		}
	}
}
