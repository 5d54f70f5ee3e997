package xdp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
)

// Socket is one queue of a Device. Reserve, Commit, Reap, ReapFrames and SendStats belong to one thread; Receive, Recycle, Wait and
// ReceiveStats to one thread, the same or another. KernelStats may be called from anywhere. Close comes after both threads
// have stopped.
type Socket struct {
	device  *Device
	queue   int
	granted Granted

	umem  *umem
	send  *sender
	recv  *receiver
	rings []*mapping

	mu    sync.Mutex // guards the descriptors against Close
	fd    int        // sends; owns the memory
	recvd int        // receives; -1 without a receiving half
}

// Granted is what the socket really got.
func (s *Socket) Granted() Granted { return s.granted }

// Queue is the device queue.
func (s *Socket) Queue() int { return s.queue }

// Frames are all frames for sending, by index: for preparing what does not change before the first Reserve.
func (s *Socket) Frames() []Frame { return s.umem.tx }

// Reserve hands out up to n free frames to write into; fewer than n means that Reap has to come first, or that n is more than
// SocketConfig.Batch. It advances nothing: calling it again returns the same frames. Valid until Commit.
func (s *Socket) Reserve(n int) []*Frame { return s.send.reserve(n) }

// Commit gives the first n reserved frames to the kernel in order and keeps the rest for the next Reserve. It returns how many
// it gave: fewer than n only with an error. ErrFrameLength is about the frame behind those. Any other error says that the
// interface or the socket is gone, or down (unix.ENETDOWN, which may pass). What the kernel could not send at once stays in the ring
// and is kicked again by the next Commit or Reap. It never blocks and allocates nothing.
func (s *Socket) Commit(n int) (int, error) { return s.send.commit(n) }

// Reap takes completed frames back and says how many were sent. With frames outstanding it kicks again where needed, so
// a sparse sender calls it until Outstanding is zero. An error wrapping ErrStalled says that nothing has come back for
// SocketConfig.Stall, and what is known of why; it goes away when completions come again.
func (s *Socket) Reap() (Completed, error) { return s.send.reap(nil) }

// ReapFrames is Reap with a look at every completed frame, for its transmit time.
func (s *Socket) ReapFrames(each func(*Frame)) (Completed, error) { return s.send.reap(each) }

// Outstanding is the number of frames with the kernel. Sending half.
func (s *Socket) Outstanding() int { return int(s.send.outstanding) }

// SendStats are the sending half's counters.
func (s *Socket) SendStats() SendStats { return s.send.stats }

// Receive returns up to n received packets, from their Ethernet header on, after giving back those of the call before: they
// are valid until the next Receive or Recycle. It never blocks. It returns nothing on a Device without Receive.
func (s *Socket) Receive(n int) [][]byte {
	if s.recv == nil {
		return nil
	}
	return s.recv.receive(n)
}

// Arrival is when the XDP program saw packet i of the last Receive, in ns of CLOCK_MONOTONIC; 0 without DeviceConfig.Stamp, or where the
// driver left no room for the note.
func (s *Socket) Arrival(i int) int64 {
	if s.recv == nil || !s.recv.stamped {
		return 0
	}
	return s.recv.arrivals[i]
}

// Recycle gives the packets of the last Receive back before the next one.
func (s *Socket) Recycle() {
	if s.recv != nil {
		s.recv.recycle()
	}
}

// Wait sleeps until a packet is there or the time is over, and says whether one is. Packets handed out are given back first,
// so that the driver does not starve. An error says that the interface or the socket is gone, or down.
func (s *Socket) Wait(d time.Duration) (bool, error) { return s.WaitAlso(d, -1) }

