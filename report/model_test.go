package report

import (
	"strings"
	"testing"

	"blast/stats"
)

// Each model is named with what it means, both starts of the clock stand side by side, and an estimate is called one.
func TestModelsAreNamed(t *testing.T) {
	for _, c := range []struct {
		config stats.Config
		want   []string
	}{
		{stats.Config{Model: "open", Paced: true, Profile: "const"}, []string{"open loop: packets leave by a plan", "latency  ", "service time  "}},
		{stats.Config{Model: "open", Paced: true, Profile: "const", MaxInFlight: 4}, []string{"only while fewer than 4 are in flight", "latency (from planned)", "service time (from actual)",
			"counts from its planned time"}},
		{stats.Config{Model: "closed", Clients: 10, ThinkNS: 5e6, CorrectNS: 1e7}, []string{"closed: 10 clients", "thinks for 5.00 ms", "latency (from planned)", "service time (from actual)",
			"AN ESTIMATE", "99 samples that nobody measured", "what 10 clients can"}},
		{stats.Config{Model: "blocking", Paced: true, Senders: 1, Profile: "const"}, []string{"blocking: a plan", "is dealt to 1 sender,", "latency (from planned)"}},
	} {
		var latency, corrected stats.Hist
		latency.Record(1e9)
		corrected.RecordCorrected(1e9, 1e7)
		c.config.Mode = stats.ModeEcho
		r := &stats.Result{Config: c.config, Verdict: stats.Verdict{Valid: true}, Ledger: stats.Ledger{Planned: 1, Sent: 1, Replied: 1}, Latency: latency.Summary(), Service: latency.Summary(), Lag: latency.Summary(),
			Little: &stats.Little{InFlight: 10, Samples: 1000, RatePPS: 1000, LatencyNS: 1e7}}
		if c.config.CorrectNS > 0 {
			s := corrected.Summary()
			r.Corrected = &s
		}
		r.Little.Judge(r)
		r.Normalize()
		var b strings.Builder
		if err := Text(&b, r, Options{Width: 400}); err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.want, "in flight on average 10", "they agree") {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.config.Model, want, b.String())
			}
		}
	}
}
