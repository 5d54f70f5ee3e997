//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"testing"

	"blast/internal/sys"
	"blast/internal/testskip"
)

// grow moves the goroutine's stack, several times over, and leaves rubbish where it was.
func grow(depth int) byte {
	var pad [1024]byte
	for i := range pad {
		pad[i] = byte(depth + i)
	}
	if depth == 0 {
		return pad[7]
	}
	return pad[depth%1024] ^ grow(depth-1)
}

func fill(b []byte, seq uint64) {
	for i := range b {
		b[i] = byte(uint64(i)*7 + seq*13 + seq>>8)
	}
	binary.LittleEndian.PutUint64(b, seq)
}

// sendWays are all the ways to send, each as the part that differs.
func sendWays(r *Ring) map[string]func(s *SQE, fd int, b []byte, m *Message, to *Sockaddr) {
	ways := map[string]func(s *SQE, fd int, b []byte, m *Message, to *Sockaddr){
		"SEND":       func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSend(fd, b, 0) },
		"SEND fixed": func(s *SQE, _ int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSend(1, b, 0); s.Flags |= FixedFile },
		"SENDMSG":    func(s *SQE, fd int, b []byte, m *Message, _ *Sockaddr) { m.Payload(b); s.PrepSendMsg(fd, m, 0) },
	}
	if r.Granted().Ops.Has(OpSendZC) {
		ways["SEND_ZC"] = func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) { s.PrepSendZC(fd, b, 0, true) }
		ways["SEND_ZC registered buffer"] = func(s *SQE, fd int, b []byte, _ *Message, _ *Sockaddr) {
			s.PrepSendZC(fd, b, 0, true)
			s.FixedBuffer(0)
		}
	}
	if r.Granted().Ops.Has(OpSendMsgZC) {
		ways["SENDMSG_ZC"] = func(s *SQE, fd int, b []byte, m *Message, _ *Sockaddr) {
			m.Payload(b)
			s.PrepSendMsgZC(fd, m, 0, true)
		}
		ways["SEND to address"] = func(s *SQE, fd int, b []byte, _ *Message, to *Sockaddr) { s.PrepSend(fd, b, 0); s.To(to) }
	}
	return ways
}

// Byte for byte, whatever the stack and the collector do between preparing and submitting: catches addresses of slice headers and
// of moved or freed objects, the classic faults of Go bindings.
func TestKernelContent(t *testing.T) {
	for kernel, known := range map[string]SetupFlags{"6.6": known66, "6.0": known60, "5.11": known511} {
		for _, name := range []string{"SEND", "SEND fixed", "SEND to address", "SENDMSG", "SEND_ZC", "SEND_ZC registered buffer", "SENDMSG_ZC"} {
			t.Run(kernel+"/"+name, func(t *testing.T) {
				r := testRing(t, Config{Entries: 64, CQEntries: 256, ArenaBytes: 1 << 20}, oldKernel(known))
				prep := sendWays(r)[name]
				if prep == nil {
					testskip.Skip(t, "io_uring", name+" is unknown to this kernel", "Linux 6.1")
				}
				slots, err := r.Arena().Slots(32, 1400, 64)
				if err != nil {
					t.Fatal(err)
				}
				ms, err := r.Arena().Messages(32)
				if err != nil {
					t.Fatal(err)
				}
				tos, err := r.Arena().Sockaddrs(1)
				if err != nil {
					t.Fatal(err)
				}
				fd, peer := udpPair(t)
				if err := tos[0].Set(peer.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
					t.Fatal(err)
				}
				if err := r.RegisterFiles([]int32{-1, int32(fd)}); err != nil {
					t.Fatal(err)
				}
				if err := r.RegisterBuffers([][]byte{r.region.Bytes()}); err != nil {
					t.Fatal(err)
				}
				contentCheck(t, r, fd, peer, slots, ms, &tos[0], prep)
				if err := r.UnregisterBuffers(); err != nil || r.InFlight() != 0 {
					t.Fatalf("%d in flight, %v", r.InFlight(), err)
				}
			})
		}
	}
}

