package xdp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// Device is one interface and the XDP program on it, shared by the sockets of its queues. Its methods may be called from any
// thread, except Open and the opening of sockets, which must happen in the interface's network namespace.
type Device struct {
	cfg     DeviceConfig
	facts   *facts
	netlink *netlink.Handle
	notes   []string

	program *program
	link    link.Link // held for the life of the Device: cilium/ebpf closes a forgotten link from a finalizer
	native  bool

	mu      sync.Mutex
	sockets map[*Socket]struct{}
	closed  bool
}

// Open judges an interface and attaches the XDP program where one is needed. It must be called in the interface's network
// namespace. The errors wrap errors.ErrUnsupported (use another interface), unix.EPERM (the text names the missing
// capabilities), unix.EBUSY or EEXIST (somebody else's program; the text has its id), or unix.ENETDOWN.
func Open(cfg DeviceConfig) (*Device, error) {
	if cfg.Mode > Generic {
		return nil, fmt.Errorf("xdp: %s", cfg.Mode)
	}
	if err := requireCaps("AF_XDP", capNetRaw); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("xdp: netlink: %w", err)
	}
	d := &Device{cfg: cfg, netlink: h, sockets: map[*Socket]struct{}{}}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("xdp: %w", errors.Join(err, d.Close()))
	}
	return d, nil
}

func (d *Device) open() error {
	var err error
	if d.facts, err = inspect(d.netlink, d.cfg.Interface); err != nil {
		return err
	}
	if err := d.facts.suitable(d.netlink); err != nil {
		return err
	}
	return d.prepare()
}

// prepare decides whether a program is needed. Several drivers create their transmit rings for AF_XDP only while one is attached (igb,
// ixgbe, i40e, ice); the socket path of copy mode needs none.
func (d *Device) prepare() error {
	offered := d.facts.mayZeroCopy()
	switch {
	case d.cfg.Mode == ZeroCopy && !offered:
		return fmt.Errorf("zero-copy on %q: driver %s does not offer it (netdev features); use mode native: %w",
			d.cfg.Interface, d.driver(), errors.ErrUnsupported)
	case len(d.cfg.Ports) > 0 && !d.cfg.Receive:
		return errors.New("ports to redirect on a device opened without Receive")
	case d.cfg.Receive, d.cfg.Mode == ZeroCopy, d.cfg.Mode == Native:
		return d.attach(d.cfg.Mode == Auto || d.cfg.Mode == Generic)
	case d.cfg.Mode == Generic:
		return nil
	case !offered:
		d.note("zero-copy: driver %s does not offer it", d.driver())
		return nil
	}
	// Sending alone works without a program too, so what stands in its way costs zero-copy and not the run.
	if err := d.attach(false); err != nil {
		d.note("zero-copy: %v", err)
		if d.program != nil {
			err = d.program.close()
			d.program = nil
			return err
		}
	}
	return nil
}

// mayZeroCopy says whether zero-copy is worth a try: what the kernel tells (6.3), or any hardware on older kernels.
func (f *facts) mayZeroCopy() bool {
	if f.features.known {
		return f.features.zeroCopy
	}
	return f.kind == "device" && f.encapEther()
}

func (d *Device) driver() string {
	if d.facts.driver != "" {
		return d.facts.driver
	}
	return "of " + d.facts.name
}

func (d *Device) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// attach loads the program and puts it on the interface: in the driver, unless generic mode was asked for, or behind it where
// that is allowed.
func (d *Device) attach(generic bool) error {
	if err := requireCaps("XDP program", capNetAdmin, capBPF); err != nil {
		return err
	}
	if id := d.facts.existing; id != 0 {
		return fmt.Errorf("interface %q has an XDP program already: %s; it is not ours to remove: %w", d.facts.name, describe(id), unix.EBUSY)
	}
	var err error
	if d.program, err = loadProgram(d.facts.queues, d.cfg.Stamp); err != nil {
		return err
	}
	if err := d.program.setPorts(d.cfg.Ports, true); err != nil {
		return err
	}
	if d.cfg.Mode != Generic {
		err := d.attachIn(link.XDPDriverMode)
		if err == nil {
			d.native = true
			return nil
		}
		err = d.explainAttach("native", err)
		if !generic || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) {
			return err
		}
		d.note("%v", err)
	}
	if err := d.attachIn(link.XDPGenericMode); err != nil {
		return d.explainAttach("generic", err)
	}
	return nil
}

func (d *Device) attachIn(mode link.XDPAttachFlags) (err error) {
	d.link, err = link.AttachXDP(link.XDPOptions{Program: d.program.prog, Interface: d.facts.index, Flags: mode})
	if err != nil {
		d.link = nil // not an interface that holds a nil pointer
	}
	return err
}

