//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testskip"
)

// Nothing in the loop allocates: sending in three ways, taking completions, receiving, waiting.
func TestKernelAllocs(t *testing.T) {
	r := testRing(t, Config{Entries: 64, CQEntries: 256, ArenaBytes: 1<<17 + BufRingBytes(64, 256)}, sys.URingSetup)
	fd, _ := udpPair(t)
	self, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(self)
	if err := unix.Bind(self, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	slots, _ := r.Arena().Slots(15, 100, 64)
	ms, _ := r.Arena().Messages(15)
	to, _ := r.Arena().Sockaddrs(1)
	bufs, err := r.NewBufRing(0, 64, 256)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.RegisterFiles([]int32{int32(fd), int32(self)}), to[0].Set(local(t, self))); err != nil {
		t.Fatal(err)
	}
	rx, err := r.NewReceiver(ReceiverConfig{FD: 1, Fixed: true, UserData: 99, Buffers: bufs, Source: true})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Granted().Ops.HasSendTo() {
		testskip.Skip(t, "io_uring", "SEND takes no address here", "Linux 6.1")
	}
	cqes := make([]CQE, 64)
	var failed error
	received := 0
	take := func() {
		for n := r.Completions(cqes); n > 0; n = r.Completions(cqes) {
			for _, c := range cqes[:n] {
				if c.UserData != 99 {
					continue
				}
				if d, ok, err := rx.Take(c); ok {
					received++
					rx.Recycle(d)
				} else if err != nil {
					failed = err
				}
			}
		}
	}
	if n := testing.AllocsPerRun(200, func() {
		rx.Arm()
		for i, b := range slots {
			s := r.SQE()
			switch i % 3 {
			case 0:
				s.PrepSend(0, b, unix.MSG_DONTWAIT)
				s.Flags |= FixedFile
			case 1:
				ms[i].Payload(b)
				s.PrepSendMsg(fd, &ms[i], unix.MSG_DONTWAIT)
			default:
				s.PrepSend(self, b, unix.MSG_DONTWAIT)
				s.To(&to[0])
			}
		}
		if _, err := r.Submit(); err != nil {
			failed = err
		}
		take()
		if _, err := r.SubmitAndWait(1, time.Microsecond); err != nil && err != os.ErrDeadlineExceeded {
			failed = err
		}
		take()
	}); n != 0 || failed != nil || received < 500 {
		t.Fatalf("%v allocations per batch, %d received, %v", n, received, failed)
	}
}

func BenchmarkSendFixedFile(b *testing.B) {
	for _, mode := range []struct {
		name string
		cfg  Config
	}{
		{"deferred", Config{}},
		{"deferred-syscall", Config{RawBatch: -1}},
		{"deferred-unchecked", Config{ForeignMemory: true}},
		{"coop", Config{Avoid: DeferTaskrun}},
		{"bare", Config{Avoid: SubmitAll | SingleIssuer | CoopTaskrun | NoSQArray}},
	} {
		b.Run(mode.name, func(b *testing.B) { benchmarkSend(b, mode.cfg) })
	}
}

func benchmarkSend(b *testing.B, cfg Config) {
	const batch = 64
	cfg.Entries, cfg.CQEntries, cfg.ArenaBytes = batch, 4*batch, batch*128
	r := testRing(b, cfg, sys.URingSetup)
	fd, _ := udpPair(b) // nobody reads: the receiver's buffer fills and the kernel drops, which costs the sender the same path
	if err := r.RegisterFiles([]int32{int32(fd)}); err != nil {
		b.Fatal(err)
	}
	slots, err := r.Arena().Slots(batch, 64, 64)
	if err != nil {
		b.Fatal(err)
	}
	cqes := make([]CQE, batch)
	sent := 0
	b.ReportAllocs()
	b.ResetTimer()
	for sent < b.N {
		for i := range min(batch, b.N-sent) {
			s := r.SQE()
			s.PrepSend(0, slots[i], unix.MSG_DONTWAIT)
			s.Flags |= FixedFile
		}
		n, err := r.Submit()
		if err != nil {
			b.Fatal(err)
		}
		sent += n
		for done := 0; done < n; {
			k := r.Completions(cqes)
			for _, c := range cqes[:k] {
				if c.Res != 64 {
					b.Fatalf("%+v", c)
				}
			}
			if done += k; k == 0 {
				if _, err := r.SubmitAndWait(1, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "pps")
}

func BenchmarkGettid(b *testing.B) {
	for b.Loop() {
		unix.Gettid()
	}
}
