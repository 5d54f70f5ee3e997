package pace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// options opens files of a little tree in memory.
func options() Options {
	tree := fstest.MapFS{
		"game.csv": {Data: []byte("# time,size\n10.5,100\n\n10.75, 0\n10750ms,200\n11.000000001,65527\n")},
		"bad.csv":  {Data: []byte("0,1\n1\n")},
	}
	return Options{Sessions: 10, Seed: 1, Open: func(path string) (io.ReadCloser, error) { return tree.Open(path) }}
}

var rate50k = Rate{Packets: 50_000, Per: time.Second}

func TestParseProfile(t *testing.T) {
	for _, test := range []struct {
		text, back string
		slots      uint64
	}{
		{"const", "const", 500_000},
		{"ramp:0..100/10s", "ramp:0..100/10s", 500},
		{"ramp:1k..0/10s", "ramp:1k..0/10s", 5000},
		{"ramp:1/h..10/m/10s", "ramp:1/h..1/6s/10s", 1},
		{"ramp:0.5..1.5/10s", "ramp:0.5..1.5/10s", 10},
		{"step:10k+10k/5s..100k", "step:10k+10k/5s..100k", 150_000},
		{"step:0.5+0.5/1.5s..3", "step:0.5+0.5/1.5s..3", 19},
		{"step:1/m+1/m/1m0s..1/s", "step:1/m+1/m/1m0s..1", 1},
		{"burst:64@10ms", "burst:64@10ms", 64_000},
		{"tick:60", "tick:60", 6000},
		{"tick:30/m", "tick:0.5", 50},
		{"file:game.csv", "file:game.csv", 4},
	} {
		s, err := ParseProfile(test.text, rate50k, 10*time.Second, options())
		if err != nil {
			t.Errorf("ParseProfile(%q): %v", test.text, err)
			continue
		}
		if s.Slots() != test.slots || s.Length() != 10*time.Second || s.String() != test.back {
			t.Errorf("ParseProfile(%q): %v, %d slots in %v; want %s, %d", test.text, s, s.Slots(), s.Length(), test.back, test.slots)
		}
	}
	if s, err := ParseProfile("poisson", rate50k, 10*time.Second, options()); err != nil || s.Slots() < 495_000 || s.Slots() > 505_000 {
		t.Errorf("poisson: %v, %v", s, err)
	}
	if s, err := ParseProfile("const", MaxRate(), time.Second, Options{}); err != nil || s != (Unpaced{length: time.Second}) {
		t.Errorf("const at max: %#v, %v; want Unpaced", s, err)
	}
}

func TestParseProfileRefuses(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"", "want const, poisson, ramp"},
		{"sine", "want const, poisson, ramp"},
		{"Const", "want const, poisson, ramp"},
		{"const:5", "takes nothing after it"},
		{"poisson:5", "takes nothing after it"},
		{"ramp", "want ramp:FROM..TO/DUR"},
		{"ramp:1..2", "want ramp:FROM..TO/DUR"},
		{"ramp:1-2/1s", "want ramp:FROM..TO/DUR"},
		{"ramp:1..2/0s", "want a duration above 0"},
		{"ramp:1..2/-1s", "want a duration above 0"},
		{"ramp:1..2/5", "want a duration above 0"},
		{"ramp:x..2/5s", "not a number"},
		{"ramp:1..2x/5s", `unknown unit "x"`},
		{"ramp:0..0/5s", "both ends are 0"},
		{"ramp:1..max/5s", "max cannot be planned"},
		{"ramp:1/987654321987ns..1/876543219876ns/1s", "no common period"},
		{"step:1+1/1s", "want step:FROM+BY/DUR..TO"},
		{"step:1/1s..5", "want step:FROM+BY/DUR..TO"},
		{"step:0+1/1s..5", "zero"},
		{"step:1+0/1s..5", "zero"},
		{"step:5+1/1s..1", "want a rise"},
		{"step:1+1/1s..max", "max cannot be planned"},
		{"step:0.000001+0.000001/1us..1k", "levels"},
		{"burst:64", "want burst:N@GAP"},
		{"burst:0@1s", "want 1 to"},
		{"burst:-1@1s", "whole number of packets"},
		{"burst:1.5@1s", "whole number of packets"},
		{"burst:64@0", "want a duration above 0"},
		{"tick:", "empty"},
		{"tick:0", "zero"},
		{"tick:max", "max cannot be planned"},
		{"file:", "want file:PATH"},
		{"file:missing", "file does not exist"},
		{"file:bad.csv", `line 2: "1": want time,size`},
	} {
		s, err := ParseProfile(test.text, rate50k, 10*time.Second, options())
		if !errors.Is(err, ErrProfile) || s != nil || !strings.Contains(err.Error(), test.says) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", test.text)) {
			t.Errorf("ParseProfile(%q): %v, %v; want ErrProfile saying %q", test.text, s, err, test.says)
		}
	}
	for _, test := range []struct {
		why, text string
		rate      Rate
		length    time.Duration
		opts      Options
		is        error
	}{
		{"no rate", "const", Rate{}, time.Second, Options{}, ErrRate},
		{"poisson at max", "poisson", MaxRate(), time.Second, Options{}, ErrRate},
		{"no length", "const", rate50k, 0, Options{}, ErrProfile},
		{"a negative length", "file:game.csv", rate50k, -1, options(), ErrProfile},
		{"tick without sessions", "tick:60", rate50k, time.Second, Options{}, ErrProfile},
		{"file without a way to open it", "file:x", rate50k, time.Second, Options{}, errors.ErrUnsupported},
		{"the cause is kept", "file:x", rate50k, time.Second, options(), fs.ErrNotExist},
	} {
		if s, err := ParseProfile(test.text, test.rate, test.length, test.opts); !errors.Is(err, test.is) || s != nil {
			t.Errorf("%s: %v, %v", test.why, s, err)
		}
	}
}

