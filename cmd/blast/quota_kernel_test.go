package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/stats"
)

// TestKernelLiveQuota: a worker of the in-kernel engine that a quota holds up. Since Linux 6.18 the call itself goes on, and what stands still is all the rest
// of blast: the packets may leave on time, but the throttling is steal, and the run is INVALID for it. Older kernels stop the worker, and so does
// whoever leaves it less than its quota: then it is late. Either way the books are whole and the run comes to its end.
func TestKernelLiveQuota(t *testing.T) {
	for _, o := range offloads() {
		testskip.XDP(t, o.Probe())
	}
	const percent = 60
	group := cpuQuota(t, percent)
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4717")
	server := serveOn(t, p.Right, "--xdp", "--listen", at)
	o := in(t, p, joins(group), "udp", at, "--backend", "xdp_live", "--rate", "20k", "--duration", "1s", "--format", "json").end()
	res := o.result(t)
	stat, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	causes := []string{"lag"}
	if !strings.Contains(string(stat), "nr_throttled 0\n") {
		causes = append(causes, "steal")
	}
	because := func(r stats.Reason) bool { return slices.Contains(causes, r.Code) }
	if o.code != exitInvalid || res.Verdict.Valid || !slices.ContainsFunc(res.Verdict.Reasons, because) {
		t.Errorf("exit %d, verdict %+v: want INVALID for one of %v; %s", o.code, res.Verdict, causes, stat)
	}
	l := res.Ledger
	if l.Planned != 20_000 || l.Sent+l.Unsent() != l.Planned || l.Replied+l.Late != l.Sent || res.Lag.Count != l.Sent || server.counted(t)["received"] != l.Sent {
		t.Errorf("ledger %+v, %d lags, the target counted %v", l, res.Lag.Count, server.counted(t))
	}
	// Where nobody comes to end the call, its number of turns does: those of the plan, its grace and the wait for a start, 31 s and a little, and a tenth; then
	// the debt is paid.
	if most := 45 * time.Second * 100 / percent; o.took > most {
		t.Errorf("it took %v, want at most %v", o.took, most)
	}
	if id := program(t, p.Left); id != 0 {
		t.Errorf("program %d is left", id)
	}
	t.Logf("took %v, lag p99.9 %v, reasons %+v; %s", o.took, time.Duration(res.Lag.P999), res.Verdict.Reasons, stat)
}
