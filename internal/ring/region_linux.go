package ring

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// HugePageBytes is the size of the huge pages Map asks for: 2 MiB, the size every 64-bit platform with 4 KiB pages has.
const HugePageBytes = 2 << 20

// CacheLine is the alignment that keeps two owners' data out of each other's cache line, in bytes.
const CacheLine = 64

// MapConfig says which private memory Map makes.
type MapConfig struct {
	// Bytes is the size; it is rounded up to whole pages. Zero is an error.
	Bytes int
	// Huge asks for 2 MiB pages and takes normal pages when there are none (vm.nr_hugepages). Region.Huge tells which came.
	Huge bool
	// Populate touches every page now (MAP_POPULATE), so that no page fault happens later. Leave it false when a NUMA
	// policy must be set before the first touch.
	Populate bool
}

// Region is one mapping. It is owned by whoever made it, and Close ends it.
type Region struct {
	mem  []byte
	huge bool
}

// Map makes a private anonymous mapping, zeroed, page aligned, and kept out of forked children (MADV_DONTFORK: a fork
// would make pages that the kernel has pinned copy-on-write, and the parent would then write to a copy the kernel does not see).
func Map(cfg MapConfig) (*Region, error) {
	if cfg.Bytes <= 0 {
		return nil, fmt.Errorf("ring: map of %d bytes", cfg.Bytes)
	}
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if cfg.Populate {
		flags |= unix.MAP_POPULATE
	}
	r := &Region{}
	if cfg.Huge {
		// Without enough reserved pages this fails at once with ENOMEM; it never turns into a SIGBUS later.
		n := roundUp(cfg.Bytes, HugePageBytes)
		if mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB); err == nil {
			r.mem, r.huge = mem, true
		}
	}
	if r.mem == nil {
		n := roundUp(cfg.Bytes, os.Getpagesize())
		mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags)
		if err != nil {
			return nil, fmt.Errorf("ring: map %d bytes: %w", n, os.NewSyscallError("mmap", err))
		}
		r.mem = mem
	}
	if err := unix.Madvise(r.mem, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("ring: keep %d bytes out of forks: %w", len(r.mem), os.NewSyscallError("madvise", err)), r.Close())
	}
	return r, nil
}

// MapFD maps bytes of a kernel object (an io_uring or AF_XDP descriptor) at the given offset, shared and populated. The
// mapping outlives the descriptor.
func MapFD(fd int, offset int64, bytes int) (*Region, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("ring: map of %d bytes", bytes)
	}
	mem, err := unix.Mmap(fd, offset, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("ring: map %d bytes at offset %#x: %w", bytes, offset, os.NewSyscallError("mmap", err))
	}
	return &Region{mem: mem}, nil
}

// Bytes is the whole mapping. It must not be used after Close.
func (r *Region) Bytes() []byte { return r.mem }

// Huge tells whether the mapping consists of 2 MiB pages.
func (r *Region) Huge() bool { return r.huge }

// Close unmaps the memory. It may be called again, and on a nil Region; then it does nothing.
func (r *Region) Close() error {
	if r == nil || r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	if err := unix.Munmap(mem); err != nil {
		return fmt.Errorf("ring: unmap: %w", os.NewSyscallError("munmap", err))
	}
	return nil
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit int) int { return (n + unit - 1) &^ (unit - 1) }
