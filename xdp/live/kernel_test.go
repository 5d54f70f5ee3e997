package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"blast/internal/sys"
	"blast/internal/testnet"
	"blast/internal/testskip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bucketIndex is HdrHistogram's countsArrayIndex for 2048 sub-buckets, by its definition.
func bucketIndex(v uint64) int {
	octave := 64 - 11 - bits.LeadingZeros64(v|2047)
	return octave<<10 + int(v>>uint(octave))
}

func TestBucketLow(t *testing.T) {
	for i := range buckets - 1 {
		low, next := bucketLow(i), bucketLow(i+1)
		if bucketIndex(uint64(low)) != i || bucketIndex(uint64(next-1)) != i {
			t.Fatalf("bucket %d: %d to %d lie in %d and %d", i, low, next-1, bucketIndex(uint64(low)), bucketIndex(uint64(next-1)))
		}
	}
}

// reply is a frame of 42 bytes of headers and a full stamp, from port 7 to port 9.
func reply(worker uint16, seq uint64, planned, sent int64) []byte {
	b := make([]byte, 90)
	b[12], b[14], b[23] = 8, 0x45, 17
	binary.BigEndian.PutUint16(b[34:], 7)
	binary.BigEndian.PutUint16(b[36:], 9)
	binary.BigEndian.PutUint16(b[38:], 56)
	binary.BigEndian.PutUint64(b[42:], 0xb1a501<<40|uint64(worker)<<16)
	binary.BigEndian.PutUint64(b[50:], seq)
	binary.BigEndian.PutUint64(b[58:], uint64(planned))
	binary.BigEndian.PutUint64(b[66:], uint64(sent))
	return b
}

