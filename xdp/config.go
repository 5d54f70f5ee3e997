package xdp

import (
	"errors"
	"fmt"
	"time"
)

// Mode is how frames get between the rings and the wire.
type Mode uint8

// The modes, from the reader's choice to the slowest. Zero-copy is 7 to 8 times as fast as the other two, which differ only
// in where the XDP program runs: in the driver, or behind it on socket buffers.
const (
	// Auto takes the best that works: zero-copy, else native, else generic. [Granted] says which and why.
	Auto Mode = iota
	// ZeroCopy lets the driver work on the registered memory itself.
	ZeroCopy
	// Native runs the program in the driver and copies frames.
	Native
	// Generic runs the program behind the driver and copies frames. It works on every Ethernet interface.
	Generic
)

var modeNames = [...]string{"auto", "zero-copy", "native", "generic"}

// String is the mode's name in reports.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// DeviceConfig opens one interface.
type DeviceConfig struct {
	// Interface is its name in the namespace of the calling thread.
	Interface string
	// Mode is what to use; with anything but Auto, Open fails when it cannot be had. Zero means Auto.
	Mode Mode
	// Receive attaches the XDP program for receiving. Without it a program is attached only where zero-copy sending needs one.
	Receive bool
	// Ports are the UDP ports whose packets are taken from the kernel; more by [Device.AddPorts].
	Ports []uint16
	// Stamp makes the program note in front of each packet that it takes when it saw it, for [Socket.Arrival]. It needs Receive, and a driver
	// that keeps metadata (generic mode does).
	Stamp bool
	// Settle is how long the carrier must be steady after set-up; zero means 1 s for hardware and nothing for virtual interfaces.
	Settle time.Duration
	// CarrierWait bounds that wait; zero means 20 s.
	CarrierWait time.Duration
}

// SocketConfig opens one queue of a Device.
type SocketConfig struct {
	// Queue is the device queue. The kernel allows one holder per queue.
	Queue int
	// FrameBytes is the size of one frame in the registered memory: 2048 or 4096. Zero means what the MTU and the driver need.
	FrameBytes int
	// TxFrames is the number of frames for sending, rounded up to a power of two; zero means 2048.
	TxFrames int
	// RxFrames is the number of frames for receiving, rounded up to a power of two; zero means 2048 on a Device with Receive. They
	// are refused on a Device without.
	RxFrames int
	// Batch is the most frames that Reserve hands out and Receive returns; zero means 64.
	Batch int
	// NoHugePages leaves 2 MiB pages alone; the default takes them where the administrator has reserved some.
	NoHugePages bool
	// BusyPoll is SO_BUSY_POLL with SO_PREFER_BUSY_POLL (kernel 5.11): the driver is polled from our own system calls. Zero means off.
	// It helps with napi_defer_hard_irqs set on the device, and in zero-copy mode only.
	BusyPoll time.Duration
	// Metadata asks for a metadata area in front of each frame: checksum offload and transmit times ([Frame.OffloadSum],
	// [Frame.AskTime]). Kernel 6.8.
	Metadata bool
	// SoftwareSum lets the kernel compute offloaded checksums itself (XDP_UMEM_TX_SW_CSUM): for tests, slow.
	SoftwareSum bool
	// BindWait bounds the wait for a queue whose last holder is still being taken down by the kernel; zero means 2 s.
	BindWait time.Duration
	// Stall is how long completions may fail to come before Reap says so; zero means 3 s.
	Stall time.Duration
}

const (
	defaultFrames = 2048
	defaultBatch  = 64
	maxFrames     = 1 << 20
	// receiveHeadroom is XDP_PACKET_HEADROOM: what the kernel leaves in front of a received frame.
	receiveHeadroom = 256
	ethernetBytes   = 14
	vlanBytes       = 4
)

// validate fills in the defaults of everything that needs no look at the device, and returns all problems joined.
func (c *SocketConfig) validate(receive bool) error {
	var errs []error
	count := func(n *int, name string, standard int) {
		if *n == 0 {
			*n = standard
		}
		if *n < 0 || *n > maxFrames {
			errs = append(errs, fmt.Errorf("%s %d: not in 1..%d", name, *n, maxFrames))
			return
		}
		*n = powerOfTwo(*n)
	}
	count(&c.TxFrames, "TxFrames", defaultFrames)
	switch {
	case receive:
		count(&c.RxFrames, "RxFrames", defaultFrames)
	case c.RxFrames != 0:
		errs = append(errs, fmt.Errorf("RxFrames %d on a device opened without Receive", c.RxFrames))
	}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	if c.Batch < 0 || c.Batch > maxFrames {
		errs = append(errs, fmt.Errorf("batch %d: not in 1..%d", c.Batch, maxFrames))
	}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("queue %d", c.Queue))
	}
	if c.FrameBytes != 0 && c.FrameBytes != 2048 && c.FrameBytes != 4096 {
		errs = append(errs, fmt.Errorf("FrameBytes %d: the kernel knows 2048 and 4096", c.FrameBytes))
	}
	if c.SoftwareSum && !c.Metadata {
		errs = append(errs, errors.New("SoftwareSum without Metadata"))
	}
	for d, standard := range map[*time.Duration]time.Duration{&c.BindWait: 2 * time.Second, &c.Stall: 3 * time.Second} {
		if *d == 0 {
			*d = standard
		}
	}
	return errors.Join(errs...)
}

// Granted is what a Socket really got, read back from the kernel.
type Granted struct {
	// Mode is ZeroCopy, Native or Generic; a sending socket without a program that copies is Generic.
	Mode Mode
	// Program tells where the XDP program runs: "driver", "generic", or "none".
	Program string
	// FrameBytes, TxFrames and RxFrames are as used; MaxFrame is the longest frame that may be sent, without its check sequence.
	FrameBytes, TxFrames, RxFrames, MaxFrame int
	// HugePages says that the memory is of 2 MiB pages; Node is the NUMA node it was asked to be on, -1 for none.
	HugePages bool
	Node      int
	// NeedWakeup says that the kernel tells when a kick is needed.
	NeedWakeup bool
	// TxBudget is the number of frames of one kick in copy mode (XDP_MAX_TX_SKB_BUDGET, kernel 6.17); 0 when the kernel has
	// its fixed 32.
	TxBudget int
	// SendBuffer is the socket's send buffer in bytes as the kernel reports it: it bounds the frames in flight in copy mode.
	SendBuffer int
	// Metadata says that frames have a metadata area. In zero-copy mode the driver may lack one part: TimeOffload and SumOffload
	// tell. In copy mode the kernel does both.
	Metadata, TimeOffload, SumOffload bool
	// Notes are the steps taken down from what was asked for, one sentence each.
	Notes []string
}

// String is one line for a report.
func (g Granted) String() string {
	copying := "copy"
	if g.Mode == ZeroCopy {
		copying = "zero-copy"
	}
	return fmt.Sprintf("%s, program %s, %d-byte frames", copying, g.Program, g.FrameBytes)
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