// WaitAlso is Wait that ends early, without a packet, when another descriptor becomes readable or has an error. A negative one is
// none.
func (s *Socket) WaitAlso(d time.Duration, fd int) (bool, error) {
	if s.recv == nil {
		return false, errors.New("xdp: the device was opened without Receive, or the socket is closed")
	}
	s.recv.recycle()
	// poll(2) on AF_XDP never reports an error (net/xdp/xsk.c, xsk_poll), so the socket is asked from time to time.
	const ask = 100 * time.Millisecond
	for end := time.Now().Add(d); ; {
		if s.recv.rx.Ready() > 0 {
			return true, nil
		}
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		fds := [2]unix.PollFd{{Fd: int32(s.recvd), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		limit := unix.NsecToTimespec(int64(min(left, ask))) // poll(2) counts in ms, and a caller with a plan in us
		n, err := unix.Ppoll(fds[:], &limit, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("xdp: %w", os.NewSyscallError("ppoll", err))
		}
		if fds[1].Revents != 0 {
			return s.recv.rx.Ready() > 0, nil
		}
		if n > 0 {
			continue
		}
		if e := s.recv.wake(); e == unix.ENXIO || e == unix.ENETDOWN {
			return false, s.explain(e)
		}
	}
}

// ReceiveStats are the receiving half's counters.
func (s *Socket) ReceiveStats() ReceiveStats {
	if s.recv == nil {
		return ReceiveStats{}
	}
	return s.recv.stats
}

// KernelStats are the kernel's own counters of the queue (XDP_STATISTICS).
type KernelStats struct {
	// RxDropped: packets for us that were dropped for want of a buffer or because they were longer than a frame; RxRingFull and
	// RxFillEmpty say which ring was behind it. These are losses of this program, not of the network.
	RxDropped, RxRingFull, RxFillEmpty uint64
	// RxInvalid and TxInvalid: descriptors the kernel did not accept. A TxInvalid frame never completes.
	RxInvalid, TxInvalid uint64
	// TxRingEmpty: how often the driver found nothing to send.
	TxRingEmpty uint64
}

// KernelStats reads the kernel's counters; zero after Close. Safe from any thread.
func (s *Socket) KernelStats() (KernelStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var k KernelStats
	for _, fd := range []int{s.fd, s.recvd} {
		if fd < 0 {
			continue
		}
		v, err := sys.XDPStatistics(fd)
		if err != nil {
			return k, fmt.Errorf("xdp: %w", err)
		}
		k.RxDropped += v.Rx_dropped
		k.RxRingFull += v.Rx_ring_full
		k.RxInvalid += v.Rx_invalid_descs
		k.TxInvalid += v.Tx_invalid_descs
		// The fill ring belongs to the queue: both sockets tell the same number (net/xdp/xsk.c, xsk_getsockopt).
		k.RxFillEmpty = max(k.RxFillEmpty, v.Rx_fill_ring_empty_descs)
		k.TxRingEmpty += v.Tx_ring_empty_descs
	}
	return k, nil
}

// Close takes the queue out of the redirect map, closes the sockets and unmaps the memory, in this order: sockets closed
// under a program that still redirects to them have crashed kernels (suricata#9333). Both threads must have stopped. It is
// idempotent.
func (s *Socket) Close() error {
	s.mu.Lock()
	fd, recvd := s.fd, s.recvd
	s.fd, s.recvd = -1, -1
	s.mu.Unlock()
	if fd < 0 {
		return nil
	}
	err := s.device.leave(s)
	return errors.Join(err, s.release(fd, recvd))
}

// release undoes what build did.
func (s *Socket) release(fd, recvd int) error {
	var errs []error
	for _, fd := range []int{recvd, fd} {
		if fd >= 0 {
			errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
		}
	}
	for _, m := range s.rings {
		errs = append(errs, m.region.Close())
	}
	if s.umem != nil {
		errs = append(errs, s.umem.close())
	}
	// What is left has no frames, and Commit refuses.
	s.rings, s.umem, s.recv = nil, &umem{}, nil
	s.send = &sender{dead: fmt.Errorf("xdp: socket: %w", os.ErrClosed)}
	return errors.Join(errs...)
}

// build makes a bound socket with the given bind flags, or nothing. The order of the steps is the kernel's: memory, ring
// sizes, offsets and mappings, fill, bind (net/xdp/xsk.c refuses others with EINVAL).
func (d *Device) build(cfg SocketConfig, bindFlags uint16) (*Socket, error) {
	s := &Socket{device: d, queue: cfg.Queue, fd: -1, recvd: -1}
	if err := s.construct(&cfg, bindFlags); err != nil {
		return nil, errors.Join(err, s.release(s.fd, s.recvd))
	}
	return s, nil
}

func (s *Socket) construct(cfg *SocketConfig, bindFlags uint16) error {
	d := s.device
	var err error
	if s.umem, err = newUMEM(cfg, d.facts.node); err != nil {
		return err
	}
	if s.fd, err = open(); err != nil {
		return err
	}
	if err := register(s.fd, s.umem, cfg); err != nil {
		return err
	}
	if err := sizeRings(s.fd, cfg); err != nil {
		return err
	}
	if err := s.mapTransmit(cfg); err != nil {
		return err
	}
	if cfg.RxFrames > 0 {
		s.recv.fill()
	}
	s.tune(cfg, bindFlags)
	if err := s.bind(cfg, bindFlags); err != nil {
		return err
	}
	if cfg.RxFrames > 0 {
		return s.openReceiving(cfg)
	}
	return nil
}

func open() (int, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT):
		return -1, fmt.Errorf("AF_XDP is not in this kernel (CONFIG_XDP_SOCKETS): %w", errors.ErrUnsupported)
	case err != nil:
		return -1, fmt.Errorf("AF_XDP: %w", os.NewSyscallError("socket", err))
	}
	return fd, nil
}

