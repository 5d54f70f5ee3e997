package ring

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// pair is a ring in ordinary memory with both ends held by the test, started at any index.
func pair(t testing.TB, start, size uint32) (p Producer, c Consumer, entries []uint32) {
	t.Helper()
	// Allocated apart so that the race detector sees two heap words.
	prod, cons := new(atomic.Uint32), new(atomic.Uint32)
	prod.Store(start)
	cons.Store(start)
	p, err := NewProducer(prod, cons, size)
	if err != nil {
		t.Fatal(err)
	}
	c, err = NewConsumer(prod, cons, size)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, make([]uint32, size)
}

func TestSizeMustBePowerOfTwo(t *testing.T) {
	var a, b atomic.Uint32
	for _, tc := range []struct {
		size uint32
		ok   bool
	}{{0, false}, {1, true}, {2, true}, {3, false}, {4096, true}, {1 << 31, true}, {1<<31 + 1, false}} {
		if _, err := NewProducer(&a, &b, tc.size); (err == nil) != tc.ok {
			t.Errorf("producer of size %d: %v", tc.size, err)
		}
		if _, err := NewConsumer(&a, &b, tc.size); (err == nil) != tc.ok {
			t.Errorf("consumer of size %d: %v", tc.size, err)
		}
	}
	if _, err := NewProducer(nil, &b, 4); err == nil {
		t.Error("a missing index word was accepted")
	}
}

