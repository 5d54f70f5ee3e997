package ring

import (
	"errors"
	"fmt"
)

// ErrNoSpace is wrapped by the carving functions when an arena has too little left.
var ErrNoSpace = errors.New("arena full")

// Arena carves one Region into pieces that are never given back: it is laid out once, before the hot path starts. It does
// not own the Region.
type Arena struct {
	mem  []byte
	used int
}

// NewArena carves from the start of the region.
func NewArena(r *Region) *Arena { return &Arena{mem: r.Bytes()} }

// Alloc returns the next n bytes at a multiple of align bytes (a power of two, relative to the region's start, which is page
// aligned). The capacity ends with the piece, so an append can never run into the next one. The memory is zero as long
// as nobody wrote to the region by other ways.
func (a *Arena) Alloc(n, align int) ([]byte, error) {
	if n <= 0 || align <= 0 || align&(align-1) != 0 {
		return nil, fmt.Errorf("ring: piece of %d bytes aligned to %d", n, align)
	}
	start := roundUp(a.used, align)
	if start > len(a.mem) || n > len(a.mem)-start {
		return nil, fmt.Errorf("ring: piece of %d bytes, %d of %d left: %w", n, a.Left(), len(a.mem), ErrNoSpace)
	}
	a.used = start + n
	return a.mem[start:a.used:a.used], nil
}

// Left is the number of bytes not carved yet, alignment aside.
func (a *Arena) Left() int { return len(a.mem) - a.used }

// Carve returns the next n values of type T, zeroed and aligned for T. T must not contain Go pointers: the collector does
// not look into an arena.
func Carve[T any](a *Arena, n int) ([]T, error) {
	size, align, err := layout[T]()
	if err != nil {
		return nil, err
	}
	if n <= 0 || n > len(a.mem)/size {
		return nil, fmt.Errorf("ring: %d values of %d bytes, %d bytes left: %w", n, size, a.Left(), ErrNoSpace)
	}
	mem, err := a.Alloc(n*size, align)
	if err != nil {
		return nil, err
	}
	return Slice[T](mem, n)
}
