package xdplive

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/xdp/live"
)

// worker is one backend.Offload.
type worker struct {
	run           *run
	config        live.SenderConfig
	sender        *live.Sender
	sources       []netip.AddrPort
	sockets       []*net.UDPConn
	layoutIP, mtu int
	ipv6          bool
	notes         []string
	ended         atomic.Bool // Run has returned
	closed        bool
}

var _ backend.Offload = (*worker)(nil)

func (w *worker) Run(atMost time.Duration) error {
	defer w.ended.Store(true)
	return w.sender.Run(atMost)
}

func (w *worker) Ready() (bool, error) { return w.sender.Ready() }

func (w *worker) Start(start, deadline int64) error { return w.sender.Start(start, deadline) }

func (w *worker) Stop() { w.sender.Stop() }

func (w *worker) Collect(now int64, fn func(*backend.OffloadInterval)) error {
	return w.sender.Collect(now, func(v *live.SenderInterval) {
		fn(&backend.OffloadInterval{Index: v.Index, Sent: v.Sent, Lag: bucketsOf(&v.Lag)})
	})
}

// bucketsOf is a histogram in the contract's form; the layouts are the same.
func bucketsOf(h *live.Histogram) backend.Buckets {
	return backend.Buckets{Counts: h.Buckets, Min: h.Min, Max: h.Max, SumLo: h.SumLo, SumHi: h.SumHi, Refused: h.Refused}
}

func (w *worker) Books() (backend.OffloadBooks, error) {
	a, err := w.sender.Account()
	if err != nil {
		return backend.OffloadBooks{}, err
	}
	b := backend.OffloadBooks{
		Next: a.Next, Sent: a.Sent, Dropped: a.Dropped, Skipped: a.Skipped, Ended: a.Ended, Aborted: a.Aborted, LastSent: a.LastSent,
		Waited: a.Waited, Guard: int64(w.sender.IdleNS()) + 1, Gaps: a.Renewals, Bridged: a.Bridged, MaxGap: a.Gap,
	}
	b.Refused[backend.CauseDown] = a.Gone
	if a.Failed > 0 {
		cause := backend.CauseInvalid
		// ENXIO: the peer of a veth pair no longer takes redirected frames. None of the errnos here is back-pressure.
		if answer, c := backend.Classify(a.Error); answer == backend.AnswerRefused {
			cause = c
		}
		if a.Error == unix.ENXIO {
			cause = backend.CauseDown
		}
		b.Refused[cause] += a.Failed
	}
	err = w.histograms(&b)
	return b, err
}

// histograms fills in those of the books, which are a megabyte to read, and valid only once Run has returned.
func (w *worker) histograms(b *backend.OffloadBooks) error {
	if !w.ended.Load() {
		return nil
	}
	flush, err := w.sender.FlushTimes()
	if err != nil {
		return err
	}
	gap, off, err := w.sender.Gaps()
	b.Flush, b.Gap, b.GapError = bucketsOf(&flush), bucketsOf(&gap), bucketsOf(&off)
	return err
}

func (w *worker) Unsent(fn func(seq uint64)) (missed uint64, err error) { return w.sender.Unsent(fn) }

func (w *worker) Limits() backend.Limits {
	room := min(w.mtu-(w.config.Header-w.layoutIP), maxFrame-w.config.Header)
	notes := append([]string{
		fmt.Sprintf("batch %d: a packet leaves up to %.1f us after its stamp while the rest of the batch waits", w.config.Batch, float64(w.sender.Quantum())/1e3),
		"a run of more than some minutes takes several calls of the kernel; a second thread, on a CPU to spare, does the work between two",
	}, w.notes...)
	if w.config.Times != nil {
		notes = append(notes, "planned times are handed to the kernel one by one, as the schedule has no segments; a second CPU has to keep up with that")
	}
	return backend.Limits{Batch: w.config.Batch, PayloadBytes: room, GSO: 1, Mode: "XDP live frames, in-kernel schedule",
		Sources: append([]netip.AddrPort(nil), w.sources...), Notes: notes}
}

// Close releases the worker, and with the last one what they share but the receiver, which has a Close of its own.
func (w *worker) Close() error {
	if w.closed {
		return nil
	}
	err := w.release()
	for _, other := range w.run.workers {
		if !other.closed {
			return err
		}
	}
	if w.run.receiver != nil {
		err = errors.Join(err, w.run.receiver.Close())
	}
	return err
}

func (w *worker) release() error {
	w.closed = true
	var errs []error
	if w.sender != nil {
		errs = append(errs, w.sender.Close())
	}
	for _, s := range w.sockets {
		errs = append(errs, s.Close())
	}
	w.sockets = nil
	return errors.Join(errs...)
}
