package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/internal/testnet"
	"blast/internal/testskip"
	"blast/serve"
)

// TestKernelNames: a target inside the kernel that drops, repeats and reorders by seed, and a receiver inside the kernel that names: each packet
// that the one says it touched is one that the other names, and none else, whoever sends.
func TestKernelNames(t *testing.T) {
	for _, o := range offloads() {
		testskip.XDP(t, o.Probe())
	}
	all := []string{"--drop", "1%", "--drop-reply", "1%", "--reorder", "2%", "--dup", "2%"}
	for _, c := range []struct {
		name   string // what the case is for
		faults []string
		sender []string
	}{
		{"the in-kernel engine, several flows", all, []string{"--backend", "xdp_live", "--rate", "100k", "--flows", "3"}},
		{"one flow, compact stamps", all, []string{"--backend", "xdp_live", "--rate", "50k", "--payload", "18"}},
		{"two workers", all, []string{"--backend", "xdp_live", "--rate", "50k", "--workers", "2", "--cpus", "none"}},
		{"sockets send, the kernel receives", all, []string{"--backend", "sendmmsg", "--receive", "xdp", "--rate", "5k", "--flows", "2"}},
		{"the kernel sends, sockets receive", all, []string{"--backend", "xdp_live", "--receive", "socket", "--rate", "5k", "--flows", "2"}},
		{"sockets send and receive", all, []string{"--backend", "sendmmsg", "--rate", "5k", "--flows", "2"}},
		{"losses only, which the XDP program makes by itself", []string{"--drop", "3%", "--drop-reply", "2%"}, []string{"--backend", "xdp_live", "--rate", "200k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var truth serve.Truth
			var names map[string][]serve.Name
			for attempt := 1; ; attempt++ {
				truth, names = kernelNames(t, c.faults, c.sender)
				if len(truth.Runs) != 1 || truth.Drops != 0 {
					t.Fatalf("%d runs, %d names without room", len(truth.Runs), truth.Drops)
				}
				// With this seed every reply is overtaken in the end. On a busy machine a run may be cut short.
				if inside := truth.Runs[0].Inside; inside == 0 && len(names["lost"]) >= 10 {
					break
				} else if attempt == 5 {
					t.Fatalf("%d replies were never overtaken, %d lost", inside, len(names["lost"]))
				}
			}
			r := &truth.Runs[0]
			for _, c := range []struct {
				what       string
				told, seen []serve.Name
			}{
				{"lost", slices.Concat(r.Dropped.Names, r.DroppedReplies.Names), names["lost"]},
				{"duplicate", r.Duplicated.Names, names["duplicate"]},
				{"late", nil, names["late"]},
				{"reordered", r.Reordered.Names, names["reordered"]},
				{"in flight", nil, names["in_flight"]},
			} {
				if diff := cmp.Diff(inOrder(c.told), inOrder(c.seen)); diff != "" {
					t.Errorf("%s (-told by the target +named by blast):\n%s", c.what, diff)
				}
			}
			byDefinition(t, r, c.faults)
			t.Logf("%d arrivals: %d lost, %d duplicate, %d reordered", r.Arrivals, len(names["lost"]), len(names["duplicate"]), len(names["reordered"]))
		})
	}
}

// byDefinition checks that the target did what serve.Faults says that it does.
func byDefinition(t *testing.T, r *serve.RunTruth, flags []string) {
	t.Helper()
	f := serve.Faults{Seed: namesSeed}
	for i, flag := range flags[:len(flags)-1] {
		share, err := serve.ParseShare(flags[i+1])
		if to := map[string]*float64{"--drop": &f.Drop, "--drop-reply": &f.DropReply, "--reorder": &f.Reorder, "--dup": &f.Duplicate}[flag]; to == nil {
			continue
		} else if *to = share; err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []struct {
		fault serve.Fault
		list  serve.Touched
	}{{serve.FaultDrop, r.Dropped}, {serve.FaultDropReply, r.DroppedReplies}, {serve.FaultDuplicate, r.Duplicated}, {serve.FaultReorder, r.Reordered}} {
		if f.At(0, 0) == l.fault && !slices.Contains(l.list.Names, serve.Name{}) && l.fault != serve.FaultReorder {
			t.Errorf("fault %d was due for the first packet", l.fault)
		}
		for _, n := range l.list.Names {
			if got := f.At(n.Worker, n.Seq); got != l.fault {
				t.Errorf("packet %v has fault %d, by definition %d", n, l.fault, got)
			}
		}
	}
}

const namesSeed = 22

// kernelNames runs a faulty target and a sender, 20,000 packets or so, and reads what both wrote.
func kernelNames(t *testing.T, faults, sender []string) (truth serve.Truth, names map[string][]serve.Name) {
	t.Helper()
	p := testnet.NewPair(t, testnet.Config{})
	at := net.JoinHostPort(p.Right.IPv4.Addr().String(), "4713")
	dir := t.TempDir()
	told, seen := filepath.Join(dir, "truth.json"), filepath.Join(dir, "names.json")
	server := serveOn(t, p.Right, append([]string{"--xdp", "--listen", at, "--seed", "22", "--truth", told}, faults...)...)
	args := append([]string{"udp", at, "--duration", "1s", "--timeout", "2s", "--drain", "2100ms", "--names", seen, "--format", "json"}, sender...)
	o := in(t, p, nil, args...).end()
	l := o.result(t).Ledger
	server.signal(t, syscall.SIGINT)
	if err := server.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	readJSON(t, told, &truth)
	var file map[string]json.RawMessage
	readJSON(t, seen, &file)
	names = map[string][]serve.Name{}
	total := uint64(0)
	for _, fate := range []string{"lost", "late", "duplicate", "reordered", "in_flight"} {
		var list []serve.Name
		if err := json.Unmarshal(file[fate], &list); err != nil {
			t.Fatalf("%s: %v", fate, err)
		}
		names[fate], total = list, total+uint64(len(list))
	}
	if want := l.Lost + l.Late + l.Duplicate + l.Reordered + l.InFlight; total != want || string(file["unnamed"]) != "0" {
		t.Errorf("%d names, %s unnamed, for the %d packets of the ledger %+v", total, file["unnamed"], want, l)
	}
	if len(truth.Runs) != 1 || l.Sent != truth.Runs[0].Arrivals || !strings.Contains(strings.Join(faults, " "), "--dup") != (l.Duplicate+l.Reordered == 0) {
		t.Errorf("ledger %+v, %d arrivals", l, truth.Runs[0].Arrivals)
	}
	return truth, names
}
