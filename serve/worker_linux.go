package serve

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"blast/backend"
	"blast/internal/sys"
	"blast/packet"
)

// worker serves one socket on one thread.
type worker struct {
	fd     int
	cpu    int // -1: not pinned
	mode   Mode
	allow  []netip.Prefix
	port   uint16         // the server's own
	own    []netip.Prefix // who is never served from that port: the server itself
	now    func() int64
	mail   *sys.Mailbox
	flows  *flows
	stop   *atomic.Bool
	drain  int // receive calls that surely empty a full receive buffer
	batch  Counts
	counts counters
}

// run serves until the server stops, then takes what is left in the socket, so that counts are exact.
func (w *worker) run() error {
	// Never unlocked: a pinned thread ends with its goroutine and its affinity goes with it.
	runtime.LockOSThread()
	if w.cpu >= 0 {
		restore, err := sys.Pin(w.cpu)
		if err != nil {
			return fmt.Errorf("pin to cpu %d: %w", w.cpu, err)
		}
		defer restore()
	} else {
		defer runtime.UnlockOSThread()
	}
	for !w.stop.Load() {
		if err := w.pass(true); err != nil && err != syscall.EAGAIN {
			return os.NewSyscallError("recvmmsg", err)
		}
	}
	for range w.drain {
		if w.pass(false) != nil {
			break
		}
	}
	return nil
}

// pass receives one batch and deals with it. EAGAIN says that nothing came.
func (w *worker) pass(wait bool) error {
	n, errno := w.mail.Receive(w.fd, wait)
	if errno != 0 {
		if answer, _ := backend.Classify(errno); answer == backend.AnswerFatal {
			return errno
		}
		return syscall.EAGAIN // a signal, or a shortage that passes
	}
	if w.mode == Sink {
		w.count(n)
	} else {
		w.echo(n)
	}
	if w.batch.Received+w.batch.Denied > 0 { // else it was the shutdown
		w.batch.Batches++
	}
	w.counts.publish(&w.batch)
	return nil
}

// admit counts datagram i and reports whether it may be dealt with.
func (w *worker) admit(i int) (peer netip.AddrPort, segment int, ok bool) {
	if peer = w.mail.Peer(i); !peer.IsValid() {
		return peer, 0, false // the socket was shut down
	}
	size := w.mail.Len(i)
	segments := 1
	if segment = w.mail.Segment(i); segment > 0 && segment < size {
		segments = (size + segment - 1) / segment
	} else {
		segment = size
	}
	if !contains(w.allow, peer.Addr()) || peer.Port() == w.port && contains(w.own, peer.Addr()) {
		w.batch.Denied += uint64(segments)
		return peer, 0, false
	}
	w.batch.Received += uint64(segments)
	w.batch.Bytes += uint64(size)
	return peer, segment, true
}

func (w *worker) count(n int) {
	for i := range n {
		w.admit(i)
	}
}

// echo answers n datagrams. All of a batch carry one receive time, read after the receive call, and one send time per send call,
// read before it: server time so includes the wait for the batch, which is the server's doing.
func (w *worker) echo(n int) {
	received := w.now()
	w.flows.expire(received)
	for i := range n {
		peer, segment, ok := w.admit(i)
		if !ok {
			continue
		}
		for rest := w.mail.Payload(i); len(rest) > 0; {
			one := rest[:min(segment, len(rest))]
			rest = rest[len(one):]
			w.stamp(one, peer, received)
		}
		w.mail.Answer(i)
	}
	w.counts.flows.Store(uint64(w.flows.live))
	w.reply()
}

// stamp writes the server's part into one payload that has room for it.
func (w *worker) stamp(b []byte, peer netip.AddrPort, received int64) {
	var s packet.Stamp
	if !packet.ParseStamp(b, 0, &s) {
		if packet.BeginsStamp(b) {
			w.batch.Malformed++
		}
		return
	}
	if s.Compact {
		return
	}
	count, window := w.flows.observe(peer, &s, received, &w.batch)
	packet.PutServer(b, received, 0, count, window)
}

// reply sends what echo queued.
func (w *worker) reply() {
	queued := w.mail.Queued()
	for done := 0; done < queued; {
		sent := w.now()
		for k := done; k < queued; k++ {
			for payload, segment := w.mail.Reply(k); len(payload) > 0; payload = payload[min(segment, len(payload)):] {
				packet.PutServerSent(payload[:min(segment, len(payload))], sent)
			}
		}
		n, errno := w.mail.Send(w.fd, done)
		for range n {
			w.batch.Replied += w.packets(done)
			done++
		}
		if errno != 0 && errno != syscall.EINTR {
			// EAGAIN is the send timeout: the device has not moved for that long. Whatever it is, the reply is given up, and counted.
			w.batch.ReplyRefused += w.packets(done)
			done++
		}
	}
}

// packets is the number of packets of reply k.
func (w *worker) packets(k int) uint64 {
	payload, segment := w.mail.Reply(k)
	return uint64(max((len(payload)+segment-1)/segment, 1))
}
