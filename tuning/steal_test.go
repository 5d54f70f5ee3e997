package tuning

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func started(t testing.TB, r Reader, cpus ...int) *StealMeter {
	t.Helper()
	m := r.StealMeter(cpus)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func near(t *testing.T, m *StealMeter, want float64, why string) {
	t.Helper()
	got, err := m.Read()
	if err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: %v, want %v", why, got, want)
	}
}

const (
	cpu0    = "cpu0 100 0 100 700 10 0 40 50 25 0"
	cpu1    = "cpu1 150 0 100 700 10 0 40 0 25 0"
	outer   = "sys/fs/cgroup/load.slice/cpu.stat"
	cpuStat = "proc/stat"
)

func TestStealFromHypervisor(t *testing.T) {
	r := host(t, "vm-steal")
	m := started(t, r, 1, 0, 0)
	near(t, m, 0, "no tick has passed")
	// 100 ticks on each CPU, 10 of one's stolen. Guest time, in user already, must not count twice.
	rewrite(t, r, cpuStat, cpu0, "cpu0 150 0 100 740 10 0 40 60 75 0")
	rewrite(t, r, cpuStat, cpu1, "cpu1 250 0 100 700 10 0 40 0 125 0")
	near(t, m, 0.05, "10 of 200 ticks")
	near(t, m, 0, "each reading starts where the last one ended")
	rewrite(t, r, cpuStat, "cpu2 125 0 100 800 0 0 0 350", "cpu2 125 0 100 800 0 0 0 900")
	near(t, m, 0, "other CPUs' steal is not ours")
	// iowait may go backwards; the share must not.
	rewrite(t, r, cpuStat, "cpu0 150 0 100 740 10", "cpu0 150 0 100 740 0")
	near(t, m, 0, "a sum that went back")
}

func TestStealFromQuota(t *testing.T) {
	r := host(t, "vm-steal")
	m := started(t, r, 0, 1)
	rewrite(t, r, outer, "throttled_usec 30000", "throttled_usec 130000")
	near(t, m, 0, "without a tick there is nothing to compare with")
	rewrite(t, r, cpuStat, cpu0, "cpu0 200 0 100 700 10 0 40 50 25 0")
	near(t, m, 0.1, "0.1 s is 10 of 100 ticks, though another reading came between")
}

func TestStealSums(t *testing.T) {
	r := host(t, "vm-steal")
	m := started(t, r, 0)
	rewrite(t, r, outer, "throttled_usec 30000", "throttled_usec 130000")
	rewrite(t, r, cpuStat, cpu0, "cpu0 100 0 100 780 10 0 40 70 25 0")
	near(t, m, 0.3, "20 ticks stolen and 0.1 s withheld of 100 ticks")
	rewrite(t, r, outer, "throttled_usec 130000", "throttled_usec 99130000")
	rewrite(t, r, cpuStat, "cpu0 100 0 100 780", "cpu0 100 0 100 880")
	near(t, m, 1, "64 CPUs' throttling on one named CPU stops at 1")
}

func TestStealVersion1(t *testing.T) {
	r := host(t, "container")
	m := started(t, r, 1, 3)
	rewrite(t, r, "sys/fs/cgroup/cpu,cpuacct/cpu.stat", "throttled_time 5000000", "throttled_time 255000000")
	rewrite(t, r, cpuStat, "cpu1 100", "cpu1 200")
	near(t, m, 0.25, "250 ms in ns of 100 ticks")
}

func TestStealErrors(t *testing.T) {
	for _, c := range []struct {
		why     string
		r       Reader
		cpus    []int
		message string
	}{
		{"no CPUs", host(t, "vm-steal"), nil, "no CPUs"},
		{"a CPU that is not there", host(t, "vm-steal"), []int{0, 9}, "no cpu9"},
		{"no /proc/stat", tree(t, nil), []int{0}, "proc/stat"},
	} {
		m := c.r.StealMeter(c.cpus)
		if err := m.Start(); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q in it", c.why, err, c.message)
		}
		if _, err := m.Read(); err == nil {
			t.Errorf("%s: a meter that did not start reads", c.why)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: close: %v", c.why, err)
		}
	}
	// A CPU that goes offline during the run is an error, not a zero.
	r := host(t, "vm-steal")
	m := started(t, r, 0, 1)
	rewrite(t, r, cpuStat, cpu1+"\n", "")
	if _, err := m.Read(); err == nil || !strings.Contains(err.Error(), "no cpu1") {
		t.Errorf("offline: %v", err)
	}
}

func TestStealOfManyCPUs(t *testing.T) {
	// More CPU lines than the first buffer holds, and an interrupt line that need not be read whole.
	var b strings.Builder
	for cpu := range 300 {
		fmt.Fprintf(&b, "cpu%d 100000 0 100000 70000000 10 0 40 50 25 0\n", cpu)
	}
	last := "cpu299 100000 0 100000 70000000 10 0 40 50 25 0"
	r := tree(t, map[string]string{"proc/stat": b.String() + "intr " + strings.Repeat("0 ", 100000) + "\nctxt 1\n"})
	m := started(t, r, 299)
	rewrite(t, r, cpuStat, last, "cpu299 100000 0 100000 70000050 10 0 40 100 25 0")
	near(t, m, 0.5, "half stolen")
	if len(m.buf) > 64<<10 {
		t.Errorf("the buffer grew to %d bytes: the interrupts are read too", len(m.buf))
	}
}

func TestStealReadDoesNotAllocate(t *testing.T) {
	m := started(t, host(t, "vm-steal"), 0, 1)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.Read(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a reading", n)
	}
}
