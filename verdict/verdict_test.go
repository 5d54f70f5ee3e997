package verdict

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"blast/stats"
)

// good is a run that passes every rule with room to spare and has nothing to warn about.
func good() *stats.Result {
	h := &stats.Hist{}
	h.RecordN(20e3, 30000)
	r := &stats.Result{
		Config:      stats.Config{Mode: stats.ModeEcho, Paced: true, DurationNS: 30e9, MaxLagNS: 1e6, Flows: 8, Workers: 2},
		Host:        stats.Host{NIC: "eth0", Queues: 4, Clocksource: "tsc", Governor: "performance"},
		Backend:     stats.Backend{Name: "sendmmsg", GSO: 1},
		Rate:        stats.Rate{TargetPPS: 1000, AchievedPPS: 1000, RepliedPPS: 1000, ElapsedNS: 30e9},
		Ledger:      stats.Ledger{Planned: 30000, Sent: 30000, Replied: 30000},
		Lag:         h.Summary(),
		Latency:     h.Summary(),
		Service:     h.Summary(),
		Workers:     []stats.Worker{{CPU: 2, Queue: 0, Duty: 0.3}, {CPU: 3, Queue: 1, Duty: 0.4}},
		Calibration: &stats.Calibration{ID: "c", CeilingPPS: 4000, Margin: 4},
	}
	for i := range 30 {
		r.Timeline = append(r.Timeline, stats.Second{T: float64(i + 1), Planned: 1000, Sent: 1000, LagP50NS: 20e3})
	}
	r.Normalize()
	return r
}

var figureWithUnit = regexp.MustCompile(`\d (%|ns|us|ms|s|pps|kpps|Mpps|packets|planned|replies|values|times|workers|flows|of|queues|rounds)\b|\d %`)

func TestGoodRunIsValid(t *testing.T) {
	v := Judge(good(), Limits{})
	if !v.Valid || len(v.Reasons) != 0 || len(v.Warnings) != 0 {
		t.Errorf("%+v", v)
	}
}

