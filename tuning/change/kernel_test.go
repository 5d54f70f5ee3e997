package change

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/tuning"
)

// TestKernelNamespace changes real settings of a namespace of its own: sysctls, and the channels of a veth through its driver.
func TestKernelNamespace(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{Queues: 4})
	tuner := Tuner{Journal: filepath.Join(t.TempDir(), "journal")}
	channels := deviceKey(pair.Left.Interface, tuning.Channels)
	rss := deviceKey(pair.Left.Interface, tuning.RSSConfig)
	ports := "/proc/sys/net/ipv4/ip_local_port_range"
	read := func(keys ...string) string {
		var out []string
		pair.Left.Do(func() {
			for _, key := range keys {
				v, err := Host{}.Get(key)
				if err != nil {
					t.Error(err)
				}
				out = append(out, strings.TrimSpace(v))
			}
		})
		return strings.Join(out, "; ")
	}
	before := read(ports, channels)
	var session *Session
	pair.Left.Do(func() {
		var err error
		if session, err = tuner.Begin([]string{"test"}); err != nil {
			t.Error(err)
			return
		}
		out, err := session.Apply([]Change{
			sysctl("net.ipv4.ip_local_port_range", "20000 60000"), sysctl("net.ipv4.tcp_tw_reuse", "1"),
			{Item: Channels, Key: channels, New: "rx=2 tx=2"}, {Item: RSS, Key: rss, New: "table=default"},
			{Item: Coalesce, Key: channels[:len(channels)-len(" channels")] + " coalesce", New: "rx-usecs=1"},
		})
		if err != nil || len(out) != 5 {
			t.Errorf("%v, %v", out, err)
			return
		}
		for i, want := range []string{StateApplied, StateApplied, StateApplied, StateRefused, StateRefused} { // a veth has no RSS table
			if out[i].State != want {
				t.Errorf("%s: %s %s, want %s", out[i].Key, out[i].State, out[i].Why, want)
			}
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := read(ports, channels); got != "20000\t60000; rx=2 tx=2 other=0 combined=0" {
		t.Errorf("applied: %s", got)
	}
	if _, err := tuner.Restore(false); err == nil || !strings.Contains(err.Error(), "applied in network namespace net:[") {
		t.Errorf("restored from another namespace: %v", err)
	}
	pair.Left.Do(func() {
		if _, err := tuner.Restore(false); err != nil {
			t.Error(err)
		}
	})
	if got := read(ports, channels); got != before {
		t.Errorf("restored: %s, before %s", got, before)
	}
	if _, err := os.Stat(tuner.Journal); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal stays: %v", err)
	}
}

// TestKernelRefusedValue: the kernel checks values, and what it refuses stays as it was.
func TestKernelRefusedValue(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	tuner := Tuner{Journal: filepath.Join(t.TempDir(), "journal")}
	pair.Left.Do(func() {
		s, err := tuner.Begin(nil)
		if err != nil {
			t.Error(err)
			return
		}
		out, err := s.Apply([]Change{sysctl("net.ipv4.ip_local_port_range", "60000 20000"), sysctl("net.ipv4.nosuch", "1")})
		if err != nil || out[0].State != StateRefused || out[1].State != StateRefused || !strings.Contains(out[1].Why, "not there") {
			t.Errorf("%+v, %v", out, err)
		}
		if err := s.Undo(); err != nil {
			t.Error(err)
		}
	})
}

// TestKernelNoPrivilege drops CAP_NET_ADMIN: the sysctl can be set by its owner, the channels cannot, and then the sysctl is what it
// was.
func TestKernelNoPrivilege(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{Queues: 2})
	tuner := Tuner{Journal: filepath.Join(t.TempDir(), "journal")}
	const ports = "/proc/sys/net/ipv4/ip_local_port_range"
	pair.Left.Do(func() { // on a thread that ends with it
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			t.Error(err)
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &caps[0]); err != nil {
			t.Error(err)
			return
		}
		before, err := Host{}.Get(ports)
		if err != nil {
			t.Error(err)
			return
		}
		s, err := tuner.Begin(nil)
		if err != nil {
			t.Error(err)
			return
		}
		var steps []string
		s.t.Progress = func(step string) { steps = append(steps, step) }
		_, err = s.Apply([]Change{sysctl("net.ipv4.ip_local_port_range", "20000 60000"), {Item: Channels, Key: deviceKey(pair.Left.Interface, tuning.Channels), New: "rx=1 tx=1"}})
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "everything was put back") {
			t.Errorf("applied without privilege: %v", err)
		}
		if after, err := (Host{}).Get(ports); err != nil || after != before {
			t.Errorf("ports %q, before %q, %v; steps %q", after, before, err, steps)
		}
		if len(steps) < 2 || steps[1] != "set "+ports {
			t.Errorf("the sysctl was never set: %q", steps)
		}
	})
	if _, err := tuner.Status(); !errors.Is(err, ErrNoJournal) {
		t.Errorf("the journal stays: %v", err)
	}
}
