package stats

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each code once, where it stood first, whatever stands between.
func TestCodes(t *testing.T) {
	if diff := cmp.Diff([]string{"lag", "rate"}, Codes([]Reason{{Code: "lag", Detail: "a"}, {Code: "rate"}, {Code: "lag", Detail: "b"}})); diff != "" {
		t.Error(diff)
	}
	if got := Codes(nil); len(got) != 0 {
		t.Errorf("%q of no reasons", got)
	}
}
