package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/clock"
	"blast/internal/sys"
)

// Mode is what a server does with a datagram.
type Mode uint8

// The modes.
const (
	// Sink counts datagrams. Payloads are not even copied out of the kernel.
	Sink Mode = iota
	// Echo sends them back.
	Echo
)

// String is the mode's name on the command line.
func (m Mode) String() string {
	switch m {
	case Sink:
		return "sink"
	case Echo:
		return "echo"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode is the inverse of Mode.String.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Sink, Echo} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("mode %q: want sink or echo", s)
}

const (
	defaultBatch         = 64
	maxBatch             = 1024 // UIO_MAXIOV: recvmmsg takes no more
	defaultReceiveBuffer = 4 << 20
	defaultFlows         = 65536
	maxFlows             = 1 << 24
	payloadBytes         = 65535
	leastTrueSize        = 512 // below what any skb is charged for, bytes
	pollWait             = 200 * time.Millisecond
)

// Config is what a server needs to know. The zero value is a sink that listens nowhere: Listen must be given.
type Config struct {
	// Mode is Sink or Echo.
	Mode Mode
	// Listen are the addresses, IPv4 or IPv6 (IPv6 only, even the wildcard); port 0 lets the kernel choose.
	Listen []netip.AddrPort
	// Workers is the number of sockets and threads per address; 0 means 1.
	Workers int
	// Batch is the largest number of datagrams per system call, at most 1024; 0 means 64.
	Batch int
	// Allow are the peers that are served; nil means DefaultAllow, an empty list means nobody.
	Allow []netip.Prefix
	// CPUs are where the workers are pinned, in turn; empty means not pinned.
	CPUs []int
	// ReceiveBuffer is SO_RCVBUF in bytes per socket; 0 means 4 MiB.
	ReceiveBuffer int
	// GRO takes trains in one piece (UDP_GRO), and echoes them as trains. A train that the device cannot send is a refused reply.
	GRO bool
	// Flows bounds the flows of one worker that the echo reports on; 0 means 65,536. 128 bytes each.
	Flows int
	// Now is the server's clock in ns; nil means CLOCK_MONOTONIC. It is called by all workers.
	Now func() int64
}

func (c *Config) fill() error {
	c.Workers = max(c.Workers, 1)
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.ReceiveBuffer = cmp.Or(c.ReceiveBuffer, defaultReceiveBuffer)
	c.Flows = cmp.Or(c.Flows, defaultFlows)
	switch {
	case c.Mode != Sink && c.Mode != Echo:
		return fmt.Errorf("%v: want sink or echo", c.Mode)
	case len(c.Listen) == 0:
		return errors.New("no address to listen on")
	case c.Batch < 1 || c.Batch > maxBatch:
		return fmt.Errorf("batch %d: want 1 to %d", c.Batch, maxBatch)
	case c.ReceiveBuffer < 0:
		return fmt.Errorf("receive buffer %d bytes: want 0 or more", c.ReceiveBuffer)
	case c.Flows < 1 || c.Flows > maxFlows:
		return fmt.Errorf("flows %d: want 1 to %d", c.Flows, maxFlows)
	}
	if c.Now == nil {
		c.Now = clock.NewReal().Now
	}
	return nil
}

// wantInfo says whether replies need to be told which address they leave from: only a wildcard leaves that open.
func (c *Config) wantInfo(at netip.Addr) bool { return c.Mode == Echo && at.IsUnspecified() }

// Server is a set of bound sockets and, while it runs, their workers. Its methods may be called from any thread.
type Server struct {
	addrs   []netip.AddrPort
	allow   []netip.Prefix
	buffer  int
	workers []*worker
	stopped atomic.Bool
	done    chan struct{} // closed when the last worker has ended; only once started

	mu      sync.Mutex // of all below, and of the descriptors
	started bool
	closed  bool
	last    []uint32 // drops as the kernel last said
	drops   []uint64
	err     error
}

