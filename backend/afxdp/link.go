package afxdp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/packet"
	"blast/xdp"
)

const (
	// refreshEvery is how often next hops are confirmed: the kernel forgets a neighbour that its own packets do not use after about a
	// minute (neigh(7), base_reachable_time_ms and gc_stale_time), and so may the switches on the way.
	refreshEvery = 30 * time.Second
	// refreshWait bounds one confirmation. Open and Close wait for it.
	refreshWait = 500 * time.Millisecond
	// neighbourWait bounds the wait for a neighbour at Open. The kernel asks three times, a second apart.
	neighbourWait = 4 * time.Second
)

// host is what the workers of one Entry share: the next hops and the interfaces. It opens with the first worker and closes with the
// last. The zero value is ready.
type host struct {
	refresh time.Duration // 0 means refreshEvery

	// changes counts next hops that moved: whoever wrote their address into headers has to do it again.
	changes atomic.Uint32

	mu       sync.Mutex
	users    int
	resolver *xdp.Resolver
	ways     map[wayKey]*way
	devices  map[deviceKey]*device
	quit     chan struct{} // ends the refresher
	ended    chan struct{} // closed when it has ended
}

type wayKey struct {
	to, from netip.Addr
	by       string
}

// way is the next hop of all flows between two addresses, or why there is none.
type way struct {
	hop *xdp.NextHop
	err error
}

type deviceKey struct {
	name    string
	mode    xdp.Mode
	receive bool
	stamp   bool // the program notes arrivals
}

// device is one interface with its XDP program, in use by one or more workers.
type device struct {
	key   deviceKey
	xdp   *xdp.Device
	users int
	ports map[uint16]int // how many workers have flows from a port
}

// link is one worker's share: what its Sender and its Receiver both use. The last of the two to close closes it.
type link struct {
	host    *host
	queue   int
	socks   *udpsock.Sockets
	sources []netip.AddrPort
	ways    []*way
	flows   []*packet.Flow // belongs to the Sender once opened
	device  *device
	sock    *xdp.Socket
	ports   []uint16 // redirected
	joined  bool
	users   atomic.Int32

	// What notes are made of.
	redirected, passed, strays, damaged atomic.Uint64
}

// join makes the worker one of the host's.
func (h *host) join(l *link) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 {
		r, err := xdp.NewResolver()
		if err != nil {
			return err
		}
		h.resolver, h.ways, h.devices = r, map[wayKey]*way{}, map[deviceKey]*device{}
		h.quit, h.ended = make(chan struct{}), make(chan struct{})
		go h.refresher(h.quit, h.ended)
	}
	h.users++
	l.joined = true
	return nil
}

// attach finds the way of every flow, opens the interface where no other worker has, and a socket on the worker's queue.
func (h *host) attach(l *link, cfg *backend.Config) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range cfg.Flows {
		w := h.find(wayKey{f.Dst.Addr().Unmap(), l.sources[i].Addr().Unmap().WithZone(""), cfg.Interface})
		if w.err != nil {
			return fmt.Errorf("flow %d: %w", i, w.err)
		}
		if first := l.ways; len(first) > 0 && first[0].hop.Interface != w.hop.Interface {
			return fmt.Errorf("flow %d leads to %s and flow 0 to %s: a worker has one interface; give each its own run, or use --backend sendmmsg: %w",
				i, w.hop.Interface, first[0].hop.Interface, errors.ErrUnsupported)
		}
		flow, err := buildFlow(w.hop, l.sources[i], f.Dst)
		if err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
		l.ways, l.flows = append(l.ways, w), append(l.flows, flow)
	}
	key := deviceKey{name: l.ways[0].hop.Interface, receive: cfg.Receive, stamp: cfg.Stamps && cfg.Receive}
	if cfg.ZeroCopy {
		key.mode = xdp.ZeroCopy
	}
	var err error
	if l.device, err = h.open(key); err != nil {
		return err
	}
	if n := l.device.xdp.Queues(); l.queue >= n {
		return fmt.Errorf("queue %d of %s: it has %d, numbered from 0; worker %d takes queue %d + %d (see: ethtool -l %s)",
			l.queue, key.name, n, cfg.Worker, cfg.Queue, cfg.Worker, key.name)
	}
	l.sock, err = l.device.xdp.Open(socketConfig(l.queue, cfg))
	return err
}

func socketConfig(queue int, cfg *backend.Config) xdp.SocketConfig {
	c := xdp.SocketConfig{Queue: queue, Batch: cfg.Batch}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	c.TxFrames = max(txFrames, 4*c.Batch)
	if cfg.Receive {
		c.RxFrames = rxFrames
	}
	return c
}

// find is the way for a pair of addresses. A way that cannot be found is looked for once: workers wait for it together.
func (h *host) find(key wayKey) *way {
	w := h.ways[key]
	if w == nil {
		w = &way{}
		w.hop, w.err = h.resolver.Resolve(context.Background(), xdp.Target{Addr: key.to, Source: key.from, Interface: key.by, Wait: neighbourWait})
		h.ways[key] = w
	}
	return w
}

