package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/plot/vg"
	"pgregory.net/rapid"

	"blast/stats"
)

// allPages are pages of every kind, by name: what a run can be, and what can be missing from it.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	pages, err := madePages()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// madePages makes them once for all tests.
var madePages = sync.OnceValues(func() (map[string]string, error) {
	pages := map[string]string{}
	var failed error
	page := func(name string, write func(io.Writer) error) {
		var b strings.Builder
		if err := write(&b); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
		pages[name] = b.String()
	}
	for name, r := range runPages() {
		page(name, func(w io.Writer) error { return HTML(w, r) })
	}
	other := fullRun()
	other.Host.Hostname, other.Backend.Name, other.Latency = "lab2", "io_uring", skewed(200000, 25e3, 140e3, 22e6)
	page("compare", func(w io.Writer) error { return HTMLCompare(w, fullRun(), other) })
	page("compare-invalid", func(w io.Writer) error { return HTMLCompare(w, invalid(fullRun()), onewayRun()) })
	page("compare-same", func(w io.Writer) error { return HTMLCompare(w, fullRun(), fullRun()) })
	page("compare-oneway", func(w io.Writer) error { return HTMLCompare(w, onewayRun(), onewayRun()) })
	page("ladder", func(w io.Writer) error { return HTMLLadder(w, ladderRun()) })
	none := ladderRun()
	none.Steps, none.Knee, none.Verdict = none.Steps[5:6], stats.Knee{Because: stats.KneeNone, Detail: "not one step held"}, stats.Verdict{Reasons: []stats.Reason{{Code: "none", Detail: "every step was void"}}}
	page("ladder-void", func(w io.Writer) error { return HTMLLadder(w, none) })
	page("ladder-oneway", func(w io.Writer) error {
		l := ladderRun()
		for i := range l.Steps {
			r := &l.Steps[i].Result
			r.Config.Mode, r.Latency, r.Service, l.Steps[i].ThroughputPPS = stats.ModeOneway, new(stats.Hist).Summary(), new(stats.Hist).Summary(), 0
			r.Ledger = stats.Ledger{Planned: 1000, Sent: 1000}
		}
		l.Steps = append(l.Steps, l.Steps[5]) // void, and once more: held
		l.Steps[9].Outcome, l.Steps[9].Try, l.Steps[9].Why, l.Steps[9].Result.Verdict = stats.OutcomeHeld, 2, "", stats.Verdict{Valid: true}
		l.Knee = stats.Knee{PPS: 6400, HeldPPS: 6400, Because: stats.KneeTop, Detail: "nothing gave up to 6.40 kpps"}
		return HTMLLadder(w, l)
	})
	page("ladder-slo", func(w io.Writer) error {
		l := ladderRun()
		l.Knee = stats.Knee{PPS: 2800, HeldPPS: 2800, BreaksPPS: 3000, Because: stats.OutcomeSLO, Detail: "SLO p99<50ms broke at 3.00 kpps"}
		return HTMLLadder(w, l)
	})
	page("ladder-generator", func(w io.Writer) error {
		l := ladderRun()
		l.Knee = stats.Knee{PPS: 3200, HeldPPS: 3200, BreaksPPS: 6400, Because: stats.OutcomeVoid, Detail: "generator full at 3.20 kpps"}
		l.Verdict = stats.Verdict{Reasons: []stats.Reason{{Code: "generator", Detail: "that says nothing of the target"}}}
		l.Config.ToPPS = 10000
		return HTMLLadder(w, l)
	})
	page("ladder-empty", func(w io.Writer) error { return HTMLLadder(w, &stats.Ladder{Interrupted: "interrupt"}) })
	page("prove", func(w io.Writer) error { return HTMLProve(w, proveRun()) })
	page("prove-early", func(w io.Writer) error {
		v := proveRun()
		v.Interrupted, v.Controls = "interrupt", v.Controls[:1]
		return HTMLProve(w, v)
	})
	page("prove-empty", func(w io.Writer) error {
		return HTMLProve(w, &stats.Prove{Conclusion: stats.Conclusion{Points: stats.PointsUnknown}})
	})
	return pages, failed
})

