package tuning

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"blast/stats"
)

// Shares are of a core's own time; softirq and steal are parts of busy; a core that came or went is left out.
func TestCores(t *testing.T) {
	before := Sample{CPUs: []CPUTimes{{CPU: 0, Busy: 10, Softirq: 1, Steal: 0.5, Total: 100}, {CPU: 2, Busy: 1, Total: 2}, {CPU: 3, Busy: 1, Total: 2}}}
	after := Sample{CPUs: []CPUTimes{{CPU: 0, Busy: 17, Softirq: 3, Steal: 1.5, Total: 110}, {CPU: 1, Busy: 5, Total: 5}, {CPU: 2, Busy: 1, Total: 2}}}
	want := []stats.CoreUse{{CPU: 0, Busy: 0.7, Softirq: 0.2, Steal: 0.1}}
	if diff := cmp.Diff(want, Cores(before, after), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
}

// A counter that only one sample has, or that was reset, says nothing; one that stood still says 0.
func TestMoved(t *testing.T) {
	before := Sample{Counters: map[string]uint64{"still": 5, "up": 5, "reset": 9, "gone": 1}}
	after := Sample{Counters: map[string]uint64{"still": 5, "up": 7, "reset": 2, "new": 1}}
	want := []stats.Counter{{Name: "still"}, {Name: "up", Delta: 2}}
	if diff := cmp.Diff(want, Moved(before, after)); diff != "" {
		t.Error(diff)
	}
}

// This host: the cores' shares are shares, and the sum over the CPUs is what /proc/stat counts.
func TestSampleHere(t *testing.T) {
	r := Reader{}
	s, err := r.Sample("lo")
	if err != nil {
		t.Fatal(err)
	}
	if s.MonotonicNS <= 0 || s.WallNS <= 0 || len(s.CPUs) == 0 {
		t.Fatalf("%+v", s)
	}
	for _, c := range s.CPUs {
		if c.Busy < 0 || c.Busy > c.Total || c.Softirq+c.Steal > c.Busy+1e-6 || math.IsNaN(c.Total) {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"udp.RcvbufErrors", "lo.rx_packets", "softnet.dropped"} {
		if _, ok := s.Counters[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
	if r.BootID() == "" || r.NetNS() == "" || r.BootTime() == 0 {
		t.Errorf("boot %q, namespace %q, boot time %d", r.BootID(), r.NetNS(), r.BootTime())
	}
	for _, room := range r.Rooms() {
		if room.Used == 0 && room.Name == "file descriptors" || room.Used > room.Limit {
			t.Errorf("%+v", room)
		}
	}
}
