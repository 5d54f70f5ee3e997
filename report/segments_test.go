package report

import (
	"strings"
	"testing"

	"blast/stats"
)

// withSegments adds stamps to a run: one server on our clock, or on another.
func withSegments(r *stats.Result, same bool) *stats.Result {
	part := func(name string, low, high int64) stats.Segment {
		return stats.Segment{Name: name, NS: histOf(30000, low, high)}
	}
	s := &stats.Segments{Every: 50, Complete: 29960, Incomplete: 20, Latency: histOf(30000, 20e3, 90e3), Stamps: "software", SameClock: same,
		Notes: []string{"20 of 29980 sampled packets had no reply, or lack a stamp, and are in no part"}}
	s.Parts = []stats.Segment{part(stats.SegmentLag, 100, 9e3), part(stats.SegmentSendCall, 2e3, 4e3), part(stats.SegmentKernel, 300, 700)}
	if same {
		s.Parts = append(s.Parts, part(stats.SegmentUp, 7e3, 30e3), part(stats.SegmentServer, 1e3, 4e3), part(stats.SegmentDown, 2e3, 9e3))
	} else {
		s.Parts = append(s.Parts, part(stats.SegmentWire, 9e3, 39e3), part(stats.SegmentServer, 1e3, 4e3))
		s.OffsetNS, s.OffsetErrorNS, s.ResidualNS = -123456789, 4700, 12
	}
	s.Parts = append(s.Parts, part(stats.SegmentQueue, 5e3, 30e3), part(stats.SegmentUser, 1e3, 3e3))
	r.Segments = s
	r.Departures = &stats.Departures{Source: "tx_software", Error: histOf(28000, 20, 1400, 61e3)}
	return r
}

func TestSegmentsGolden(t *testing.T) {
	poisson := withSegments(echoRun(), false)
	poisson.Departures.Test = &stats.FitTest{Name: "anderson-darling", Against: "exponential gaps, mean 20.0 us", Samples: 16384, Statistic: 0.84, P: 0.45}
	unlike := withSegments(invalid(echoRun()), true)
	unlike.Departures.Test = &stats.FitTest{Name: "anderson-darling", Against: "exponential gaps, mean 20.0 us", Samples: 16384, Statistic: 95, P: 1e-5}
	only := withSegments(onewayRun(), true)
	only.Segments = nil
	device := withSegments(echoRun(), true)
	device.Segments.Stamps, device.Segments.Arrivals, device.Segments.ClockErrorNS, device.Departures.Source = "hardware", "software", 730, "tx_hardware"
	for _, c := range []struct {
		file, why string
		r         *stats.Result
	}{
		{"segments_hardware.txt", "departures by the device's clock", device},
		{"segments.txt", "our server on this host", withSegments(echoRun(), true)},
		{"segments_poisson.txt", "our server on another host, a Poisson plan that was kept", poisson},
		{"segments_invalid.txt", "an INVALID run, whose gaps are not the plan's", unlike},
		{"segments_oneway.txt", "no replies: departures alone", only},
	} {
		t.Run(c.file, func(t *testing.T) {
			p := newPage(Options{})
			p.segments(c.r)
			golden(t, c.file, []byte(p.b.String()))
			if !strings.Contains(text(t, c.r, Options{}), p.b.String()) {
				t.Error("the section is not on the page")
			}
		})
	}
}

// Every part has words, and no line is too wide.
func TestSegmentsNamed(t *testing.T) {
	for _, name := range []string{stats.SegmentLag, stats.SegmentSendCall, stats.SegmentKernel, stats.SegmentUp, stats.SegmentServer, stats.SegmentDown,
		stats.SegmentWire, stats.SegmentQueue, stats.SegmentUser} {
		if segmentNames[name].text == "" || segmentNames[name].meaning == "" {
			t.Errorf("%s has no words", name)
		}
	}
	for line := range strings.Lines(text(t, withSegments(invalid(echoRun()), true), Options{})) {
		if len([]rune(line)) > 101 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
}