func TestFile(t *testing.T) {
	s, err := ParseProfile("file:game.csv", rate50k, 0, options())
	if err != nil {
		t.Fatal(err)
	}
	r := s.(*Recording)
	checkSchedule(t, r)
	for i, want := range []struct {
		at   time.Duration
		size int
	}{{0, 100}, {250 * time.Millisecond, 0}, {250 * time.Millisecond, 200}, {500*time.Millisecond + 1, maxPayload}} {
		if r.At(uint64(i)) != want.at || r.Size(uint64(i)) != want.size {
			t.Errorf("packet %d: %v, %d bytes; want %v, %d", i, r.At(uint64(i)), r.Size(uint64(i)), want.at, want.size)
		}
	}
	if want := (500*time.Millisecond + 1) * 4 / 3; r.Length() != want {
		t.Errorf("length %v, want %v: the extent and one mean gap", r.Length(), want)
	}
	cut, err := ParseProfile("file:game.csv", rate50k, 250*time.Millisecond, options())
	if err != nil || cut.Slots() != 1 {
		t.Errorf("cut at the second packet: %d slots, %v", cut.Slots(), err)
	}
	for _, test := range []struct{ text, says string }{
		{"", "no packets"},
		{"# nothing\n", "no packets"},
		{"1,1\n0.9,1", "line 2: time"},
		{"1,-1", "line 1: size"},
		{"1,65528", "line 1: size"},
		{"1,x", "line 1: size"},
		{"x,1", `line 1: time "x"`},
		{"0.0000000001,1", "digits after the point"},
		{"99999999999999999999,1", "above 146 years"},
		{"0,1\n" + strings.Repeat("9", 1<<17), "token too long"},
	} {
		if _, err := File("f", strings.NewReader(test.text), 0); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("File(%.20q): %v; want %q", test.text, err, test.says)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	for _, seed := range []string{"const", "poisson", "ramp:0..1M/30s", "ramp:1/h..10/m/10s", "step:10k+10k/5s..100k", "burst:64@10ms", "tick:60",
		"tick:7/3s", "file:game.csv", "", "ramp:1..2", "step:1+1/1ns..1G", "burst:2147483647@1ns", "ramp:1G..0/1ns"} {
		f.Add(seed, int64(10*time.Second))
	}
	f.Fuzz(func(t *testing.T, text string, length int64) {
		rate := Rate{Packets: 7, Per: 3 * time.Second}
		s, err := ParseProfile(text, rate, time.Duration(length), options())
		if err != nil {
			if !errors.Is(err, ErrProfile) || s != nil {
				t.Fatalf("%q: %v, %v", text, s, err)
			}
			return
		}
		back, err := ParseProfile(s.String(), rate, time.Duration(length), options())
		if err != nil || back.String() != s.String() || back.Slots() != s.Slots() {
			t.Fatalf("%q prints as %q, which reads as %v, %v", text, s, back, err)
		}
		for _, i := range []uint64{0, 1, s.Slots() / 2, s.Slots() - 1} {
			if i >= s.Slots() {
				continue
			}
			at := s.At(i)
			if at < 0 || at >= s.Length() || s.Due(at) <= i || s.Due(at-1) > i {
				t.Fatalf("%q: slot %d of %d at %d of %d ns; due %d, before %d", text, i, s.Slots(), at, s.Length(), s.Due(at), s.Due(at-1))
			}
			c := NewCursor(s, i, 2, 1)
			for range 5 {
				slot, _, at, ok := c.Next()
				if ok && at != int64(s.At(slot)) {
					t.Fatalf("%q: cursor has slot %d at %d, want %d", text, slot, at, s.At(slot))
				}
			}
		}
	})
}