// Each code has a case on both sides of its threshold: the last value that passes and the first that does not.
func TestReasons(t *testing.T) {
	lagOf := func(slow int) func(*stats.Result) {
		return func(r *stats.Result) {
			h := &stats.Hist{}
			h.RecordN(20e3, uint64(100000-slow))
			h.RecordN(2e6, uint64(slow))
			r.Lag = h.Summary()
		}
	}
	for _, c := range []struct {
		why    string
		change func(*stats.Result)
		limits Limits
		code   string // none: the run stays VALID
		says   string
	}{
		{"lag p99.9 at the limit passes", func(r *stats.Result) { r.Lag.P999 = 1e6 }, Limits{}, "", ""},
		{"lag p99.9 just above the limit", func(r *stats.Result) { r.Lag.P999 = 1e6 + 1 }, Limits{}, CodeLag, "950 pps would have passed"},
		{"one packet in 2000 may be late: that is above p99.9", lagOf(50), Limits{}, "", ""},
		{"one in 500 may not", lagOf(200), Limits{}, CodeLag, "2.00 ms at p99.9"},
		{"an idle generator that kept its rate was stalled by others", func(r *stats.Result) { r.Lag.P999, r.Workers[0].InvoluntarySwitches = 9e6, 2958 }, Limits{}, CodeLag, "look for stalls first (2,958 preemptions)"},
		{"--max-lag of the run is the limit", func(r *stats.Result) { r.Lag.P999, r.Config.MaxLagNS = 2e6, 3e6 }, Limits{}, "", ""},
		{"a limit that was given beats --max-lag", func(r *stats.Result) { r.Config.MaxLagNS = 3e6 }, Limits{MaxLag: 19 * time.Microsecond}, CodeLag, "limit of 19.0 us"},
		{"without --max-lag the limit is 1 ms", func(r *stats.Result) { r.Config.MaxLagNS, r.Lag.P999 = 0, 1.1e6 }, Limits{}, CodeLag, "limit of 1.00 ms"},
		{"no lag recorded at all", func(r *stats.Result) { r.Lag = stats.Histogram{} }, Limits{}, CodeLag, "no lag was recorded for the 30,000 packets"},

		{"99 % of the target passes", func(r *stats.Result) { r.Rate.AchievedPPS = 990 }, Limits{}, "", ""},
		{"98.9 % does not", func(r *stats.Result) { r.Rate.AchievedPPS = 989 }, Limits{}, CodeRate, "98.90 %"},
		{"101 % passes", func(r *stats.Result) { r.Rate.AchievedPPS = 1010 }, Limits{}, "", ""},
		{"101.1 % does not", func(r *stats.Result) { r.Rate.AchievedPPS = 1011 }, Limits{}, CodeRate, "ahead of its plan"},
		{"one packet of ten more or less is no failure", func(r *stats.Result) { r.Rate = stats.Rate{TargetPPS: 1, AchievedPPS: 0.9, ElapsedNS: 10e9} }, Limits{}, "", ""},
		{"two packets of ten are", func(r *stats.Result) { r.Rate = stats.Rate{TargetPPS: 1, AchievedPPS: 0.8, ElapsedNS: 10e9} }, Limits{}, CodeRate, "80.00 %"},
		{"nothing sent", func(r *stats.Result) {
			r.Ledger = stats.Ledger{Planned: 5, Abandoned: 0, Refused: map[string]uint64{"full": 5}}
			r.Lag = stats.Histogram{}
		}, Limits{Refused: 1}, CodeRate, "0 packets were sent of 5 planned"},
		{"paced without a target", func(r *stats.Result) { r.Rate.TargetPPS = 0 }, Limits{}, CodeRate, "0 pps"},

		{"duty of 0.70 passes", func(r *stats.Result) { r.Workers[1].Duty = 0.70 }, Limits{}, "", ""},
		{"duty of 0.71 does not, whoever's it is", func(r *stats.Result) { r.Workers[1].Duty = 0.71 }, Limits{}, CodeDuty, "937 pps would have passed"},
		{"the message names the worker", func(r *stats.Result) { r.Workers[0].Duty, r.Workers[1].Duty = 0.75, 1 }, Limits{}, CodeDuty, "2 of 2 workers were busy for more than 70.00 % of the time, the most the one on CPU 3 (100.00 %)"},
		{"also an unpinned one", func(r *stats.Result) { r.Workers[0].Duty, r.Workers[0].CPU = 0.8, -1 }, Limits{}, CodeDuty, "unpinned"},

		{"0.1 % refused passes", unsent(30, 0, 0), Limits{}, "", ""},
		{"a packet more does not", unsent(31, 0, 0), Limits{}, CodeRefused, "31 of 30,000 planned packets (0.10 %"},
		{"refused, abandoned and dropped count together", unsent(11, 10, 10), Limits{}, CodeRefused, "11 refused (mostly no_buffers), 10 abandoned, 10 dropped"},
		{"refusals of --rate max count too", func(r *stats.Result) { unsent(300, 0, 0)(r); r.Config.Paced = false }, Limits{}, CodeRefused, "1.00 %"},

		{"a reply that our own receive path dropped", func(r *stats.Result) { r.Ledger.SelfLost = 1 }, Limits{}, CodeSelfLoss, "1 replies"},

		{"at the ceiling passes", func(r *stats.Result) { r.Calibration.CeilingPPS = 1000 }, Limits{}, "", ""},
		{"above it does not", func(r *stats.Result) { r.Calibration.CeilingPPS = 999 }, Limits{}, CodeCeiling, "about 999 pps would have passed"},

		{"a slot without a fate", func(r *stats.Result) { r.Ledger.Planned++ }, Limits{}, CodeLedger, "1 packets unaccounted for"},
		{"a reply too many", func(r *stats.Result) { r.Ledger.Replied++ }, Limits{}, CodeLedger, "do not add up"},
		{"the interface sent more, for others too", counterSent(40000), Limits{}, "", ""},
		{"the interface sent as many", counterSent(30000), Limits{}, "", ""},
		{"the interface sent fewer than we count", counterSent(29999), Limits{}, CodeLedger, "1 fewer than the 30,000"},

		{"1.99 % stolen passes", stolen(0.0199), Limits{}, "", ""},
		{"2.1 % does not", stolen(0.021), Limits{}, CodeSteal, "2.10 %"},
		{"one bad second of thirty is the lag's to judge", func(r *stats.Result) { r.Timeline[3].Steal = 0.5 }, Limits{}, "", ""},
		{"steal is weighed by the length of intervals", func(r *stats.Result) {
			r.Timeline = []stats.Second{{T: 1}, {T: 31, Steal: 0.03}}
		}, Limits{}, CodeSteal, "2.90 %"},

		{"a value that a histogram refused", func(r *stats.Result) { r.Service.Refused = 1 }, Limits{}, CodeRange, "1 values of service time"},
	} {
		r := good()
		c.change(r)
		v := Judge(r, c.limits)
		if c.code == "" {
			if !v.Valid {
				t.Errorf("%s: %+v", c.why, v.Reasons)
			}
			continue
		}
		if v.Valid || !slices.ContainsFunc(v.Reasons, func(x stats.Reason) bool { return x.Code == c.code && strings.Contains(x.Detail, c.says) }) {
			t.Errorf("%s: want %s with %q, got %+v", c.why, c.code, c.says, v.Reasons)
		}
		for _, x := range v.Reasons {
			if x.Code != c.code {
				t.Errorf("%s: %s as well: %s", c.why, x.Code, x.Detail)
			}
			if !figureWithUnit.MatchString(x.Detail) {
				t.Errorf("%s: no figure with a unit in %q", c.why, x.Detail)
			}
		}
	}
}

