package steer

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/internal/faketree"
	"blast/packet"
	"blast/tuning"
)

// fake writes a host below a new directory and returns its root.
func fake(t testing.TB, cfg faketree.Config, more map[string]string) string {
	t.Helper()
	root, err := faketree.Write(t.TempDir(), cfg, more)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func card(t *testing.T, more map[string]string) (Card, error) {
	t.Helper()
	root := fake(t, faketree.Config{Sockets: 2, Cores: 16, SMT: true, Queues: 64, Node: 1}, more)
	return Read(tuning.Reader{Root: root}.Device(), "eth0", false)
}

func TestChosenPortsLand(t *testing.T) {
	c, err := card(t, map[string]string{"ethtool/eth0/udp4-fields": "sdfn\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Computable(); err != nil {
		t.Fatal(err)
	}
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddrPort("10.0.0.2:9000")
	want := make([]int, 256)
	for i := range want {
		want[i] = i % 64
	}
	ports, err := Choose(Ports{From: 20000, To: 60000, Taken: map[uint16]bool{20001: true}}, want, func(p uint16) int { return c.Queue(netip.AddrPortFrom(src, p), dst) })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint16]bool{}
	for i, p := range ports {
		// Worked out once more from the definition: the card sees the reply.
		hash := packet.ToeplitzFlow(packet.ToeplitzKey(), dst, netip.AddrPortFrom(src, p))
		if got := int(c.RSS.Table[hash%128]); got != want[i] || seen[p] || p < 20000 || p == 20001 {
			t.Errorf("port %d lands on queue %d, want %d (seen before: %v)", p, got, want[i], seen[p])
		}
		seen[p] = true
	}
	if _, err := Choose(Ports{From: 20000, To: 20010}, want, func(uint16) int { return 3 }); err == nil || !strings.Contains(err.Error(), "4 for queue 0") {
		t.Errorf("too few ports: %v", err)
	}
}

func TestComputable(t *testing.T) {
	const rss = "key=6d5a56da table=0,1,2,3\n"
	for _, c := range []struct{ why, rss, fields, says string }{
		{"all known", "function=toeplitz transform=0 " + rss, "sdfn", ""},
		{"addresses only: no port helps", "function=toeplitz transform=0 " + rss, "sd", "addresses only (sd)"},
		{"another function", "function=xor transform=0 " + rss, "sdfn", "by xor, not toeplitz: queues are learnt by probing"},
		{"a symmetric transform", "function=toeplitz transform=1 " + rss, "sdfn", "symmetric"},
		{"no table", "function=toeplitz transform=0 key= table=\n", "sdfn", "no RSS table"},
		{"a driver that does not tell its fields", "function=toeplitz transform=0 " + rss, "", "does not tell what it hashes"},
	} {
		more := map[string]string{"ethtool/eth0/rss": c.rss, "ethtool/eth0/udp4-fields": c.fields}
		got, err := card(t, more)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		err = got.Computable()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if _, err := card(t, map[string]string{"ethtool/eth0/rss": ""}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a card without RSS: %v", err)
	}
	same, err := card(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if q := same.QueueByAddress(a, b); q < 0 || q > 63 {
		t.Errorf("queue %d by address", q)
	}
}

func TestLearn(t *testing.T) {
	for _, c := range []struct {
		why   string
		noise map[int]uint64 // other packets by queue
		lands int
		want  int
	}{
		{"a quiet card", nil, 2, 2},
		{"others at work, but less than the probe", map[int]uint64{0: 3, 1: 4}, 2, 2},
		{"a busy card: nothing stands out", map[int]uint64{0: 10, 1: 7}, 2, -1},
		{"no reply came", nil, -1, -1},
	} {
		counts := map[int]uint64{0: 100, 1: 200, 2: 300, 3: 0}
		probe := func(_ uint16, n int) error {
			if c.lands >= 0 {
				counts[c.lands] += uint64(n)
			}
			for q, extra := range c.noise {
				counts[q] += extra
			}
			return nil
		}
		read := func() (map[int]uint64, error) {
			now := map[int]uint64{}
			for q, n := range counts {
				now[q] = n
			}
			return now, nil
		}
		if got, err := Learn(probe, read, 5000, 10); err != nil || got != c.want {
			t.Errorf("%s: queue %d, %v; want %d", c.why, got, err, c.want)
		}
	}
	fail := errors.New("no")
	if _, err := Learn(func(uint16, int) error { return fail }, func() (map[int]uint64, error) { return nil, nil }, 1, 1); !errors.Is(err, fail) {
		t.Errorf("%v", err)
	}
}

func TestDeviceCounters(t *testing.T) {
	root := fake(t, faketree.Config{Queues: 2}, map[string]string{"ethtool/eth0/queue-packets": "0=17 1=4\n"})
	d := tuning.Reader{Root: root}.Device()
	got, err := DeviceCounters(d, "eth0")()
	if d := cmp.Diff(map[int]uint64{0: 17, 1: 4}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if err := os.WriteFile(filepath.Join(root, "ethtool/eth0/queue-packets"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := DeviceCounters(d, "eth0")(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no counters: %v", err)
	}
}
