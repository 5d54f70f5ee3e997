package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
	"blast/internal/sys"
	"blast/packet"
)

const (
	defaultCapacity = 1 << 16
	maxServers      = 1 << 16
	maxCapacity     = 1 << 22
	// reorderWait is how long a reply that is to be overtaken waits for one that overtakes it, of working time.
	reorderWait = 500 * time.Millisecond
	// quiet is the silence, with nothing inside, after which another epoch or a worker's first packet begins a new run.
	quiet = 20 * time.Millisecond
	// quietPlain is the same for packets without an epoch.
	quietPlain = 2 * time.Second
	// spinBefore is how long before a departure sleeping stops. A sleep that ends later than that only makes that departure late, which
	// RunTruth.Behind shows.
	spinBefore = 150 * time.Microsecond
)

// QueueConfig is a queueing target: the service that measurement is tried on, since what it does can be computed. The zero value
// listens nowhere: Listen must be given.
type QueueConfig struct {
	// Listen is the address, not a wildcard: replies leave from it. Port 0 lets the kernel choose.
	Listen netip.AddrPort
	// Allow are the peers that are served; nil means DefaultAllow, an empty list means nobody.
	Allow []netip.Prefix
	// CPUs are where its one thread may run; empty leaves that to the kernel.
	CPUs []int
	// ReceiveBuffer is SO_RCVBUF in bytes; 0 means 4 MiB.
	ReceiveBuffer int
	// Servers is the number of requests in service at once; 0 means 1. Service is how long each takes.
	Servers int
	Service time.Duration
	// Jitter draws each service time evenly from Service-Jitter to Service+Jitter, by Faults.Seed; 0 means that all are equal.
	Jitter time.Duration
	// Stalls freeze the whole target; see Stall.
	Stalls []Stall
	// Faults are injected by seed; see Faults.
	Faults Faults
	// Capacity is the most requests inside at once, in service or waiting; 0 means 65,536. What arrives beyond it is dropped.
	Capacity int
	// Now is the target's clock in ns of CLOCK_MONOTONIC; nil means the machine's.
	Now func() int64
}

func (c *QueueConfig) fill() error {
	c.Servers = cmp.Or(c.Servers, 1)
	c.Capacity = cmp.Or(c.Capacity, defaultCapacity)
	c.ReceiveBuffer = cmp.Or(c.ReceiveBuffer, defaultReceiveBuffer)
	if c.Now == nil {
		c.Now = clock.NewReal().Now
	}
	var err error
	if c.Stalls, err = ordered(c.Stalls); err != nil {
		return err
	}
	switch {
	case !c.Listen.IsValid() || c.Listen.Addr().IsUnspecified():
		return fmt.Errorf("address %v: a queueing target wants the address itself, not a wildcard", c.Listen)
	case c.Servers < 1 || c.Servers > maxServers:
		return fmt.Errorf("servers %d: want 1 to %d", c.Servers, maxServers)
	case c.Service < 0 || c.Service > time.Hour:
		return fmt.Errorf("service %v: want 0 to 1h", c.Service)
	case c.Jitter < 0 || c.Jitter > c.Service:
		return fmt.Errorf("jitter %v: want 0 to the service time of %v", c.Jitter, c.Service)
	case c.Capacity < c.Servers || c.Capacity > maxCapacity:
		return fmt.Errorf("capacity %d: want at least the %d servers, at most %d", c.Capacity, c.Servers, maxCapacity)
	case c.ReceiveBuffer < 0:
		return fmt.Errorf("receive buffer %d bytes: want 0 or more", c.ReceiveBuffer)
	}
	return c.Faults.check()
}

// String describes the target in one line.
func (c *QueueConfig) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers, service %v", c.Servers, c.Service)
	if c.Jitter > 0 {
		fmt.Fprintf(&b, " +- %v", c.Jitter)
	}
	for _, s := range c.Stalls {
		fmt.Fprintf(&b, ", stall %v", s)
	}
	b.WriteString(c.Faults.String())
	fmt.Fprintf(&b, ", seed %d, room for %d", c.Faults.Seed, c.Capacity)
	return b.String()
}

// QueueServer is a queueing target on one socket and one thread. Departure times are computed at arrival, from the kernel's own receive
// time, so that holding times are exact as long as the thread gets to run in time; RunTruth.Behind shows how far it did not. Its
// methods may be called from any thread.
type QueueServer struct {
	cfg     QueueConfig
	fd      int
	poll    [1]unix.PollFd
	addr    netip.AddrPort
	allow   []netip.Prefix
	own     []netip.Prefix
	zone    uint32 // of a link-local address: its peers are on that interface too
	mail    *sys.Mailbox
	flows   *flows
	counts  Counts // of flows.observe; not reported
	stopped atomic.Bool
	done    chan struct{}

	// Of the thread while it runs, under mu.
	mu     sync.Mutex
	queue  *Queue
	inside departures
	spare  []*request
	lanes  map[lane]*order
	runs   []*running
	denied uint64
	heard  int64          // last arrival, ns
	clock  clock.Realtime // of receive times
	serial uint64

	started, closed bool
	drops           uint64
	err             error
}