// explainAttach says why a driver refuses a program.
func (d *Device) explainAttach(mode string, err error) error {
	name := d.facts.name
	err = fmt.Errorf("%s XDP on %q: %w", mode, name, err)
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		if now, e := inspect(d.netlink, name); e == nil && now.existing != 0 {
			return fmt.Errorf("%w: program there: %s; it is not ours to remove", err, describe(now.existing))
		}
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: driver %s has none", err, d.driver())
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.E2BIG):
		if d.facts.mtu > 1500 {
			return fmt.Errorf("%w: MTU %d is too large for one buffer, the usual limit is about %d; ip link set %s mtu 1500",
				err, d.facts.mtu, os.Getpagesize()-receiveHeadroom-ethernetBytes-vlanBytes-320, name)
		}
	}
	return err
}

// describe names a program by its id.
func describe(id uint32) string {
	text := fmt.Sprintf("id %d", id)
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return text
	}
	defer prog.Close()
	if info, err := prog.Info(); err == nil && info.Name != "" {
		text += fmt.Sprintf(" (%q)", info.Name)
	}
	return text
}

// Interface is the interface's name.
func (d *Device) Interface() string { return d.facts.name }

// Index is the interface's number.
func (d *Device) Index() int { return d.facts.index }

// MTU is the interface's largest IP packet in bytes at the time of Open.
func (d *Device) MTU() int { return d.facts.mtu }

// Queues is the number of queues of the interface at the time of Open.
func (d *Device) Queues() int { return d.facts.queues }

// MAC is the interface's hardware address at the time of Open.
func (d *Device) MAC() [6]byte { return d.facts.mac }

// AddPorts takes UDP packets to more ports from the kernel.
func (d *Device) AddPorts(ports ...uint16) error { return d.setPorts(ports, true) }

// RemovePorts gives ports back to the kernel.
func (d *Device) RemovePorts(ports ...uint16) error { return d.setPorts(ports, false) }

func (d *Device) setPorts(ports []uint16, in bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.cfg.Receive || d.closed {
		return errors.New("xdp: the device is closed or was opened without Receive")
	}
	if err := d.program.setPorts(ports, in); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}

// Redirects says what the program did with packets to our ports: Redirected to a socket, or Unclaimed, left to the kernel
// because no socket holds the queue they came to, which is a matter of receive-side scaling.
type Redirects struct {
	Redirected, Unclaimed uint64
}

// Redirects reads the program's counters; zero after Close.
func (d *Device) Redirects() (Redirects, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.program == nil || d.closed {
		return Redirects{}, nil
	}
	r, err := d.program.count(countRedirected)
	if err != nil {
		return Redirects{}, fmt.Errorf("xdp: %w", err)
	}
	u, err := d.program.count(countUnclaimed)
	if err != nil {
		return Redirects{}, fmt.Errorf("xdp: %w", err)
	}
	return Redirects{Redirected: r, Unclaimed: u}, nil
}

