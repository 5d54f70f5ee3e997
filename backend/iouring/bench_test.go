package iouring

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/testskip"
	"blast/internal/udpsock"
	"blast/uring"
)

const benchPayload = 18 // a minimum frame

// own gives the test a thread that ends with it: rings belong to the thread that made them.
func own(tb testing.TB) {
	tb.Helper()
	testskip.IOUring(tb, Probe())
	runtime.LockOSThread()
}

// bare is a loop around io_uring SEND with nothing in it that could be left out: 64 entries a call over as many sockets as asked for.
func bare(tb testing.TB, sockets int) func(n int) {
	tb.Helper()
	to := backendtest.Unread(tb)
	fds := make([]int32, sockets)
	for i := range fds {
		fd, err := udpsock.Connect(backend.Flow{Dst: to}, func(int) error { return nil })
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = unix.Close(fd) })
		fds[i] = int32(fd)
	}
	ring, err := uring.New(uring.Config{Entries: 64, ArenaBytes: 4096})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = ring.Close() })
	if err := ring.RegisterFiles(fds); err != nil {
		tb.Fatal(err)
	}
	payload, err := ring.Arena().Bytes(benchPayload, 64)
	if err != nil {
		tb.Fatal(err)
	}
	socket := 0
	return func(n int) {
		for n > 0 {
			batch := min(n, 64)
			for range batch {
				sqe := ring.SQE()
				sqe.PrepSend(socket, payload, unix.MSG_DONTWAIT)
				sqe.Flags |= uring.FixedFile
				if socket++; socket == sockets {
					socket = 0
				}
			}
			if _, err := ring.Submit(); err != nil {
				tb.Fatal(err)
			}
			done := ring.Ready()
			ring.Advance(done)
			n -= done
		}
	}
}

func sender(tb testing.TB, cfg backend.Config) func(n int) {
	tb.Helper()
	return backendtest.FlatOut(tb, Open, cfg, backendtest.Unread(tb), benchPayload)
}

// flows are n flows to one unread socket, each with a port of its own.
func flows(tb testing.TB, n int) []backend.Flow {
	tb.Helper()
	to := backendtest.Unread(tb)
	list := make([]backend.Flow, n)
	for i := range list {
		list[i].Dst = to
	}
	return list
}

func BenchmarkBareSend(b *testing.B) { own(b); backendtest.Bench(b, bare(b, 1)) }
func BenchmarkSender(b *testing.B)   { own(b); backendtest.Bench(b, sender(b, backend.Config{})) }
func BenchmarkSenderGSO32(b *testing.B) {
	own(b)
	backendtest.Bench(b, sender(b, backend.Config{GSO: 32}))
}
func BenchmarkSender1000Flows(b *testing.B) {
	own(b)
	backendtest.Bench(b, sender(b, backend.Config{Flows: flows(b, 1000)}))
}

func TestRatioSender(t *testing.T) {
	own(t)
	backendtest.Ratio(t, bare(t, 1), sender(t, backend.Config{}), 0.95)
}

func TestRatioSender1000Flows(t *testing.T) {
	own(t)
	backendtest.Ratio(t, bare(t, 1000), sender(t, backend.Config{Flows: flows(t, 1000)}), 0.95)
}