// register gives the memory to the socket. The metadata flag is tried first; kernels 6.8 to 6.10 have metadata without
// knowing the flag.
func register(fd int, u *umem, cfg *SocketConfig) error {
	reg := unix.XDPUmemReg{Addr: addressOf(u.mem), Len: uint64(len(u.mem)), Size: uint32(u.frameBytes)}
	if cfg.Metadata {
		reg.Flags, reg.Tx_metadata_len = unix.XDP_UMEM_TX_METADATA_LEN, sys.XDPTxMetadataBytes
		if cfg.SoftwareSum {
			reg.Flags |= unix.XDP_UMEM_TX_SW_CSUM
		}
	}
	err := sys.XDPRegister(fd, &reg)
	if cfg.Metadata && errors.Is(err, unix.EINVAL) {
		reg.Flags &^= unix.XDP_UMEM_TX_METADATA_LEN
		if err = sys.XDPRegister(fd, &reg); errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("transmit metadata needs kernel 6.8: %w: %w", err, errors.ErrUnsupported)
		}
	}
	if err != nil {
		return memlockRemedy(fmt.Errorf("register %d bytes of frames: %w", len(u.mem), err), len(u.mem))
	}
	return nil
}

// sizeRings sets the sizes. A socket with memory of its own needs fill and completion ring even when it only sends; its fill
// ring then has one entry and stays empty.
func sizeRings(fd int, cfg *SocketConfig) error {
	for _, r := range []struct {
		option, entries int
		name            string
	}{
		{unix.XDP_UMEM_FILL_RING, max(cfg.RxFrames, 1), "fill"},
		// All frames may complete at once; a full completion ring stops sending.
		{unix.XDP_UMEM_COMPLETION_RING, cfg.TxFrames, "completion"},
		{unix.XDP_TX_RING, cfg.TxFrames, "transmit"},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, r.option, r.entries); err != nil {
			return fmt.Errorf("%s ring of %d entries: %w", r.name, r.entries, os.NewSyscallError("setsockopt", err))
		}
	}
	return nil
}

