package sys

import (
	"encoding/binary"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Receive-side scaling by ethtool ioctls, after include/uapi/linux/ethtool.h and net/ethtool/ioctl.c: the parts that no library offers.
// They belong to the network namespace of the calling thread.

// Hash functions of RSS (ETH_RSS_HASH_*).
const (
	RSSToeplitz = 1 << 0
	RSSXor      = 1 << 1
	RSSCRC32    = 1 << 2
)

// Flow types of ETHTOOL_GRXFH (uapi: UDP_V4_FLOW, UDP_V6_FLOW).
const (
	FlowUDP4 = 0x02
	FlowUDP6 = 0x06
)

// RXFH is struct ethtool_rxfh with what follows it.
type RXFH struct {
	// Function is a bit of ETH_RSS_HASH_*, 0 when the driver does not tell; Transform the RXH_XFRM_* bits (kernel 6.8), 0 = none.
	Function, Transform uint8
	Table               []uint32
	Key                 []byte
}

// Offsets in struct ethtool_rxfh; the table (32 bits an entry, host order) and the key follow it.
const (
	rxfhContext   = 4
	rxfhIndirSize = 8
	rxfhKeySize   = 12
	rxfhFunction  = 16
	rxfhTransform = 17
	rxfhBytes     = 24

	rxfhKeepTable = 0xffffffff // ETH_RXFH_INDIR_NO_CHANGE
)

// RSS reads the hash function, key and indirection table of an interface (ETHTOOL_GRSSH). No privilege. EOPNOTSUPP: it has none.
func RSS(iface string) (RXFH, error) {
	head := make([]byte, rxfhBytes)
	binary.NativeEndian.PutUint32(head, unix.ETHTOOL_GRSSH)
	if err := ethtoolIoctl("ETHTOOL_GRSSH", iface, head); err != nil {
		return RXFH{}, err
	}
	entries, keyBytes := binary.NativeEndian.Uint32(head[rxfhIndirSize:]), binary.NativeEndian.Uint32(head[rxfhKeySize:])
	const most = 1 << 20 // above every device; what a broken driver could make us allocate
	if entries > most || keyBytes > most {
		return RXFH{}, os.NewSyscallError("ioctl ETHTOOL_GRSSH", unix.EOVERFLOW)
	}
	buf := make([]byte, rxfhBytes+4*int(entries)+int(keyBytes))
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRSSH)
	copy(buf[rxfhIndirSize:], head[rxfhIndirSize:rxfhFunction])
	if err := ethtoolIoctl("ETHTOOL_GRSSH", iface, buf); err != nil {
		return RXFH{}, err
	}
	r := RXFH{Function: buf[rxfhFunction], Transform: buf[rxfhTransform], Table: make([]uint32, entries), Key: buf[rxfhBytes+4*int(entries):]}
	for i := range r.Table {
		r.Table[i] = binary.NativeEndian.Uint32(buf[rxfhBytes+4*i:])
	}
	return r, nil
}

// SetRSS writes function, key and table (ETHTOOL_SRSSH, needs CAP_NET_ADMIN). A nil Key or zero Function is left as it is. A nil
// Table is left as it is too; an empty one that is not nil goes back to the driver's default.
func SetRSS(iface string, r RXFH) error {
	buf := make([]byte, rxfhBytes+4*len(r.Table)+len(r.Key))
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_SRSSH)
	size := uint32(len(r.Table))
	if r.Table == nil {
		size = rxfhKeepTable
	}
	binary.NativeEndian.PutUint32(buf[rxfhIndirSize:], size)
	binary.NativeEndian.PutUint32(buf[rxfhKeySize:], uint32(len(r.Key)))
	buf[rxfhFunction], buf[rxfhTransform] = r.Function, r.Transform
	for i, q := range r.Table {
		binary.NativeEndian.PutUint32(buf[rxfhBytes+4*i:], q)
	}
	copy(buf[rxfhBytes+4*len(r.Table):], r.Key)
	return ethtoolIoctl("ETHTOOL_SRSSH", iface, buf)
}

// struct ethtool_rxnfc: command, flow type, 64 bits of data, and a flow specification that these commands do not use.
const rxnfcBytes = 192

// HashFields reads which fields of a flow type go into the hash, as RXH_* bits (ETHTOOL_GRXFH).
func HashFields(iface string, flow uint32) (uint64, error) {
	buf := make([]byte, rxnfcBytes)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRXFH)
	binary.NativeEndian.PutUint32(buf[4:], flow)
	err := ethtoolIoctl("ETHTOOL_GRXFH", iface, buf)
	return binary.NativeEndian.Uint64(buf[8:]), err
}

// SetHashFields chooses them (ETHTOOL_SRXFH, needs CAP_NET_ADMIN).
func SetHashFields(iface string, flow uint32, fields uint64) error {
	buf := make([]byte, rxnfcBytes)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_SRXFH)
	binary.NativeEndian.PutUint32(buf[4:], flow)
	binary.NativeEndian.PutUint64(buf[8:], fields)
	return ethtoolIoctl("ETHTOOL_SRXFH", iface, buf)
}

// ethtoolIoctl hands a command buffer to the driver of an interface (SIOCETHTOOL); the answer is in the buffer.
func ethtoolIoctl(name, iface string, data []byte) error {
	if len(iface) == 0 || len(iface) >= unix.IFNAMSIZ {
		return os.NewSyscallError("ioctl "+name, unix.ENODEV)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// struct ifreq: a name and a union of 24 bytes, here a pointer (netdevice(7)).
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}
	copy(req.name[:], iface)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(data))
	req.data = unsafe.Pointer(unsafe.SliceData(data))
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
		return os.NewSyscallError("ioctl "+name, e)
	}
	return nil
}