// runPages are runs from which something is missing, or in which something is extreme.
func runPages() map[string]*stats.Result {
	one := echoRun()
	one.Latency, one.Service, one.Lag = histOf(1, 70e3, 70e3), histOf(1, 60e3, 60e3), histOf(1, 0, 0)
	one.Ledger = stats.Ledger{Planned: 1, Sent: 1, Replied: 1}
	one.Timeline = one.Timeline[:1]
	one.Precision.Stationary.Hides = 28
	zero := echoRun()
	for i := range zero.Timeline {
		zero.Timeline[i] = stats.Second{T: zero.Timeline[i].T}
	}
	closed := echoRun()
	closed.Config.Model, closed.Config.Paced, closed.Config.Clients, closed.Config.ThinkNS, closed.Rate.TargetPPS = stats.ModelClosed, false, 12, 5e6, 0
	closed.Corrected = &closed.Latency
	devices := fullRun()
	devices.Segments.Stamps, devices.Segments.Arrivals, devices.Segments.ClockErrorNS, devices.Departures.Test.P = "hardware", "software", 40, 1e-9
	devices.Segments.SameClock, devices.Segments.OffsetNS, devices.Segments.OffsetErrorNS = false, 500, 900
	unstamped := deadRun()
	unstamped.Segments = &stats.Segments{Every: 16, Incomplete: 128, Stamps: "software", Notes: []string{"128 of 128 sampled packets had no reply, or lack a stamp, and are in no part"},
		Parts: []stats.Segment{{Name: stats.SegmentLag}, {Name: stats.SegmentWire}}}
	interrupted := fullRun()
	interrupted.Interrupted = "interrupt"
	outlier := fullRun()
	outlier.Latency = histOf(10000, 45e3, 46e3, stats.HistMax)
	outlier.Rate = stats.RateOf(1e8, stats.Traffic{Packets: 3e9, Payload: 4e12, IP: 4.2e12, L2: 4.3e12, L1: 4.4e12}, 3e9, 30e9)
	outlier.Ledger.Planned, outlier.Ledger.Sent, outlier.Ledger.Lost = math.MaxUint64, math.MaxUint64/2, math.MaxUint64/4
	hostile := echoRun()
	hostile.Config.Targets, hostile.Command = []string{`</style><script>alert(1)</script>`}, []string{"blast", `"><img src=x onerror=alert(1)>`}
	hostile.Host.Hostname = "a-host-name-without-any-place-to-break-it-" + strings.Repeat("x", 80)
	hostile.Verdict.Warnings[0].Detail = strings.Repeat("y", 300)
	return map[string]*stats.Result{"echo": echoRun(), "full": fullRun(), "invalid": invalid(fullRun()), "hour": hourRun(), "dead": deadRun(), "oneway": onewayRun(), "rounds": roundsRun(),
		"devices": devices, "unstamped": unstamped, "one": one, "zero": zero, "closed": closed, "interrupted": interrupted, "outlier": outlier, "hostile": hostile, "nothing": {}}
}