// mapTransmit maps the rings of the first socket: transmit, completion and fill.
func (s *Socket) mapTransmit(cfg *SocketConfig) error {
	where, err := sys.XDPOffsets(s.fd)
	if err != nil {
		return err
	}
	tx, err := s.mapRing(s.fd, unix.XDP_PGOFF_TX_RING, where.Tx, cfg.TxFrames, descBytes)
	if err != nil {
		return err
	}
	cq, err := s.mapRing(s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, where.Cr, cfg.TxFrames, addressBytes)
	if err != nil {
		return err
	}
	s.send = newSender(s.umem.tx, cfg.FrameBytes, min(cfg.Batch, cfg.TxFrames), s.device.facts.mtu)
	s.send.stall, s.send.explain = cfg.Stall, s.explain
	start, fd := time.Now(), s.fd
	s.send.now = func() time.Duration { return time.Since(start) }
	s.send.kick = func() syscall.Errno { return sys.XDPKick(fd) }
	if err := s.send.attachTransmit(tx, cq, cfg.TxFrames); err != nil {
		return err
	}
	if cfg.RxFrames == 0 {
		return nil
	}
	fq, err := s.mapRing(s.fd, unix.XDP_UMEM_PGOFF_FILL_RING, where.Fr, cfg.RxFrames, addressBytes)
	if err != nil {
		return err
	}
	// The receive ring belongs to the second socket, which can only be made when this one is bound, and whose ring size is set
	// before it is bound: so it can be created and mapped now.
	if s.recvd, err = open(); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s.recvd, unix.SOL_XDP, unix.XDP_RX_RING, cfg.RxFrames); err != nil {
		return fmt.Errorf("receive ring of %d entries: %w", cfg.RxFrames, os.NewSyscallError("setsockopt", err))
	}
	rx, err := s.mapRing(s.recvd, unix.XDP_PGOFF_RX_RING, where.Rx, cfg.RxFrames, descBytes)
	if err != nil {
		return err
	}
	s.recv = newReceiver(s.umem, cfg.Batch)
	s.recv.stamped = s.device.cfg.Stamp
	recvd := s.recvd
	s.recv.wake = func() syscall.Errno { return sys.XDPWakeReceive(recvd) }
	return s.recv.attachReceive(rx, fq, cfg.RxFrames)
}

func (s *Socket) mapRing(fd int, page int64, where unix.XDPRingOffset, entries, entryBytes int) (*mapping, error) {
	m, err := mapRing(fd, page, where, entries, entryBytes)
	if err == nil {
		s.rings = append(s.rings, m)
	}
	return m, err
}

// tune sets what has limits of its own and is only read back: send buffer, budget of a kick, busy polling.
func (s *Socket) tune(cfg *SocketConfig, bindFlags uint16) {
	g := &s.granted
	// In copy mode every frame in flight is charged to the send buffer with its true size: data, socket buffer and bookkeeping.
	bytes := min(cfg.TxFrames*(cfg.FrameBytes+1024), 1<<30)
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bytes) != nil { // needs CAP_NET_ADMIN
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
	}
	if n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
		g.SendBuffer = n
		if n < bytes {
			g.Notes = append(g.Notes, fmt.Sprintf("send buffer %d bytes instead of %d: fewer frames in flight (CAP_NET_ADMIN, or net.core.wmem_max)", n, bytes))
		}
	}
	if budget := min(max(cfg.Batch, 32), cfg.TxFrames); bindFlags&unix.XDP_COPY != 0 && budget > 32 {
		if unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, budget) == nil {
			g.TxBudget = budget
		}
	}
}