// Open opens a socket on one queue, in the best mode the Device allows, and waits for the carrier. Everything is built anew for each mode
// tried. The errors wrap unix.EBUSY with the holder of the queue where it can be seen.
func (d *Device) Open(cfg SocketConfig) (*Socket, error) {
	if err := cfg.validate(d.cfg.Receive); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	s, err := d.openBest(cfg)
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	s.granted.Notes = append(append([]string{}, d.notes...), s.granted.Notes...)
	if err := d.join(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := d.waitCarrier(); err != nil {
		return nil, fmt.Errorf("xdp: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// openBest goes down the ladder of modes.
func (d *Device) openBest(cfg SocketConfig) (*Socket, error) {
	const wakeup = unix.XDP_USE_NEED_WAKEUP
	var lost error
	if d.native && (d.cfg.Mode == ZeroCopy || d.cfg.Mode == Auto && d.facts.mayZeroCopy()) {
		zc := cfg
		err := d.chooseFrame(&zc, true)
		if err == nil {
			var s *Socket
			if s, err = d.build(zc, unix.XDP_ZEROCOPY|wakeup); err == nil {
				return s, nil
			}
		}
		if d.cfg.Mode == ZeroCopy || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EPERM) {
			return nil, err
		}
		lost = err
	}
	if err := d.chooseFrame(&cfg, false); err != nil {
		return nil, err
	}
	s, err := d.build(cfg, unix.XDP_COPY|wakeup)
	if err == nil && lost != nil {
		s.granted.Notes = append(s.granted.Notes, fmt.Sprintf("zero-copy: %v", lost))
	}
	return s, err
}

// chooseFrame picks the size of a frame and checks that the interface's packets fit.
func (d *Device) chooseFrame(cfg *SocketConfig, zeroCopy bool) error {
	need := d.facts.mtu + ethernetBytes + vlanBytes
	room := 0
	if cfg.RxFrames > 0 {
		room = receiveHeadroom
	}
	if cfg.Metadata {
		room = max(room, metadataRoom)
	}
	whole := 1
	if zeroCopy && cfg.RxFrames > 0 && d.facts.wholeKilobytes() {
		whole = 1024
	}
	fits := func(bytes int) int { return bytes / whole * whole }
	if cfg.FrameBytes == 0 {
		cfg.FrameBytes = 2048
		// ena has zero-copy with frames of a whole page only.
		if need > fits(2048-room) || zeroCopy && d.facts.driver == "ena" {
			cfg.FrameBytes = 4096
		}
	}
	// A sender may choose shorter packets than the MTU allows; what comes in, it cannot choose.
	if largest := fits(cfg.FrameBytes - receiveHeadroom); cfg.RxFrames > 0 && need > largest && d.facts.encapEther() {
		return fmt.Errorf("MTU %d of %q does not fit a frame of %d bytes with its %d bytes of headroom; ip link set %s mtu %d",
			d.facts.mtu, d.facts.name, cfg.FrameBytes, receiveHeadroom, d.facts.name, largest-ethernetBytes-vlanBytes)
	}
	return nil
}

// wholeKilobytes names Intel's cards that are told the size of a receive buffer in KiB, rounded down: what is longer is lost without a word, so a
// frame of 2048 bytes, 256 of them headroom, receives packets of up to 1024 (SRRCTL.BSIZEPKT: igb_setup_srrctl; igc_configure_rx_ring;
// ixgbe_configure_srrctl, where newer cards know a finer limit).
func (f *facts) wholeKilobytes() bool {
	return f.driver == "igb" || f.driver == "igc" || f.driver == "ixgbe"
}

// encapEther tells a network from the loopback interface, whose MTU of 65536 is no promise about what arrives.
func (f *facts) encapEther() bool { return f.encap == "ether" }

// waitCarrier waits for the link after set-up: hardware reconfigures, virtual interfaces only may have a peer that is down.
func (d *Device) waitCarrier() error {
	settle, limit := d.cfg.Settle, d.cfg.CarrierWait
	if settle == 0 && d.link != nil && d.native && d.facts.kind == "device" && d.facts.encapEther() {
		settle = time.Second
	}
	if limit == 0 {
		limit = 20 * time.Second
	}
	return waitCarrier(d.netlink, d.facts.index, settle, limit)
}

func (d *Device) join(s *Socket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("xdp: device: %w", os.ErrClosed)
	}
	d.sockets[s] = struct{}{}
	return nil
}

// leave takes a socket out of the redirect map.
func (d *Device) leave(s *Socket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sockets, s)
	if d.closed || !d.cfg.Receive {
		return nil
	}
	return d.unredirect(s)
}

func (d *Device) unredirect(s *Socket) error {
	err := d.program.xsks.Delete(uint32(s.queue))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("xdp: stop redirecting queue %d: %w", s.queue, err)
	}
	return nil
}

// Close stops redirecting and takes the program off. It comes before the Close of the sockets, which stay open: closing sockets
// under a program has crashed kernels (suricata#9333). Senders have stopped and reaped until nothing is outstanding by then: a driver
// that is reconfigured while it sends has hung (intel/ethernet-linux-ice#61). It is idempotent.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	if d.cfg.Receive && d.program != nil {
		for s := range d.sockets {
			errs = append(errs, d.unredirect(s))
		}
	}
	if d.link != nil {
		errs = append(errs, d.link.Close())
	}
	if d.program != nil {
		errs = append(errs, d.program.close())
	}
	d.netlink.Close()
	return errors.Join(errs...)
}

// explain says why sending does not go on. It is called once, on failure.
func (s *Socket) explain(cause error) error {
	d := s.device
	where := fmt.Sprintf("xdp: queue %d of %q", s.queue, d.facts.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s: the device was closed: %w", where, cause)
	}
	link, err := d.netlink.LinkByIndex(d.facts.index)
	switch {
	case err != nil:
		return fmt.Errorf("%s: the interface is gone: %w", where, cause)
	case link.Attrs().RawFlags&unix.IFF_UP == 0:
		return fmt.Errorf("%s: the interface is down: %w", where, cause)
	case link.Attrs().RawFlags&unix.IFF_LOWER_UP == 0:
		return fmt.Errorf("%s: the interface has no carrier: %w", where, cause)
	case errors.Is(cause, unix.EINVAL), errors.Is(cause, unix.ENXIO):
		return fmt.Errorf("%s: the driver has no transmit ring for this socket; many create one only with an XDP program attached: %w", where, cause)
	}
	if k, err := s.KernelStats(); err == nil && k.TxInvalid > 0 {
		return fmt.Errorf("%s: %w; the kernel refused %d descriptors", where, cause, k.TxInvalid)
	}
	if errors.Is(cause, ErrStalled) {
		return fmt.Errorf("%s: %w; the last kicks answered: %d EAGAIN, %d EBUSY, %d ENOBUFS; the receiver or the device does not take them, "+
			"or the queue no longer exists", where, cause, s.send.stats.Again, s.send.stats.Busy, s.send.stats.NoBuffers)
	}
	return fmt.Errorf("%s: %w", where, cause)
}

// addressOf is where mapped memory lies, as the kernel wants it.
func addressOf(mem []byte) uint64 { return ring.Addr(mem) }