// What must stand on a page, and what must not.
func TestHTMLSays(t *testing.T) {
	pages := allPages(t)
	for _, c := range []struct {
		why, page string
		want      []string
		never     []string
	}{
		{"a valid run: verdict, figures with confidence, every section", "full", []string{`<p class="verdict">VALID</p>`, "95 %: 157 us to 179 us", `id="distribution"`, `id="timeline"`, `id="ledger"`,
			`id="segments"`, `id="departures"`, `id="placement"`, `id="setup"`, `id="host"`, "anderson-darling", "receive queue", `blast udp 10.0.0.2:7000 <span class="flag">--rate</span> 50k <span class="flag">--duration</span> 30s</code>`},
			[]string{`class="tag"`, `id="rounds"`, "no samples"}},
		{"an INVALID run has no headline without that word", "invalid", []string{`<p class="verdict">INVALID</p>`, `<div class="reason"><dt>duty</dt>`, "latency (planned to reply) (INVALID)</li>",
			"latency p99 (INVALID)</li>", "<desc id=\"percentiles-w-d\">latency (INVALID): ",
			"<desc id=\"segments-mean-w-d\">Mean time of each part in order (INVALID): ", "network and target (INVALID)</li>", "the sampled packets, 70.1 us (INVALID)."}, []string{">VALID<"}},
		{"no reply at all", "dead", []string{"no reply ever came", "lost counted", "not met"}, []string{"latency (planned to reply)"}},
		{"one way: lag is the headline, the ledger has one line", "oneway", []string{"lag p99", "as fast as possible", "Nothing is known of packets after they were sent"}, []string{"latency p99", "in flight at the end"}},
		{"rounds: which one the page is about", "rounds", []string{"round 2 of 3, the median by latency p99", "2 (median)", "Spread over the rounds", "UNSTEADY: "}, nil},
		{"closed model: no rate asked, an estimate is called one", "closed", []string{"as 12 clients can", "AN ESTIMATE"}, []string{"of 0 pps asked"}},
		{"halves whose scatter hides a change are not called steady", "one", []string{"unclear: "}, []string{"steady: "}},
		{"segments: clocks of server and device, and what the gaps look like", "devices", []string{"which leads ours by 500\u00a0ns to within 900\u00a0ns", "arrivals by software", "device&#39;s clock is known within 40\u00a0ns",
			"packet scheduler to wire", "they are NOT like the plan"}, []string{"clock is ours"}},
		{"no packet has all stamps: nothing is drawn of parts", "unstamped", []string{"0 complete, 128 incomplete", "128 of 128 sampled packets"}, []string{"segments-mean", "residual", "<td>0 ns</td><td>100 %</td>"}},
		{"ended early", "interrupted", []string{"ended early: interrupt"}, nil},
		{"text of a result is text", "hostile", []string{"&lt;/style&gt;&lt;script&gt;alert(1)", "&lt;img src=x"}, []string{"<script", "<img"}},
		{"an empty result", "nothing", []string{"nobody has judged this result", "no target"}, []string{"NaN", "Inf"}},
		{"other hosts are compared, and it is said", "compare", []string{"of different hosts, lab1 and lab2", "io_uring"}, nil},
		{"sides that are INVALID are named", "compare-invalid", []string{"INVALID A", "INVALID</p>"}, nil},
		{"the same twice", "compare-same", []string{"Nothing: all settings are the same."}, nil},
		{"a ladder: its sentence, the knee, void steps", "ladder", []string{">TARGET<", "target saturated at 3.20 kpps", "knee, 3.20 kpps", "void, INVALID"}, nil},
		{"a ladder one way: no figure of replies, no key for a step that is not drawn", "ladder-oneway", []string{">TOP<", ">sent</li>", `<th scope="row">10 climb, again</th>`, "<dt>step 6</dt>", "<td>-</td>"},
			[]string{"<td>0 ns</td>", "<td>0.00 %</td>", "void, INVALID: the generator"}},
		{"a ladder in which nothing held", "ladder-void", []string{">NOTHING<", "not one step held"}, nil},
		{"a proof", "prove", []string{">TARGET<", "two generators got 50.1", "points at the target", "Cores by this host", "source ports towards one target", "28,232", "<td>-12</td>"},
			[]string{"udp.RcvbufErrors"}},
		{"two runs one way: their lag", "compare-oneway", []string{"Lag p99", "Lag by percentile"}, []string{"latency-overlay", "Latency p99"}},
		{"a ladder that an SLO ended", "ladder-slo", []string{`<p class="verdict">SLO</p>`, "an SLO broke", "3.00 kpps"}, []string{`class="banner invalid"`}},
		{"a ladder that the generator ended is red", "ladder-generator", []string{`class="banner invalid"`, `<p class="verdict">GENERATOR</p>`, "the generator is full", "to 10.0\u00a0kpps"}, nil},
		{"a proof that ended early: one run is not compared", "prove-early", []string{"ended early: interrupt"}, []string{"controls-overlay"}},
		{"a proof of nothing", "prove-empty", []string{">UNKNOWN<"}, nil},
	} {
		page, ok := pages[c.page]
		if !ok {
			t.Fatalf("no page %q", c.page)
		}
		for _, w := range c.want {
			if !strings.Contains(page, w) {
				t.Errorf("%s (%s): %q is missing", c.why, c.page, w)
			}
		}
		for _, n := range c.never {
			if strings.Contains(page, n) {
				t.Errorf("%s (%s): %q must not be there", c.why, c.page, n)
			}
		}
	}
	if n := strings.Count(pages["invalid"], `<li class="invalid">`); n != len(headlines(invalid(fullRun()))) {
		t.Errorf("%d headlines are marked INVALID, want all", n)
	}
}

// Every page is one small file that fetches nothing, whose pictures are well-formed, and which has no figure that is none.
func TestHTMLIsOneSmallFile(t *testing.T) {
	svg := regexp.MustCompile(`(?s)<svg .*?</svg>`)
	bad := regexp.MustCompile(`NaN|[+-]Inf\b|%!|<script|<link rel="stylesheet|@import|url\(|https?:|ZgotmplZ|<no value>`)
	for name, page := range allPages(t) {
		if len(page) > 1e6 {
			t.Errorf("%s: %d bytes, want less than 1 MB", name, len(page))
		}
		if found := bad.FindString(page); found != "" {
			t.Errorf("%s: %q is on the page", name, found)
		}
		for _, picture := range svg.FindAllString(page, -1) {
			d := xml.NewDecoder(strings.NewReader(picture))
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v in %.200s", name, err, picture)
					break
				}
			}
		}
	}
}

