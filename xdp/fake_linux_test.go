package xdp

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// fakeKernel holds the other ends of the four rings, in ordinary memory so that the race detector sees every access.
type fakeKernel struct {
	mem []byte

	tx     ring.Consumer
	txDesc []unix.XDPDesc
	cq     ring.Producer
	cqAddr []uint64
	fq     ring.Consumer
	fqAddr []uint64
	rx     ring.Producer
	rxDesc []unix.XDPDesc

	inFlight []flying
	buffers  []uint64 // taken from the fill ring
	sent     []uint64 // numbers of the packets that left, in order

	// What the next kick does: send up to budget frames, drop every frame (EBUSY), or answer refuse.
	budget   int
	dropping bool
	refuse   syscall.Errno
	// keep leaves frames in flight instead of completing them at once.
	keep  bool
	kicks int
}

// flying is a frame in a driver.
type flying struct {
	desc   unix.XDPDesc
	number uint64
}

// plainRing makes a ring in ordinary memory with both indices at start.
func plainRing(start uint32, entries, entryBytes int) *mapping {
	m := &mapping{producer: new(atomic.Uint32), consumer: new(atomic.Uint32), flags: new(atomic.Uint32), mem: make([]byte, entries*entryBytes)}
	m.producer.Store(start)
	m.consumer.Store(start)
	return m
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const fakeFrame = 2048

// fake makes both halves of a socket over rings that start at index start, with a fake kernel behind them.
func fake(t testing.TB, start uint32, txFrames, rxFrames, batch int) (*sender, *receiver, *fakeKernel) {
	t.Helper()
	u := &umem{mem: make([]byte, (txFrames+rxFrames)*fakeFrame), frameBytes: fakeFrame, rxFirst: uint64(txFrames * fakeFrame), rxFrames: rxFrames}
	u.cut(txFrames, false)
	k := &fakeKernel{mem: u.mem, budget: 32}
	tx, cq := plainRing(start, txFrames, descBytes), plainRing(start, txFrames, addressBytes)
	s := newSender(u.tx, fakeFrame, batch, 1500)
	if err := s.attachTransmit(tx, cq, txFrames); err != nil {
		t.Fatal(err)
	}
	k.tx = must[ring.Consumer](t)(ring.NewConsumer(tx.producer, tx.consumer, uint32(txFrames)))
	k.txDesc = must[[]unix.XDPDesc](t)(ring.Slice[unix.XDPDesc](tx.mem, txFrames))
	k.cq = must[ring.Producer](t)(ring.NewProducer(cq.producer, cq.consumer, uint32(txFrames)))
	k.cqAddr = must[[]uint64](t)(ring.Slice[uint64](cq.mem, txFrames))
	s.kick, s.stall = k.kick, time.Second
	s.explain = func(cause error) error { return fmt.Errorf("explained: %w", cause) }
	s.now = func() time.Duration { return time.Second }
	if rxFrames == 0 {
		return s, nil, k
	}
	rx, fq := plainRing(start, rxFrames, descBytes), plainRing(start, rxFrames, addressBytes)
	r := newReceiver(u, batch)
	if err := r.attachReceive(rx, fq, rxFrames); err != nil {
		t.Fatal(err)
	}
	r.wake = func() syscall.Errno { return 0 }
	k.fq = must[ring.Consumer](t)(ring.NewConsumer(fq.producer, fq.consumer, uint32(rxFrames)))
	k.fqAddr = must[[]uint64](t)(ring.Slice[uint64](fq.mem, rxFrames))
	k.rx = must[ring.Producer](t)(ring.NewProducer(rx.producer, rx.consumer, uint32(rxFrames)))
	k.rxDesc = must[[]unix.XDPDesc](t)(ring.Slice[unix.XDPDesc](rx.mem, rxFrames))
	r.fill()
	return s, r, k
}

// number reads the number that a test wrote into a packet.
func number(b []byte) uint64 { return binary.BigEndian.Uint64(b[14:]) }

// put writes a numbered packet into a frame.
func put(f *Frame, n uint64) {
	binary.BigEndian.PutUint64(f.Data[14:], n)
	f.Len = 60
}

// take moves up to n descriptors from the transmit ring into flight.
func (k *fakeKernel) take(n int) int {
	got := k.tx.Peek(uint32(n))
	at, mask := k.tx.Index(), k.tx.Mask()
	for i := range got {
		d := k.txDesc[(at+i)&mask]
		k.inFlight = append(k.inFlight, flying{d, number(k.mem[d.Addr:])})
	}
	k.tx.Release(got)
	return int(got)
}

// complete finishes frame i in flight and says whether its packet was left alone meanwhile.
func (k *fakeKernel) complete(i int) bool {
	f := k.inFlight[i]
	k.inFlight = append(k.inFlight[:i], k.inFlight[i+1:]...)
	k.sent = append(k.sent, f.number)
	same := number(k.mem[f.desc.Addr:]) == f.number
	k.post(f.desc.Addr) // from here on the frame is not ours
	return same
}

// post puts an address into the completion ring.
func (k *fakeKernel) post(addr uint64) {
	if k.cq.Room(1) == 0 {
		panic("completion ring full: more completions than frames")
	}
	k.cqAddr[k.cq.Index()&k.cq.Mask()] = addr
	k.cq.Publish(1)
}

// kick is what sendto does in copy mode: net/xdp/xsk.c, __xsk_generic_xmit.
func (k *fakeKernel) kick() syscall.Errno {
	k.kicks++
	if k.refuse != 0 {
		return k.refuse
	}
	for range k.budget {
		if k.take(1) == 0 {
			return 0
		}
		if k.dropping {
			last := len(k.inFlight) - 1
			k.post(k.inFlight[last].desc.Addr)
			k.inFlight = k.inFlight[:last]
			return unix.EBUSY
		}
		if !k.keep {
			k.complete(len(k.inFlight) - 1)
		}
	}
	if k.tx.Ready() > 0 {
		return unix.EAGAIN
	}
	return 0
}

// accept takes up to n buffers from the fill ring.
func (k *fakeKernel) accept(n int) {
	got := k.fq.Peek(uint32(n))
	at, mask := k.fq.Index(), k.fq.Mask()
	for i := range got {
		k.buffers = append(k.buffers, k.fqAddr[(at+i)&mask])
	}
	k.fq.Release(got)
}

// deliver puts a numbered packet into buffer i and the receive ring.
func (k *fakeKernel) deliver(i int, n uint64) {
	addr := k.buffers[i] + receiveHeadroom
	k.buffers = append(k.buffers[:i], k.buffers[i+1:]...)
	binary.BigEndian.PutUint64(k.mem[addr+14:], n)
	if k.rx.Room(1) == 0 {
		panic("receive ring full: more packets than frames")
	}
	k.rxDesc[k.rx.Index()&k.rx.Mask()] = unix.XDPDesc{Addr: addr, Len: 60}
	k.rx.Publish(1)
}