func unsent(refused, abandoned, dropped uint64) func(*stats.Result) {
	return func(r *stats.Result) {
		l := &r.Ledger
		l.Refused, l.Abandoned, l.KernelDropped = map[string]uint64{"full": refused / 4, "no_buffers": refused - refused/4}, abandoned, dropped
		l.Sent = l.Planned - refused - abandoned - dropped
		l.Replied = l.Sent
	}
}

func counterSent(n int64) func(*stats.Result) {
	return func(r *stats.Result) {
		r.Counters = []stats.Counter{{Name: "Udp.SndbufErrors", Delta: 1}, {Name: stats.CounterSent, Delta: n}}
	}
}

func stolen(share float64) func(*stats.Result) {
	return func(r *stats.Result) {
		for i := range r.Timeline {
			r.Timeline[i].Steal = share
		}
	}
}

// Without a plan, the rules about the plan say nothing.
func TestUnpacedJudgesNoPlan(t *testing.T) {
	r := good()
	r.Config.Paced, r.Rate.TargetPPS = false, 0
	r.Lag.P999, r.Workers[0].Duty, r.Calibration.CeilingPPS = 1e9, 1, 1
	for i := range r.Timeline {
		r.Timeline[i].LagP50NS = int64(i) * 1e6
	}
	v := Judge(r, Limits{})
	if !v.Valid {
		t.Errorf("%+v", v.Reasons)
	}
	if got := codes(v.Warnings); got != WarnNoPlan {
		t.Errorf("warnings %s, want %s alone", got, WarnNoPlan)
	}
}

func TestLagTrend(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		why  string
		n    int
		lag  func(i int) int64
		want bool
	}{
		{"flat", 30, func(int) int64 { return 20e3 }, false},
		{"steady growth of 10 us a second", 30, func(i int) int64 { return 20e3 + int64(i)*10e3 }, true},
		{"a rise of 100 us is at the limit, a tenth of --max-lag", 11, func(i int) int64 { return int64(i) * 10e3 }, false},
		{"a rise of 101 us is above it", 11, func(i int) int64 { return int64(i) * 10100 }, true},
		{"growth under noise of the same size", 60, func(i int) int64 { return 20e3 + int64(i)*10e3 + noise.Int64N(300e3) }, true},
		{"noise alone, however wild", 60, func(int) int64 { return noise.Int64N(5e6) }, false},
		{"one wild second at the end", 30, func(i int) int64 { return 20e3 + int64(i/29)*1e9 }, false},
		{"one wild second at the start", 30, func(i int) int64 { return 20e3 + int64((29-i)/29)*1e9 }, false},
		{"a quarter of the seconds wild", 40, func(i int) int64 { return 20e3 + int64(i%4/3)*5e6 }, false},
		{"growth with a wild first second", 30, func(i int) int64 { return int64(i)*20e3 + int64((29-i)/29)*1e9 }, true},
		{"falling", 30, func(i int) int64 { return 5e6 - int64(i)*100e3 }, false},
		{"four intervals are too few", 4, func(i int) int64 { return int64(i) * 1e9 }, false},
		{"five are enough when each is higher", 5, func(i int) int64 { return int64(i) * 1e9 }, true},
		{"five with one out of order are not", 5, func(i int) int64 { return []int64{1e6, 0, 2e6, 3e6, 4e6}[i] }, false},
		{"an hour of steady growth, thinned", 3600, func(i int) int64 { return 20e3 + int64(i)*100 }, true},
		{"an hour of noise, thinned", 3600, func(int) int64 { return noise.Int64N(900e3) }, false},
	} {
		r := good()
		r.Timeline = nil
		for i := range c.n {
			r.Timeline = append(r.Timeline, stats.Second{T: float64(i + 1), Planned: 1000, Sent: 1000, LagP50NS: c.lag(i)})
		}
		v := Judge(r, Limits{})
		if got := codes(v.Reasons) == CodeLagTrend; got != c.want {
			t.Errorf("%s: %+v", c.why, v.Reasons)
		}
		if c.want && !strings.Contains(v.Reasons[0].Detail, "would have passed") {
			t.Errorf("%s: no rate in %q", c.why, v.Reasons[0].Detail)
		}
	}
}

