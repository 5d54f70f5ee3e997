package xdp

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
)

// TestKernelLadder: a driver that claims zero-copy and does not have it (a veth, with the claim put into its mouth) is taken in copy
// mode, in Auto, everything built anew and the step told; and an attachment that is not allowed costs zero-copy, not the run.
func TestKernelLadder(t *testing.T) {
	p := testnet.NewPair(t, testnet.Config{})
	claim := func(t *testing.T, cfg DeviceConfig) *Device {
		t.Helper()
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Interface = p.Left.Interface
		d := &Device{cfg: cfg, netlink: h, sockets: map[*Socket]struct{}{}}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		if d.facts, err = inspect(h, cfg.Interface); err != nil {
			t.Fatal(err)
		}
		d.facts.features = features{known: true, zeroCopy: true}
		if err := d.prepare(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		name    string
		cfg     DeviceConfig
		without []int // capabilities
		mode    Mode
		program string
		note    string
	}{
		{"sending", DeviceConfig{}, nil, Native, "driver", "zero-copy: bind to queue 0"},
		{"receiving", DeviceConfig{Receive: true}, nil, Native, "driver", "operation not supported"},
		{"sending without the right to attach", DeviceConfig{}, []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, Generic, "none", "CAP_BPF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Left.Do(func() {
				dropCaps(t, c.without...)
				d := claim(t, c.cfg)
				s, err := d.Open(SocketConfig{TxFrames: 64})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				g := s.Granted()
				if g.Mode != c.mode || g.Program != c.program || len(g.Notes) != 1 || !strings.Contains(g.Notes[0], c.note) {
					t.Errorf("%+v", g)
				}
				for _, f := range s.Reserve(1) {
					f.Len = 60
				}
				if n, err := s.Commit(1); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		})
	}
	t.Run("zero-copy by name", func(t *testing.T) {
		p.Left.Do(func() {
			d := claim(t, DeviceConfig{Mode: ZeroCopy})
			if s, err := d.Open(SocketConfig{}); !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("%v, %v", s, err)
			}
		})
	})
	// Somebody else's program: sending goes on without one of ours.
	t.Run("sending beside another program", func(t *testing.T) {
		counter := p.Left.Count(testnet.CountConfig{Action: testnet.Pass})
		defer counter.Detach()
		p.Left.Do(func() {
			d := claim(t, DeviceConfig{})
			s, err := d.Open(SocketConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if g := s.Granted(); g.Program != "none" || len(g.Notes) != 1 || !strings.Contains(g.Notes[0], "testnet_count") {
				t.Errorf("%+v", g)
			}
		})
	})
}

// dropCaps takes capabilities from the calling thread.
func dropCaps(t testing.TB, bits ...int) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	for _, b := range bits {
		data[b/32].Effective &^= 1 << (b % 32)
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
}
