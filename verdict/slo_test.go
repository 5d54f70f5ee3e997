package verdict

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"blast/stats"
)

func TestParseSLO(t *testing.T) {
	for _, c := range []struct {
		text string
		want Objective
	}{
		{"p99<5ms", Objective{"p99<5ms", "latency", "p", 0.99, false, 5e6}},
		{"p99.9<=10ms", Objective{"p99.9<=10ms", "latency", "p", 0.999, true, 10e6}},
		{" p50 < 250 us ", Objective{"p50<250us", "latency", "p", 0.5, false, 250e3}},
		{"max<1s", Objective{"max<1s", "latency", "max", 0, false, 1e9}},
		{"mean<1.5ms", Objective{"mean<1.5ms", "latency", "mean", 0, false, 1.5e6}},
		{"latency.p90<1ms", Objective{"latency.p90<1ms", "latency", "p", 0.9, false, 1e6}},
		{"service.p99<3ms", Objective{"service.p99<3ms", "service", "p", 0.99, false, 3e6}},
		{"lag.max<=1ms", Objective{"lag.max<=1ms", "lag", "max", 0, true, 1e6}},
		{"loss<0.1%", Objective{"loss<0.1%", "latency", "loss", 0, false, 0.001}},
		{"loss <= 0 %", Objective{"loss<=0%", "latency", "loss", 0, true, 0}},
	} {
		got, err := ParseSLO(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%q:\n%s", c.text, diff)
		}
	}
}

func TestParseSLOPointsAtTheCharacter(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		want string
	}{
		{"", 0, "p and a percentile"},
		{"q99<5ms", 0, "p and a percentile"},
		{"p<5ms", 1, "percentile above 0"},
		{"p0<5ms", 1, "percentile above 0"},
		{"p100<5ms", 1, "there is max"},
		{"p9.9.9<5ms", 1, "percentile above 0"},
		{"p99", 3, "< or <="},
		{"p99>5ms", 3, "< or <="},
		{"p99<5", 4, "with its unit"},
		{"p99<-5ms", 4, "above 0"},
		{"p99<=0s", 5, "above 0"},
		{"p99<5ms,p50<1ms", 4, "with its unit"},
		{"server.q<5ms", 7, "p and a percentile"},
		{"service.loss<1%", 8, "loss alone"},
		{"loss<0.1", 5, "percentage"},
		{"loss<5ms", 5, "percentage"},
		{"loss<101%", 5, "percentage"},
		{"loss<NaN%", 5, "percentage"},
	} {
		_, err := ParseSLO(c.text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.At != c.at || !strings.Contains(syntax.Want, c.want) {
			t.Errorf("%q: got %v, want character %d: %s", c.text, err, c.at+1, c.want)
		}
	}
	_, err := ParseSLO("p99>5ms")
	if want := "slo \"p99>5ms\": character 4: want < or <=\n\tp99>5ms\n\t   ^"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func FuzzParseSLO(f *testing.F) {
	for _, s := range []string{"p99<5ms", "loss<0.1%", "service.max<=1s", "p<", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseSLO(s)
		var syntax *SyntaxError
		switch {
		case err != nil && (!errors.As(err, &syntax) || syntax.At < 0 || syntax.At > len(s)):
			t.Fatalf("%q: %v", s, err)
		case err == nil && !(o.Limit >= 0 && o.Limit <= math.MaxInt64):
			t.Fatalf("%q: limit %v", s, o.Limit)
		}
	})
}

// half has 50 replies of 1 ms, 49 of 3 ms, and one of 100 packets lost.
func half(mode string) *stats.Result {
	h := &stats.Hist{}
	h.RecordN(1e6, 50)
	h.RecordN(3e6, 49)
	return &stats.Result{Config: stats.Config{Mode: mode}, Latency: h.Summary(), Service: h.Summary(),
		Ledger: stats.Ledger{Planned: 104, Sent: 104, Replied: 99, Lost: 1, InFlight: 4}}
}

func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		why, slo string
		met      bool
		says     string
	}{
		{"below the limit", "p90<3.1ms", true, "latency p90 is 3.00 ms, asked < 3.10 ms"},
		{"the percentile as measured, not the one beside it", "p50<1.1ms", true, "1.00 ms"},
		{"above the limit", "p75<2ms", false, "3.00 ms"},
		{"lost packets are slower than any", "p99.9<10s", false, "lies among the 1 packets that were never answered"},
		{"so there is no maximum", "max<10s", false, "1 packets were never answered"},
		{"the mean is of those answered", "mean<2ms", true, "1.99 ms"},
		{"service time by itself", "service.p50<1ms", false, "service p50 is 1.00 ms"},
		{"loss is of packets with a known fate", "loss<1%", false, "1 of 100 packets) is 1.00 %, asked < 1.00 %"},
		{"equal is met by <=", "loss<=1%", true, "1.00 %"},
		{"what was not measured is not met", "server.p50<1s", false, "server has 0 samples"},
	} {
		o, err := ParseSLO(c.slo)
		if err != nil {
			t.Fatal(err)
		}
		got := o.Evaluate(half(stats.ModeEcho))
		if got.Met != c.met || !strings.Contains(got.Detail, c.says) || !strings.HasPrefix(got.Detail, map[bool]string{true: "met: ", false: "not met: "}[c.met]) {
			t.Errorf("%s: %+v", c.why, got)
		}
	}
}

func TestEvaluateWithoutReplies(t *testing.T) {
	oneway := &stats.Result{Config: stats.Config{Mode: stats.ModeOneway}, Ledger: stats.Ledger{Sent: 5}}
	dead := &stats.Result{Config: stats.Config{Mode: stats.ModeEcho}, Ledger: stats.Ledger{Sent: 5, Lost: 5}}
	for _, c := range []struct {
		why  string
		r    *stats.Result
		slo  string
		says string
	}{
		{"latency is not measured in oneway mode", oneway, "p99<1s", "0 samples in oneway mode"},
		{"nor is loss", oneway, "loss<1%", "oneway"},
		{"nobody answered: a percentile", dead, "p50<1s", "5 packets that were never answered"},
		{"nobody answered: the mean", dead, "mean<1s", "0 samples"},
		{"nobody answered: loss", dead, "loss<50%", "100.00 %"},
		{"nothing was sent", &stats.Result{}, "loss<50%", "0 packets"},
	} {
		c.r.Config.SLOs = []string{c.slo}
		v := Judge(c.r, Limits{})
		if len(v.SLOs) != 1 || v.SLOs[0].Met || !strings.Contains(v.SLOs[0].Detail, c.says) {
			t.Errorf("%s: %+v", c.why, v.SLOs)
		}
	}
}

func TestJudgeReportsWhatCannotBeRead(t *testing.T) {
	r := good()
	r.Config.SLOs = []string{"p99=5ms", "p99<5ms"}
	v := Judge(r, Limits{})
	if !v.Valid || ExitCode(v) != 4 || v.SLOs[0].Met || !v.SLOs[1].Met {
		t.Errorf("%+v", v.SLOs)
	}
}