// On a ramp the lag may rise with the rate: the plan itself climbs.
func TestLagTrendLeavesRampsAlone(t *testing.T) {
	r := good()
	for i := range r.Timeline {
		r.Timeline[i].Planned, r.Timeline[i].LagP50NS = uint64(100*(i+1)), int64(i)*10e3
	}
	if v := Judge(r, Limits{}); !v.Valid {
		t.Errorf("%+v", v.Reasons)
	}
}

// How often pure noise passes for a trend: seldom enough for a release, at the few intervals of short runs and at many.
func TestLagTrendFalseAlarms(t *testing.T) {
	noise := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{5, 10, 30} {
		alarms := 0
		for range 2000 {
			r := &stats.Result{Config: stats.Config{Paced: true}}
			for i := range n {
				r.Timeline = append(r.Timeline, stats.Second{T: float64(i + 1), Planned: 1000, LagP50NS: noise.Int64N(10e6)})
			}
			j := &judge{r: r, l: Limits{}.withDefaults(r)}
			j.lagTrend()
			alarms += len(j.reasons)
		}
		if alarms > 60 { // 3 %
			t.Errorf("%d intervals: %d false alarms in 2000 runs", n, alarms)
		}
	}
}

// silent makes a run in which nothing was answered.
func silent(events stats.Events, stray uint64) func(*stats.Result) {
	return func(r *stats.Result) {
		l := &r.Ledger
		l.Lost, l.LostUnknown, l.Replied, l.Late, l.InFlight, l.Stray = l.Sent, l.Sent, 0, 0, 0, stray
		r.Events, r.Latency, r.Service = events, stats.Histogram{}, stats.Histogram{}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*stats.Result)
		code   string // none: no warning
	}{
		{"a margin of 3 is enough", func(r *stats.Result) { r.Calibration.CeilingPPS = 3000 }, ""},
		{"2.9 is not", func(r *stats.Result) { r.Calibration.CeilingPPS = 2900 }, WarnMargin},
		{"no calibration", func(r *stats.Result) { r.Calibration = nil }, WarnNoCalibration},
		{"af_xdp in copy mode", func(r *stats.Result) { r.Backend.Name, r.Backend.Mode = "af_xdp", "copy, generic" }, WarnCopyMode},
		{"af_xdp with zero-copy", func(r *stats.Result) { r.Backend.Name, r.Backend.ZeroCopy = "af_xdp", true }, ""},
		{"io_uring that copied all the same", func(r *stats.Result) { r.Events = stats.Events{"copied": 9} }, WarnCopyMode},
		{"nobody listens", silent(stats.Events{"conn_refused": 9}, 0), WarnSilent},
		{"no way to the target", silent(stats.Events{"unreachable": 9}, 0), WarnSilent},
		{"replies that match nothing", silent(nil, 7), WarnSilent},
		{"no reply at all", silent(nil, 0), WarnSilent},
		{"one way nobody is to answer", func(r *stats.Result) {
			silent(nil, 0)(r)
			r.Config.Mode, r.Ledger.Lost, r.Ledger.LostUnknown = stats.ModeOneway, 0, 0
		}, ""},
		{"irqbalance runs", func(r *stats.Result) { r.Host.IRQBalance = true }, WarnIRQBalance},
		{"governor powersave", func(r *stats.Result) { r.Host.Governor = "powersave" }, WarnGovernor},
		{"no governor: a virtual machine", func(r *stats.Result) { r.Host.Governor = "none" }, ""},
		{"a governor that the host does not tell", func(r *stats.Result) { r.Host.Governor = "unknown" }, ""},
		{"a clocksource that it does not tell", func(r *stats.Result) { r.Host.Clocksource = "unknown" }, ""},
		{"clocksource hpet", func(r *stats.Result) { r.Host.Clocksource = "hpet" }, WarnClocksource},
		{"the clocksource of ARM", func(r *stats.Result) { r.Host.Clocksource = "arch_sys_counter" }, ""},
		{"as many flows as queues", func(r *stats.Result) { r.Config.Flows = 4 }, ""},
		{"fewer flows than queues", func(r *stats.Result) { r.Config.Flows = 3 }, WarnFlows},
		{"fewer flows than the workers' queues", func(r *stats.Result) { r.Config.Flows, r.Host.Queues = 1, 0 }, WarnFlows},
		{"a worker on another node", func(r *stats.Result) { r.Workers[1].Node = 1 }, WarnNUMA},
		{"a worker on another node, but nobody knows where the NIC is", func(r *stats.Result) { r.Workers[1].Node, r.Host.NICNode = 1, -1 }, ""},
		{"nobody knows where the worker is", func(r *stats.Result) { r.Workers[1].Node = -1 }, ""},
		{"an unpinned worker is on no node", func(r *stats.Result) { r.Workers[1].Node, r.Workers[1].CPU = 1, -1 }, ""},
		{"trains", func(r *stats.Result) { r.Backend.GSO = 16 }, WarnGSO},
		{"a target that slowed down", func(r *stats.Result) { r.Precision = &stats.Precision{Stationary: &stats.Stationary{}} }, WarnNonStationary},
		{"a steady one", func(r *stats.Result) { r.Precision = &stats.Precision{Stationary: &stats.Stationary{Holds: true}} }, ""},
		{"one that was not compared", func(r *stats.Result) { r.Precision = &stats.Precision{} }, ""},
		{"an interrupt", func(r *stats.Result) { r.Interrupted, r.Rate.ElapsedNS = "interrupt", 12e9 }, WarnInterrupted},
	} {
		r := good()
		c.change(r)
		v := Judge(r, Limits{})
		if !v.Valid {
			t.Errorf("%s: a warning is no failure: %+v", c.why, v.Reasons)
		}
		if got := codes(v.Warnings); got != c.code {
			t.Errorf("%s: warnings %q, want %q", c.why, got, c.code)
		}
	}
}

