package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"blast/backend/iouring"
	"blast/internal/testskip"
	"blast/stats"
)

// TestKernelThousandClients is what io_uring is for: 1,000 sockets with 30 round trips a second each. Nothing is lost, no thread comes
// with a flow, and the kernel makes no threads of its own for what would block. With BLAST_BENCH set it runs 30 s and must be VALID.
func TestKernelThousandClients(t *testing.T) {
	testskip.IOUring(t, iouring.Probe())
	length, bench := 3*time.Second, os.Getenv("BLAST_BENCH") != ""
	if bench {
		length = 30 * time.Second
	}
	run := func() *stats.Result {
		server := serveUDP(t)
		defer server.kill()
		p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "GOMAXPROCS=4") },
			"udp", "--format", "json", server.addr, "--backend", iouring.Name, "--flows", "1000", "--rate", "30k", "--duration", length.String())
		time.Sleep(length / 2)
		threads, workers := 0, 0
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(p.Process.Pid) + "/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			name, err := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/task/" + task.Name() + "/comm")
			if err != nil {
				continue // it ended meanwhile
			}
			if threads++; strings.HasPrefix(string(name), "iou-") {
				workers++
			}
		}
		res := p.end().result(t)
		if threads == 0 || threads > 40 || workers > 0 {
			t.Errorf("%d threads, %d of them the kernel's", threads, workers)
		}
		l, planned := &res.Ledger, uint64(30_000*length/time.Second)
		if l.Planned != planned || l.SelfLost+l.Stray+l.Duplicate+l.Reordered > 0 {
			t.Errorf("want %d planned: %+v", planned, *l)
		}
		if counts := server.counted(t); counts["received"]+counts["drops"] != l.Sent || counts["replied"] != l.Replied+l.Late || counts["drops"] != l.LostUp {
			t.Errorf("the server received %d, replied %d and dropped %d: %+v", counts["received"], counts["replied"], counts["drops"], *l)
		}
		if len(res.Workers) != 1 || res.Workers[0].Flows != 1000 {
			t.Errorf("%+v", res.Workers)
		}
		return res
	}
	if bench {
		untilValid(t, run)
	} else {
		run()
	}
}
