package verdict

import (
	"slices"
	"strings"
	"testing"

	"blast/stats"
)

// What depends on replies is judged by what its generator did, and says what the model hides.
func TestModels(t *testing.T) {
	slow := &stats.Hist{}
	slow.RecordN(2e6, 30000)
	for _, c := range []struct {
		why            string
		change         func(*stats.Result)
		code, warning  string
		reason, advice string
	}{
		{"a closed run has no plan to keep, and says that it hides stalls", func(r *stats.Result) {
			r.Config.Model, r.Config.Paced, r.Config.Clients, r.Rate.TargetPPS = stats.ModelClosed, false, 10, 0
		}, "", WarnClosed, "", "each of the 10 clients sees a stall of any length once"},
		{"a closed run whose generator makes clients wait", func(r *stats.Result) {
			r.Config.Model, r.Config.Paced, r.Config.Clients, r.Lag = stats.ModelClosed, false, 10, slow.Summary()
		}, CodeLag, WarnClosed, "from a reply and think time to its client's next request", ""},
		{"blocking senders that were blocked", func(r *stats.Result) {
			r.Config.Model, r.Config.Senders, r.Lag = stats.ModelBlocking, 1, slow.Summary()
		}, CodeLag, "", "packets wait for them in this model", ""},
		{"a cap that held back", func(r *stats.Result) { r.Config.MaxInFlight, r.Lag = 4, slow.Summary() }, CodeLag, "", "a larger cap", ""},
		{"Little's law does not hold", func(r *stats.Result) {
			r.Little = &stats.Little{InFlight: 20, RatePPS: 1000, LatencyNS: 1e7, Off: 1, Suspect: "the rate: half"}
		}, "", WarnLittle, "", "suspect the rate: half"},
	} {
		r := good()
		r.Config.Model = stats.ModelOpen
		c.change(r)
		v := Judge(r, Limits{})
		is := func(code string, in []stats.Reason, says string) bool {
			return slices.ContainsFunc(in, func(x stats.Reason) bool { return x.Code == code && strings.Contains(x.Detail, says) })
		}
		if v.Valid != (c.code == "") || c.code != "" && !is(c.code, v.Reasons, c.reason) {
			t.Errorf("%s: reasons %+v, want %q", c.why, v.Reasons, c.code)
		}
		if c.warning != "" && !is(c.warning, v.Warnings, c.advice) {
			t.Errorf("%s: warnings %+v, want %q", c.why, v.Warnings, c.warning)
		}
	}
}
