package serve

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"blast/packet"
)

// arrival is one packet of flow 1 of a worker with stride 4, planned every 1000 ns.
func arrival(epoch uint8, index uint64, base int64) packet.Stamp {
	return packet.Stamp{Epoch: epoch, Worker: 2, Stride: 4, Seq: index*4 + 1, Planned: base + int64(index)*1000}
}

type report struct{ Count, Window uint64 }

func TestFlowReports(t *testing.T) {
	type step struct {
		stamp packet.Stamp
		now   int64
		want  report
	}
	for _, c := range []struct {
		name   string
		steps  []step
		counts Counts
	}{
		{"in order", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 1, 0), 0, report{2, 3}}, {arrival(1, 2, 0), 0, report{3, 7}},
		}, Counts{}},
		{"a gap shows as a hole in the window", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 3, 0), 0, report{2, 0b1001}}, {arrival(1, 4, 0), 0, report{3, 0b10011}},
		}, Counts{}},
		{"a flow whose first packets were lost", []step{
			{arrival(1, 1000, 0), 0, report{1, 1}}, {arrival(1, 1001, 0), 0, report{2, 3}},
		}, Counts{}},
		{"a gap of 63 keeps one bit of the past, one of 64 none", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 63, 0), 0, report{2, 1<<63 | 1}}, {arrival(1, 63+64, 0), 0, report{3, 1}},
		}, Counts{}},
		{"a duplicate is not counted", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 0, 0), 0, report{1, 0}}, {arrival(1, 1, 0), 0, report{2, 3}}, {arrival(1, 0, 0), 0, report{2, 0}},
		}, Counts{Duplicate: 2}},
		{"a latecomer fills its hole, and its own reply has no window", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 2, 0), 0, report{2, 0b101}}, {arrival(1, 1, 0), 0, report{3, 0}}, {arrival(1, 3, 0), 0, report{4, 0b1111}},
		}, Counts{Reordered: 1}},
		{"older than the window: counted as new, since nobody can know", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 64, 0), 0, report{2, 1}}, {arrival(1, 0, 0), 0, report{3, 0}},
		}, Counts{Beyond: 1, Reordered: 1}},
		{"the next epoch begins anew, and a straggler of the last one changes nothing", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 1, 0), 0, report{2, 3}},
			{arrival(2, 0, 9000), 0, report{1, 1}}, {arrival(1, 2, 0), 0, report{}}, {arrival(2, 1, 9000), 0, report{2, 3}},
		}, Counts{Restarted: 1, Stale: 1}},
		{"epochs go round", []step{
			{arrival(255, 0, 0), 0, report{1, 1}}, {arrival(0, 0, 9000), 0, report{1, 1}},
		}, Counts{Restarted: 1}},
		{"another run from the same port in the same epoch begins anew", []step{
			{arrival(1, 0, 0), 0, report{1, 1}}, {arrival(1, 1, 0), 0, report{2, 3}}, {arrival(1, 2, 0), 0, report{3, 7}},
			{arrival(1, 0, 9000), 0, report{1, 1}}, {arrival(1, 1, 9000), 0, report{2, 3}},
		}, Counts{Restarted: 1}},
		{"a sender whose clock began anew: another epoch, planned earlier, after silence", []step{
			{arrival(1, 5, 1e12), 0, report{1, 1}}, {arrival(2, 0, 0), 1e9, report{}}, {arrival(2, 1, 0), 3e9, report{1, 1}},
		}, Counts{Restarted: 1, Stale: 1}},
		{"packets planned for one moment (a tick) are not taken for a new run", []step{
			{packet.Stamp{Worker: 2, Stride: 1, Seq: 0, Planned: 5}, 0, report{1, 1}},
			{packet.Stamp{Worker: 2, Stride: 1, Seq: 2, Planned: 5}, 0, report{2, 5}},
			{packet.Stamp{Worker: 2, Stride: 1, Seq: 1, Planned: 5}, 0, report{3, 0}},
		}, Counts{Reordered: 1}},
		{"unknown stride: the count alone", []step{
			{packet.Stamp{Worker: 2, Seq: 0}, 0, report{1, 0}}, {packet.Stamp{Worker: 2, Seq: 9}, 0, report{2, 0}}, {packet.Stamp{Worker: 2, Seq: 9}, 0, report{3, 0}},
		}, Counts{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newFlows(4, 1)
			var counts Counts
			for i, s := range c.steps {
				var got report
				got.Count, got.Window = table.observe(at("192.0.2.1:5"), &s.stamp, s.now, &counts)
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("packet %d %+v (-want +got):\n%s", i, s.stamp, diff)
				}
			}
			if diff := cmp.Diff(c.counts, counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if table.live != 1 {
				t.Errorf("%d flows, want 1", table.live)
			}
		})
	}
}