// Listen binds the sockets, in the network namespace of the calling thread. Nothing is received into counts before Run or Start, but
// the kernel queues from now on. The caller owns the Server and closes it.
func Listen(cfg Config) (_ *Server, err error) {
	cfg.Listen = append([]netip.AddrPort(nil), cfg.Listen...)
	for i, at := range cfg.Listen {
		cfg.Listen[i] = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		if !at.IsValid() {
			return nil, fmt.Errorf("listen: address %d is not set", i+1)
		}
	}
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Server{allow: append([]netip.Prefix{}, cfg.Allow...), done: make(chan struct{})}
	if cfg.Allow == nil {
		if s.allow, err = DefaultAllow(cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	owned, err := interfacePrefixes()
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer func() {
		if err != nil {
			s.closeSockets()
		}
	}()
	for _, at := range cfg.Listen {
		fds, bound, err := openSockets(at, cfg.Workers, &cfg)
		if err != nil {
			return nil, fmt.Errorf("listen %v: %w", at, err)
		}
		s.addrs = append(s.addrs, bound)
		for _, fd := range fds {
			s.addWorker(fd, bound, ownAddrs(at.Addr(), owned), &cfg)
		}
	}
	s.last, s.drops = make([]uint32, len(s.workers)), make([]uint64, len(s.workers))
	return s, nil
}

func (s *Server) addWorker(fd int, bound netip.AddrPort, own []netip.Prefix, cfg *Config) {
	// The kernel reports twice what was asked for, or less where rmem_max capped it (socket(7)).
	s.buffer, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	w := &worker{fd: fd, cpu: -1, mode: cfg.Mode, allow: s.allow, port: bound.Port(), own: own, now: cfg.Now, stop: &s.stopped,
		drain: max(s.buffer, defaultReceiveBuffer)/leastTrueSize/cfg.Batch + 1}
	if len(cfg.CPUs) > 0 {
		w.cpu = cfg.CPUs[len(s.workers)%len(cfg.CPUs)]
	}
	if cfg.Mode == Echo {
		w.mail = sys.NewMailbox(cfg.Batch, payloadBytes, cfg.wantInfo(bound.Addr()) || cfg.GRO)
		w.flows = newFlows(cfg.Flows, rand.Uint64())
	} else {
		w.mail = sys.NewMailbox(cfg.Batch, 0, cfg.GRO)
	}
	s.workers = append(s.workers, w)
}

// Start is Listen and Run in the background: for a target inside the process that measures. Close ends it.
func Start(cfg Config) (*Server, error) {
	s, err := Listen(cfg)
	if err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// Addrs are the addresses as bound, in the order of Config.Listen.
func (s *Server) Addrs() []netip.AddrPort { return append([]netip.AddrPort(nil), s.addrs...) }

// Allow is who is served.
func (s *Server) Allow() []netip.Prefix { return append([]netip.Prefix(nil), s.allow...) }

// ReceiveBuffer is the receive buffer of each socket in bytes as granted, in the kernel's count, which is double.
func (s *Server) ReceiveBuffer() int { return s.buffer }

// Run serves until ctx ends, Close is called or a worker fails, and then takes what the sockets still hold. It returns nil in the
// first two cases. A Server runs once; Run does not close it.
func (s *Server) Run(ctx context.Context) error {
	if !s.start() {
		return errors.New("serve: the server has run already")
	}
	defer context.AfterFunc(ctx, s.stop)()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// start starts the workers and reports false when they had been started or the server is closed.
func (s *Server) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.started {
		return false
	}
	s.started = true
	var running sync.WaitGroup
	for i, w := range s.workers {
		running.Go(func() {
			err := w.run()
			if err == nil {
				return
			}
			s.mu.Lock()
			if s.err == nil {
				s.err = fmt.Errorf("serve: worker %d: %w", i, err)
			}
			s.mu.Unlock()
			s.stop()
		})
	}
	go func() {
		running.Wait()
		close(s.done)
	}()
	return true
}

// stop tells the workers to end and wakes those that wait.
func (s *Server) stop() {
	s.stopped.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, w := range s.workers {
		if err := sys.Shut(w.fd); err != nil && s.err == nil {
			s.err = fmt.Errorf("serve: %w", err)
		}
	}
}

// Counts is the present state, exact once Run has returned or Close has been called. While workers run it is behind by at most the
// batches in hand, and its parts are not of one instant.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readDrops()
	var total Counts
	for i, w := range s.workers {
		c := w.counts.read()
		c.Drops = s.drops[i]
		total.add(&c)
		total.Workers = append(total.Workers, c)
	}
	return total
}

// readDrops brings the drop counts up to date; they stay as they are once the sockets are gone.
func (s *Server) readDrops() {
	if s.closed {
		return
	}
	for i, w := range s.workers {
		if n, err := sys.SocketDrops(w.fd); err == nil {
			s.drops[i] += uint64(n - s.last[i])
			s.last[i] = n
		} else if s.err == nil {
			s.err = fmt.Errorf("serve: drops of worker %d: %w", i, err)
		}
	}
}

// Close stops the workers, waits for them, and closes the sockets. It returns the first error of the workers and is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		s.mu.Unlock()
		s.stop()
		<-s.done
		s.mu.Lock()
	}
	if !s.closed {
		s.readDrops()
		s.closeSockets()
	}
	return s.err
}

// closeSockets needs the lock, or a server that nobody else knows yet.
func (s *Server) closeSockets() {
	s.closed = true
	for _, w := range s.workers {
		unix.Close(w.fd)
	}
}