// A run that changed says by how much; an INVALID one quotes no latency with it.
func TestNonStationary(t *testing.T) {
	r := good()
	r.Precision = &stats.Precision{Stationary: &stats.Stationary{Of: "latency", First: stats.Half{MeanNS: 1e6, P99NS: 2e6}, Second: stats.Half{MeanNS: 1.2e6, P99NS: 2e6}, Detail: "the mean +20.0 %"}}
	if v := Judge(r, Limits{}); !v.Valid || !strings.Contains(v.Warnings[0].Detail, "the mean +20.0 % (mean 1.00 ms and then 1.20 ms, p99 2.00 ms and then 2.00 ms)") {
		t.Errorf("%+v", v)
	}
	r.Calibration.CeilingPPS = 500
	if v := Judge(r, Limits{}); v.Valid || strings.Contains(v.Warnings[0].Detail, "ms") {
		t.Errorf("%+v", v)
	}
}

// Above the ceiling, the reason says it all: no warning about the margin as well.
func TestCeilingHasNoMarginWarning(t *testing.T) {
	r := good()
	r.Calibration.CeilingPPS = 500
	if v := Judge(r, Limits{}); codes(v.Warnings) != "" || codes(v.Reasons) != CodeCeiling {
		t.Errorf("%+v", v)
	}
}

func TestRounds(t *testing.T) {
	bad := stats.Verdict{Reasons: []stats.Reason{{Code: CodeDuty, Detail: "busy for 90.00 % of the time"}}}
	for _, c := range []struct {
		why  string
		bad  int
		want string // reasons, then warnings
	}{
		{"all VALID", 0, "|"}, {"one of three INVALID: warned", 1, "|rounds"}, {"two of three: the run is INVALID", 2, "duty|"},
	} {
		r := good()
		for i := range 3 {
			x := *good()
			if x.Verdict = (stats.Verdict{Valid: true}); i < c.bad {
				x.Verdict = bad
			}
			r.Rounds = append(r.Rounds, x)
		}
		v := Judge(r, Limits{})
		if got := codes(v.Reasons) + "|" + codes(v.Warnings); got != c.want || v.Valid != (c.bad < 2) {
			t.Errorf("%s: %s", c.why, got)
		}
		if c.bad == 2 && !strings.HasPrefix(v.Reasons[0].Detail, "round 1: ") {
			t.Errorf("%s: %q", c.why, v.Reasons[0].Detail)
		}
	}
}