// TestFlowReportsAgreeWithASet compares the window with the plain set of what has come, for any loss, duplication and reorder.
func TestFlowReportsAgreeWithASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newFlows(4, rapid.Uint64().Draw(t, "seed"))
		var counts Counts
		have := map[uint64]bool{}
		var newest, count, duplicates uint64
		at := netip.AddrPortFrom(netip.IPv6Loopback(), 7)
		index := uint64(1000)
		for range rapid.IntRange(1, 300).Draw(t, "packets") {
			index = max(1000, index+uint64(rapid.IntRange(-80, 90).Draw(t, "step")))
			s := arrival(1, index, 0)
			gotCount, gotWindow := table.observe(at, &s, 0, &counts)
			isNewest := len(have) == 0 || index > newest
			// The first packet to come begins the flow; anything older than it is new.
			if have[index] && newest-index < 64 {
				duplicates++
			} else {
				count++
			}
			have[index] = true
			var window uint64
			if isNewest {
				newest = index
				for k := range uint64(64) {
					if k <= newest && have[newest-k] {
						window |= 1 << k
					}
				}
			}
			if gotCount != count || gotWindow != window || counts.Duplicate != duplicates {
				t.Fatalf("index %d, newest %d: count %d window %b duplicates %d, want %d %b %d",
					index, newest, gotCount, gotWindow, counts.Duplicate, count, window, duplicates)
			}
		}
	})
}

func TestFlowsOfOneSourcePortAreToldApart(t *testing.T) {
	table := newFlows(4, 1)
	var counts Counts
	for seq := range uint64(9) {
		s := packet.Stamp{Stride: 3, Seq: seq, Planned: int64(seq)}
		n := seq/3 + 1
		if count, window := table.observe(at("192.0.2.1:5"), &s, 0, &counts); count != n || window != 1<<n-1 {
			t.Errorf("seq %d: count %d window %b, want %d and %b", seq, count, window, n, 1<<n-1)
		}
	}
	if table.live != 3 || !cmp.Equal(counts, Counts{}) {
		t.Errorf("%d flows, counts %v", table.live, counts)
	}
}

func TestFullTableLeavesRepliesWithoutReport(t *testing.T) {
	const limit = 100
	table := newFlows(limit, 3)
	var counts Counts
	see := func(port uint16, now int64) report {
		s := packet.Stamp{Stride: 1}
		var r report
		r.Count, r.Window = table.observe(netip.AddrPortFrom(netip.IPv4Unspecified(), port), &s, now, &counts)
		return r
	}
	for port := range uint16(limit + 20) {
		want := report{1, 1}
		if port >= limit {
			want = report{}
		}
		if diff := cmp.Diff(want, see(port, 0)); diff != "" {
			t.Errorf("flow %d (-want +got):\n%s", port, diff)
		}
	}
	if diff := cmp.Diff(Counts{Unreported: 20}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	// Flows that are heard of keep their places, the silent ones lose them.
	for port := range uint16(10) {
		see(port, flowIdle)
	}
	for range 2*len(table.place)/flowSweep + 1 {
		table.expire(flowIdle + 1)
	}
	if table.live < 10 || table.live > limit*3/4 {
		t.Errorf("%d flows live after the sweep", table.live)
	}
	for port := range uint16(10) {
		if r := see(port, flowIdle+1); r != (report{1, 0}) {
			t.Errorf("flow %d was forgotten though it was heard of: %+v", port, r)
		}
	}
	if r := see(limit+1, flowIdle+1); r != (report{1, 1}) {
		t.Errorf("a new flow finds no place after the sweep: %+v", r)
	}
}

// TestRemoveKeepsTheOthersFindable compares the table with a map through insertions and removals at high load.
func TestRemoveKeepsTheOthersFindable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newFlows(16, rapid.Uint64().Draw(t, "seed"))
		var counts Counts
		want := map[uint16]uint64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if place := rapid.IntRange(0, 2*len(table.place)).Draw(t, "place to free"); place < len(table.place) {
				if f := table.place[place]; f.count != 0 {
					delete(want, f.port)
					table.remove(uint64(place))
				}
				continue
			}
			port := rapid.Uint16Range(0, 40).Draw(t, "port")
			if _, ok := want[port]; !ok && len(want) == 16 {
				continue
			}
			want[port]++
			count, _ := table.observe(netip.AddrPortFrom(netip.IPv4Unspecified(), port), &packet.Stamp{}, 0, &counts)
			if count != want[port] {
				t.Fatalf("flow %d counts %d, want %d", port, count, want[port])
			}
		}
		if table.live != len(want) {
			t.Fatalf("%d flows live, want %d", table.live, len(want))
		}
	})
}

func TestObserveDoesNotAllocate(t *testing.T) {
	table := newFlows(64, 1)
	var counts Counts
	s := arrival(1, 0, 0)
	port := uint16(0)
	if n := testing.AllocsPerRun(1000, func() {
		table.observe(netip.AddrPortFrom(netip.IPv6Loopback(), port), &s, int64(port)*1e9, &counts)
		table.expire(int64(port) * 1e9)
		port++
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	table := newFlows(defaultFlows, 1)
	var counts Counts
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		s := packet.Stamp{Stride: 1000, Seq: i, Planned: int64(i)}
		table.observe(netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i%1000)), &s, int64(i), &counts)
		i++
	}
}
