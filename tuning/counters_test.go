package tuning

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

func deltas(counters []stats.Counter) map[string]int64 {
	m := map[string]int64{}
	for _, c := range counters {
		m[c.Name] = c.Delta
	}
	return m
}

func TestCountersReadEveryPlace(t *testing.T) {
	// Against a snapshot of zeros the deltas are the values in the files; the calling thread's files, not its process's.
	s, err := host(t, "two-sockets").Counters("ens1f0", "lo")
	if err != nil {
		t.Fatal(err)
	}
	zero := Snapshot{index: s.index, values: append([]value(nil), s.values...)}
	for i := range zero.values {
		zero.values[i].n = 0
	}
	want := []stats.Counter{
		{Name: "udp.OutDatagrams", Delta: 1000}, {Name: "udp.InDatagrams", Delta: 23}, {Name: "udp.SndbufErrors", Delta: 8},
		{Name: "udp.RcvbufErrors", Delta: 7}, {Name: "udp.NoPorts", Delta: 5}, {Name: "udp.InErrors", Delta: 6},
		{Name: "udp.MemErrors", Delta: 1}, {Name: "ip.OutDiscards", Delta: 4},
		{Name: "udp6.OutDatagrams", Delta: 12}, {Name: "udp6.InDatagrams", Delta: 11}, {Name: "udp6.SndbufErrors", Delta: 18},
		{Name: "udp6.RcvbufErrors", Delta: 17}, {Name: "udp6.NoPorts", Delta: 15}, {Name: "udp6.InErrors", Delta: 16},
		{Name: "udp6.MemErrors", Delta: 19}, {Name: "ip6.OutDiscards", Delta: 14},
		{Name: "ens1f0.tx_packets", Delta: 1000}, {Name: "ens1f0.tx_dropped", Delta: 3}, {Name: "ens1f0.tx_errors", Delta: 2},
		{Name: "ens1f0.rx_packets", Delta: 50}, {Name: "ens1f0.rx_dropped", Delta: 9}, {Name: "ens1f0.rx_errors", Delta: 1},
		{Name: "ens1f0.rx_missed", Delta: 4},
		{Name: "lo.tx_packets", Delta: 2610}, {Name: "lo.tx_dropped"}, {Name: "lo.tx_errors"},
		{Name: "lo.rx_packets", Delta: 2610}, {Name: "lo.rx_dropped"}, {Name: "lo.rx_errors"},
		{Name: "softnet.dropped", Delta: -1}, // -2 and +1 as signed 32 bits: only ever differences mean anything
		{Name: "softnet.time_squeeze", Delta: 7},
		{Name: "conntrack.count", Delta: 33},
		{Name: "conntrack.drop", Delta: 0x22}, {Name: "conntrack.early_drop", Delta: 0x33}, {Name: "conntrack.insert_failed", Delta: 0x11},
	}
	got := zero.Delta(s)
	// The raw value of CPU 0 is 2^32 - 2; see above.
	for i := range got {
		if got[i].Name == "softnet.dropped" {
			got[i].Delta = int64(int32(got[i].Delta))
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if want := (Conntrack{Count: 33, Max: 65536}); s.Conntrack != want {
		t.Errorf("conntrack %+v, want %+v", s.Conntrack, want)
	}
}

func TestDelta(t *testing.T) {
	r := host(t, "two-sockets")
	before, err := r.Counters("ens1f0")
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, r, "proc/100/task/101/net/snmp", "Udp: 23 5 6 1000", "Udp: 23 5 6 1500")
	rewrite(t, r, "proc/100/task/101/net/softnet_stat", "00000045 fffffffe", "00000045 00000003")
	rewrite(t, r, "proc/100/task/101/net/softnet_stat", "00000a66 00000001", "00000a66 00000002")
	rewrite(t, r, "proc/sys/net/netfilter/nf_conntrack_count", "33", "30")
	after, err := r.Counters("ens1f0")
	if err != nil {
		t.Fatal(err)
	}
	got := deltas(before.Delta(after))
	for name, want := range map[string]int64{
		"udp.OutDatagrams":  500,
		"udp.InDatagrams":   0,
		"softnet.dropped":   6, // 5 across the 32-bit wrap of one CPU, 1 on the other
		"conntrack.count":   -3,
		"ens1f0.tx_packets": 0,
	} {
		if d, ok := got[name]; !ok || d != want {
			t.Errorf("%s: %d (%t), want %d", name, d, ok, want)
		}
	}
}

func TestCountersOfAnOldSystem(t *testing.T) {
	// No IPv6, no conntrack, no MemErrors and no rx_missed: left out, and no error.
	r := host(t, "container")
	s, err := r.Counters("eth0")
	if err != nil {
		t.Fatal(err)
	}
	got := deltas(s.Delta(s))
	for _, name := range []string{"udp.OutDatagrams", "eth0.tx_packets", "softnet.dropped"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range got {
		if strings.Contains(name, "6.") || strings.Contains(name, "conntrack") || strings.HasSuffix(name, "MemErrors") ||
			strings.HasSuffix(name, "rx_missed") || name == "ip.OutDiscards" {
			t.Errorf("%s is not on this host", name)
		}
	}
	if s.Conntrack != (Conntrack{}) {
		t.Errorf("conntrack %+v on a host without", s.Conntrack)
	}
}

func TestCountersErrors(t *testing.T) {
	const snmp, dev = "proc/100/task/101/net/snmp", "proc/100/task/101/net/dev"
	for _, c := range []struct {
		why     string
		r       Reader
		iface   string
		message string
		left    string // a counter that is still there
	}{
		{"an interface that is not there is named", host(t, "container"), "eth9", `no interface "eth9"`, "udp.OutDatagrams"},
		{"values without a heading", host(t, "container", map[string]string{snmp: "Udp: A B\nUdp: 1\n"}), "eth0", "line 2", "eth0.tx_packets"},
		{"not a number", host(t, "container", map[string]string{snmp: "Udp: NoPorts\nUdp: x\n"}), "eth0", "NoPorts", "eth0.tx_packets"},
		{"a broken interface table", host(t, "container", map[string]string{dev: "a\nb\nc\n"}), "eth0", "net/dev", "udp.OutDatagrams"},
		{"nothing at all", tree(t, nil), "eth0", "thread-self", ""},
	} {
		s, err := c.r.Counters(c.iface)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q in it", c.why, err, c.message)
		}
		if _, ok := deltas(s.Delta(s))[c.left]; c.left != "" && !ok {
			t.Errorf("%s: %s was lost as well", c.why, c.left)
		}
	}
}

func TestDeltaKeepsOnlyWhatBothHold(t *testing.T) {
	r := host(t, "two-sockets")
	with, err := r.Counters("lo")
	if err != nil {
		t.Fatal(err)
	}
	without, err := r.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []map[string]int64{deltas(with.Delta(without)), deltas(without.Delta(with))} {
		if _, ok := got["lo.tx_packets"]; ok {
			t.Error("a counter of one snapshot only has no delta")
		}
		if _, ok := got["udp.OutDatagrams"]; !ok {
			t.Error("a counter of both is missing")
		}
	}
	if got := (Snapshot{}).Delta(with); len(got) != 0 {
		t.Errorf("the zero snapshot gives %v", got)
	}
}
