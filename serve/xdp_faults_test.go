package serve

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/packet"
	"blast/xdp/live"
)

// TestFaultsBelow: the whole numbers that the kernel decides by say what the shares say.
func TestFaultsBelow(t *testing.T) {
	f := Faults{Drop: 0.25, DropReply: 0.125, Reorder: 0.5, Duplicate: 0.125}
	if got, want := f.below(), [...]uint64{1 << 51, 3 << 50, 7 << 50, 1 << 53, 1 << 53}; got != want {
		t.Errorf("thresholds %v, want %v", got, want)
	}
	if (&Faults{}).any() || !f.any() {
		t.Error("whether there are faults")
	}
	counts := map[Fault]int{}
	for seq := range uint64(80_000) {
		counts[f.At(1, seq)]++
	}
	for fault, want := range map[Fault]int{FaultNone: 0, FaultDrop: 20_000, FaultDropReply: 10_000, FaultReorder: 40_000, FaultDuplicate: 10_000} {
		if got := counts[fault]; got < want-700 || got > want+700 || want == 0 && got != 0 {
			t.Errorf("fault %d: %d of 80000, want about %d", fault, got, want)
		}
	}
}

// replies are the numbers of what a faulty target sends for requests 0 to n of one sender with stride flows, in order, by its definition. vain is how
// many of them were to be overtaken while another of their flow was waiting.
func replies(f *Faults, n, stride uint64) (list []uint64, vain uint64) {
	held := map[uint64]uint64{}
	for seq := range n {
		fault, lane := f.At(0, seq), seq%stride
		kept, waits := held[lane]
		switch {
		case fault == FaultDrop || fault == FaultDropReply:
			continue
		case fault == FaultReorder && !waits:
			held[lane] = seq
			continue
		case fault == FaultReorder:
			vain++
		case fault == FaultDuplicate:
			list = append(list, seq)
		}
		if list = append(list, seq); waits {
			list = append(list, kept)
			delete(held, lane)
		}
	}
	return list, vain
}

// TestKernelXDPFaults: what comes back from a faulty target inside the kernel is what its definition says, packet by packet, in that order, and each
// with a checksum that is right.
func TestKernelXDPFaults(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	faults := Faults{Drop: 0.05, DropReply: 0.05, Reorder: 0.15, Duplicate: 0.1, Seed: 9}
	s := listenXDP(t, pair, XDPConfig{Mode: Echo, Faults: faults,
		Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort), netip.AddrPortFrom(pair.Right.IPv6.Addr(), xdpPort)}})
	fd := packetSocket(t, pair.Left)
	const n, stride = 400, 3
	want, vain := replies(&faults, n, stride)
	for epoch, c := range []struct {
		name    string // what the case is for
		payload int
		ipv6    bool
	}{
		{"full stamps", packet.StampBytes, false}, {"IPv6, with room for a report", packet.StampBytes + packet.ReportBytes, true}, {"more behind the stamp", 333, false},
		{"IPv6, an odd length", 1001, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := pair.Left.IPv4.Addr(), pair.Right.IPv4.Addr()
			if c.ipv6 {
				src, dst = pair.Left.IPv6.Addr(), pair.Right.IPv6.Addr()
			}
			flow, err := packet.NewFlow(packet.Headers{SrcMAC: mac(pair.Left), DstMAC: mac(pair.Right), Src: netip.AddrPortFrom(src, 4000), Dst: netip.AddrPortFrom(dst, xdpPort)})
			if err != nil {
				t.Fatal(err)
			}
			frame := make([]byte, flow.Layout().Payload+c.payload)
			for seq := range uint64(n) {
				packet.PutStamp(flow.Payload(frame), &packet.Stamp{Epoch: uint8(epoch), Seq: seq, Stride: stride, Planned: 1, Sent: 2})
				if err := unix.Send(fd, frame[:flow.Write(frame, c.payload)], 0); err != nil {
					t.Fatal(err)
				}
				if seq%16 == 15 {
					time.Sleep(200 * time.Microsecond)
				}
			}
			var got []uint64
			for end := time.Now().Add(2 * time.Second); len(got) < len(want) && time.Now().Before(end); {
				got = append(got, received(t, fd, uint8(epoch), c.payload)...)
			}
			time.Sleep(20 * time.Millisecond)
			if got = append(got, received(t, fd, uint8(epoch), c.payload)...); !slices.Equal(got, want) {
				t.Errorf("replies\n%v, want\n%v", got, want)
			}
			truth, err := s.Truth()
			if err != nil || len(truth.Runs) != epoch+1 {
				t.Fatalf("truth %+v, %v", truth, err)
			}
			r := &truth.Runs[epoch]
			if r.Arrivals != n || r.Answered+r.Duplicated.Count != uint64(len(want)) || r.Answered+r.Inside+r.Dropped.Count+r.DroppedReplies.Count != n {
				t.Errorf("truth %+v: want %d arrivals and %d replies", r, n, len(want))
			}
			if vain == 0 || r.NotReordered != vain {
				t.Errorf("%d requests were to be overtaken in vain, want %d", r.NotReordered, vain)
			}
		})
	}
	before, err := s.Truth()
	if err := errors.Join(err, s.Close(), s.keepNames()); err != nil { // Run's last look may come behind Close
		t.Fatal(err)
	}
	after, err := s.Truth()
	if diff := cmp.Diff(before, after); diff != "" || err != nil || len(after.Runs) == 0 {
		t.Errorf("%v; truth before (-) and after (+) the programs were taken off:\n%s", err, diff)
	}
}