// bind ties the socket to its queue. The kernel takes a queue's last socket down in the background, so a queue that nobody
// holds can be busy for some tens of milliseconds.
func (s *Socket) bind(cfg *SocketConfig, flags uint16) error {
	d := s.device
	to := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(d.facts.index), QueueID: uint32(cfg.Queue)}
	first := true
	for end := time.Now().Add(cfg.BindWait); ; first = false {
		if !first {
			time.Sleep(5 * time.Millisecond)
		}
		err := unix.Bind(s.fd, to)
		if err == nil {
			return s.readBack(cfg, flags)
		}
		err = fmt.Errorf("bind to queue %d of %q: %w", cfg.Queue, d.facts.name, os.NewSyscallError("bind", err))
		switch {
		case errors.Is(err, unix.EBUSY):
			if wait := time.Now().Before(end); first || !wait {
				who := findHolder(d.facts.index, cfg.Queue, s.fd)
				if who.sure || !wait {
					return fmt.Errorf("%w: %s", err, who)
				}
			}
			continue
		case errors.Is(err, unix.EINVAL) && cfg.Queue >= d.facts.queues:
			return fmt.Errorf("%w: the interface has %d queues", err, d.facts.queues)
		}
		return err
	}
}

// readBack fills in what the kernel says about the bound socket.
func (s *Socket) readBack(cfg *SocketConfig, flags uint16) error {
	options, err := sys.XDPOptions(s.fd)
	if err != nil {
		return err
	}
	d, g := s.device, &s.granted
	g.Mode, g.Program = Generic, "none"
	if d.link != nil {
		g.Program = "generic"
		if d.native {
			g.Mode, g.Program = Native, "driver"
		}
	}
	if options&unix.XDP_OPTIONS_ZEROCOPY != 0 {
		g.Mode, s.send.zeroCopy = ZeroCopy, true
	}
	g.FrameBytes, g.TxFrames, g.RxFrames, g.MaxFrame = cfg.FrameBytes, cfg.TxFrames, cfg.RxFrames, s.send.maxLen
	g.HugePages, g.Node = s.umem.region.Huge(), s.umem.node
	g.NeedWakeup = flags&unix.XDP_USE_NEED_WAKEUP != 0
	g.Metadata = cfg.Metadata
	if g.Metadata {
		zc := g.Mode == ZeroCopy
		g.TimeOffload = !zc || d.facts.features.txTimestamp
		g.SumOffload = !zc || d.facts.features.txChecked
	}
	return s.busyPoll(cfg)
}

// busyPoll is asked for by name, so a refusal is an error.
func (s *Socket) busyPoll(cfg *SocketConfig) error {
	if cfg.BusyPoll <= 0 {
		return nil
	}
	const budget = 64 // NAPI_POLL_WEIGHT, what DPDK uses
	for _, o := range []struct {
		option, value int
		name          string
	}{
		{unix.SO_PREFER_BUSY_POLL, 1, "SO_PREFER_BUSY_POLL"},
		{unix.SO_BUSY_POLL, int(max(cfg.BusyPoll/time.Microsecond, 1)), "SO_BUSY_POLL"},
		{unix.SO_BUSY_POLL_BUDGET, budget, "SO_BUSY_POLL_BUDGET"},
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o.option, o.value); err != nil {
			return fmt.Errorf("busy polling: %s (kernel 5.11, CAP_NET_ADMIN): %w", o.name, os.NewSyscallError("setsockopt", err))
		}
	}
	return nil
}

// openReceiving binds the second socket to the memory of the first and puts it into the redirect map.
func (s *Socket) openReceiving(cfg *SocketConfig) error {
	d := s.device
	err := unix.Bind(s.recvd, &unix.SockaddrXDP{Flags: unix.XDP_SHARED_UMEM, Ifindex: uint32(d.facts.index),
		QueueID: uint32(cfg.Queue), SharedUmemFD: uint32(s.fd)})
	if err != nil {
		return fmt.Errorf("bind the receiving half to queue %d of %q: %w", cfg.Queue, d.facts.name, os.NewSyscallError("bind", err))
	}
	if err := d.program.xsks.Put(uint32(cfg.Queue), uint32(s.recvd)); err != nil {
		return fmt.Errorf("redirect queue %d: %w", cfg.Queue, err)
	}
	return nil
}
