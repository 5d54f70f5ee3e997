package stats

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func balanced() Ledger {
	return Ledger{Planned: 1000, Sent: 900, Refused: map[string]uint64{"full": 50, "no_buffers": 20}, Abandoned: 20, KernelDropped: 10,
		Replied: 850, Late: 10, Lost: 30, InFlight: 10, LostUp: 10, LostDown: 15, LostUnknown: 5, Duplicate: 3, Reordered: 4, SelfLost: 2, Stray: 9}
}

func TestLedgerCheck(t *testing.T) {
	for _, c := range []struct {
		why    string
		mode   string
		change func(*Ledger)
		want   string
	}{
		{"a balanced echo run", ModeEcho, func(*Ledger) {}, ""},
		{"duplicates, reordered, self-lost and stray packets are not in the sums", ModeEcho, func(l *Ledger) { l.Duplicate, l.Reordered, l.SelfLost, l.Stray = 7, 7, 7, 7 }, ""},
		{"the empty ledger", ModeEcho, func(l *Ledger) { *l = Ledger{} }, ""},
		{"a planned slot without a fate", ModeEcho, func(l *Ledger) { l.Planned++ }, "1 packets unaccounted for"},
		{"more fates than slots", ModeEcho, func(l *Ledger) { l.Abandoned += 2 }, "-2 packets unaccounted for"},
		{"a refusal that one cause more explains", ModeEcho, func(l *Ledger) { l.Refused["down"] = 5 }, "-5 packets"},
		{"kernel-dropped packets are not sent", ModeEcho, func(l *Ledger) { l.KernelDropped = 0 }, "planned 1000"},
		{"a sent packet without a fate", ModeEcho, func(l *Ledger) { l.Replied-- }, "sent 900 packets, but replied + late + lost + in flight = 899"},
		{"losses that are not split to the last", ModeEcho, func(l *Ledger) { l.LostUnknown = 0 }, "lost 30 packets"},
		{"a oneway run knows no replies", ModeOneway, func(*Ledger) {}, "oneway"},
		{"a oneway run that balances", ModeOneway, func(l *Ledger) { l.Replied, l.Late, l.Lost, l.InFlight = 0, 0, 0, 0 }, ""},
	} {
		l := balanced()
		c.change(&l)
		err := l.Check(c.mode)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
}

// Adding balanced ledgers must keep them balanced, every field summed.
func TestLedgerAdd(t *testing.T) {
	sum, one, two := Ledger{}, balanced(), balanced()
	one.InFlightAtLeastNS, two.InFlightAtLeastNS = 700, 300
	sum.Add(&one)
	sum.Add(&two)
	if err := sum.Check(ModeEcho); err != nil {
		t.Error(err)
	}
	want := Ledger{Planned: 2000, Sent: 1800, Refused: map[string]uint64{"full": 100, "no_buffers": 40}, Abandoned: 40, KernelDropped: 20,
		Replied: 1700, Late: 20, Lost: 60, InFlight: 20, InFlightAtLeastNS: 300, LostUp: 20, LostDown: 30, LostUnknown: 10, Duplicate: 6, Reordered: 8,
		SelfLost: 4, Stray: 18}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
	none := Ledger{InFlightAtLeastNS: 0}
	sum.Add(&none)
	if sum.InFlightAtLeastNS != 300 {
		t.Error("a ledger with none in flight set the bound")
	}
}

func TestUnanswered(t *testing.T) {
	r := &Result{Config: Config{Mode: ModeEcho}, Ledger: balanced()}
	if got := r.Unanswered(860); got != 30 {
		t.Errorf("unanswered %d, want the 30 lost", got)
	}
	if got := r.Unanswered(890); got != 0 {
		t.Errorf("unanswered %d when lost packets are recorded too, want 0", got)
	}
	r.Config.Mode = ModeOneway
	if got := r.Unanswered(0); got != 0 {
		t.Errorf("unanswered %d in oneway mode, want 0", got)
	}
}

// The four bit rates of 1000 packets in 2 s, by their definitions.
func TestRateOf(t *testing.T) {
	for _, c := range []struct {
		why     string
		payload int
		ipv6    bool
		want    Traffic // bytes of one packet
	}{
		{"the smallest payload is padded to 64 bytes of frame: 84 on the wire", 0, false, Traffic{1, 0, 28, 64, 84}},
		{"18 bytes fill the smallest frame exactly", 18, false, Traffic{1, 18, 46, 64, 84}},
		{"one byte more is a byte more", 19, false, Traffic{1, 19, 47, 65, 85}},
		{"full Ethernet MTU: 1538 bytes of wire time", 1472, false, Traffic{1, 1472, 1500, 1518, 1538}},
		{"IPv6 has 20 bytes more of header", 1452, true, Traffic{1, 1452, 1500, 1518, 1538}},
		{"IPv6 without payload is above the minimum", 0, true, Traffic{1, 0, 48, 66, 86}},
	} {
		var one, many Traffic
		one.Add(c.payload, c.ipv6, 1)
		if diff := cmp.Diff(c.want, one); diff != "" {
			t.Errorf("%s:\n%s", c.why, diff)
		}
		many.Add(c.payload, c.ipv6, 1000)
		got := RateOf(600, many, 900, 2*time.Second)
		per := func(n uint64) float64 { return float64(n) * 8 * 500 }
		want := Rate{TargetPPS: 600, AchievedPPS: 500, RepliedPPS: 450, L1BPS: per(c.want.L1), L2BPS: per(c.want.L2), IPBPS: per(c.want.IP),
			PayloadBPS: per(c.want.Payload), ElapsedNS: 2e9}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", c.why, diff)
		}
	}
	if got := RateOf(600, Traffic{Packets: 5}, 5, 0); got != (Rate{TargetPPS: 600}) {
		t.Errorf("no time: %+v, want no rates", got)
	}
}

func TestMedianRound(t *testing.T) {
	round := func(mode string, p99 int64, pps float64) Result {
		return Result{Config: Config{Mode: mode}, Latency: Histogram{P99: p99}, Rate: Rate{AchievedPPS: pps}}
	}
	for _, c := range []struct {
		why    string
		rounds []Result
		want   int
	}{
		{"none", nil, -1},
		{"one speaks for itself", []Result{round(ModeEcho, 5, 1)}, 0},
		{"echo goes by latency p99, whatever the rate", []Result{round(ModeEcho, 30, 1), round(ModeEcho, 10, 2), round(ModeEcho, 20, 9)}, 2},
		{"oneway goes by rate", []Result{round(ModeOneway, 0, 30), round(ModeOneway, 0, 10), round(ModeOneway, 0, 20)}, 2},
		{"of two middle latencies the worse", []Result{round(ModeEcho, 10, 1), round(ModeEcho, 20, 1)}, 1},
		{"of two middle rates the lower", []Result{round(ModeOneway, 0, 10), round(ModeOneway, 0, 20)}, 0},
		{"equal rounds keep their order", []Result{round(ModeEcho, 10, 1), round(ModeEcho, 10, 1), round(ModeEcho, 10, 1)}, 1},
	} {
		if got := MedianRound(c.rounds); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}
}
