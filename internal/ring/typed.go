package ring

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"unsafe"
)

// layout returns the size and alignment of T in bytes and refuses types that may not live in mapped memory.
func layout[T any]() (size, align int, err error) {
	t := reflect.TypeFor[T]()
	if t.Size() == 0 {
		return 0, 0, fmt.Errorf("ring: type %s has no size", t)
	}
	if hasPointers(t) {
		return 0, 0, fmt.Errorf("ring: type %s holds Go pointers, which the collector would not see in mapped memory", t)
	}
	return int(t.Size()), t.Align(), nil
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return true
	}
}

// Slice views the first n values of type T in mem without copying. It refuses memory that is too short or misaligned, and
// types with Go pointers. The view lives as long as mem does.
func Slice[T any](mem []byte, n int) ([]T, error) {
	size, align, err := layout[T]()
	if err != nil {
		return nil, err
	}
	if n <= 0 || n > len(mem)/size {
		return nil, fmt.Errorf("ring: %d values of %d bytes in %d bytes", n, size, len(mem))
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%uintptr(align) != 0 {
		return nil, fmt.Errorf("ring: memory at %p is not aligned to %d", p, align)
	}
	return unsafe.Slice((*T)(p), n), nil
}

// SliceAt is Slice of the memory from byte offset off on.
func SliceAt[T any](mem []byte, off uint64, n int) ([]T, error) {
	if off > uint64(len(mem)) {
		return nil, fmt.Errorf("ring: offset %d in %d bytes", off, len(mem))
	}
	return Slice[T](mem[off:], n)
}

// Word views the 32-bit word at byte offset off as an atomic: an index or flag word that the kernel shares.
func Word(mem []byte, off uint64) (*atomic.Uint32, error) {
	words, err := SliceAt[uint32](mem, off, 1)
	if err != nil {
		return nil, err
	}
	// atomic.Uint32 is one uint32 and a zero-sized no-copy mark; the test pins its size.
	return (*atomic.Uint32)(unsafe.Pointer(&words[0])), nil
}

// Addr is the address of mem as kernel structs hold it, 0 for an empty slice. mem must be mapped memory: the address of a
// Go object may change, and does not keep it alive.
func Addr(mem []byte) uint64 {
	if len(mem) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// AddrOf is Addr for a value carved from an arena.
func AddrOf[T any](v *T) uint64 { return uint64(uintptr(unsafe.Pointer(v))) }

// Contains tells whether piece lies wholly inside mem: the check that an address given to the kernel is one that stays.
func Contains(mem, piece []byte) bool {
	if len(piece) == 0 || len(mem) == 0 {
		return false
	}
	start, at := Addr(mem), Addr(piece)
	return at >= start && at-start <= uint64(len(mem)) && uint64(len(piece)) <= uint64(len(mem))-(at-start)
}
