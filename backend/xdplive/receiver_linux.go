package xdplive

import (
	"fmt"

	"blast/backend"
	"blast/xdp/live"
)

// receiver is the backend.OffloadReceiver.
type receiver struct {
	live   *live.Receiver
	shares int
	notes  []string
}

var _ backend.OffloadReceiver = (*receiver)(nil)

func newReceiver(device *live.Interface, cfg backend.ReceiverConfig) (*receiver, error) {
	c := live.ReceiverConfig{Ports: cfg.Ports, Epoch: cfg.Epoch, Timeout: cfg.Timeout, Interval: cfg.Interval, Tell: live.Kinds(cfg.Tell)}
	for _, s := range cfg.Shares {
		c.Shares = append(c.Shares, live.Share(s))
	}
	l, err := live.NewReceiver(device, c)
	if err != nil {
		return nil, err
	}
	r := &receiver{live: l, shares: len(cfg.Shares)}
	if !l.Native() {
		r.notes = append(r.notes, fmt.Sprintf("replies are received in generic mode: driver %q of %s has no XDP of its own", device.Driver, device.Name))
	}
	if r.shares > 0 {
		r.notes = append(r.notes, "replies are timed in the kernel by their stamps; their UDP checksums are not checked")
	}
	return r, nil
}

func (r *receiver) Begin(start int64) error { return r.live.Begin(start) }

func (r *receiver) Collect(now int64, fn func(*backend.ReceiverInterval)) error {
	return r.live.Collect(now, func(v *live.ReceiverInterval) {
		fn(&backend.ReceiverInterval{Index: v.Index, Replied: v.Replied, Latency: bucketsOf(&v.Latency), Service: bucketsOf(&v.Service), Server: bucketsOf(&v.Server)})
	})
}

func (r *receiver) Books() ([]backend.ReceiverBooks, error) {
	list := make([]backend.ReceiverBooks, r.shares)
	for i := range list {
		t, err := r.live.Tally(i)
		if err != nil {
			return nil, err
		}
		list[i] = backend.ReceiverBooks{Unique: t.Unique, Replied: t.Replied, Late: t.Late, Duplicate: t.Duplicate, Reordered: t.Reordered,
			Stray: t.Stray, Longest: t.Longest}
	}
	return list, nil
}

func (r *receiver) Unseen(worker int, from, to uint64, each func(seq uint64)) (uint64, error) {
	return r.live.Unseen(worker, from, to, each)
}

func (r *receiver) Told(fn func(*backend.Reply)) (missed uint64, err error) {
	return r.live.Told(func(e *live.Event) {
		fn(&backend.Reply{Worker: uint16(e.Worker), Seq: e.Seq, Planned: e.Planned, Sent: e.Sent, Received: e.Received, Kinds: backend.ReplyKinds(e.Kinds)})
	})
}

func (r *receiver) Mode() string {
	if r.live.Native() {
		return "native XDP"
	}
	return "generic XDP"
}

func (r *receiver) Notes() []string { return r.notes }

func (r *receiver) Close() error { return r.live.Close() }
