package report

import (
	"fmt"

	"blast/stats"
)

// segmentWords are a part in words.
type segmentWords struct {
	// text names it in the text, from where to where; short does so on a page, where meaning says from where to where.
	text, short, meaning string
	// whose is whose time it is.
	whose ink
}

// segmentNames are the parts by name.
var segmentNames = map[string]segmentWords{
	stats.SegmentLag:      {"lag: planned to send call", "lag", "planned time to send call", inkSend},
	stats.SegmentSendCall: {"send call, to the scheduler", "send call", "send call to packet scheduler", inkSend},
	stats.SegmentKernel:   {"kernel and qdisc, to the driver", "kernel", "packet scheduler to driver", inkSend},
	stats.SegmentUp:       {"up, to our server", "up", "driver to server's receive", inkTarget},
	stats.SegmentServer:   {"server", "server", "server's receive to its answer", inkTarget},
	stats.SegmentDown:     {"down, to our kernel", "down", "server's answer to our kernel", inkTarget},
	stats.SegmentWire:     {"wire and back", "wire", "driver to our kernel, there and back", inkTarget},
	stats.SegmentQueue:    {"receive queue, until asked for", "receive queue", "our kernel to the receive call", inkTake},
	stats.SegmentUser:     {"into the program", "user", "receive call to its return", inkTake},
}

// segmentName is a part of s in words, whose ends are the device's where that stamps.
func segmentName(s *stats.Segments, part string) segmentWords {
	const hardware = "hardware"
	w, known := segmentNames[part]
	switch {
	case !known:
		return segmentWords{part, part, "", inkTake}
	case part == stats.SegmentKernel && s.Stamps == hardware:
		w.text, w.meaning = "kernel and device, to the wire", "packet scheduler to wire"
	case part == stats.SegmentDown && s.Arrivals == hardware:
		w.text, w.meaning = "down, to our device", "server's answer to our device"
	}
	return w
}

// segments says where the time of sampled packets went, and when packets really left.
func (p *page) segments(r *stats.Result) {
	s := r.Segments
	if s != nil {
		p.parts(r, s)
	}
	if d := r.Departures; d != nil {
		p.departures(r, d)
	}
	if s != nil || r.Departures != nil {
		p.blank()
	}
}

func (p *page) parts(r *stats.Result, s *stats.Segments) {
	if s.Complete > 0 {
		rows := [][]string{{"where the time went", "p50", "p90", "p99", "max", "mean", "share"}}
		row := func(name string, h *stats.Histogram) {
			share := "-"
			if s.Latency.Mean > 0 {
				share = fmt.Sprintf("%.1f %%", 100*h.Mean/s.Latency.Mean)
			}
			if !r.Verdict.Valid {
				name += " INVALID"
			}
			rows = append(rows, []string{name, stats.FormatNS(h.P50), stats.FormatNS(h.P90), stats.FormatNS(h.P99), stats.FormatNS(h.Max), stats.FormatNS(int64(h.Mean)), share})
		}
		for i := range s.Parts {
			row(segmentName(s, s.Parts[i].Name).text, &s.Parts[i].NS)
		}
		row("their latency", &s.Latency)
		p.table(rows)
	}
	p.line("stamps", "%s, one packet in %s: %s with all of them, %s without; the parts of each add up to its latency within %s%s%s", s.Stamps,
		stats.FormatCount(s.Every), stats.FormatCount(s.Complete), stats.FormatCount(s.Incomplete), stats.FormatNS(s.ResidualNS), deviceClock(s), serverClock(s))
	for _, note := range s.Notes {
		p.line("", "%s", note)
	}
}

// deviceClock says how far times of a device may be off, and which they are where not all.
func deviceClock(s *stats.Segments) string {
	if s.ClockErrorNS == 0 {
		return ""
	}
	arrivals := ""
	if s.Arrivals != s.Stamps {
		arrivals = "; arrivals by " + s.Arrivals
	}
	return fmt.Sprintf("%s; the device's clock is known within %s", arrivals, stats.FormatNS(s.ClockErrorNS))
}

// serverClock says what is known of the server's clock.
func serverClock(s *stats.Segments) string {
	switch {
	case s.SameClock:
		return "; the server's clock is ours"
	case s.OffsetErrorNS > 0:
		return fmt.Sprintf("; the server has another clock, which leads ours by %d ns to within %s: the ways up and down are not told apart", s.OffsetNS, stats.FormatNS(s.OffsetErrorNS))
	}
	return ""
}

func (p *page) departures(r *stats.Result, d *stats.Departures) {
	p.line("gaps", "between consecutive packets of a worker as they left (%s): off the plan by %s (p50), %s (p99), %s (max), in %s",
		d.Source, stats.FormatNS(d.Error.P50), stats.FormatNS(d.Error.P99), stats.FormatNS(d.Error.Max), counted(d.Error.Count, "gap"))
	if t := d.Test; t != nil {
		p.line("", "%s", fitSentence(t))
	}
}

// fitLevel is the probability below which gaps are called unlike the plan's.
const fitLevel = 0.001

func fitSentence(t *stats.FitTest) string {
	says := "they look like the plan's"
	if t.P < fitLevel {
		says = "they are NOT like the plan's"
	}
	return fmt.Sprintf("%s against %s: A2 %.3g of %s, p %.2g: %s", t.Name, t.Against, t.Statistic, counted(t.Samples, "gap"), t.P, says)
}
