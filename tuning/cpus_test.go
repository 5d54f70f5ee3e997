package tuning

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCPUs(t *testing.T) {
	for _, c := range []struct {
		why, tree string
		want      []int
	}{
		{"CPU 7 is allowed but offline", "two-sockets", []int{0, 1, 2, 3, 4, 5, 6}},
		{"a cpuset with holes", "container", []int{1, 3}},
	} {
		got, err := host(t, c.tree).CPUs()
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, d)
		}
	}
	for why, r := range map[string]Reader{
		"no status file":        tree(t, nil),
		"no list in it":         tree(t, map[string]string{"proc/self/status": "Name: x\n"}),
		"a broken list":         tree(t, map[string]string{"proc/self/status": "Cpus_allowed_list: 3-1\n"}),
		"none of them online":   tree(t, map[string]string{"proc/self/status": "Cpus_allowed_list: 3\n", "sys/devices/system/cpu/online": "0-2\n"}),
		"a list without an end": tree(t, map[string]string{"proc/self/status": "Cpus_allowed_list: 0-4000000000\n"}),
	} {
		if cpus, err := r.CPUs(); err == nil {
			t.Errorf("%s: no error but %v", why, cpus)
		}
	}
}

func TestNodeOf(t *testing.T) {
	r := host(t, "two-sockets")
	for cpu, want := range map[int]int{0: 0, 3: 1, 6: 0, 7: -1, 99: -1} {
		if got := r.NodeOf(cpu); got != want {
			t.Errorf("cpu %d: node %d, want %d", cpu, got, want)
		}
	}
	if got := host(t, "container").NodeOf(1); got != -1 {
		t.Errorf("a kernel without NUMA: node %d, want -1", got)
	}
}

func TestBelowMount(t *testing.T) {
	for _, c := range []struct{ why, member, root, want string }{
		{"the whole hierarchy is mounted", "/a/b", "/", "/a/b"},
		{"a mount of a part of it", "/docker/abc/x", "/docker/abc", "/x"},
		{"the mounted part itself", "/docker/abc", "/docker/abc", "/"},
		{"a longer name is not below", "/docker/abcd", "/docker/abc", "/"},
		{"outside of a cgroup namespace", "/../other", "/docker/abc", "/"},
	} {
		if got := belowMount(c.member, c.root); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	got, err := host(t, "two-sockets").Limits()
	if want := (Limits{NoFileSoft: 1024, NoFileHard: 524288, Memlock: 8388608}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	got, err = host(t, "vm-steal").Limits()
	if want := (Limits{NoFileSoft: math.MaxUint64, NoFileHard: math.MaxUint64, Memlock: 8388608}); err != nil || got != want {
		t.Errorf("unlimited: %+v, %v; want %+v", got, err, want)
	}
	for why, text := range map[string]string{
		"no such line": "Max processes 1 1 processes\n",
		"cut short":    "Max open files\n",
		"not a number": "Max open files many 1 files\n",
	} {
		if got, err := tree(t, map[string]string{"proc/self/limits": text}).Limits(); err == nil {
			t.Errorf("%s: no error but %+v", why, got)
		}
	}
	if _, err := tree(t, nil).Limits(); err == nil {
		t.Error("no file: no error")
	}
}
