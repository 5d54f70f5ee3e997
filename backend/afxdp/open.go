package afxdp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"blast/backend"
	"blast/internal/udpsock"
	"blast/packet"
	"blast/xdp"
)

// Name is the value of --backend.
const Name = "af_xdp"

const (
	// defaultBatch is the number of slots of a Commit where none is asked for.
	defaultBatch = 64
	// maxBatch bounds the memory of a Sender: four batches of frames of up to 4096 bytes.
	maxBatch = 1 << 12
	// txFrames is the number of frames for sending that a Sender has at least.
	txFrames = 2048
	// rxFrames is the number of replies that may wait: 4 ms at a million packets a second.
	rxFrames = 4096
)

// Entry is the row of this backend. The Senders and Receivers that are opened through one Entry share the XDP program of their interface;
// they belong to one network namespace.
func Entry() backend.Entry {
	h := &host{}
	return backend.Entry{Name: Name, Open: h.openWorker, Probe: Probe, Stamps: true}
}

// Open implements backend.Open for one worker that has its interface to itself.
func Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	return (&host{}).openWorker(cfg)
}

// Probe tells whether AF_XDP works here, and if not, which capability or kernel feature is missing. Which interface will be used it does
// not know: Open judges that one.
func Probe() error {
	if err := xdp.Probe(""); err != nil {
		return fmt.Errorf("af_xdp: %w", err)
	}
	return nil
}

// openWorker implements backend.Open.
func (h *host) openWorker(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	if err := check(&cfg); err != nil {
		return nil, nil, fmt.Errorf("af_xdp: %w", err)
	}
	l, limits, err := h.openLink(&cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("af_xdp: %w", errors.Join(err, l.release()))
	}
	s := newSender(&cfg, l, limits)
	if !cfg.Receive {
		return s, nil, nil
	}
	r, err := newReceiver(&cfg, l)
	if err != nil {
		return nil, nil, fmt.Errorf("af_xdp: %w", errors.Join(err, s.Close()))
	}
	return s, r, nil
}

// check returns everything about cfg that cannot be honoured, joined.
func check(cfg *backend.Config) error {
	plain := *cfg
	plain.Interface, plain.Queue = "", 0 // these a socket backend refuses, and this one does not
	errs := []error{udpsock.Check(&plain)}
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(cfg.Queue < 0 || cfg.Worker < 0, "queue %d, worker %d", cfg.Queue, cfg.Worker)
	refuse(cfg.Batch > maxBatch, "batch of %d: at most %d", cfg.Batch, maxBatch)
	refuse(cfg.GSO > 1 || cfg.GRO, "trains: frames leave one by one; --backend sendmmsg has trains")
	refuse(cfg.KernelStamp, "kernel receive times: there are none on this path; --backend sendmmsg has them")
	refuse(cfg.Fragment, "fragments: frames leave whole; --backend sendmmsg lets the kernel cut payloads up")
	refuse(cfg.SendBuffer != 0 || cfg.ReceiveBuffer != 0, "socket buffers: rings have fixed sizes; leave the sizes out")
	refuse(cfg.SQPoll, "a submission thread is a switch of io_uring")
	return errors.Join(errs...)
}

// openLink opens what Sender and Receiver share. On an error the caller releases what there is.
func (h *host) openLink(cfg *backend.Config) (*link, backend.Limits, error) {
	l := &link{host: h, queue: cfg.Queue + cfg.Worker}
	l.users.Store(1)
	plan := udpsock.NewPlan(cfg)
	l.socks = &udpsock.Sockets{}
	if err := l.socks.Open(cfg, plan); err != nil {
		return l, backend.Limits{}, err
	}
	limits := plan.Limits()
	l.sources = limits.Sources
	if err := h.join(l); err != nil {
		return l, limits, err
	}
	if err := h.attach(l, cfg); err != nil {
		return l, limits, err
	}
	limits.Arrivals = cfg.Stamps && cfg.Receive
	err := l.describe(cfg, &limits)
	if err == nil && cfg.Receive {
		err = h.steer(l)
	}
	return l, limits, err
}

// describe checks that the payload fits and writes down what was granted.
func (l *link) describe(cfg *backend.Config, limits *backend.Limits) error {
	g := l.sock.Granted()
	for i, f := range l.flows {
		room := f.MaxPayload(l.ways[i].hop.MTU, g.MaxFrame)
		if cfg.PayloadBytes > room {
			return fmt.Errorf("flow %d: payload of %d bytes: one packet takes at most %d here (MTU %d, frames of %d bytes); send less, or use --backend sendmmsg",
				i, cfg.PayloadBytes, room, l.ways[i].hop.MTU, g.FrameBytes)
		}
		limits.PayloadBytes = min(limits.PayloadBytes, room)
	}
	limits.Async, limits.GSO = true, 1
	limits.Batch = cfg.Batch
	if cfg.Batch == 0 {
		limits.Batch = defaultBatch
	}
	limits.ZeroCopy = g.Mode == xdp.ZeroCopy
	limits.SendBuffer, limits.ReceiveBuffer = g.SendBuffer, 0
	mode := map[xdp.Mode]string{xdp.ZeroCopy: "zero-copy", xdp.Native: "native copy", xdp.Generic: "generic copy"}[g.Mode]
	limits.Mode = fmt.Sprintf("%s on %s, program %s, %d-byte frames", mode, l.device.xdp.Interface(), g.Program, g.FrameBytes)
	limits.Notes = append(limits.Notes, g.Notes...)
	return nil
}

// buildFlow makes the header of one flow.
func buildFlow(hop *xdp.NextHop, src, dst netip.AddrPort) (*packet.Flow, error) {
	bare := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	return packet.NewFlow(packet.Headers{
		SrcMAC: hop.SrcMAC, DstMAC: hop.DstMAC, VLAN: hop.VLAN, Tagged: hop.Tagged, Src: bare(src), Dst: bare(dst),
	})
}

// misuse is what Commit says of a caller that does not keep to the contract.
func misuse(slots, reserved int) error {
	return fmt.Errorf("af_xdp: commit of %d slots, %d reserved", slots, reserved)
}

// waiting is what a Receiver says of an error of the call it waits with.
func waiting(call string, err error) error {
	return fmt.Errorf("af_xdp: wait for replies: %w", os.NewSyscallError(call, err))
}

// broken is what a Sender or Receiver says of an error of its AF_XDP socket.
func broken(err error) error { return fmt.Errorf("af_xdp: %w", err) }
