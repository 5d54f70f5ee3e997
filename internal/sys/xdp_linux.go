package sys

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AF_XDP sockets, after include/uapi/linux/if_xdp.h and net/xdp/xsk.c. The structures and constants are in x/sys/unix; its
// socket option wrappers know integers only, so the calls with structures are here.

// XDPTxMetadataBytes is sizeof(struct xsk_tx_metadata) of kernel 6.15; 6.8 to 6.14 have 16 bytes and accept more.
//
//	 0  flags                      XDP_TXMD_FLAGS_*
//	 8  request: csum_start, csum_offset (16 bits each), 4 bytes of padding; completion: tx_timestamp (64 bits)
//	16  request: launch_time
const XDPTxMetadataBytes = 24

// Offsets in struct xsk_tx_metadata.
const (
	XDPTxFlags      = 0
	XDPTxCsumStart  = 8
	XDPTxCsumOffset = 10
	XDPTxTimestamp  = 8
)

// XDPRegister gives memory to a socket (setsockopt XDP_UMEM_REG). The memory must stay mapped until the socket is closed.
func XDPRegister(fd int, reg *unix.XDPUmemReg) error {
	return xdpSet(fd, unix.XDP_UMEM_REG, "setsockopt XDP_UMEM_REG", unsafe.Pointer(reg), unsafe.Sizeof(*reg))
}

// XDPOffsets returns where in their mappings the rings keep their words (getsockopt XDP_MMAP_OFFSETS). Kernels before 5.4,
// which answer with a shorter structure, get EINVAL.
func XDPOffsets(fd int) (unix.XDPMmapOffsets, error) {
	var v unix.XDPMmapOffsets
	err := xdpGet(fd, unix.XDP_MMAP_OFFSETS, "getsockopt XDP_MMAP_OFFSETS", unsafe.Pointer(&v), unsafe.Sizeof(v))
	return v, err
}

// XDPStatistics returns the kernel's counters of a socket (getsockopt XDP_STATISTICS, kernel 5.9 for all fields).
func XDPStatistics(fd int) (unix.XDPStatistics, error) {
	var v unix.XDPStatistics
	err := xdpGet(fd, unix.XDP_STATISTICS, "getsockopt XDP_STATISTICS", unsafe.Pointer(&v), unsafe.Sizeof(v))
	return v, err
}

// XDPOptions returns the XDP_OPTIONS_* bits that really hold for a bound socket (getsockopt XDP_OPTIONS, kernel 5.3).
func XDPOptions(fd int) (uint32, error) {
	var v uint32
	err := xdpGet(fd, unix.XDP_OPTIONS, "getsockopt XDP_OPTIONS", unsafe.Pointer(&v), unsafe.Sizeof(v))
	return v, err
}

// XDPKick makes the kernel look at the transmit ring: sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0). It never blocks and in
// copy mode sends at most a budget of frames, so the scheduler is not told (RawSyscall). Zero means no error.
func XDPKick(fd int) syscall.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// XDPWakeReceive makes the driver look at the fill ring: recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL). Unlike poll(2) it
// transmits nothing.
func XDPWakeReceive(fd int) syscall.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// PreferNode asks for pages of one NUMA node for mapped memory that was not touched yet (mbind(2) MPOL_PREFERRED).
func PreferNode(mem []byte, node int) error {
	const preferred, word = 1, 64
	var mask [16]uint64
	if node < 0 || node >= len(mask)*word || len(mem) == 0 {
		return os.NewSyscallError("mbind", syscall.EINVAL)
	}
	mask[node/word] = 1 << (node % word)
	// maxnode counts one more than the highest bit, by an old quirk of the kernel's get_nodes.
	_, _, e := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), preferred,
		uintptr(unsafe.Pointer(&mask)), uintptr(len(mask)*word+1), 0)
	if e != 0 {
		return os.NewSyscallError("mbind", e)
	}
	return nil
}

func xdpSet(fd, option int, name string, p unsafe.Pointer, size uintptr) error {
	if _, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(p), size, 0); e != 0 {
		return os.NewSyscallError(name, e)
	}
	return nil
}

func xdpGet(fd, option int, name string, p unsafe.Pointer, size uintptr) error {
	got := uint32(size)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(p), uintptr(unsafe.Pointer(&got)), 0)
	if e != 0 {
		return os.NewSyscallError(name, e)
	}
	if uintptr(got) != size {
		return os.NewSyscallError(name, syscall.EINVAL)
	}
	return nil
}
