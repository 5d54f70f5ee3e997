package serve

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/packet"
)

// load sends n stamped packets, gap apart, over one socket, and returns the sequence numbers of the replies in order of arrival, until
// nothing has come for idle.
func load(t *testing.T, to netip.AddrPort, epoch uint8, n int, gap, idle time.Duration) (replies []uint64, reports map[uint64]packet.Stamp) {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() {
		b := make([]byte, 64)
		begun := time.Now()
		for seq := range uint64(n) {
			time.Sleep(time.Until(begun.Add(time.Duration(seq) * gap)))
			packet.PutStamp(b, &packet.Stamp{Epoch: epoch, Stride: 1, Seq: seq, Planned: int64(seq) + 1})
			if _, err := conn.Write(b); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	reports = map[uint64]packet.Stamp{}
	b := make([]byte, 2048)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
			t.Fatal(err)
		}
		k, err := conn.Read(b)
		if err != nil {
			break
		}
		var st packet.Stamp
		if !packet.ParseStamp(b[:k], 0, &st) {
			t.Fatalf("a reply of %d bytes carries no stamp", k)
		}
		replies = append(replies, st.Seq)
		reports[st.Seq] = st
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return replies, reports
}

func startQueue(t *testing.T, cfg QueueConfig) *QueueServer {
	t.Helper()
	if !cfg.Listen.IsValid() {
		cfg.Listen = at("127.0.0.1:0")
	}
	s, err := StartQueue(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// seqs are the sequence numbers of a list of the truth, in order.
func seqs(l Touched) []uint64 {
	out := []uint64{}
	for _, n := range l.Names {
		out = append(out, n.Seq)
	}
	slices.Sort(out)
	return out
}

// Every fault that the target says it injected is what a plain socket saw, and what the seed foretells.
func TestQueueTellsTheTruth(t *testing.T) {
	const n = 3000
	faults := Faults{Drop: 0.02, DropReply: 0.02, Reorder: 0.02, Duplicate: 0.02, Delay: 0.01, DelayBy: 60 * time.Millisecond, Seed: 11}
	s := startQueue(t, QueueConfig{Servers: 4, Service: 200 * time.Microsecond, Faults: faults})
	replies, reports := load(t, s.Addr(), 1, n, 200*time.Microsecond, 1200*time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	truth := s.Truth()
	if len(truth.Runs) != 1 {
		t.Fatalf("%d runs: want 1", len(truth.Runs))
	}
	r := &truth.Runs[0]
	if truth.Drops > 0 || r.Full.Count > 0 || r.Refused > 0 {
		t.Fatalf("the kernel had no room: drops %d, full %d, refused %d", truth.Drops, r.Full.Count, r.Refused)
	}
	if r.Arrivals != n || r.Arrivals != r.Dropped.Count+r.Completions || r.Completions != r.Answered+r.DroppedReplies.Count || r.Inside != 0 {
		t.Errorf("%s\nthe counts do not add up", truth.String())
	}

	count, newest := map[uint64]int{}, int64(-1)
	reordered := []uint64{}
	for _, seq := range replies {
		if count[seq]++; count[seq] > 1 {
			continue
		}
		if int64(seq) < newest {
			reordered = append(reordered, seq)
		}
		newest = max(newest, int64(seq))
	}
	slices.Sort(reordered)
	unanswered, twice := []uint64{}, []uint64{}
	var drop, dropReply, delay []uint64
	for seq := range uint64(n) {
		switch count[seq] {
		case 0:
			unanswered = append(unanswered, seq)
		case 2:
			twice = append(twice, seq)
		}
		switch faults.At(0, seq) {
		case FaultDrop:
			drop = append(drop, seq)
		case FaultDropReply:
			dropReply = append(dropReply, seq)
		case FaultDelay:
			delay = append(delay, seq)
		}
	}
	for _, c := range []struct {
		what      string
		want, got []uint64
	}{
		{"dropped, by the seed", drop, seqs(r.Dropped)},
		{"dropped replies, by the seed", dropReply, seqs(r.DroppedReplies)},
		{"delayed, by the seed", delay, seqs(r.Delayed)},
		{"without a reply", unanswered, slices.Sorted(slices.Values(slices.Concat(seqs(r.Dropped), seqs(r.DroppedReplies))))},
		{"with two replies", twice, seqs(r.Duplicated)},
		{"out of order", reordered, seqs(r.Reordered)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-seen +told):\n%s", c.what, diff)
		}
	}
	if len(reordered) < 30 || len(twice) < 30 {
		t.Errorf("%d reordered, %d duplicated: want some 90 and 60", len(reordered), len(twice))
	}
	// The holding time is the service time at least, and the flow report misses what was dropped at the door only.
	for seq, st := range reports {
		if held := st.ServerSent - st.ServerReceived; held < int64(200*time.Microsecond) {
			t.Errorf("reply %d left after %v: want 200 us of service", seq, time.Duration(held))
		}
	}
	if last := reports[uint64(newest)]; last.ServerCount+uint64(r.Dropped.Count) < n-2 {
		t.Errorf("the last report counts %d packets with %d dropped of %d", last.ServerCount, r.Dropped.Count, n)
	}
}

// A freeze counts from the first packet of each run, the next epoch is the next run, and a full queue drops what is too much.
func TestQueueRunsStallsAndRoom(t *testing.T) {
	s := startQueue(t, QueueConfig{Servers: 1, Service: time.Millisecond, Capacity: 20, Stalls: []Stall{{0, 150 * time.Millisecond}}})
	for epoch := range uint8(2) {
		time.Sleep(2 * quiet)
		begun := time.Now()
		replies, _ := load(t, s.Addr(), epoch, 50, 100*time.Microsecond, 400*time.Millisecond)
		if len(replies) != 20 {
			t.Errorf("epoch %d: %d replies: want the 20 that there was room for", epoch, len(replies))
		}
		if took := time.Since(begun); took < 550*time.Millisecond {
			t.Errorf("epoch %d took %v: want the stall of 150 ms before the first reply, and 400 ms after the last", epoch, took)
		}
	}
	truth := s.Truth()
	if len(truth.Runs) != 2 {
		t.Fatalf("%d runs: want 2\n%s", len(truth.Runs), truth.String())
	}
	for i, r := range truth.Runs {
		if r.Epoch != uint8(i) || r.Arrivals != 50 || r.Full.Count != 30 || r.InsideMax != 20 || r.StallsReached != 1 {
			t.Errorf("run %d: %+v", i, r)
		}
		// The first is served from 150 to 151 ms, the 20th leaves at 170: 150 to 170 ms inside, less the 2 ms that they came later.
		if mean := time.Duration(r.SojournMeanNS); mean < 150*time.Millisecond || mean > 171*time.Millisecond {
			t.Errorf("run %d: mean sojourn %v: want 155 to 160 ms", i, mean)
		}
	}
}

// Plain payloads are served byte for byte, strangers are not, and addresses that replies cannot leave from are refused.
func TestQueueServesAnyPayload(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := startQueue(t, QueueConfig{Listen: at(listen), Service: time.Millisecond})
		conn := dial(t, "", s.Addr())
		for _, payload := range [][]byte{[]byte("plain"), {}, make([]byte, 1400), make([]byte, 60_000)} {
			if diff := cmp.Diff(payload, exchange(t, conn, payload)); diff != "" {
				t.Errorf("%d bytes (-sent +came back):\n%s", len(payload), diff)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if truth := s.Truth(); truth.Runs[0].Answered != 4 {
			t.Errorf("%s: want 4 answered", truth.String())
		}
	}
	stranger := startQueue(t, QueueConfig{Allow: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16")}})
	if replies, _ := load(t, stranger.Addr(), 1, 3, 0, 50*time.Millisecond); len(replies) > 0 {
		t.Errorf("%d replies to a stranger", len(replies))
	}
	if truth := stranger.Truth(); truth.Denied != 3 || len(truth.Runs) != 0 {
		t.Errorf("%s: want 3 denied and no run", truth.String())
	}
	for _, cfg := range []QueueConfig{
		{Listen: at("0.0.0.0:0")}, {}, {Listen: at("127.0.0.1:0"), Servers: -1}, {Listen: at("127.0.0.1:0"), Service: 1, Jitter: 2},
		{Listen: at("127.0.0.1:0"), Servers: 10, Capacity: 5}, {Listen: at("127.0.0.1:0"), Stalls: []Stall{{5, 4}}},
	} {
		if s, err := ListenQueue(cfg); err == nil {
			s.Close()
			t.Errorf("taken: %+v", cfg)
		}
	}
}
