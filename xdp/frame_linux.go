package xdp

import (
	"encoding/binary"
	"fmt"
	"time"

	"blast/internal/ring"
	"blast/internal/sys"
	"golang.org/x/sys/unix"
)

// The registered memory, cut into frames of one size:
//
//	+---------+---------+-----+---------+---------+---------+-----+---------+
//	|  tx 0   |  tx 1   | ... | tx T-1  |  rx 0   |  rx 1   | ... | rx R-1  |
//	+---------+---------+-----+---------+---------+---------+-----+---------+
//	     |                                   |
//	     metadata (64 bytes, if asked for)   256 bytes of kernel headroom
//	     packet from Ethernet on             packet from Ethernet on

// owner is who may touch a frame.
type owner uint8

const (
	ownFree   owner = iota // on the free stack
	ownUser                // handed out by Reserve or Receive
	ownKernel              // in a ring, a driver or a socket buffer
)

// metadataRoom is what the metadata area takes in front of a frame: one cache line, so that the packet starts on one.
const metadataRoom = ring.CacheLine

// Frame is one place for a packet to send, owned by its Socket. Between Reserve and Commit it is the caller's to write.
type Frame struct {
	// Data is the memory for the packet from its Ethernet header on. Its capacity ends with the frame.
	Data []byte
	// Len is the length of the packet in Data in bytes; it must be set before Commit.
	Len int
	// Index numbers the frames of a Socket from zero. What a frame held stays in it, so a caller may keep prepared headers per Index.
	Index int

	meta    []byte
	address uint64
	options uint32
	owner   owner
}

// OffloadSum asks for the checksum of this packet to be finished on its way: from byte start on, to be stored at start+offset, which
// holds the pseudo-header's sum. It needs Granted.Metadata, and holds for one Commit.
func (f *Frame) OffloadSum(start, offset int) {
	f.request(unix.XDP_TXMD_FLAGS_CHECKSUM)
	binary.NativeEndian.PutUint16(f.meta[sys.XDPTxCsumStart:], uint16(start))
	binary.NativeEndian.PutUint16(f.meta[sys.XDPTxCsumOffset:], uint16(offset))
}

// AskTime asks for the time at which this packet leaves; [Frame.Time] has it once [Socket.ReapFrames] shows the frame. It
// needs Granted.Metadata, and holds for one Commit.
func (f *Frame) AskTime() { f.request(unix.XDP_TXMD_FLAGS_TIMESTAMP) }

func (f *Frame) request(flag uint64) {
	if f.options == 0 {
		clear(f.meta)
		f.options = unix.XDP_TX_METADATA
	}
	flags := binary.NativeEndian.Uint64(f.meta[sys.XDPTxFlags:])
	binary.NativeEndian.PutUint64(f.meta[sys.XDPTxFlags:], flags|flag)
}

// Time is the transmit time that AskTime asked for, valid inside the call of ReapFrames, zero when none came. Copy mode gives
// CLOCK_TAI of the moment when the kernel freed the packet; a network card gives its own clock.
func (f *Frame) Time() time.Duration {
	if f.options == 0 {
		return 0
	}
	return time.Duration(binary.NativeEndian.Uint64(f.meta[sys.XDPTxTimestamp:]))
}

// tagged says whether the packet has an 802.1Q tag, which does not count towards the MTU.
func (f *Frame) tagged() bool { return binary.BigEndian.Uint16(f.Data[12:]) == unix.ETH_P_8021Q }

// umem is the registered memory and its frames for sending.
type umem struct {
	region     *ring.Region
	mem        []byte
	frameBytes int
	tx         []Frame
	rxFirst    uint64 // address of the first frame for receiving
	rxFrames   int
	node       int
}

// newUMEM maps the memory, on the given NUMA node when it is not negative, touches every page and cuts it.
func newUMEM(cfg *SocketConfig, node int) (*umem, error) {
	bytes := (cfg.TxFrames + cfg.RxFrames) * cfg.FrameBytes
	raiseMemlock(bytes)
	region, err := ring.Map(ring.MapConfig{Bytes: bytes, Huge: !cfg.NoHugePages})
	if err != nil {
		return nil, fmt.Errorf("frame memory: %w", err)
	}
	u := &umem{region: region, mem: region.Bytes()[:bytes], frameBytes: cfg.FrameBytes, rxFrames: cfg.RxFrames, node: -1,
		rxFirst: uint64(cfg.TxFrames * cfg.FrameBytes)}
	// The policy must be there before the first touch. A machine with one node may have no mbind at all.
	if node >= 0 && sys.PreferNode(region.Bytes(), node) == nil {
		u.node = node
	}
	for i := 0; i < len(u.mem); i += 4096 {
		u.mem[i] = 0
	}
	u.cut(cfg.TxFrames, cfg.Metadata)
	return u, nil
}

// cut makes the frames for sending.
func (u *umem) cut(frames int, metadata bool) {
	u.tx = make([]Frame, frames)
	for i := range u.tx {
		start, end := i*u.frameBytes, (i+1)*u.frameBytes
		f := &u.tx[i]
		f.Index = i
		if metadata {
			// The kernel finds the metadata at a fixed distance in front of the packet (xsk_buff_get_metadata).
			start += metadataRoom
			f.meta = u.mem[start-sys.XDPTxMetadataBytes : start : start]
		}
		f.address = uint64(start)
		f.Data = u.mem[start:end:end]
	}
}

func (u *umem) close() error { return u.region.Close() }