// lane is one flow of one sender.
type lane struct {
	peer   netip.AddrPort
	worker uint16
	index  uint16
}

// order is what decides which replies of a flow leave out of order.
type order struct {
	newest int64    // sequence number replied to, -1 = none
	held   *request // waits to be overtaken
}

// request is one that is inside.
type request struct {
	name    Name
	fault   Fault
	run     *running
	order   *order
	payload []byte
	v4      unix.SockaddrInet4
	v6      unix.SockaddrInet6
	is4     bool

	arrived, depart int64 // ns of the target's clock
	due             int64 // when to look at it: at depart, or when it has been held for long enough
	serial          uint64
	count, window   uint64 // the flow report
	stamped         bool
	alone           bool // held in vain: leaves as it is
}

// ListenQueue binds the socket. Nothing is served before Run or Start. The caller owns the QueueServer and closes it.
func ListenQueue(cfg QueueConfig) (*QueueServer, error) {
	cfg.Listen = netip.AddrPortFrom(cfg.Listen.Addr().Unmap(), cfg.Listen.Port())
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	s := &QueueServer{cfg: cfg, allow: cfg.Allow, done: make(chan struct{}), lanes: map[lane]*order{}, own: ownAddrs(cfg.Listen.Addr(), nil),
		mail: sys.NewMailbox(defaultBatch, payloadBytes, true), flows: newFlows(defaultFlows, rand.Uint64())}
	var err error
	if cfg.Allow == nil {
		if s.allow, err = DefaultAllow([]netip.AddrPort{cfg.Listen}); err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
	}
	fds, bound, err := openSockets(cfg.Listen, 1, &Config{Mode: Echo, ReceiveBuffer: cfg.ReceiveBuffer})
	if err != nil {
		return nil, fmt.Errorf("queue: listen %v: %w", cfg.Listen, err)
	}
	s.fd, s.addr, s.poll[0] = fds[0], bound, unix.PollFd{Fd: int32(fds[0]), Events: unix.POLLIN}
	if sa, err := sys.Sockaddr(bound); err == nil { // it has been bound, so it is one
		if six, ok := sa.(*unix.SockaddrInet6); ok {
			s.zone = six.ZoneId
		}
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		unix.Close(s.fd)
		return nil, fmt.Errorf("queue: %w", os.NewSyscallError("setsockopt SO_TIMESTAMPNS", err))
	}
	return s, nil
}

// StartQueue is ListenQueue and Run in the background: for a target inside the process that measures. Close ends it.
func StartQueue(cfg QueueConfig) (*QueueServer, error) {
	s, err := ListenQueue(cfg)
	if err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// Addr is the address as bound.
func (s *QueueServer) Addr() netip.AddrPort { return s.addr }

// Allow is who is served.
func (s *QueueServer) Allow() []netip.Prefix { return append([]netip.Prefix(nil), s.allow...) }

// String describes the target in one line.
func (s *QueueServer) String() string { return s.cfg.String() }

// Run serves until ctx ends, Close is called or the thread fails. What is inside then is never answered. A QueueServer runs once.
func (s *QueueServer) Run(ctx context.Context) error {
	if !s.start() {
		return errors.New("queue: the target has run already")
	}
	defer context.AfterFunc(ctx, s.stop)()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *QueueServer) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.started {
		return false
	}
	s.started = true
	go func() {
		defer close(s.done)
		if err := s.serve(); err != nil {
			s.mu.Lock()
			s.err = fmt.Errorf("queue: %w", err)
			s.mu.Unlock()
		}
	}()
	return true
}

func (s *QueueServer) stop() {
	s.stopped.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if err := sys.Shut(s.fd); err != nil && s.err == nil {
		s.err = fmt.Errorf("queue: %w", err)
	}
}

// Close stops the thread, waits for it and closes the socket. It returns the thread's error and is idempotent.
func (s *QueueServer) Close() error {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if started {
		s.stop()
		<-s.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.readDrops()
		s.closed = true
		unix.Close(s.fd)
	}
	return s.err
}

func (s *QueueServer) readDrops() {
	if n, err := sys.SocketDrops(s.fd); err == nil && !s.closed {
		s.drops = uint64(n)
	}
}

// Truth is what the target knows about itself, as of now.
func (s *QueueServer) Truth() Truth {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.readDrops()
	}
	t := Truth{Schema: TruthSchema, Queue: s.cfg.String(), Denied: s.denied, Drops: s.drops, Runs: []RunTruth{}}
	for _, r := range s.runs {
		t.Runs = append(t.Runs, r.truth(s.cfg.Stalls))
	}
	return t
}

