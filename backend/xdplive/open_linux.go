package xdplive

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"blast/backend"
	"blast/xdp/live"
)

// Name is the value of --backend.
const Name = "xdp_live"

// Entry is the row of this backend.
func Entry() backend.OffloadEntry {
	return backend.OffloadEntry{Name: Name, Open: Open, Receiver: OpenReceiver, Probe: Probe, Reach: Reach}
}

// Probe tells whether the in-kernel engine works on this kernel with these privileges. Whether an interface can do it, Open tells.
func Probe() error { return wrap(live.Probe()) }

// Reach implements backend.OffloadEntry.Reach. It asks neighbours for their addresses and attaches nothing.
func Reach(flows []backend.Flow) error {
	ways, err := newWays()
	if err != nil {
		return wrap(err)
	}
	defer ways.close()
	for i, f := range flows {
		if _, err := ways.find(f, ""); err != nil {
			return wrap(fmt.Errorf("flow %d: %w", i, err))
		}
	}
	if len(flows) == 0 {
		return wrap(errors.New("no flow"))
	}
	device, err := live.Inspect(ways.interfaceName)
	if err != nil {
		return wrap(err)
	}
	// Other drivers may gain the ability with the program that Open attaches.
	if device.Kind == "veth" || device.Loopback {
		return wrap(device.CanTransmit())
	}
	return nil
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", Name, err)
}

// Open implements backend.OpenOffload.
func Open(cfgs []backend.OffloadConfig, receive *backend.ReceiverConfig) (_ []backend.Offload, _ backend.OffloadReceiver, err error) {
	r := &run{}
	defer func() {
		if err != nil {
			err = wrap(errors.Join(err, r.close()))
		}
	}()
	if err := r.prepare(cfgs); err != nil {
		return nil, nil, err
	}
	if err := r.attach(receive, cfgs[0].Held); err != nil {
		return nil, nil, err
	}
	if err := r.device.CanTransmit(); err != nil {
		return nil, nil, err
	}
	var list []backend.Offload
	for i := range cfgs {
		w := r.workers[i]
		if w.sender, err = live.NewSender(w.config); err != nil {
			return nil, nil, fmt.Errorf("worker %d: %w", i, err)
		}
		list = append(list, w)
	}
	if receive == nil {
		return list, nil, nil
	}
	return list, r.receiver, nil
}

// run is what the workers of one run share.
type run struct {
	device   *live.Interface
	workers  []*worker
	held     map[netip.AddrPort]struct{} // sources with a socket
	receiver *receiver                   // also where a sending interface only needs a program attached
}

// prepare resolves and builds everything that needs no privilege but asking for neighbours.
func (r *run) prepare(cfgs []backend.OffloadConfig) error {
	ways, err := newWays()
	if err != nil {
		return err
	}
	defer ways.close()
	for i := range cfgs {
		w := &worker{run: r}
		r.workers = append(r.workers, w)
		if err := w.prepare(&cfgs[i], ways); err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
	}
	if r.device, err = live.Inspect(ways.interfaceName); err != nil {
		return err
	}
	for i, w := range r.workers {
		w.config.Device = r.device.Index
		if n := len(w.config.Frames[0]); n > maxFrame {
			return fmt.Errorf("worker %d: frames of %d bytes: the kernel's live frames are in one page each and hold %d; use --backend sendmmsg: %w",
				i, n, maxFrame, errors.ErrUnsupported)
		}
		if room := w.mtu - (w.config.Header - w.layoutIP); cfgs[i].PayloadBytes > room {
			return fmt.Errorf("worker %d: payload of %d bytes: the MTU of %d leaves %d: %w", i, cfgs[i].PayloadBytes, w.mtu, room, errors.ErrUnsupported)
		}
	}
	return nil
}

// maxFrame is what a page holds beside 256 bytes of headroom, the kernel's own notes and struct skb_shared_info (net/bpf/test_run.c,
// bpf_prog_test_run_xdp), rounded down.
const maxFrame = 3300

// attach opens the receiver, or puts a program on the sending interface where drivers other than veth send redirected frames only so. veth, in
// turn, takes frames that an XDP program of its peer answers with only so, or with GRO: that is for sockets that wait for replies.
func (r *run) attach(receive *backend.ReceiverConfig, sockets bool) error {
	cfg := backend.ReceiverConfig{}
	switch {
	case receive != nil:
		cfg = *receive
		for _, w := range r.workers {
			for _, src := range w.sources {
				cfg.Ports = append(cfg.Ports, src.Port())
			}
		}
	case r.device.Kind == "veth" && !sockets || r.device.Loopback:
		return nil
	}
	what := "sending"
	if r.device.Kind == "veth" {
		what = "replies by XDP programs"
	}
	var err error
	r.receiver, err = newReceiver(r.device, cfg)
	if err == nil && receive == nil {
		for _, w := range r.workers {
			w.notes = append(w.notes, fmt.Sprintf("a pass-all XDP program is attached to %s, as its driver needs for %s", r.device.Name, what))
		}
	}
	return err
}

// close lets go of everything; the last Close of a worker calls it.
func (r *run) close() error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.release())
	}
	if r.receiver != nil {
		errs = append(errs, r.receiver.Close())
	}
	return errors.Join(errs...)
}

// OpenReceiver implements backend.OpenReceiver: replies to any backend's packets, timed where they arrive.
func OpenReceiver(cfg backend.ReceiverConfig) (backend.OffloadReceiver, error) {
	device, err := live.Inspect(cfg.Interface)
	if err != nil {
		return nil, wrap(err)
	}
	r, err := newReceiver(device, cfg)
	if err != nil {
		return nil, wrap(err)
	}
	return r, nil
}

// batchFor is how many turns of the kernel's loop to flush after, at a rate in packets per second: few at low rates, where a packet waits
// for the rest of the batch for nothing; more where several packets come to a batch, which share the cost of a flush and of the softirqs
// behind it.
func batchFor(rate float64, unpaced bool) int {
	switch {
	case unpaced:
		return 32
	case rate <= 100e3:
		return 8
	case rate <= 500e3:
		return 16
	case rate <= 2e6:
		return 32
	}
	return 64
}

// departuresMost is the rate in packets per second up to which departures are compared with the plan: that takes about 3 % of a core there.
const departuresMost = 1e6

// defaultWait bounds the wait for an answer of a neighbour.
const defaultWait = 4 * time.Second
