package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf/link"
)

// TargetConfig is an in-kernel target.
type TargetConfig struct {
	// Endpoints are the local addresses and ports served; none may be a wildcard.
	Endpoints []netip.AddrPort
	// Echo answers; else datagrams are counted and swallowed.
	Echo bool
	// Allow are the peers served; others are counted and their datagrams swallowed.
	Allow []netip.Prefix
	// Faults, if set, make some requests fare badly.
	Faults *TargetFaults
}

// TargetCounts is what a target saw, in datagrams but for Bytes of payload. Unfinished ones were too long for their missing checksum to be
// computed, and not answered. Untold requests suffered a fault and could not be named.
type TargetCounts struct {
	Received, Bytes, Denied, Replied, Malformed, Unfinished uint64
	Untold                                                  uint64
}

func (t *TargetCounts) add(c *echoCounts) {
	t.Received += c.Received
	t.Bytes += c.Bytes
	t.Denied += c.Denied
	t.Replied += c.Replied
	t.Malformed += c.Malformed
	t.Unfinished += c.Unfinished
	t.Untold += c.Untold
}

// Target answers UDP datagrams in the XDP program of an interface. Its methods may be called from any thread.
type Target struct {
	objects echoObjects
	link    link.Link
	second  link.Link // of the program behind the driver, where there is one
	touches *ring     // nil without faults
	native  bool

	mu     sync.Mutex
	closed bool
	last   TargetCounts
}

// NewTarget loads the program and attaches it to an interface of the calling thread's namespace.
func NewTarget(i *Interface, cfg TargetConfig) (_ *Target, err error) {
	t := &Target{}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), t.Close())
		}
	}()
	if err := t.load(i, cfg.Faults); err != nil {
		return nil, err
	}
	if err := t.fill(&cfg); err != nil {
		return nil, err
	}
	if t.link, t.native, err = i.attach(t.objects.Answer); err != nil {
		return nil, err
	}
	return t, t.behind(i, cfg.Faults)
}

// load loads the program in the form that the interface needs.
func (t *Target) load(i *Interface, faults *TargetFaults) error {
	spec, err := loadEcho()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	redirect := uint32(0)
	if i.Kind == "veth" {
		redirect = 1
	}
	if err := spec.Variables[echoVarREDIRECT].Set(redirect); err != nil {
		return fmt.Errorf("constant %s: %w", echoVarREDIRECT, err)
	}
	if err := faults.suffer(spec); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&t.objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	if redirect == 0 {
		return nil
	}
	if err := t.objects.Self.Put(uint32(0), uint32(i.Index)); err != nil {
		return fmt.Errorf("interface number %d: %w", i.Index, err)
	}
	return nil
}

// fill writes endpoints and allow list.
func (t *Target) fill(cfg *TargetConfig) error {
	mode := uint32(1)
	if cfg.Echo {
		mode = 2
	}
	ports := map[uint32]uint64{}
	for _, e := range cfg.Endpoints {
		if !e.IsValid() || e.Addr().IsUnspecified() || e.Port() == 0 {
			return fmt.Errorf("endpoint %v: want an address and a port", e)
		}
		key := echoEndpoint{Addr: words(e.Addr()), Port: networkOrder(e.Port())}
		if err := t.objects.Endpoints.Put(&key, mode); err != nil {
			return fmt.Errorf("endpoint %v: %w", e, err)
		}
		ports[uint32(e.Port()>>6)] |= 1 << (e.Port() & 63)
	}
	for key, set := range ports {
		if err := t.objects.Ports.Put(key, set); err != nil {
			return fmt.Errorf("ports: %w", err)
		}
	}
	for _, p := range cfg.Allow {
		bits := uint32(p.Bits())
		if p.Addr().Is4() {
			bits += 96
		}
		if err := t.objects.Allowed.Put(&echoPrefix{Bits: bits, Addr: words(p.Addr())}, uint32(1)); err != nil {
			return fmt.Errorf("allow %v: %w", p, err)
		}
	}
	return nil
}

// words is an address as it lies in memory, IPv4 mapped.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// networkOrder is a port as it lies in a header.
func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// Native reports whether the driver runs the program; else it runs behind the driver, on socket buffers.
func (t *Target) Native() bool { return t.native }

// Counts is what the target saw on each CPU so far. After Close it is what there was then, as one.
func (t *Target) Counts() ([]TargetCounts, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return []TargetCounts{t.last}, nil
	}
	var perCPU []echoCounts
	if err := t.objects.Totals.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	list := make([]TargetCounts, len(perCPU))
	for i := range perCPU {
		list[i].add(&perCPU[i])
	}
	return list, nil
}

// Close takes the program off. It is idempotent.
func (t *Target) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	for _, l := range []link.Link{t.second, t.link} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if t.objects.Totals != nil {
		var perCPU []echoCounts
		errs = append(errs, t.objects.Totals.Lookup(uint32(0), &perCPU))
		for i := range perCPU {
			t.last.add(&perCPU[i])
		}
	}
	return errors.Join(append(errs, t.touches.close(), t.objects.Close())...)
}
