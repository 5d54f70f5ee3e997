package change

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
