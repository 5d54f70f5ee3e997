//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package uring_test

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"blast/uring"
)

// Sending a batch of datagrams over a registered, connected socket: the shape of every sender.
func Example_send() {
	if err := uring.Probe(); errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("sent 3") // the error says what is in the way and how to change it
		return
	}
	// The ring belongs to one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	target, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer target.Close()
	conn, err := net.Dial("udp4", target.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fd := descriptor(conn.(*net.UDPConn))

	r, err := uring.New(uring.Config{Entries: 64, ArenaBytes: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if err := r.RegisterFiles([]int32{int32(fd)}); err != nil {
		log.Fatal(err)
	}
	payloads, err := r.Arena().Slots(3, 100, 64) // kernel-visible memory comes from the arena
	if err != nil {
		log.Fatal(err)
	}

	for i, b := range payloads {
		n := copy(b, fmt.Sprint("datagram ", i))
		s := r.SQE()
		s.PrepSend(0, b[:n], syscall.MSG_DONTWAIT)
		s.Flags |= uring.FixedFile
		s.UserData = uint64(i)
	}
	if _, err := r.SubmitAndWait(len(payloads), time.Second); err != nil {
		log.Fatal(err)
	}
	sent := 0
	cqes := make([]uring.CQE, 8)
	for _, c := range cqes[:r.Completions(cqes)] {
		if err := c.Err(); err != nil {
			log.Fatal(err)
		}
		sent++
	}
	fmt.Println("sent", sent)
	// Output: sent 3
}

// Receiving with one multishot request and a ring of provided buffers.
func Example_receive() {
	if uring.Probe() != nil {
		fmt.Println("hello")
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	r, err := uring.New(uring.Config{Entries: 8, CQEntries: 128, ArenaBytes: uring.BufRingBytes(64, 2048) + 4096})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	bufs, err := r.NewBufRing(0, 64, 2048)
	if err != nil {
		log.Fatal(err)
	}
	rx, err := r.NewReceiver(uring.ReceiverConfig{FD: descriptor(conn), Buffers: bufs, Source: true})
	if err != nil {
		log.Fatal(err)
	}

	if _, err := conn.WriteTo([]byte("hello"), conn.LocalAddr()); err != nil {
		log.Fatal(err)
	}
	rx.Arm()
	if _, err := r.SubmitAndWait(1, time.Second); err != nil {
		log.Fatal(err)
	}
	for ; r.Ready() > 0; r.Advance(1) {
		d, ok, err := rx.Take(r.At(0))
		if err != nil {
			log.Fatal(err)
		}
		if ok {
			fmt.Println(string(d.Payload))
			rx.Recycle(d)
		}
	}
	// Output: hello
}

// descriptor borrows the connection's descriptor, which stays valid while the connection is open and reachable.
func descriptor(c *net.UDPConn) (fd int) {
	raw, err := c.SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	if err := raw.Control(func(d uintptr) { fd = int(d) }); err != nil {
		log.Fatal(err)
	}
	return fd
}