// What one shard missed is not diluted away by the others.
func TestMergedKeepsShardsReasons(t *testing.T) {
	a, b := good(), good()
	a.Verdict = stats.Verdict{Valid: true}
	b.Shard, b.Verdict = 1, stats.Verdict{Reasons: []stats.Reason{{Code: CodeLag, Detail: "behind by 2.00 ms"}}}
	v := Merged(good(), []*stats.Result{a, b}, Limits{})
	if want := []stats.Reason{{Code: CodeLag, Detail: "shard 1: behind by 2.00 ms"}}; v.Valid || !cmp.Equal(want, v.Reasons) {
		t.Errorf("%+v", v)
	}
	if v := Merged(good(), []*stats.Result{a, a}, Limits{}); !v.Valid {
		t.Errorf("%+v", v)
	}
	whole := good()
	whole.Rounds = []stats.Result{*good(), *good()}
	if v := Judge(whole, Limits{}); v.Valid {
		t.Error("rounds that nobody judged passed")
	}
	if v := Merged(whole, []*stats.Result{a, a}, Limits{}); !v.Valid || !whole.Rounds[1].Verdict.Valid {
		t.Errorf("merged rounds: %+v", v)
	}
}

// measurement.md 2: 4 blocking senders reach 569 of 2000/s; the lag grows by 0.7 s every second.
func TestStarvedGeneratorOfTheArticle(t *testing.T) {
	r := good()
	r.Calibration = nil
	r.Rate = stats.Rate{TargetPPS: 2000, AchievedPPS: 569, RepliedPPS: 569, ElapsedNS: 12e9}
	h := &stats.Hist{}
	for i := range int64(6828) {
		h.Record(i * 8528e6 / 6828)
	}
	r.Lag, r.Timeline = h.Summary(), nil
	for i := range 12 {
		r.Timeline = append(r.Timeline, stats.Second{T: float64(i + 1), Planned: 2000, Sent: 569, LagP50NS: int64(i)*715e6 + 357e6})
	}
	v := Judge(r, Limits{})
	if got := codes(v.Reasons); got != "lag, lag-trend, rate" {
		t.Errorf("%s: %+v", got, v.Reasons)
	}
	for _, x := range v.Reasons {
		if !strings.Contains(x.Detail, "541 pps would have passed") || strings.Contains(x.Detail, "stalls") {
			t.Errorf("%s: %s", x.Code, x.Detail)
		}
	}
	if ExitCode(v) != 3 {
		t.Errorf("exit code %d, want 3", ExitCode(v))
	}
}

func TestJudgeIsPure(t *testing.T) {
	r := good()
	r.Ledger.SelfLost, r.Config.SLOs = 4, []string{"p99<5ms", "loss<1%"}
	before, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	first := Judge(r, Limits{})
	if diff := cmp.Diff(first, Judge(r, Limits{})); diff != "" {
		t.Error(diff)
	}
	after, err := json.Marshal(r)
	if err != nil || string(before) != string(after) {
		t.Errorf("the result was changed: %v", err)
	}
}

func TestEmptyResultIsInvalid(t *testing.T) {
	v := Judge(&stats.Result{}, Limits{})
	if v.Valid || codes(v.Reasons) != CodeRate {
		t.Errorf("%+v", v)
	}
}

func TestExitCode(t *testing.T) {
	met, missed := stats.SLO{Met: true}, stats.SLO{}
	for _, c := range []struct {
		why  string
		v    stats.Verdict
		want int
	}{
		{"valid, no SLO", stats.Verdict{Valid: true}, 0},
		{"valid, SLOs met", stats.Verdict{Valid: true, SLOs: []stats.SLO{met}}, 0},
		{"valid, one SLO missed", stats.Verdict{Valid: true, SLOs: []stats.SLO{met, missed}}, 4},
		{"INVALID comes first: its SLOs mean nothing", stats.Verdict{SLOs: []stats.SLO{missed}}, 3},
	} {
		if got := ExitCode(c.v); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}
}
