package xdp

import (
	"encoding/binary"
	"testing"
)

// An arrival belongs to the packet that the program wrote it in front of: it is read once, and a later packet in the same frame, that the
// program could not note, has none.
func TestArrivals(t *testing.T) {
	_, r, k := fake(t, 0, 4, 4, 4)
	r.stamped = true
	s := &Socket{recv: r}
	note := func(i int, magic uint64, at int64) {
		addr := k.buffers[i] + receiveHeadroom
		binary.NativeEndian.PutUint64(k.mem[addr-arrivalBytes:], magic)
		binary.NativeEndian.PutUint64(k.mem[addr-arrivalBytes+8:], uint64(at))
	}
	k.accept(4)
	note(0, arrivalMagic, 1234)
	k.deliver(0, 1)
	note(0, arrivalMagic+1, 99) // what stands there is no note
	k.deliver(0, 2)
	if got := s.Receive(4); len(got) != 2 || s.Arrival(0) != 1234 || s.Arrival(1) != 0 {
		t.Fatalf("%d packets, arrivals %d and %d: want 2, 1234 and none", len(got), s.Arrival(0), s.Arrival(1))
	}
	s.Recycle()
	k.accept(4)
	for range 4 {
		k.deliver(0, 3)
	}
	if got := s.Receive(4); len(got) != 4 {
		t.Fatalf("%d packets: want 4", len(got))
	}
	for i := range 4 {
		if s.Arrival(i) != 0 {
			t.Errorf("packet %d has the arrival %d of an earlier one", i, s.Arrival(i))
		}
	}
	r.stamped = false
	if s.Arrival(0) != 0 {
		t.Error("an arrival without a program that notes any")
	}
}