// receiverOn attaches a receiver to the left end and begins.
func receiverOn(t *testing.T, pair *testnet.Pair, tell Kinds, shares []Share) *Receiver {
	t.Helper()
	var r *Receiver
	pair.Left.Do(func() {
		i, err := Inspect(pair.Left.Interface)
		if err != nil {
			t.Fatal(err)
		}
		if r, err = NewReceiver(i, ReceiverConfig{Ports: []uint16{9}, Shares: shares, Timeout: time.Hour, Interval: time.Hour, Tell: tell}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Begin(sys.Monotonic()); err != nil {
		t.Fatal(err)
	}
	return r
}

// give lets the program see a frame, without a network.
func (r *Receiver) give(t *testing.T, frame []byte) uint32 {
	t.Helper()
	answer, err := r.objects.Receive.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestKernelBuckets: times of every magnitude land in the bucket of HdrHistogram's definition; those beyond an hour are refused.
func TestKernelBuckets(t *testing.T) {
	r := receiverOn(t, testnet.NewPair(t, testnet.Config{}), 0, []Share{{Limit: 1 << 20, Flows: 1}})
	rng := rand.New(rand.NewPCG(1, 2))
	var want uint64
	for n := range uint64(400) {
		age := rng.Int64N(1 << (n % 42))
		now := sys.Monotonic()
		r.give(t, reply(0, n, now-age, now))
		var got *ReceiverInterval
		if err := r.Collect(never, func(v *ReceiverInterval) { got = v }); err != nil {
			t.Fatal(err)
		}
		h := &got.Latency
		if age > 3600e9-1e9 {
			if h.Refused+h.Count != 1 {
				t.Fatalf("age %d: %d refused, %d counted", age, h.Refused, h.Count)
			}
			want += h.Count
			continue
		}
		want++
		// One value: the sum is the value.
		v := h.SumLo
		if h.Count != 1 || h.SumHi != 0 || v < uint64(age) || v > uint64(age)+1e9 || h.Buckets[bucketIndex(v)] != 1 {
			t.Fatalf("age %d: counted %d, sum %d, bucket %d holds %d", age, h.Count, v, bucketIndex(v), h.Buckets[bucketIndex(v)])
		}
	}
	tally, err := r.Tally(0)
	if err != nil || tally.Unique != 400 || want < 300 {
		t.Errorf("tally %+v, %v; %d in range", tally, err, want)
	}
}

// TestKernelLastCollect: replies that come after everything has been collected are nobody's, so that histograms, books and window stay of one mind.
func TestKernelLastCollect(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	r := receiverOn(t, pair, 0, []Share{{Limit: 1 << 20, Flows: 1}})
	var fd int
	pair.Right.Do(func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	send := func(from, to uint64) {
		for seq := from; seq < to; seq++ {
			now := sys.Monotonic()
			if err := unix.Sendto(fd, reply(0, seq, now, now), 0, &unix.SockaddrLinklayer{Ifindex: pair.Right.Index}); err != nil {
				t.Fatal(err)
			}
		}
	}
	unique := func() uint64 {
		tally, err := r.Tally(0)
		if err != nil {
			t.Fatal(err)
		}
		return tally.Unique
	}
	send(0, 50)
	for end := time.Now().Add(5 * time.Second); unique() < 50; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of 50 replies were taken", unique())
		}
	}
	before := pair.Left.Statistics().RxPackets
	var got *ReceiverInterval
	if err := r.Collect(never, func(v *ReceiverInterval) { got = v }); err != nil || got.Latency.Count != 50 {
		t.Fatalf("%+v, %v: want 50 latencies", got, err)
	}
	send(50, 80)
	for end := time.Now().Add(5 * time.Second); pair.Left.Statistics().RxPackets < before+30; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the later replies did not come in")
		}
	}
	if n, err := r.Unseen(0, 0, 100, nil); unique() != 50 || n != 50 || err != nil {
		t.Errorf("%d replies in the books, %d of 100 slots without one, %v: want 50 and 50", unique(), n, err)
	}
}

// TestKernelTold: replies are told one by one as long as there is room and counted beyond it; and a reading ends while the ring is written as fast as
// the kernel can, with no more than fits.
func TestKernelTold(t *testing.T) {
	r := receiverOn(t, testnet.NewPair(t, testnet.Config{}), Duplicate, []Share{{Limit: 1 << 20, Flows: 1}})
	const room = 349_525
	now := sys.Monotonic()
	frame := reply(0, 5, now, now)
	r.give(t, frame) // the first one is not told
	again := func(times uint32) error {
		_, err := r.objects.Receive.Run(&ebpf.RunOptions{Data: frame, Repeat: times})
		return err
	}
	told := func() (n, missed uint64) {
		missed, err := r.Told(func(e *Event) {
			if e.Seq != 5 || e.Planned != now || e.Sent != now || e.Worker != 0 || e.Kinds != Duplicate || e.Received < now {
				t.Fatalf("told %+v", e)
			}
			n++
		})
		if err != nil || n > room {
			t.Fatalf("%d told at once, %v: room is for %d", n, err, room)
		}
		return n, missed
	}
	came := func() uint64 {
		tally, err := r.Tally(0)
		if err != nil {
			t.Fatal(err)
		}
		return tally.Duplicate
	}
	if err := again(400_000); err != nil {
		t.Fatal(err)
	}
	if n, missed := told(); n != room || missed != came()-room || missed == 0 {
		t.Errorf("%d told, %d missed: want %d of %d", n, missed, room, came())
	}
	if n, missed := told(); n != 0 || missed != came()-room {
		t.Errorf("%d told again, %d missed", n, missed)
	}
	done := make(chan error, 1)
	go func() { done <- again(3_000_000) }()
	total := uint64(room)
	for running := true; running; {
		select {
		case err := <-done:
			if running = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
		n, _ := told()
		total += n
	}
	if n, missed := told(); total+n+missed != came() {
		t.Errorf("%d told in all and %d missed: want %d", total+n, missed, came())
	}
}

// TestKernelWindow: what the books say of replies that come again, out of order, too late for the window, or for nobody.
func TestKernelWindow(t *testing.T) {
	r := receiverOn(t, testnet.NewPair(t, testnet.Config{}), 0, []Share{{First: 2, Limit: 1 << 40, Flows: 2}, {Limit: 1 << 40, Flows: 1}})
	const far = 32 << windowMax // the window for so long a share
	now := sys.Monotonic()
	for _, c := range []struct {
		why    string
		worker uint16
		seq    uint64
		want   Tally
	}{
		{"a reply to the warm-up", 0, 1, Tally{Warm: 1}},
		{"the first", 0, 2, Tally{Unique: 1, Replied: 1}},
		{"the first again", 0, 2, Tally{Duplicate: 1}},
		{"one of the other flow", 0, 3, Tally{Unique: 1, Replied: 1}},
		{"one further on", 0, 8, Tally{Unique: 1, Replied: 1}},
		{"one that was overtaken in its flow", 0, 6, Tally{Unique: 1, Replied: 1, Reordered: 1}},
		{"one that was overtaken, but not in its flow", 0, 7, Tally{Unique: 1, Replied: 1}},
		{"one that pushes the first out", 0, far + 2, Tally{Unique: 1, Replied: 1}},
		{"the first once more", 0, 2, Tally{Stray: 1}},
		{"a slot beyond the share", 0, 1 << 40, Tally{Stray: 1}},
		{"another worker's slot of the same number", 1, 2, Tally{Unique: 1, Replied: 1}},
	} {
		before, err := r.Tally(int(c.worker))
		if err != nil {
			t.Fatal(err)
		}
		if answer := r.give(t, reply(c.worker, c.seq, now, now)); answer != 1 {
			t.Errorf("%s: answer %d, want drop", c.why, answer)
		}
		got, err := r.Tally(int(c.worker))
		if err != nil {
			t.Fatal(err)
		}
		diff := Tally{Unique: got.Unique - before.Unique, Replied: got.Replied - before.Replied, Late: got.Late - before.Late,
			Duplicate: got.Duplicate - before.Duplicate, Reordered: got.Reordered - before.Reordered, Stray: got.Stray - before.Stray,
			Warm: got.Warm - before.Warm, Contended: got.Contended - before.Contended}
		if diff != c.want {
			t.Errorf("%s: %+v, want %+v", c.why, diff, c.want)
		}
	}
	if n, err := r.Unseen(0, far, far+10, nil); err != nil || n != 9 {
		t.Errorf("unseen of worker 0, [far, far+10): %d, %v; want 9", n, err)
	}
	if n, err := r.Unseen(1, 0, 10, nil); err != nil || n != 9 {
		t.Errorf("unseen of worker 1, [0, 10): %d, %v; want 9", n, err)
	}
	for _, c := range []struct {
		why   string
		frame []byte
	}{
		{"another port", func() []byte { b := reply(0, 1, now, now); b[37] = 10; return b }()},
		{"no stamp", func() []byte { b := reply(0, 1, now, now); b[42] = 0; return b }()},
		{"a fragment", func() []byte { b := reply(0, 1, now, now); b[20] = 0x20; return b }()},
		{"TCP", func() []byte { b := reply(0, 1, now, now); b[23] = 6; return b }()},
		{"ARP", func() []byte { b := reply(0, 1, now, now); b[13] = 6; return b }()},
		{"a short frame", reply(0, 1, now, now)[:50]},
		{"a datagram that ends within the stamp, in a padded frame", func() []byte { b := reply(0, 1, now, now); b[39] = 55; return b }()},
		{"a datagram that ends within the compact stamp, in a padded frame", func() []byte { b := reply(0, 1, now, now); b[39], b[42] = 23, 0xb2; return b }()},
	} {
		if answer := r.give(t, c.frame); answer != 2 {
			t.Errorf("%s: answer %d, want pass", c.why, answer)
		}
	}
}

// frameTo is a frame from the left end to the right, with a tag of VLAN 5 or without, and a stamp to be filled in.
func frameTo(pair *testnet.Pair, tagged bool, port uint16) (frame []byte, header int) {
	frame = append(append(frame, pair.Right.MAC...), pair.Left.MAC...)
	if tagged {
		frame = append(frame, 0x81, 0, 0, 5)
	}
	frame = append(frame, 8, 0)
	ip := len(frame)
	frame = append(frame, 0x45, 0, 0, 76, 0, 0, 0x40, 0, 64, 17, 0, 0)
	src, dst := pair.Left.IPv4.Addr().As4(), pair.Right.IPv4.Addr().As4()
	frame = append(append(frame, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(frame[ip+10:], ^sum(frame[ip:], 0))
	udp := len(frame)
	frame = binary.BigEndian.AppendUint16(frame, 4000)
	frame = binary.BigEndian.AppendUint16(frame, port)
	frame = append(frame, 0, 56, 0, 0)
	header = len(frame)
	frame = append(frame, make([]byte, 48)...)
	binary.BigEndian.PutUint16(frame[udp+6:], ^sum(frame[ip+12:], 17+56))
	return frame, header
}

// sum is RFC 1071 as its text says it.
func sum(b []byte, acc uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		acc += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

// sendOn runs a sender of so many slots, 10 us apart, from the left end.
func sendOn(t *testing.T, pair *testnet.Pair, slots uint64, tagged bool, change func(*SenderConfig)) Account {
	t.Helper()
	frame, header := frameTo(pair, tagged, 9)
	cfg := SenderConfig{Device: pair.Left.Index, Frames: [][]byte{frame}, Header: header, StampBytes: 48,
		StampHead: [8]byte{0xb1, 0xa5, 1}, Segments: []Segment{{Slots: slots, Quot: 10_000, Den: 1, Each: 1}}}
	if change != nil {
		change(&cfg)
	}
	var s *Sender
	pair.Left.Do(func() {
		var err error
		if s, err = NewSender(cfg); err != nil {
			t.Fatal(err)
		}
	})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		restore, err := sys.Pin(runtime.NumCPU() - 1)
		if err != nil {
			t.Error(err)
		} else {
			defer restore()
		}
		done <- s.Run(40 * time.Second)
	}()
	for ready := false; !ready; time.Sleep(time.Millisecond) {
		var err error
		if ready, err = s.Ready(); err != nil {
			t.Fatal(err)
		}
	}
	start := sys.Monotonic() + int64(5*time.Millisecond)
	if err := s.Start(start, start+int64(20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a, err := s.Account()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestKernelVLAN: frames with a tag leave, are answered and are received like those without.
func TestKernelVLAN(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	r := receiverOn(t, pair, 0, []Share{{Limit: 1000, Flows: 1}})
	words := r.objects.Ports
	if err := words.Put(uint32(4000>>6), uint64(1)<<(4000&63)); err != nil {
		t.Fatal(err)
	}
	target := targetOn(t, pair, nil)
	for i, tagged := range []bool{false, true} {
		a := sendOn(t, pair, 500, tagged, func(c *SenderConfig) {
			if tagged { // the second half of the slots
				c.Segments = []Segment{{Slots: 1000, Quot: 10_000, Den: 1, Each: 1}}
			}
		})
		time.Sleep(20 * time.Millisecond)
		tally, err := r.Tally(0)
		if want := uint64(500 * (i + 1)); err != nil || tally.Unique != want || a.Sent != want {
			t.Errorf("tagged %v: sent %d, replies %+v, %v; target %v", tagged, a.Sent, tally, err, countsOf(t, target))
		}
	}
}

func targetOn(t *testing.T, pair *testnet.Pair, faults *TargetFaults) *Target {
	t.Helper()
	var target *Target
	pair.Right.Do(func() {
		i, err := Inspect(pair.Right.Interface)
		if err != nil {
			t.Fatal(err)
		}
		if target, err = NewTarget(i, TargetConfig{Echo: true, Endpoints: []netip.AddrPort{netip.AddrPortFrom(pair.Right.IPv4.Addr(), 9)},
			Allow: []netip.Prefix{pair.Right.IPv4.Masked()}, Faults: faults}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target
}

// TestKernelRenewal: a run that outlasts its calls loses no slot, and says how often and how long it was away.
func TestKernelRenewal(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 9})
	a := sendOn(t, pair, 20_000, false, func(c *SenderConfig) { c.MaxTurns = 15_000 }) // fewer than slots
	if a.Sent != 20_000 || counter.Total().Frames != 20_000 || a.Renewals == 0 || a.Gap < int64(100*time.Microsecond) || a.Ended != 0 {
		t.Errorf("account %+v, counted %d", a, counter.Total().Frames)
	}
	t.Logf("%d renewals, the longest gap %v", a.Renewals, time.Duration(a.Gap))
}

// TestKernelBusyInterface: a program that is there already is named and left alone.
func TestKernelBusyInterface(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Left.Count(testnet.CountConfig{Action: testnet.Pass})
	pair.Left.Do(func() {
		i, err := Inspect(pair.Left.Interface)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewReceiver(i, ReceiverConfig{}); err == nil {
			t.Error("a second program went onto the interface")
		} else {
			t.Log(err)
		}
	})
}

// TestKernelLoopback: lo is told apart: it receives in generic mode and cannot send.
func TestKernelLoopback(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Left.Do(func() {
		i, err := Inspect("lo")
		if err != nil {
			t.Fatal(err)
		}
		if err := i.CanTransmit(); err == nil {
			t.Error("lo is said to take redirected frames")
		}
		r, err := NewReceiver(i, ReceiverConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Native() {
			t.Error("native mode on lo")
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKernelFaultStamp: a target that drops every request with our stamp answers a datagram that ends before the stamp does, however much
// padding of the frame follows.
func TestKernelFaultStamp(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	target := targetOn(t, pair, &TargetFaults{Below: [faults - 1]uint64{1 << 53, 1 << 53, 1 << 53, 1 << 53}})
	var fd int
	pair.Left.Do(func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, c := range []struct {
		why     string
		magic   uint64
		length  byte // of the UDP datagram, with its header
		replied uint64
	}{
		{"a stamp", 0xb1a501 << 40, 56, 0},
		{"one short of a stamp", 0xb1a501 << 40, 55, 1},
		{"a compact stamp", 0xb2 << 56, 24, 0},
		{"one short of a compact stamp", 0xb2 << 56, 23, 1},
	} {
		before := countsOf(t, target)
		frame, header := frameTo(pair, false, 9)
		binary.BigEndian.PutUint64(frame[header:], c.magic)
		binary.BigEndian.PutUint16(frame[header-4:], uint16(c.length))
		binary.BigEndian.PutUint16(frame[header-2:], 0)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: pair.Left.Index}); err != nil {
			t.Fatal(err)
		}
		got := countsOf(t, target)
		for end := time.Now().Add(5 * time.Second); got.Received == before.Received && time.Now().Before(end); got = countsOf(t, target) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond) // the program counts what it received first
		got = countsOf(t, target)
		if got.Received != before.Received+1 || got.Replied != before.Replied+c.replied {
			t.Errorf("%s: %d received, %d replied; want 1 and %d", c.why, got.Received-before.Received, got.Replied-before.Replied, c.replied)
		}
	}
}

func countsOf(t *testing.T, target *Target) TargetCounts {
	t.Helper()
	perCPU, err := target.Counts()
	if err != nil {
		t.Fatal(err)
	}
	var sum TargetCounts
	for _, c := range perCPU {
		sum.Received += c.Received
		sum.Replied += c.Replied
		sum.Denied += c.Denied
	}
	return sum
}

// TestKernelPrivileges: capabilities that are missing are named, each.
func TestKernelPrivileges(t *testing.T) {
	testnet.NewPair(t, testnet.Config{})
	for _, c := range []struct {
		drop []uint
		want string
	}{
		{[]uint{unix.CAP_NET_ADMIN}, "CAP_NET_ADMIN"},
		{[]uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, "CAP_BPF"},
		{[]uint{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}, "CAP_PERFMON"},
	} {
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // the thread ends with its capabilities
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			if err = unix.Capget(&hdr, &data[0]); err != nil {
				return
			}
			for _, bit := range c.drop {
				data[bit/32].Effective &^= 1 << (bit % 32)
			}
			if err = unix.Capset(&hdr, &data[0]); err == nil {
				err = Probe()
			}
			for _, bit := range c.drop { // should it be the process's first thread, which outlives the goroutine
				data[bit/32].Effective |= 1 << (bit % 32)
			}
			_ = unix.Capset(&hdr, &data[0])
		}()
		<-done
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("without %s: %v", c.want, err)
		}
	}
}

// TestExplain: what is missing for good is told apart from what is broken, and named.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name     string // what the case is for
		err      error
		lockdown string
		want     string
		missing  bool
	}{
		{"a kernel of before live frames does not know the flag", unix.EINVAL, "", "need Linux 5.18, this is 5.17.1", true},
		{"a kernel without the call", unix.ENOTSUP, "", "need Linux 5.18", true},
		{"lockdown", unix.EPERM, "none integrity [confidentiality]\n", "locked down: none integrity [confidentiality]", true},
		{"no lockdown, so something else forbids it", unix.EPERM, "[none] integrity confidentiality\n", "seccomp", true},
		{"no lockdown file", unix.EACCES, "", "seccomp", true},
		{"a fault of ours is none of the machine's", &ebpf.VerifierError{Cause: unix.EINVAL}, "", "invalid argument", false},
		{"no memory", unix.ENOMEM, "", "cannot allocate memory", false},
	} {
		err := explainOn(fmt.Errorf("load program: %w", c.err), c.lockdown, "5.17.1")
		if !strings.Contains(err.Error(), c.want) || errors.Is(err, errors.ErrUnsupported) != c.missing {
			t.Errorf("%s: %v; want %q, unsupported %v", c.name, err, c.want, c.missing)
		}
	}
}

// TestKernelUnsuitable: interfaces on which nothing here makes sense are told apart, with what to use instead.
func TestKernelUnsuitable(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	pair.Left.Do(func() {
		if _, err := Inspect("nothing0"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("an interface that does not exist: %v", err)
		}
	})
	for _, l := range []netlink.Link{
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "test0"}},
		netlink.NewLinkBond(netlink.LinkAttrs{Name: "test0"}),
		&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "test0", ParentIndex: pair.Left.Index}},
		&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "test0"}, Mode: netlink.TUNTAP_MODE_TUN},
	} {
		t.Run(l.Type(), func(t *testing.T) {
			pair.Left.Do(func() { // a tun is made in the namespace of the thread
				err := pair.Left.Netlink.LinkAdd(l)
				if l.Type() == "bond" && errors.Is(err, unix.EOPNOTSUPP) {
					testskip.Skip(t, "bond", "this kernel makes no bond: "+err.Error(), "modprobe bonding")
				}
				if err != nil {
					t.Fatal(err)
				}
				_, err = Inspect("test0")
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("%v: want that it is unsuitable", err)
				}
				t.Log(err)
				if err := pair.Left.Netlink.LinkDel(l); err != nil {
					t.Error(err)
				}
			})
		})
	}
	pair.Left.SetUp(false)
	pair.Left.Do(func() {
		if _, err := Inspect(pair.Left.Interface); !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("an interface that is down: %v", err)
		}
	})
}

// TestKernelRelief: with a CPU to spare, a second call does the work while the first is made anew, and no slot is lost or sent twice. On a
// busy machine the second may come too late, so there are some attempts.
func TestKernelRelief(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	counter := pair.Right.Count(testnet.CountConfig{Action: testnet.Drop, Port: 9})
	for n := range uint64(5) {
		a := sendOn(t, pair, 250_000, false, func(c *SenderConfig) { c.MaxTurns, c.Tell, c.Departures = 8_000_000, true, true })
		if a.Sent != 250_000 || counter.Total().Frames != 250_000*(n+1) || a.Next != 250_000 || a.Ended != 0 {
			t.Fatalf("account %+v, counted %d", a, counter.Total().Frames)
		}
		t.Logf("%d renewals, %d bridged, the longest gap %v", a.Renewals, a.Bridged, time.Duration(a.Gap))
		if a.Bridged > 0 || runtime.NumCPU() == 1 {
			return
		}
	}
	t.Error("no renewal was bridged")
}
