package xdp_test

import (
	"runtime"
	"sync"
	"testing"

	"blast/internal/testnet"
	"blast/xdp"
)

// BenchmarkKernelSend is the bare loop over a veth pair to an XDP program that drops: one queue, a frame with an 18-byte payload written
// anew each time. It reports what the receiver counted. The lab's figure for this loop is 0.95 to 1.05 Mpps.
func BenchmarkKernelSend(b *testing.B) {
	for _, batch := range []struct {
		name   string
		frames int
	}{{"batch32", 32}, {"batch64", 64}, {"batch256", 256}} {
		b.Run(batch.name, func(b *testing.B) {
			p := testnet.NewPair(b, testnet.Config{})
			// Filtered by port: the kernel sends multicast listener reports of its own.
			counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
			p.Left.Do(func() {
				d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface})
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				s, err := d.Open(xdp.SocketConfig{Batch: batch.frames})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				f := across(b, p, p.Left.IPv4, p.Right.IPv4, 0)
				before := counter.Total().Frames
				loop(b, s, f, batch.frames)
				arrived := counter.Total().Frames - before
				b.ReportMetric(float64(arrived)/b.Elapsed().Seconds()/1e6, "Mpps")
				if dropped := s.SendStats().Dropped; arrived != uint64(b.N)-dropped {
					b.Errorf("%d arrived of %d, %d known to be dropped", arrived, b.N, dropped)
				}
			})
		})
	}
}

// BenchmarkKernelSendQueues is the same on two queues by two threads, b.N frames each. The lab's figure for a rival on two queues is
// 1.64 Mpps.
func BenchmarkKernelSendQueues(b *testing.B) {
	const queues = 2
	p := testnet.NewPair(b, testnet.Config{Queues: queues})
	counter := p.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: theirPort})
	made := across(b, p, p.Left.IPv4, p.Right.IPv4, 0).frame(make([]byte, 18))
	var open [queues]*xdp.Socket
	p.Left.Do(func() {
		d, err := xdp.Open(xdp.DeviceConfig{Interface: p.Left.Interface})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = d.Close() })
		for q := range queues {
			if open[q], err = d.Open(xdp.SocketConfig{Queue: q}); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = open[q].Close() })
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	var threads sync.WaitGroup
	for _, s := range open {
		threads.Go(func() {
			runtime.LockOSThread()
			for done := uint64(0); done < uint64(b.N); {
				frames := s.Reserve(min(64, b.N-int(s.SendStats().Committed)))
				for _, fr := range frames {
					fr.Len = copy(fr.Data, made)
				}
				if _, err := s.Commit(len(frames)); err != nil {
					b.Error(err)
					return
				}
				c, err := s.Reap()
				if err != nil {
					b.Error(err)
					return
				}
				done += c.Sent + c.Dropped
			}
		})
	}
	threads.Wait()
	b.StopTimer()
	b.ReportMetric(float64(counter.Total().Frames)/b.Elapsed().Seconds()/1e6, "Mpps")
}

// loop sends b.N smallest frames, each written anew, and waits for their completion.
func loop(b *testing.B, s *xdp.Socket, f *testFlow, batch int) {
	made := f.frame(make([]byte, 18))
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		frames := s.Reserve(min(batch, b.N-sent))
		for _, fr := range frames {
			fr.Len = copy(fr.Data, made)
		}
		n, err := s.Commit(len(frames))
		if err != nil {
			b.Fatal(err)
		}
		sent += n
		if _, err := s.Reap(); err != nil {
			b.Fatal(err)
		}
	}
	for s.Outstanding() > 0 {
		if _, err := s.Reap(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(s.SendStats().Kicks)/float64(s.SendStats().Committed), "kicks/op")
}
