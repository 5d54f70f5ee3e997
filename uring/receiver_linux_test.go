//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// Multishot receive: content and source are right, an exhausted buffer ring is counted and armed again, and the 16-bit tail of the
// buffer ring wraps.
func TestKernelReceiver(t *testing.T) {
	for source, rounds := range map[bool]uint64{true: 300, false: 3400} {
		t.Run(fmt.Sprintf("source=%v", source), func(t *testing.T) {
			r := testRing(t, Config{Entries: 16, CQEntries: 64, ArenaBytes: BufRingBytes(8, 2048) + 4096}, sys.URingSetup)
			fd, peer := udpPair(t)
			bufs, err := r.NewBufRing(3, 8, 2048)
			if err != nil {
				t.Fatal(err)
			}
			rx, err := r.NewReceiver(ReceiverConfig{FD: fd, UserData: 42, Buffers: bufs, Source: source})
			if err != nil {
				t.Fatal(err)
			}
			to := net.UDPAddrFromAddrPort(local(t, fd))
			want := make([]byte, 1400)
			next := uint64(0)
			for round := range rounds {
				for i := range uint64(20) { // more than there are buffers
					seq := round*20 + i
					w := want[:8+seq%1392]
					fill(w, seq)
					if _, err := peer.WriteToUDP(w, to); err != nil {
						t.Fatal(err)
					}
				}
				for next < (round+1)*20 {
					if !rx.Arm() {
						t.Fatal("could not arm")
					}
					submitAndWait(t, r, 1)
					var cqes [4]CQE
					n := r.Completions(cqes[:])
					for _, c := range cqes[:n] {
						d, ok, err := rx.Take(c)
						if err != nil || c.UserData != 42 {
							t.Fatalf("%+v: %v", c, err)
						}
						if !ok {
							continue
						}
						w := want[:8+next%1392]
						fill(w, next)
						if !bytes.Equal(d.Payload, w) {
							t.Fatalf("datagram %d differs", next)
						}
						if source && d.Source != peer.LocalAddr().(*net.UDPAddr).AddrPort() {
							t.Fatalf("source %v", d.Source)
						}
						next++
						rx.Recycle(d)
					}
				}
			}
			if rx.Starved == 0 || rx.Armed < 2 {
				t.Errorf("20 datagrams for 8 buffers never exhausted them: starved %d, armed %d", rx.Starved, rx.Armed)
			}
			bufs.Commit()
			if bufs.Free() != 8 {
				t.Errorf("%d of 8 buffers are back", bufs.Free())
			}
		})
	}
}

// Holding every buffer stops the receive without spinning; giving one back lets it go on.
func TestKernelReceiverHoldsAll(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: BufRingBytes(2, 256) + 4096}, sys.URingSetup)
	fd, peer := udpPair(t)
	bufs, err := r.NewBufRing(0, 2, 256)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: fd, Buffers: bufs, Source: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := peer.WriteToUDP([]byte{byte(i)}, net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
			t.Fatal(err)
		}
	}
	rx.Arm()
	submitAndWait(t, r, 3) // two datagrams and the end
	var held []Datagram
	var cqes [4]CQE
	for _, c := range cqes[:r.Completions(cqes[:])] {
		if d, ok, err := rx.Take(c); err != nil {
			t.Fatal(err)
		} else if ok {
			held = append(held, d)
		}
	}
	if len(held) != 2 || rx.Starved != 1 || rx.Arm() {
		t.Fatalf("%d held, starved %d", len(held), rx.Starved)
	}
	rx.Recycle(held[0])
	if !rx.Arm() {
		t.Fatal("a free buffer does not arm")
	}
	submitAndWait(t, r, 1)
	if d, ok, err := rx.Take(r.At(0)); !ok || err != nil || d.Payload[0] != 2 || held[1].Payload[0] != 1 {
		t.Fatalf("third datagram: %+v %v %v", d, ok, err)
	}
}

// RECVMSG into the arena tells source, control data and truncation.
func TestKernelRecvMsg(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 14}, sys.URingSetup)
	fd, peer := udpPair(t)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		t.Fatal(err)
	}
	b, _ := r.Arena().Bytes(10, 64)
	ms, err := r.Arena().Messages(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := ms[0].ForReceive(b, MessageControl); err != nil {
		t.Fatal(err)
	}
	r.SQE().PrepRecvMsg(fd, &ms[0], 0)
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.WriteToUDP([]byte("longer than ten"), net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
		t.Fatal(err)
	}
	submitAndWait(t, r, 1)
	if c := r.At(0); c.Res != 10 || string(b) != "longer tha" || !ms[0].Truncated() || ms[0].Source() != peer.LocalAddr().(*net.UDPAddr).AddrPort() {
		t.Fatalf("%+v %q %v %v", c, b, ms[0].Truncated(), ms[0].Source())
	}
	if cms, err := unix.ParseSocketControlMessage(ms[0].Control()); err != nil || len(cms) != 1 || cms[0].Header.Type != unix.SCM_TIMESTAMPNS {
		t.Fatalf("%+v, %v", cms, err)
	}
}

// An ICMP error ends the receive with its errno; the next Arm goes on.
func TestKernelReceiverError(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: BufRingBytes(4, 256) + 4096}, sys.URingSetup)
	fd, peer := udpPair(t)
	bufs, err := r.NewBufRing(0, 4, 256)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: fd, Buffers: bufs, UserData: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := peer.LocalAddr().(*net.UDPAddr)
	peer.Close()
	b, _ := r.Arena().Bytes(8, 8)
	rx.Arm()
	s := r.SQE()
	s.PrepSend(fd, b, 0)
	s.UserData = 2
	submitAndWait(t, r, 2)
	for ; r.Ready() > 0; r.Advance(1) {
		c := r.At(0)
		if c.UserData == 2 {
			continue
		}
		if _, ok, err := rx.Take(c); ok || !errors.Is(err, syscall.ECONNREFUSED) || c.More() {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	again, err := net.ListenUDP("udp4", &net.UDPAddr{IP: at.IP})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: again.LocalAddr().(*net.UDPAddr).Port}); err != nil {
		t.Fatal(err)
	}
	if !rx.Arm() || rx.Armed != 2 {
		t.Fatal("not armed again")
	}
	if _, err := again.WriteToUDP([]byte("back"), net.UDPAddrFromAddrPort(local(t, fd))); err != nil {
		t.Fatal(err)
	}
	submitAndWait(t, r, 1)
	if d, ok, err := rx.Take(r.At(0)); !ok || err != nil || string(d.Payload) != "back" {
		t.Fatalf("%q %v %v", d.Payload, ok, err)
	}
}
