package sys

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes and offsets from include/uapi/linux/if_xdp.h.
func TestXDPLayout(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"struct xdp_umem_reg", unsafe.Sizeof(unix.XDPUmemReg{}), 32},
		{"struct xdp_mmap_offsets", unsafe.Sizeof(unix.XDPMmapOffsets{}), 128},
		{"struct xdp_statistics", unsafe.Sizeof(unix.XDPStatistics{}), 48},
		{"struct xdp_desc", unsafe.Sizeof(unix.XDPDesc{}), 16},
		{"struct sockaddr_xdp", unsafe.Sizeof(unix.RawSockaddrXDP{}), 16},
		{"xdp_desc.options", unsafe.Offsetof(unix.XDPDesc{}.Options), 12},
		{"xdp_umem_reg.tx_metadata_len", unsafe.Offsetof(unix.XDPUmemReg{}.Tx_metadata_len), 28},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}

// A node that exists everywhere is accepted, and impossible ones are refused.
func TestPreferNode(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := PreferNode(mem, 0); err != nil && os.Getenv("BLAST_MUST_RUN") != "" {
		t.Errorf("node 0: %v", err)
	}
	mem[0] = 1
	for _, node := range []int{-1, 1 << 20} {
		if err := PreferNode(mem, node); err == nil {
			t.Errorf("node %d was accepted", node)
		}
	}
}