// TestXDPTruthForgets: a target that stays for many runs keeps the names of the newest.
func TestXDPTruthForgets(t *testing.T) {
	x := xdpTruth{touched: map[uint8]*RunTruth{}, runs: map[uint8]live.Run{}}
	const runs = 3 * truthRuns
	for epoch := range uint8(runs) {
		for seq := range uint64(3) {
			x.touch(live.Touched{Seq: seq, Epoch: epoch, Fault: live.FaultDrop})
		}
		r := live.Run{Epoch: epoch, Began: 1 + int64(epoch), Arrivals: 9, Answered: 6}
		r.Touched[live.FaultDrop] = 3
		x.runs[epoch] = r
	}
	list := x.list()
	if len(list) != truthRuns || len(x.touched) != truthRuns || len(x.order) != truthRuns {
		t.Fatalf("%d runs, names of %d and %d: want %d", len(list), len(x.touched), len(x.order), truthRuns)
	}
	for i := range list {
		if r := &list[i]; int(r.Epoch) != runs-truthRuns+i || len(r.Dropped.Names) != 3 || r.Dropped.Count != 3 || r.Inside != 0 {
			t.Errorf("run %d: %+v", i, r)
		}
	}
}

// TestKernelXDPFaultsUntold: names for which there was no room are missing, and said to be; the counts are those of all.
func TestKernelXDPFaultsUntold(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	s := listenXDP(t, pair, XDPConfig{Mode: Echo, Faults: Faults{Drop: 1},
		Listen: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)}})
	flow, err := packet.NewFlow(packet.Headers{SrcMAC: mac(pair.Left), DstMAC: mac(pair.Right),
		Src: netip.AddrPortFrom(pair.Left.IPv4.Addr(), 4000), Dst: netip.AddrPortFrom(pair.Right.IPv4.Addr(), xdpPort)})
	if err != nil {
		t.Fatal(err)
	}
	fd := packetSocket(t, pair.Left)
	frame := make([]byte, flow.Layout().Payload+packet.StampBytes)
	const n = 190_000 // room is for 174,762
	for seq := range uint64(n) {
		packet.PutStamp(flow.Payload(frame), &packet.Stamp{Seq: seq, Stride: 1})
		for frame := frame[:flow.Write(frame, packet.StampBytes)]; ; {
			if err := unix.Send(fd, frame, 0); err == nil {
				break
			} else if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(20 * time.Millisecond)
	truth, err := s.Truth()
	if err != nil || len(truth.Runs) != 1 {
		t.Fatalf("%d runs, %v", len(truth.Runs), err)
	}
	r := &truth.Runs[0]
	arrived := r.Arrivals // the veth may drop some
	if named := uint64(len(r.Dropped.Names)); arrived <= 175_000 || r.Dropped.Count != arrived || r.Inside != 0 || r.Answered != 0 || truth.Drops != arrived-named || named < 170_000 {
		t.Errorf("%d arrivals, %d dropped, %d of them named, %d without room, %d inside", arrived, r.Dropped.Count, named, truth.Drops, r.Inside)
	}
}

func mac(h *testnet.Host) (m [6]byte) {
	copy(m[:], h.MAC)
	return m
}

// packetSocket sends and receives whole frames.
func packetSocket(t *testing.T, h *testnet.Host) int {
	t.Helper()
	const all = 0x0300 // ETH_P_ALL in network order
	var fd int
	h.Do(func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: h.Index}); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// received takes the replies that are there.
func received(t *testing.T, fd int, epoch uint8, size int) (list []uint64) {
	t.Helper()
	buf := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(time.Millisecond)
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		var p packet.Parsed
		if link, ok := from.(*unix.SockaddrLinklayer); !ok || link.Pkttype == unix.PACKET_OUTGOING || packet.Parse(buf[:n], &p) != 0 || p.Src.Port() != xdpPort {
			continue
		}
		var st packet.Stamp
		if p.SumState() != packet.SumGood || len(p.Payload) != size || !packet.ParseStamp(p.Payload, sys.Monotonic(), &st) || st.Epoch != epoch {
			t.Fatalf("reply with checksum state %d, %d bytes, %+v", p.SumState(), len(p.Payload), st)
		}
		if st.Planned != 1 || st.Sent != 2 || st.ServerReceived == 0 || st.ServerSent < st.ServerReceived {
			t.Fatalf("stamp %+v", st)
		}
		list = append(list, st.Seq)
	}
}
