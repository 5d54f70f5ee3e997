package pace

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for _, test := range []struct {
		text string
		want Rate
		back string
	}{
		{"500k", Rate{Packets: 1, Per: 2000}, "500k"},
		{"1.5M", Rate{Packets: 3, Per: 2000}, "1.5M"},
		{"50000", Rate{Packets: 1, Per: 20_000}, "50k"},
		{"50000pps", Rate{Packets: 1, Per: 20_000}, "50k"},
		{"200kpps", Rate{Packets: 1, Per: 5000}, "200k"},
		{"0.5", Rate{Packets: 1, Per: 2 * time.Second}, "0.5"},
		{"1", Rate{Packets: 1, Per: time.Second}, "1"},
		{"1/h", Rate{Packets: 1, Per: time.Hour}, "1/h"},
		{"30/m", Rate{Packets: 1, Per: 2 * time.Second}, "0.5"},
		{"7/3s", Rate{Packets: 7, Per: 3 * time.Second}, "7/3s"},
		{"2k/1m30s", Rate{Packets: 1, Per: 45 * time.Millisecond}, "1/45ms"},
		{"1/d", Rate{Packets: 1, Per: 24 * time.Hour}, "1/d"},
		{"1G", Rate{Packets: 1, Per: 1}, "1G"},
		{"1000000000", Rate{Packets: 1, Per: 1}, "1G"},
		{"14.880952M", Rate{Packets: 1_860_119, Per: 125_000_000}, "14.880952M"},
		{"007", Rate{Packets: 7, Per: time.Second}, "7"},
		{"max", Rate{Max: true}, "max"},
	} {
		got, err := ParseRate(test.text)
		if err != nil || got != test.want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", test.text, got, err, test.want)
		}
		if got.String() != test.back {
			t.Errorf("ParseRate(%q).String() = %q, want %q", test.text, got, test.back)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"", "empty"},
		{"0", "zero"},
		{"0.000", "zero"},
		{"0/h", "zero"},
		{"-5", "negative"},
		{"infinity", "not a number"},
		{"inf", "not a number"},
		{"NaN", "not a number"},
		{"2G", "above 1e9 pps"},
		{"1000000001", "above 1e9 pps"},
		{"2/ns", "above 1e9 pps"},
		{"5x", `unknown unit "x"`},
		{"5K", `unknown unit "K"`},
		{"1e6", `unknown unit "e6"`},
		{"5 k", `unknown unit " k"`},
		{"1_000", `unknown unit "_000"`},
		{".5", "not a number"},
		{"5.", "not a number"},
		{"1.2.3", "not a number"},
		{"k", "not a number"},
		{"pps", "empty"},
		{"5/", "period"},
		{"5/0s", "period"},
		{"5/-1s", "period"},
		{"5/fortnight", "period"},
		{"5pps/s", "unknown unit"},
		{"0.0000000001", "digits after the point"},
		{"0.000000001/d", "does not fit 146 years"},
		{"max/s", "not a number"},
		{strings.Repeat("1", 65), "longer than"},
	} {
		_, err := ParseRate(test.text)
		if !errors.Is(err, ErrRate) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), `"30/m"`) {
			t.Errorf("ParseRate(%q): %v; want ErrRate saying %q and the legal forms", test.text, err, test.says)
		}
	}
}

// Any valid rate, in any terms, is printed as text that reads back as the same rate in lowest terms.
func TestRateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.Int64Range(1, maxTerm).Draw(t, "per")
		r := Rate{Packets: rapid.Uint64Range(1, uint64(per)).Draw(t, "packets"), Per: time.Duration(per)}
		back, err := ParseRate(r.String())
		if err != nil || back != r.Reduced() {
			t.Fatalf("%+v prints as %q, which reads as %+v, %v", r, r, back, err)
		}
		if again := back.String(); again != r.String() {
			t.Fatalf("%q prints as %q", r, again)
		}
	})
}

func TestRateValidate(t *testing.T) {
	for _, test := range []struct {
		why  string
		rate Rate
		ok   bool
	}{
		{"the zero value is no rate", Rate{}, false},
		{"no period", Rate{Packets: 1}, false},
		{"no packets", Rate{Per: 1}, false},
		{"a negative period", Rate{Packets: 1, Per: -1}, false},
		{"more than one per ns", Rate{Packets: 2, Per: 1}, false},
		{"one per ns", Rate{Packets: 5, Per: 5}, true},
		{"a period of more than 146 years", Rate{Packets: 1, Per: maxTerm + 1}, false},
		{"max", MaxRate(), true},
		{"max and a rate at once", Rate{Packets: 1, Per: 1, Max: true}, false},
	} {
		if err := test.rate.Validate(); (err == nil) != test.ok || (err != nil && !errors.Is(err, ErrRate)) {
			t.Errorf("%s: %v", test.why, err)
		}
	}
}

func TestBitrate(t *testing.T) {
	for text, want := range map[string]uint64{"1Gbit": 1e9, "2.5Gbit": 25e8, "100Mbit": 1e8, "64kbit": 64_000, "1000bit": 1000,
		"0.001kbit": 1, "400Gbit": 4e11} {
		if got, err := ParseBitrate(text); err != nil || got != want {
			t.Errorf("ParseBitrate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0bit", "1G", "1gbit", "1Gb", "1Gbps", "-1Gbit", "0.5bit", "max", "9999999999Gbit", "Gbit"} {
		if got, err := ParseBitrate(text); !errors.Is(err, ErrRate) || !strings.Contains(err.Error(), `"64kbit"`) {
			t.Errorf("ParseBitrate(%q) = %d, %v; want ErrRate and the legal forms", text, got, err)
		}
	}
	// 10 Gbit/s of minimum frames: 64 bytes and 20 of preamble and gap are 672 bits on the wire, 14 880 952.38 packets per second.
	rate, err := BitrateRate(10_000_000_000, 672)
	if want := (Rate{Packets: 10, Per: 672}).Reduced(); err != nil || rate != want {
		t.Errorf("line rate is %+v, %v; want %+v", rate, err, want)
	}
	for _, bad := range [][2]uint64{{0, 1}, {1, 0}, {2e9, 1}, {1, 1 << 62}} {
		if got, err := BitrateRate(bad[0], bad[1]); !errors.Is(err, ErrRate) {
			t.Errorf("BitrateRate(%d, %d) = %+v, %v; want ErrRate", bad[0], bad[1], got, err)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"500k", "1.5M", "0.5", "1/h", "30/m", "7/3s", "max", "", "0", "-1", "infinity", "1e9", "5x",
		"1/1h0m0.000000003s", "0.000000001/d", "999999999.999999999", "1G", "5pps"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			if !errors.Is(err, ErrRate) || r != (Rate{}) {
				t.Fatalf("%q: %+v, %v", text, r, err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("%q reads as a rate that is not valid: %v", text, err)
		}
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Fatalf("%q reads as %+v, prints as %q, reads as %+v, %v", text, r, r, back, err)
		}
	})
}