// serve is the thread: it takes what has arrived, sends what is to leave, and waits for the next of either.
func (s *QueueServer) serve() error {
	runtime.LockOSThread() // never unlocked: affinity and timer slack end with the thread
	if err := sys.TimerSlack(1); err != nil {
		return err
	}
	if len(s.cfg.CPUs) > 0 {
		restore, err := sys.Pin(s.cfg.CPUs...)
		if err != nil {
			return fmt.Errorf("cpus %v: %w", s.cfg.CPUs, err)
		}
		defer restore()
	}
	for !s.stopped.Load() {
		n, errno := s.mail.Receive(s.fd, false)
		if errno != 0 {
			if answer, _ := backend.Classify(errno); answer == backend.AnswerFatal {
				return os.NewSyscallError("recvmmsg", errno)
			}
			n = 0
		}
		next := s.pass(n)
		if n > 0 {
			continue
		}
		left := min(next-s.cfg.Now(), int64(pollWait))
		if left <= int64(spinBefore) && next != never {
			continue
		}
		if next != never {
			left -= int64(spinBefore)
		}
		if err := s.await(left); err != nil {
			return err
		}
	}
	return nil
}

// await waits for a packet, at most ns.
func (s *QueueServer) await(ns int64) error {
	limit := unix.NsecToTimespec(max(ns, 0))
	if _, err := unix.Ppoll(s.poll[:], &limit, nil); err != nil && err != syscall.EINTR {
		return os.NewSyscallError("ppoll", err)
	}
	return nil
}

// never is the time of the next departure when nothing is inside.
const never = int64(1<<63 - 1)

// pass admits the n datagrams in the mailbox, in order, sends what is to leave by now, and returns the time of the next departure.
func (s *QueueServer) pass(n int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if n > 0 {
		s.clock.Renew(now, s.cfg.Now)
	}
	for i := range n {
		at := now
		if stamp := s.mail.Stamp(i); stamp != 0 {
			at = max(min(s.clock.Monotonic(stamp), now), s.heard)
		}
		s.release(at)
		s.arrive(i, at)
	}
	s.release(s.cfg.Now())
	if len(s.inside) == 0 {
		return never
	}
	return s.inside[0].due
}

// arrive deals with datagram i, which came at at.
func (s *QueueServer) arrive(i int, at int64) {
	peer := s.mail.Peer(i)
	if !peer.IsValid() {
		return // the socket was shut down
	}
	if !contains(s.allow, peer.Addr()) || peer == s.addr || peer.Port() == s.addr.Port() && contains(s.own, peer.Addr()) {
		s.denied++
		return
	}
	payload := s.mail.Payload(i)
	var st packet.Stamp
	stamped := packet.ParseStamp(payload, at, &st)
	r := s.runOf(&st, stamped, at)
	name := Name{st.Worker, st.Seq}
	if !stamped {
		name = Name{0, r.Arrivals}
	}
	r.Arrivals++
	r.last, s.heard = at, at
	fault := s.cfg.Faults.At(name.Worker, name.Seq)
	switch {
	case fault == FaultDrop:
		r.Dropped.add(name)
		return
	case int(r.Inside) >= s.cfg.Capacity:
		r.Full.add(name)
		return
	}
	q := s.take()
	q.name, q.fault, q.run, q.arrived, q.stamped, q.alone = name, fault, r, at, stamped, false
	q.payload = append(q.payload[:0], payload...)
	q.address(peer, s.zone)
	q.count, q.window = 0, 0
	l := lane{peer: peer, worker: name.Worker}
	if stamped && !st.Compact {
		q.count, q.window = s.flows.observe(peer, &st, at, &s.counts)
		if st.Stride > 0 {
			l.index = uint16(st.Seq % uint64(st.Stride))
		}
	}
	q.order = s.orderOf(l)
	service := serviceOf(s.cfg.Service, s.cfg.Jitter, s.cfg.Faults.Seed, name.Worker, name.Seq)
	_, depart := s.queue.Admit(at-r.began, service)
	if fault == FaultDelay {
		depart = s.queue.Later(depart, int64(s.cfg.Faults.DelayBy))
	}
	q.depart = r.began + depart
	q.due = q.depart
	r.sojourn.Record(q.depart - at)
	r.area += float64(q.depart - at)
	r.Inside++
	r.InsideMax = max(r.InsideMax, int(r.Inside))
	s.push(q)
}

