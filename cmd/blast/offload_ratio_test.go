package main

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"blast/backend"
	"blast/backend/xdplive"
	"blast/engine"
	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/pace"
	"blast/packet"
	"blast/stats"
	"blast/xdp"
)

// TestRatioOffload holds the in-kernel engine with everything on (pacing code, stamp, checksum, lag, books) against a bare live-frame loop
// of one long call, against AF_XDP and against sendmmsg, in turns on one core, over a veth pair into a program that drops. All figures are
// counted at the receiver. Medians of five.
func TestRatioOffload(t *testing.T) {
	if os.Getenv("BLAST_BENCH") == "" {
		testskip.Skip(t, "bench", "compares speeds side by side", "make bench")
	}
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 9})
	rate := func(fn func() time.Duration) float64 {
		before := counter.Total().Frames
		took := fn()
		return float64(counter.Total().Frames-before) / took.Seconds()
	}
	const length = 700 * time.Millisecond
	bare := bareLive(t, pair)
	loops := []struct {
		name string
		run  func() time.Duration
		want float64 // ours over it, at least
	}{
		{"bare live frames, one call", bare, 0.6},
		{"AF_XDP, bare loop", func() time.Duration { return bareXDP(t, pair, length) }, 4},
		{"sendmmsg, bare loop", func() time.Duration {
			begun := time.Now()
			pair.Left.Do(func() { // a thread of its own, which ends with its affinity
				if _, err := sys.Pin(min(1, runtime.NumCPU()-1)); err != nil {
					t.Fatal(err)
				}
				begun = time.Now()
				bareSendmmsg(t, netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9), 0, length)
			})
			return time.Since(begun)
		}, 9},
	}
	ours := func() time.Duration {
		schedule, err := pace.Max(length)
		if err != nil {
			t.Fatal(err)
		}
		var res *stats.Result
		pair.Left.Do(func() {
			res, err = engine.RunOffload(context.Background(), engine.Config{
				Schedule: schedule, CPUs: []int{min(1, runtime.NumCPU()-1)}, Flows: []backend.Flow{{Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9)}},
				Backend: backend.Config{PayloadBytes: 18}, Source: func(int) engine.Source { return &engine.Stamped{PayloadBytes: 18} },
			}, xdplive.Open)
		})
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(res.Rate.ElapsedNS)
	}
	for _, l := range loops {
		var mine, other, ratios []float64
		for range 5 {
			o, m := rate(l.run), rate(ours)
			mine, other, ratios = append(mine, m), append(other, o), append(ratios, m/o)
		}
		ratio := median(ratios)
		t.Logf("in-kernel engine %s, %s %s: ratio %.2f of %.2f (at least %.1f)", stats.FormatPPS(median(mine)), l.name, stats.FormatPPS(median(other)), ratio, ratios, l.want)
		if ratio < l.want {
			t.Errorf("%s: ratio %.2f: want at least %.1f", l.name, ratio, l.want)
		}
	}
}

// ratioFrame is a 60-byte frame from left to right.
func ratioFrame(t testing.TB, pair *testnet.Pair) []byte {
	t.Helper()
	f, err := packet.NewFlow(packet.Headers{SrcMAC: packet.MAC(pair.Left.MAC), DstMAC: packet.MAC(pair.Right.MAC),
		Src: netip.AddrPortFrom(pair.Left.IPv4.Addr(), 4000), Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9)})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 60)
	return frame[:f.Write(frame, 18)]
}

// bareLive is one call of 4 million frames whose program only redirects.
func bareLive(t testing.TB, pair *testnet.Pair) func() time.Duration {
	t.Helper()
	var devices *ebpf.Map
	var prog *ebpf.Program
	var err error
	pair.Left.Do(func() {
		if devices, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
			t.Fatal(err)
		}
		if err = devices.Put(uint32(0), uint32(pair.Left.Index)); err != nil {
			t.Fatal(err)
		}
	})
	prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R1, devices.FD()), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.FnRedirectMap.Call(), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = prog.Close()
		_ = devices.Close()
	})
	frame := ratioFrame(t, pair)
	return func() time.Duration {
		return time.Duration(1e9 * onCore(1, func() float64 {
			begun := time.Now()
			if e := sys.RunLive(prog.FD(), frame, 4_000_000, 64); e != 0 {
				t.Error(e)
			}
			return time.Since(begun).Seconds()
		}))
	}
}

// bareXDP is AF_XDP in copy mode, 32 frames a kick, nothing written into them after the first time.
func bareXDP(t testing.TB, pair *testnet.Pair, length time.Duration) (took time.Duration) {
	t.Helper()
	pair.Left.Do(func() {
		d, err := xdp.Open(xdp.DeviceConfig{Interface: pair.Left.Interface})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Open(xdp.SocketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sys.Pin(min(1, runtime.NumCPU()-1)); err != nil {
			t.Fatal(err)
		}
		frame := ratioFrame(t, pair)
		for i := range s.Frames() {
			s.Frames()[i].Len = copy(s.Frames()[i].Data, frame)
		}
		begun := time.Now()
		for took < length {
			for range 16 {
				frames := s.Reserve(32)
				for _, f := range frames {
					f.Len = 60
				}
				if _, err := s.Commit(len(frames)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Reap(); err != nil {
					t.Fatal(err)
				}
			}
			took = time.Since(begun)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return took
}
