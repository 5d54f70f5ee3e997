package verdict

import (
	"testing"

	"blast/stats"
)

// A run in progress is INVALID for what would make it so at the end, but for the ledger, which is open, and a trend, which is not one yet. Each
// code is known before any run has it.
func TestSoFar(t *testing.T) {
	broken := map[string]func(*stats.Result){
		CodeRate: func(r *stats.Result) { r.Rate.AchievedPPS = 989 },
		CodeLag:  func(r *stats.Result) { r.Lag.P999 = 1e6 + 1 },
		CodeLagTrend: func(r *stats.Result) {
			for i := range r.Timeline {
				r.Timeline[i].LagP50NS = 20e3 + int64(i)*10e3
			}
		},
		CodeDuty:     func(r *stats.Result) { r.Workers[1].Duty = 0.71 },
		CodeRefused:  unsent(31, 0, 0),
		CodeSelfLoss: func(r *stats.Result) { r.Ledger.SelfLost = 1 },
		CodeCeiling:  func(r *stats.Result) { r.Calibration.CeilingPPS = 999 },
		CodeLedger:   func(r *stats.Result) { r.Ledger.Planned++ },
		CodeSteal:    stolen(0.021),
		CodeRange:    func(r *stats.Result) { r.Service.Refused = 1 },
	}
	known := Codes()
	if len(known) != len(broken) {
		t.Errorf("codes %v: want one for each of %d ways", known, len(broken))
	}
	for _, code := range known {
		change, ok := broken[code]
		if !ok {
			t.Errorf("%s: nothing here is INVALID for it", code)
			continue
		}
		r := good()
		change(r)
		if got := codes(Judge(r, Limits{}).Reasons); got != code {
			t.Errorf("%s: at the end %q", code, got)
		}
		want := code
		if code == CodeLedger || code == CodeLagTrend {
			want = ""
		}
		if got := codes(SoFar(r, Limits{})); got != want {
			t.Errorf("%s: before the end %q, want %q", code, got, want)
		}
	}
	if got := SoFar(&stats.Result{}, Limits{}); got != nil {
		t.Errorf("before the first packet was due: %+v", got)
	}
}
