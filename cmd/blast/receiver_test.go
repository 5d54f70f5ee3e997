package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// arrival is one datagram as an independent receiver saw it.
type arrival struct {
	worker        uint16
	seq           uint64
	planned, sent int64 // ns of CLOCK_MONOTONIC, from the stamp
	received      int64 // ns of CLOCK_REALTIME, by the kernel
	bytes         int
	port          uint16 // of the sender
	addr          [4]byte
}

// receiver is a plain UDP socket of the standard library with kernel receive times (SO_TIMESTAMPNS). It shares no code with blast:
// the stamp is taken apart by its documentation. The kernel takes the time in netif_rx, before it queues the packet
// (net.core.netdev_tstamp_prequeue), which on loopback is inside the send call; so it may be read at leisure.
type receiver struct {
	conn *net.UDPConn
	addr string
	got  []arrival
	err  error
	done chan struct{}
}

// receive opens the socket on loopback with a buffer of at least bufferBytes and reads until end.
func receive(t *testing.T, bufferBytes int) *receiver {
	t.Helper()
	return receiveOn(t, netip.AddrFrom4([4]byte{127, 0, 0, 1}), bufferBytes)
}

// receiveOn is receive on another IPv4 address of the calling thread's namespace.
func receiveOn(t *testing.T, host netip.Addr, bufferBytes int) *receiver {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var forced, stamped error
	err = raw.Control(func(fd uintptr) {
		forced = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes)
		stamped = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err := errors.Join(err, forced, stamped); err != nil {
		t.Fatalf("receive socket: %v", err)
	}
	r := &receiver{conn: conn, addr: conn.LocalAddr().String(), done: make(chan struct{})}
	first := allowedCPUs(t)[0]
	go func() {
		defer close(r.done)
		r.err = onCPU(first, r.read)
	}()
	return r
}

// onCPU runs f on one CPU. The thread gets its old affinity back: it may be the main thread, which outlives its goroutine and
// stands for the whole process in /proc/self/status.
func onCPU(cpu int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &old))
}

func (r *receiver) read() error {
	b, oob := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, oobn, _, from, err := r.conn.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		a := arrival{bytes: n, port: from.Port(), addr: from.Addr().Unmap().As4()}
		if a.received, err = kernelTime(oob[:oobn]); err != nil {
			return err
		}
		if n < 48 || binary.BigEndian.Uint16(b) != 0xB1A5 {
			return fmt.Errorf("a datagram of %d bytes from %v without a stamp: % x", n, from, b[:min(n, 16)])
		}
		a.worker = binary.BigEndian.Uint16(b[4:])
		a.seq = binary.BigEndian.Uint64(b[8:])
		a.planned = int64(binary.BigEndian.Uint64(b[16:]))
		a.sent = int64(binary.BigEndian.Uint64(b[24:]))
		r.got = append(r.got, a)
	}
}

// kernelTime finds the struct timespec of SCM_TIMESTAMPNS without a copy or an allocation.
func kernelTime(oob []byte) (int64, error) {
	header, body, _, err := unix.ParseOneSocketControlMessage(oob)
	switch {
	case err != nil:
		return 0, fmt.Errorf("control message: %w", err)
	case header.Level != unix.SOL_SOCKET || header.Type != unix.SCM_TIMESTAMPNS || len(body) < 16:
		return 0, fmt.Errorf("control message %d of level %d with %d bytes is no time", header.Type, header.Level, len(body))
	}
	return int64(binary.NativeEndian.Uint64(body))*1e9 + int64(binary.NativeEndian.Uint64(body[8:])), nil
}

// end stops the receiver once nothing comes any more, and returns what came and what its socket dropped.
func (r *receiver) end(t *testing.T) (got []arrival, dropped uint64) {
	t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if r.err != nil {
		t.Fatalf("receiver: %v", r.err)
	}
	return r.got, socketDrops(t, r.conn.LocalAddr().(*net.UDPAddr).AddrPort())
}

// socketDrops reads the drops of the socket on an IPv4 address of the calling thread's namespace from /proc/net/udp.
func socketDrops(t *testing.T, at netip.AddrPort) uint64 {
	t.Helper()
	f, err := os.Open("/proc/thread-self/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := at.Addr().Unmap().As4()
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a[:]), at.Port())
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if field := strings.Fields(lines.Text()); len(field) > 12 && field[1] == local {
			n, err := strconv.ParseUint(field[12], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no socket on %v in /proc/net/udp", at)
	return 0
}

// clockOffset is what to add to a time of CLOCK_REALTIME to get CLOCK_MONOTONIC, and how far it may be off: half the width of the
// closest of some bracketed readings.
func clockOffset(t *testing.T) (offset, width int64) {
	t.Helper()
	width = 1 << 62
	for range 64 {
		a, real, b := clockNow(t, unix.CLOCK_MONOTONIC), clockNow(t, unix.CLOCK_REALTIME), clockNow(t, unix.CLOCK_MONOTONIC)
		if half := (b - a + 1) / 2; half < width {
			offset, width = a+half-real, half
		}
	}
	return offset, width
}

func clockNow(t *testing.T, id int32) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