// runOf is the run that a packet belongs to: a new one when nothing is inside and, after a silence, another epoch or a sender's first
// packet comes. The queue then starts anew, with its stalls ahead.
func (s *QueueServer) runOf(st *packet.Stamp, stamped bool, at int64) *running {
	if len(s.runs) > 0 {
		r, silence := s.runs[len(s.runs)-1], at-s.heard
		begins := silence > int64(quietPlain)
		if stamped && !st.Compact {
			begins = silence > int64(quiet) && (st.Epoch != r.Epoch || st.Seq == 0 && st.Worker == 0)
		}
		if !begins || r.Inside > 0 {
			return r
		}
		if len(s.runs) == truthRuns {
			s.runs = append(s.runs[:0], s.runs[1:]...)
		}
	}
	r := &running{began: at, last: at}
	r.Epoch = st.Epoch
	s.runs = append(s.runs, r)
	s.queue = NewQueue(s.cfg.Servers, s.cfg.Stalls)
	clear(s.lanes)
	return r
}

func (s *QueueServer) orderOf(l lane) *order {
	o := s.lanes[l]
	if o == nil {
		o = &order{newest: -1}
		if len(s.lanes) < defaultFlows { // beyond it, flows are not remembered, and no reply of them overtakes another
			s.lanes[l] = o
		}
	}
	return o
}

// take is a request to fill: a used one, or a new one.
func (s *QueueServer) take() *request {
	if n := len(s.spare); n > 0 {
		q := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return q
	}
	return &request{}
}

func (q *request) address(peer netip.AddrPort, zone uint32) {
	if q.is4 = peer.Addr().Is4(); q.is4 {
		q.v4.Port, q.v4.Addr = int(peer.Port()), peer.Addr().As4()
		return
	}
	q.v6.Port, q.v6.Addr, q.v6.ZoneId = int(peer.Port()), peer.Addr().As16(), 0
	if peer.Addr().IsLinkLocalUnicast() {
		q.v6.ZoneId = zone
	}
}

func (s *QueueServer) push(q *request) {
	s.serial++
	q.serial = s.serial
	s.inside.push(q)
}

// release sends what is to leave by now, in order of departure.
func (s *QueueServer) release(now int64) {
	for len(s.inside) > 0 && s.inside[0].due <= now {
		q := s.inside.pop()
		switch {
		case q.fault == FaultReorder && !q.alone && q.order.held == nil:
			q.order.held = q
			q.alone = true
			q.due = q.run.began + s.queue.Later(q.depart-q.run.began, int64(reorderWait))
			s.push(q)
			continue
		case q.fault == FaultReorder && q.order.held != q && q.alone:
			s.spare = append(s.spare, q) // it was overtaken and has left
			continue
		case q.order.held == q:
			q.order.held = nil
			q.run.NotReordered++
		case q.fault == FaultReorder:
			q.run.NotReordered++ // another of its flow is being held
		}
		left := s.leave(q)
		if held := q.order.held; left && held != nil {
			q.order.held = nil
			s.leave(held)
		}
		s.spare = append(s.spare, q)
	}
}

// leave completes a request and reports whether a reply was sent.
func (s *QueueServer) leave(q *request) bool {
	r := q.run
	r.Completions++
	r.Inside--
	now := s.cfg.Now()
	r.last = max(r.last, q.depart)
	if q.fault == FaultDropReply {
		r.DroppedReplies.add(q.name)
		return false
	}
	if q.stamped {
		packet.PutServer(q.payload, q.arrived, now, q.count, q.window)
	}
	if !s.reply(q) {
		r.Refused++
		return false
	}
	if !q.alone { // a reply that is held leaves later than computed on purpose
		r.behind.Record(max(s.cfg.Now()-q.depart, 0))
	}
	r.Answered++
	if seq := int64(q.name.Seq); seq < q.order.newest {
		r.Reordered.add(q.name)
	} else {
		q.order.newest = seq
	}
	switch q.fault {
	case FaultDuplicate:
		if s.reply(q) {
			r.Duplicated.add(q.name)
		}
	case FaultDelay:
		r.Delayed.add(q.name)
	}
	return true
}

// reply sends one and reports whether the kernel took it.
func (s *QueueServer) reply(q *request) bool {
	var to unix.Sockaddr = &q.v4
	if !q.is4 {
		to = &q.v6
	}
	for {
		err := unix.Sendto(s.fd, q.payload, 0, to)
		if errno, ok := err.(syscall.Errno); ok {
			if answer, _ := backend.Classify(errno); answer == backend.AnswerRetry {
				continue
			}
		}
		return err == nil
	}
}

// departures is a heap of requests by time of departure, and of arrival where that is equal.
type departures []*request

func (d departures) before(i, j int) bool {
	return d[i].due < d[j].due || d[i].due == d[j].due && d[i].serial < d[j].serial
}

func (d *departures) push(q *request) {
	*d = append(*d, q)
	h := *d
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (d *departures) pop() *request {
	h := *d
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], nil
	h = h[:last]
	*d = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.before(c, least) {
				least = c
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