// An hour of seconds is drawn with at most two points a pixel, and its extremes are in them.
func TestThinKeepsExtremes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ys := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), 1, 4000).Draw(t, "y")
		width := rapid.Float64Range(1, 900).Draw(t, "width")
		points := make([]vg.Point, len(ys))
		low, high := ys[0], ys[0]
		for i, y := range ys {
			points[i] = vg.Point{X: vg.Length(width * float64(i) / float64(len(ys))), Y: vg.Length(y)}
			low, high = math.Min(low, y), math.Max(high, y)
		}
		out := thin(points)
		if most := 2*int(width+1) + 2; len(out) > most {
			t.Fatalf("%d points for %v pixels, want at most %d", len(out), width, most)
		}
		if out[0] != points[0] || out[len(out)-1] != points[len(points)-1] {
			t.Fatalf("ends %v and %v, want %v and %v", out[0], out[len(out)-1], points[0], points[len(points)-1])
		}
		gotLow, gotHigh, at := math.Inf(1), math.Inf(-1), out[0].X
		for _, p := range out {
			if p.X < at {
				t.Fatalf("x goes back from %v to %v", at, p.X)
			}
			gotLow, gotHigh, at = math.Min(gotLow, p.Y.Points()), math.Max(gotHigh, p.Y.Points()), p.X
		}
		if gotLow != low || gotHigh != high {
			t.Fatalf("extremes %v and %v, want %v and %v", gotLow, gotHigh, low, high)
		}
	})
}

// The curve by percentile is the quantile function of the histogram, from the first sample to the last.
func TestPercentilesAreQuantiles(t *testing.T) {
	s := skewed(5000, 1e3, 90e3, 7e6)
	h, err := s.Hist()
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range []uint64{0, 700} {
		run, err := percentiles(&s, missing)
		if err != nil {
			t.Fatal(err)
		}
		if missing == 0 && (run[0].X != 1 || run[len(run)-1].X != 5000 || run[len(run)-1].Y != float64(s.Max)) {
			t.Errorf("from %v to %v, want from 1 to 5000 samples and %d ns", run[0], run[len(run)-1], s.Max)
		}
		for _, q := range []float64{0.1, 0.5, 0.86, 0.9, 0.99, 0.999} {
			want, ok := h.QuantileAmong(q, missing)
			got := math.Inf(1) // beyond the curve: lost
			for i := 0; i < len(run); i += 2 {
				if x := 1 / (1 - q); run[i].X <= x && x <= run[i+1].X*(1+1e-9) {
					got = run[i].Y
					break
				}
			}
			if ok != !math.IsInf(got, 1) || ok && math.Abs(got/float64(want)-1) > 0.002 {
				t.Errorf("%d missing: at %v the curve has %v, the histogram %d (%v)", missing, q, got, want, ok)
			}
		}
	}
}

// Ticks are few enough, within the axis, rising, and each says its value with a unit where the label has none.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		high := math.Pow(10, rapid.Float64Range(-3, 12.5).Draw(t, "exponent"))
		room := rapid.IntRange(2, 14).Draw(t, "room")
		for _, a := range []axis{plainAxis("%", high), rateAxis("pps", high), timeAxis("time", high/rapid.Float64Range(1, 1e9).Draw(t, "span"), high), nineAxis("%", high)} {
			labels, before := 0, math.Inf(-1)
			for _, tick := range a.marks(a.low, a.high, room) {
				if tick.Value < a.low*(1-1e-9) || tick.Value > a.high*(1+1e-9) || tick.Value <= before {
					t.Fatalf("%s %v..%v: tick at %v after %v", a.label, a.low, a.high, tick.Value, before)
				}
				if before = tick.Value; tick.Label != "" {
					labels++
				}
				if strings.HasPrefix(tick.Label, "-") || strings.Contains(tick.Label, "e") {
					t.Fatalf("%s %v..%v: label %q", a.label, a.low, a.high, tick.Label)
				}
			}
			if labels < 1 || labels > 2*room+3 {
				t.Fatalf("%s %v..%v: %d labels with room for %d", a.label, a.low, a.high, labels, room)
			}
		}
	})
}