func contentCheck(t *testing.T, r *Ring, fd int, peer *net.UDPConn, slots [][]byte, ms []Message, to *Sockaddr,
	prep func(*SQE, int, []byte, *Message, *Sockaddr)) {
	t.Helper()
	const total = 256
	got, want := make([]byte, 2048), make([]byte, 1400)
	for seq := uint64(0); seq < total; {
		n := min(len(slots), int(total-seq))
		for k := range n {
			size := 8 + int(seq+uint64(k))*5%1392
			fill(slots[k][:size], seq+uint64(k))
			s := r.SQE()
			prep(s, fd, slots[k][:size], &ms[k], to)
			s.UserData = uint64(k)
		}
		done := make(chan byte)
		go func() { done <- grow(200) }() // another stack, and garbage for the collector
		grow(300)
		<-done
		runtime.GC()
		results, finals, notified := 0, 0, 0
		for finals < n {
			submitAndWait(t, r, 1)
			for ; r.Ready() > 0; r.Advance(1) {
				c := r.At(0)
				if err := c.Err(); err != nil {
					t.Fatalf("send %d: %v", c.UserData, err)
				}
				switch {
				case c.Notification():
					notified++
					if !c.Copied() { // skb_orphan_frags_rx: loopback always copies
						t.Fatal("zero-copy on loopback went without a copy")
					}
				case int(c.Res) != 8+int(seq+c.UserData)*5%1392:
					t.Fatalf("send %d: %d bytes", c.UserData, c.Res)
				default:
					results++
				}
				if c.Done() {
					finals++
				}
			}
		}
		if results != n || notified != 0 && notified != n {
			t.Fatalf("%d results and %d notifications for %d sends", results, notified, n)
		}
		for k := range n {
			size, err := peer.Read(got)
			if err != nil {
				t.Fatal(err)
			}
			w := want[:8+int(seq+uint64(k))*5%1392]
			fill(w, seq+uint64(k))
			if !bytes.Equal(got[:size], w) {
				t.Fatalf("datagram %d: %d bytes differ from the %d sent", seq+uint64(k), size, len(w))
			}
		}
		seq += uint64(n)
	}
}

// GSO by control message: one entry leaves as three datagrams.
func TestKernelSegments(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 1 << 16}, sys.URingSetup)
	fd, peer := udpPair(t)
	b, _ := r.Arena().Bytes(2500, 64)
	fill(b, 3)
	iov, _ := r.Arena().Iovecs(2)
	iov[0].Set(b[:700])
	iov[1].Set(b[700:])
	ms, err := r.Arena().Messages(1)
	if err != nil {
		t.Fatal(err)
	}
	ms[0].Vector(iov)
	if err := ms[0].Segment(1000); err != nil {
		t.Fatal(err)
	}
	r.SQE().PrepSendMsg(fd, &ms[0], 0)
	submitAndWait(t, r, 1)
	if c := r.At(0); c.Res != 2500 {
		t.Fatalf("%+v", c)
	}
	var whole []byte
	got := make([]byte, 4096)
	for _, size := range []int{1000, 1000, 500} {
		n, err := peer.Read(got)
		if err != nil || n != size {
			t.Fatalf("%d bytes, %v, want %d", n, err, size)
		}
		whole = append(whole, got[:n]...)
	}
	if !bytes.Equal(whole, b) {
		t.Fatal("content differs")
	}
}

// Memory that is not the arena's never reaches the kernel; the batch can be taken back.
func TestKernelForeignMemory(t *testing.T) {
	r := testRing(t, Config{ArenaBytes: 4096}, sys.URingSetup)
	fd, _ := udpPair(t)
	heap := make([]byte, 100)
	r.SQE().PrepNop()
	r.SQE().PrepSend(fd, heap, 0)
	if n, err := r.Submit(); n != 0 || !errors.Is(err, ErrForeign) {
		t.Fatalf("%d, %v", n, err)
	}
	if n := r.Unget(100); n != 2 || r.Queued() != 0 {
		t.Fatalf("took %d back, %d queued", n, r.Queued())
	}
	if n, err := r.Submit(); n != 0 || err != nil {
		t.Fatalf("after taking back: %d, %v", n, err)
	}
	if err := r.RegisterBuffers([][]byte{heap}); !errors.Is(err, ErrForeign) {
		t.Fatalf("registered: %v", err)
	}
}
