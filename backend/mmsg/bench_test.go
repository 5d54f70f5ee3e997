package mmsg

import (
	"testing"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/backend/backendtest"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

const benchPayload = 18 // a minimum frame

// bare is a loop around sendmmsg with nothing in it that could be left out: batch packets a call, in trains of the given length.
func bare(tb testing.TB, batch, segments int) func(n int) {
	tb.Helper()
	fd, err := udpsock.Connect(backend.Flow{Dst: backendtest.Unread(tb)}, func(int) error { return nil })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	msgs := make([]unix.Mmsghdr, batch/segments)
	for i := range msgs {
		payload := make([]byte, benchPayload*segments)
		iov := &unix.Iovec{Base: &payload[0]}
		iov.SetLen(len(payload))
		h := &msgs[i].Hdr
		h.Iov = iov
		h.SetIovlen(1)
		if segments > 1 {
			control := make([]byte, sys.ControlSpace(2))
			sys.PutSegment(control, benchPayload)
			h.Control = &control[0]
			h.SetControllen(len(control))
		}
	}
	return func(n int) {
		for n > 0 {
			sent, errno := sys.Sendmmsg(fd, msgs[:min(len(msgs), (n+segments-1)/segments)])
			if errno != 0 {
				tb.Fatal(errno)
			}
			n -= sent * segments
		}
	}
}

func sender(tb testing.TB, cfg backend.Config) func(n int) {
	tb.Helper()
	return backendtest.FlatOut(tb, Open, cfg, backendtest.Unread(tb), benchPayload)
}

func BenchmarkBareSendmmsg(b *testing.B) { backendtest.Bench(b, bare(b, 64, 1)) }
func BenchmarkSender(b *testing.B)       { backendtest.Bench(b, sender(b, backend.Config{})) }
func BenchmarkBareGSO32(b *testing.B)    { backendtest.Bench(b, bare(b, 128, 32)) }
func BenchmarkSenderGSO32(b *testing.B)  { backendtest.Bench(b, sender(b, backend.Config{GSO: 32})) }

func TestRatioSender(t *testing.T) {
	backendtest.Ratio(t, bare(t, 64, 1), sender(t, backend.Config{}), 0.95)
}

func TestRatioSenderGSO32(t *testing.T) {
	backendtest.Ratio(t, bare(t, 128, 32), sender(t, backend.Config{GSO: 32}), 0.90)
}