// The model is a plain queue: whatever is reserved, published short, peeked and released in any order, entries come out
// once each and in order, also while both indices pass 2^32.
func TestCursorsAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := uint32(1) << rapid.IntRange(0, 6).Draw(rt, "log2")
		start := rapid.SampledFrom([]uint32{0, 1, math.MaxInt32, math.MaxUint32, math.MaxUint32 - 2, math.MaxUint32 - size}).Draw(rt, "start")
		p, c, entries := pair(t, start, size)
		var wrote, read uint32
		rt.Repeat(map[string]func(*rapid.T){
			"produce": func(rt *rapid.T) {
				want := rapid.Uint32Range(0, 2*size).Draw(rt, "want")
				got := p.Room(want)
				if truth := size - (wrote - read); got != min(want, truth) && got > truth {
					rt.Fatalf("room %d of %d, truth %d", got, want, truth)
				} else if got < want && got != truth {
					rt.Fatalf("short room %d of %d is stale, truth %d", got, want, truth)
				}
				n := rapid.Uint32Range(0, got).Draw(rt, "n")
				for k := range n {
					entries[(p.Index()+k)&p.Mask()] = wrote + k
				}
				p.Publish(n)
				wrote += n
			},
			"consume": func(rt *rapid.T) {
				want := rapid.Uint32Range(0, 2*size).Draw(rt, "want")
				got := c.Peek(want)
				if truth := wrote - read; got > truth || got < want && got != truth {
					rt.Fatalf("peek %d of %d, truth %d", got, want, truth)
				}
				n := rapid.Uint32Range(0, got).Draw(rt, "n")
				for k := range n {
					if v := entries[(c.Index()+k)&c.Mask()]; v != read+k {
						rt.Fatalf("entry %d, want %d", v, read+k)
					}
				}
				c.Release(n)
				read += n
			},
			"": func(rt *rapid.T) {
				if p.Free() != size-(wrote-read) || p.Used() != wrote-read || c.Ready() != wrote-read {
					rt.Fatalf("free %d used %d ready %d with %d inside", p.Free(), p.Used(), c.Ready(), wrote-read)
				}
				if err := errors.Join(p.Check(), c.Check()); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

// Two goroutines, as user space and the kernel would: with -race this shows that entries are ordered by the indices.
func TestTwoSides(t *testing.T) {
	const total = 100_000
	p, c, entries := pair(t, math.MaxUint32-1000, 64)
	done := make(chan uint32)
	go func() {
		var next, bad uint32
		for next < total {
			n := c.Peek(7)
			for k := range n {
				if entries[(c.Index()+k)&c.Mask()] != next+k {
					bad++
				}
			}
			c.Release(n)
			next += n
		}
		done <- bad
	}()
	for next := uint32(0); next < total; {
		n := p.Room(min(5, total-next))
		for k := range n {
			entries[(p.Index()+k)&p.Mask()] = next + k
		}
		p.Publish(n)
		next += n
	}
	if bad := <-done; bad != 0 {
		t.Fatalf("%d entries out of order", bad)
	}
}

func TestMisuseAndCorruption(t *testing.T) {
	p, c, _ := pair(t, math.MaxUint32, 4)
	mustPanic(t, "publishing beyond the room", func() { p.Publish(5) })
	mustPanic(t, "releasing what is not ready", func() { c.Release(1) })
	p.Publish(4)
	if p.Room(1) != 0 || c.Peek(9) != 4 {
		t.Fatal("a full ring has no room and four entries")
	}
	c.peer.Store(c.next + 5) // more entries than the ring has
	if c.Ready() != 0 || !errors.Is(c.Check(), ErrCorrupt) || !errors.Is(p.Check(), ErrCorrupt) {
		t.Fatal("a corrupt index was believed")
	}
}

func mustPanic(t *testing.T, what string, fn func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	fn()
}

func TestRegionAndArena(t *testing.T) {
	r, err := Map(MapConfig{Bytes: 10_000, Populate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a := NewArena(r)
	first, err := a.Alloc(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if cap(first) != 3 {
		t.Fatalf("capacity %d lets an append run into the next piece", cap(first))
	}
	second, err := a.Alloc(64, CacheLine)
	if err != nil {
		t.Fatal(err)
	}
	if Addr(second)%CacheLine != 0 || Addr(second) <= Addr(first) {
		t.Fatalf("second piece at %#x after %#x", Addr(second), Addr(first))
	}
	type pairType struct {
		A uint64
		B uint16
	}
	vals, err := Carve[pairType](a, 4)
	if err != nil {
		t.Fatal(err)
	}
	vals[3].B = 7
	if !Contains(r.Bytes(), second) || Contains(second, r.Bytes()) || Contains(r.Bytes(), make([]byte, 4)) || Contains(r.Bytes(), nil) {
		t.Fatal("containment is wrong")
	}
	if AddrOf(&vals[1])-AddrOf(&vals[0]) != uint64(unsafe.Sizeof(pairType{})) {
		t.Fatal("values are not laid out as an array")
	}
	if _, err := a.Alloc(1<<30, 1); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("oversized piece: %v", err)
	}
	if _, err := Carve[uint64](a, math.MaxInt); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("a count whose size overflows: %v", err)
	}
	if _, err := a.Alloc(8, 3); err == nil {
		t.Fatal("an alignment of 3 was accepted")
	}
	if err := errors.Join(r.Close(), r.Close(), (*Region)(nil).Close()); err != nil {
		t.Fatalf("close is not idempotent: %v", err)
	}
}

// Without reserved huge pages the fallback must be taken and told; with them the mapping must be aligned.
func TestHugeOrFallback(t *testing.T) {
	r, err := Map(MapConfig{Bytes: 1, Huge: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Huge() != (len(r.Bytes()) == HugePageBytes) {
		t.Fatalf("huge %v with %d bytes", r.Huge(), len(r.Bytes()))
	}
	r.Bytes()[0] = 1
}

func TestMapRefuses(t *testing.T) {
	if _, err := Map(MapConfig{}); err == nil {
		t.Error("an empty mapping was made")
	}
	if _, err := MapFD(-1, 0, 4096); err == nil {
		t.Error("a bad descriptor was mapped")
	}
}

func TestTypedViews(t *testing.T) {
	mem := make([]uint64, 4)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 32)
	w, err := Word(b, 4)
	if err != nil {
		t.Fatal(err)
	}
	if unsafe.Sizeof(*w) != 4 {
		t.Fatal("atomic.Uint32 is no longer one word")
	}
	w.Store(0xdeadbeef)
	if s, err := SliceAt[uint32](b, 4, 7); err != nil || s[0] != 0xdeadbeef {
		t.Fatalf("view %v, %v", s, err)
	}
	for name, fn := range map[string]func() error{
		"misaligned word":       func() error { _, err := Word(b, 2); return err },
		"word beyond the end":   func() error { _, err := Word(b, 32); return err },
		"offset beyond the end": func() error { _, err := SliceAt[byte](b, 33, 1); return err },
		"too many values":       func() error { _, err := Slice[uint64](b, 5); return err },
		"no values":             func() error { _, err := Slice[uint64](b, 0); return err },
		"Go pointers":           func() error { _, err := Slice[*int](b, 1); return err },
		"hidden Go pointers":    func() error { _, err := Slice[struct{ A [1]struct{ S string } }](b, 1); return err },
		"no size":               func() error { _, err := Slice[struct{}](b, 1); return err },
	} {
		if fn() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if Addr(nil) != 0 {
		t.Error("an empty slice has an address")
	}
}

func TestCursorAllocs(t *testing.T) {
	p, c, _ := pair(t, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		p.Publish(p.Room(8))
		c.Release(c.Peek(8))
	}); n != 0 {
		t.Fatalf("%v allocations per batch", n)
	}
}

func FuzzCursorWrap(f *testing.F) {
	f.Add(uint32(math.MaxUint32), uint32(3), uint32(2))
	f.Fuzz(func(t *testing.T, start, a, b uint32) {
		p, c, _ := pair(t, start, 8)
		n := p.Room(a)
		p.Publish(n)
		m := c.Peek(b)
		c.Release(m)
		if p.Used() != n-m || c.Ready() != n-m || m > n || n > 8 {
			t.Fatalf("start %d: wrote %d, read %d, used %d, ready %d", start, n, m, p.Used(), c.Ready())
		}
	})
}

func BenchmarkCursorBatch64(b *testing.B) {
	p, c, _ := pair(b, 0, 256)
	for b.Loop() {
		p.Publish(p.Room(64))
		c.Release(c.Peek(64))
	}
}