// open is the interface, opened where it is not.
func (h *host) open(key deviceKey) (*device, error) {
	d := h.devices[key]
	if d == nil {
		dev, err := xdp.Open(xdp.DeviceConfig{Interface: key.name, Mode: key.mode, Receive: key.receive, Stamp: key.stamp})
		if err != nil {
			return nil, err
		}
		d = &device{key: key, xdp: dev, ports: map[uint16]int{}}
		h.devices[key] = d
	}
	d.users++
	return d, nil
}

// steer takes the replies to the worker's ports from the kernel, as far as they come to its queue. A port from which several workers
// send, to targets of their own, stays the kernel's: its sockets know whose a reply is, a queue does not.
func (h *host) steer(l *link) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ports := make([]uint16, 0, len(l.sources))
	for _, a := range l.sources {
		ports = append(ports, a.Port())
	}
	slices.Sort(ports)
	d := l.device
	for _, p := range slices.Compact(ports) {
		err := error(nil)
		if d.ports[p] == 0 {
			err = d.xdp.SteerPorts(l.queue, p)
		} else {
			err = d.xdp.RemovePorts(p)
		}
		if err != nil {
			return err
		}
		d.ports[p]++
		l.ports = append(l.ports, p)
	}
	return nil
}

// share adds a user.
func (l *link) share() { l.users.Add(1) }

// release takes a user off, and closes everything when it was the last one: the program, or at least the queue's entry in its map,
// before the socket.
func (l *link) release() error {
	if l.users.Add(-1) > 0 {
		return nil
	}
	h := l.host
	h.mu.Lock()
	var errs []error
	if d := l.device; d != nil {
		errs = append(errs, h.leave(d, l.ports))
	}
	if l.sock != nil {
		errs = append(errs, l.sock.Close())
	}
	var ended chan struct{}
	if l.joined {
		if h.users--; h.users == 0 {
			h.resolver.Close()
			close(h.quit)
			ended = h.ended
		}
	}
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
	return errors.Join(append(errs, l.socks.Release())...)
}

// leave gives ports back and closes the interface behind its last worker.
func (h *host) leave(d *device, ports []uint16) error {
	if d.users--; d.users == 0 {
		delete(h.devices, d.key)
		return d.xdp.Close()
	}
	var errs []error
	for _, p := range ports {
		if d.ports[p]--; d.ports[p] == 0 {
			errs = append(errs, d.xdp.RemovePorts(p))
		}
	}
	return errors.Join(errs...)
}

// refresher confirms the next hops from time to time, which the kernel does not do for packets that it does not see.
func (h *host) refresher(quit <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	every := h.refresh
	if every == 0 {
		every = refreshEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
		}
		h.mu.Lock()
		ways := make([]*way, 0, len(h.ways))
		for _, w := range h.ways {
			ways = append(ways, w)
		}
		h.mu.Unlock()
		for _, w := range ways {
			h.confirm(w, quit)
		}
	}
}

// confirm asks for one next hop again. One that does not answer keeps its address: perhaps it only does not answer such questions.
func (h *host) confirm(w *way, quit <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-quit: // the resolver is closed
		return
	default:
	}
	if w.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), refreshWait)
	defer cancel()
	if changed, err := h.resolver.Refresh(ctx, w.hop); err == nil && changed {
		h.changes.Add(1)
	}
}

// rebuild makes the headers anew after a next hop moved, and reports whether it did: it does not wait for a confirmation that is under way.
func (l *link) rebuild() bool {
	if !l.host.mu.TryLock() {
		return false
	}
	defer l.host.mu.Unlock()
	for i, w := range l.ways {
		if old := l.flows[i].Headers(); old.DstMAC != packet.MAC(w.hop.DstMAC) {
			if f, err := buildFlow(w.hop, old.Src, old.Dst); err == nil { // it was good before
				l.flows[i] = f
			}
		}
	}
	return true
}

// notes are what a reader of the report must know of the replies.
func (l *link) notes() []string {
	var notes []string
	if n, all := l.passed.Load(), l.passed.Load()+l.redirected.Load(); n > 0 {
		notes = append(notes, fmt.Sprintf("replies: %d of %d did not come to queue %d of %s, or came in fragments, or to a port that several workers share: "+
			"ordinary sockets received them, later than AF_XDP would have", n, all, l.queue, l.device.key.name))
	}
	if n := l.damaged.Load(); n > 0 {
		notes = append(notes, fmt.Sprintf("replies: %d had a wrong checksum and were thrown away, as the kernel would have", n))
	}
	if n := l.strays.Load(); n > 0 {
		notes = append(notes, fmt.Sprintf("replies: %d packets to our ports were of no flow of queue %d and were thrown away", n, l.queue))
	}
	return notes
}
