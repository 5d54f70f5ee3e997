package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"

	"blast/agent"
	"blast/backend"
	"blast/internal/testnet"
	"blast/stats"
	"blast/tuning"
)

// proven runs blast prove until it points where it should, and so do the controls named, at most four times: on a shared machine a neighbour
// may spoil a run, and then the proof has to say that it cannot tell. Another side than the right one is never right.
func proven(t *testing.T, want string, controls []string, change func(*exec.Cmd), in func(func()), args ...string) *stats.Prove {
	t.Helper()
	for attempt := 1; attempt <= 4; attempt++ {
		var p *process
		in(func() { p = start(t, change, append([]string{"prove", "--format", "json"}, args...)...) })
		o := p.end()
		v, err := stats.ReadProve([]byte(o.stdout))
		if err != nil {
			t.Fatalf("exit %d: %v\n%s", o.code, err, o.stderr)
		}
		code := map[string]int{stats.PointsTarget: exitOK, stats.PointsNeither: exitOK}[v.Conclusion.Points]
		if v.Conclusion.Points == stats.PointsGenerator || v.Conclusion.Points == stats.PointsUnknown {
			code = exitInvalid
		}
		if o.code != code {
			t.Errorf("exit %d for %q", o.code, v.Conclusion.Points)
		}
		for _, points := range append(pointsOf(t, v, controls), v.Conclusion.Points) {
			if points != want && points != stats.PointsUnknown {
				t.Errorf("points at %s, want %s", points, want)
			}
		}
		if v.Conclusion.Points == want && !slices.ContainsFunc(pointsOf(t, v, controls), func(p string) bool { return p != want }) {
			return v
		}
		t.Logf("attempt %d: %s\n%s", attempt, v.Conclusion.Detail, controlsText(v))
	}
	t.Fatalf("no attempt pointed at %s", want)
	return nil
}

// pointsOf is where the named controls point.
func pointsOf(t *testing.T, v *stats.Prove, names []string) []string {
	t.Helper()
	var out []string
	for _, name := range names {
		out = append(out, control(t, v, name).Points)
	}
	return out
}

func controlsText(v *stats.Prove) string {
	var b strings.Builder
	for _, c := range v.Controls {
		b.WriteString(c.Name + ": " + c.Points + "\n    " + strings.Join(c.Evidence, "\n    ") + "\n")
	}
	return b.String()
}

// here runs fn where the test is.
func here(fn func()) { fn() }

func control(t *testing.T, v *stats.Prove, name string) *stats.Control {
	t.Helper()
	for i := range v.Controls {
		if v.Controls[i].Name == name {
			return &v.Controls[i]
		}
	}
	t.Fatalf("no control %q", name)
	return nil
}

// startAgent starts blast serve --agent inside a namespace and waits for it.
func startAgent(t *testing.T, h *testnet.Host, at string) {
	t.Helper()
	cmd := exec.Command(os.Getenv(binaryVariable), "serve", "--agent", at)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "agent "+at) {
		t.Fatalf("the agent's first line is %q", lines.Text())
	}
}

// TestKernelProveSlowTarget asks 3,000 a second of a target that can do 1,000, over a veth pair with an agent at the far end: the generator
// has its own plan kept, a no-op there and two generators both say that it is the target, and the agent counts all packets as arrived.
// How late they leave on this machine is not the question here.
func TestKernelProveSlowTarget(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	host := pair.Right.IPv4.Addr().String()
	startAgent(t, pair.Right, host+":9101")
	server := serveOn(t, pair.Right, "--listen", host+":9000", "--servers", "1", "--service", "1ms")
	v := proven(t, stats.PointsTarget, []string{stats.ControlNoop, stats.ControlTwo}, nil, pair.Left.Do, server.addr, "--rate", "3k", "--duration", "2s", "--max-lag", "500ms", "--agent", host+":9101")
	if strings.Contains(v.Conclusion.Detail, "the path to it") {
		t.Errorf("a no-op on the target's host takes the same path: %s", v.Conclusion.Detail)
	}
	use := control(t, v, stats.ControlTarget).Use
	if use == nil || !use.SharedCores || use.SharedCounters || len(use.Cores) == 0 {
		t.Fatalf("one machine, two namespaces: %+v", use)
	}
	run := control(t, v, stats.ControlGenerator).Results[0]
	in := int64(0)
	for _, c := range use.Counters {
		if c.Name == "udp.InDatagrams" {
			in = c.Delta
		}
	}
	if in < int64(run.Ledger.Sent) {
		t.Errorf("%d packets came in of %d sent", in, run.Ledger.Sent)
	}
	if two := control(t, v, stats.ControlTwo); len(two.Results) != 2 || two.Results[0].Shard == two.Results[1].Shard || two.Results[0].RunID != two.Results[1].RunID {
		t.Error("the two generators are not the two shards of one run")
	}
}

// TestKernelProveSlowGenerator asks far more of the plainest backend than it can do, of a target that answers everything: the generator.
func TestKernelProveSlowGenerator(t *testing.T) {
	server := serveUDP(t)
	proven(t, stats.PointsGenerator, []string{stats.ControlBaseline, stats.ControlGenerator}, nil, here, server.addr, "--rate", "3M", "--backend", "net", "--duration", "1s")
}

// TestKernelProveQuota gives the generator 0.3 of a CPU, at a rate that it would otherwise keep: the generator, though all its cores look idle.
func TestKernelProveQuota(t *testing.T) {
	group := cpuQuota(t, 30)
	server := serveUDP(t)
	proven(t, stats.PointsGenerator, []string{stats.ControlGenerator}, joins(group), here, server.addr, "--rate", "20k", "--wait", "spin", "--duration", "1s")
}

// TestKernelProveConflict puts a slow generator before a slow target: its own state says the generator, the no-op says the target, and the
// proof says that it cannot tell, and names the two. Shown again, it is the same.
func TestKernelProveConflict(t *testing.T) {
	server := serveUDP(t, "--servers", "1", "--service", "1ms")
	file := filepath.Join(t.TempDir(), "proof.json")
	o := blast(t, "prove", server.addr, "--rate", "3M", "--backend", "net", "--duration", "500ms", "--out", file)
	if o.code != exitInvalid || !strings.HasPrefix(o.stdout, "UNKNOWN") {
		t.Fatalf("exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	flat := strings.Join(strings.Fields(o.stdout), " ")
	for _, says := range []string{"cannot tell: the evidence conflicts: the generator's own state points at the generator", "but the no-op points at the target"} {
		if !strings.Contains(flat, says) {
			t.Errorf("it does not say %q:\n%s", says, o.stdout)
		}
	}
	if !strings.Contains(o.stderr, "five controls at 3.00 Mpps in about ") || !strings.Contains(o.stderr, "5/5 two generators") {
		t.Errorf("no time in advance, or no progress:\n%s", o.stderr)
	}
	again := blast(t, "report", file)
	if diff := cmp.Diff(o.stdout, again.stdout); diff != "" || again.code != exitOK {
		t.Errorf("blast report shows another: exit %d\n%s", again.code, diff)
	}
	if twice := blast(t, "report", file, file); twice.code != exitUsage || !strings.Contains(twice.stderr, stats.ProveSchema) {
		t.Errorf("two proofs: exit %d: %s", twice.code, twice.stderr)
	}
}

// An agent that cannot be used is bad input, with what to do: another version, a clock that is further away than a run is long.
func TestProveBadAgents(t *testing.T) {
	serveAs := func(change func(*agent.Answer)) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			a := agent.Answer{Schema: agent.Schema, Blast: "v9", BootID: "another", Noop: "127.0.0.1:9", Sample: tuning.Sample{WallNS: time.Now().UnixNano()}}
			change(&a)
			_ = json.NewEncoder(w).Encode(a)
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) }))
	t.Cleanup(page.Close)
	for _, c := range []struct {
		why, says string
		args      []string
	}{
		{"another version", "it speaks blast.agent/2 (blast v9), this blast speaks blast.agent/1: put the same blast on both hosts, then: blast serve --agent",
			[]string{"--agent", serveAs(func(a *agent.Answer) { a.Schema = "blast.agent/2" })}},
		{"a clock 42 s ahead", "its clock is 42.0 s away from this host's", []string{"--agent", serveAs(func(a *agent.Answer) { a.Sample.WallNS += 42e9 })}},
		{"a clock 42 s behind", "more than a run of 5s is long", []string{"--agent", serveAs(func(a *agent.Answer) { a.Sample.WallNS -= 42e9 })}},
		{"the same, but runs are longer", "", []string{"--duration", "1m", "--dry-run", "--agent", serveAs(func(a *agent.Answer) { a.Sample.WallNS += 42e9 })}},
		{"nobody", "start it on the target's host with: blast serve --agent 127.0.0.1:1", []string{"--agent", "127.0.0.1:1"}},
		{"another exporter", "not a node_exporter", []string{"--node-exporter", page.URL}},
	} {
		code := exitUsage
		if c.says == "" {
			code = exitOK
		}
		if o := blast(t, append([]string{"prove", "127.0.0.1:9", "--rate", "1k"}, c.args...)...); o.code != code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d: %s", c.why, o.code, code, o.stderr)
		}
	}
}

// Both halves get whole cores, of every node the same number; what may not be used is nobody's.
func TestHalves(t *testing.T) {
	cpu := func(id, node int, siblings ...int) tuning.CPU {
		return tuning.CPU{ID: id, Online: true, Allowed: true, Node: node, Siblings: siblings}
	}
	for _, c := range []struct {
		why  string
		cpus []tuning.CPU
		want [2][]int
	}{
		{"two cores", []tuning.CPU{cpu(0, 0, 0), cpu(1, 0, 1)}, [2][]int{{0}, {1}}},
		{"one core of two hyperthreads", []tuning.CPU{cpu(0, 0, 0, 1), cpu(1, 0, 0, 1)}, [2][]int{{0}, {1}}},
		{"siblings far apart", []tuning.CPU{cpu(0, 0, 0, 2), cpu(1, 0, 1, 3), cpu(2, 0, 0, 2), cpu(3, 0, 1, 3)}, [2][]int{{0, 2}, {1, 3}}},
		{"siblings side by side, on two nodes", []tuning.CPU{cpu(0, 0, 0, 1), cpu(1, 0, 0, 1), cpu(2, 0, 2, 3), cpu(3, 0, 2, 3), cpu(4, 1, 4, 5), cpu(5, 1, 4, 5), cpu(6, 1, 6, 7),
			cpu(7, 1, 6, 7)}, [2][]int{{0, 1, 4, 5}, {2, 3, 6, 7}}},
		{"three cores, of which one may not be used, and one CPU that is off", []tuning.CPU{cpu(0, 0), {ID: 1, Online: true}, cpu(2, 0), {ID: 3, Allowed: true}}, [2][]int{{0}, {2}}},
		{"a single CPU", []tuning.CPU{cpu(5, 0)}, [2][]int{{5}, nil}},
		{"siblings of an odd number of cores: the first half is the larger", []tuning.CPU{cpu(0, 0, 0), cpu(1, 0, 1, 2), cpu(2, 0, 1, 2)}, [2][]int{{1, 2}, {0}}},
	} {
		if diff := cmp.Diff(c.want, halves(c.cpus)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

// planned is a proof of which nothing was sent yet.
func planned(t *testing.T, args ...string) *prover {
	t.Helper()
	var f proveFlags
	cmd := &cobra.Command{}
	f.registerProof(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	v, err := f.prover(t.Context(), cmd, []string{"127.0.0.1:9"})
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	t.Cleanup(v.close)
	return v
}

// No probe and no run of a proof has the epoch of another, whatever their order: a late reply to the one is never taken for one to the other.
func TestEpochs(t *testing.T) {
	v := planned(t, "--rate", "1k")
	seen := map[uint8]bool{v.plan.epoch: true}
	for i := range 20 {
		p := v.idle.again()
		if i%3 == 0 {
			var err error
			if p, err = v.idle.at(100, time.Second, "const"); err != nil {
				t.Fatal(err)
			}
		}
		if seen[p.epoch] {
			t.Errorf("plan %d has an epoch that was there before", i+1)
		}
		seen[p.epoch] = true
	}
}

// A probe has its packets whatever the profile: of three at random times there would be none in one probe of twenty, and no plan is an error.
func TestProbePlan(t *testing.T) {
	c := planned(t, "--rate", "1k", "--profile", "poisson").idle
	for _, w := range []struct {
		rate    float64
		packets int
	}{{0.7, 3}, {30, 3}, {51.6, 6}, {99.999, 10}, {1e6, 10}} {
		c.config.From = w.rate
		for range 20 {
			p, err := c.probePlan()
			if err != nil {
				t.Fatalf("at %g: %v", w.rate, err)
			}
			if n := p.engine.Schedule.Slots(); n != uint64(w.packets) || c.probeSize() != w.packets {
				t.Fatalf("at %g: %d packets, said to be %d, want %d", w.rate, n, c.probeSize(), w.packets)
			}
		}
	}
}

// The two generators get what the proof was given, and where that cannot be, as with CPUs and ports that are named, it is said.
func TestPairPlan(t *testing.T) {
	cpus := allowedCPUs(t)
	last := fmt.Sprint(cpus[len(cpus)-1])
	for _, c := range []struct {
		why    string
		args   []string
		choose string
		pinned bool
		says   string // of what they share; "" = says nothing of flags
	}{
		{"by default each has half", nil, "--cpus=auto", true, ""},
		{"the default by name", []string{"--cpus", "auto"}, "--cpus=auto", true, ""},
		{"workers that move move in both", []string{"--cpus", "none"}, "--cpus=none", false, "the two shared "},
		{"a list is for one", []string{"--cpus", last}, "--cpus=auto", true, "--cpus was left out"},
		{"and so are ports", []string{"--src-port", "20000-20010"}, "--cpus=auto", true, "--src-port was left out"},
	} {
		if len(cpus) < 2 { // nothing to deal out
			c.choose, c.pinned = "--cpus=none", false
		}
		p, err := planned(t, append(c.args, "--rate", "1k", "--payload", "100")...).pair()
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		for i, args := range p.args {
			if !slices.Contains(args, c.choose) || !slices.Contains(args, "--payload=100") || !slices.Contains(args, fmt.Sprintf("--shard=%d/2", i)) || (p.cpus[i] != nil) != c.pinned {
				t.Errorf("%s: generator %d: %v on %v", c.why, i+1, args, p.cpus[i])
			}
		}
		if !strings.Contains(p.shared, c.says) || c.says == "" && strings.Contains(p.shared, "--") {
			t.Errorf("%s: it says %q", c.why, p.shared)
		}
	}
}

// An agent beside a server says first where it is, answers, and ends with the server; alone it ends by a signal.
func TestServeAgent(t *testing.T) {
	for _, c := range []struct {
		args  []string
		lines []string
	}{
		{[]string{"serve", "udp", "--listen", "127.0.0.1:0", "--agent", "127.0.0.1:0"}, []string{"agent 127.0.0.1:", "listening 127.0.0.1:"}},
		{[]string{"serve", "--agent", "127.0.0.1:0", "--agent-allow", "127.0.0.1/32"}, []string{"agent 127.0.0.1:"}},
	} {
		cmd := exec.Command(os.Getenv(binaryVariable), c.args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		scan := bufio.NewScanner(out)
		at := ""
		for _, want := range c.lines {
			if !scan.Scan() || !strings.HasPrefix(scan.Text(), want) {
				t.Fatalf("%v: line %q, want %s", c.args, scan.Text(), want)
			}
			if rest, ok := strings.CutPrefix(scan.Text(), "agent "); ok {
				at, _, _ = strings.Cut(rest, " ")
			}
		}
		client, err := agent.NewClient(at)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Ask(t.Context())
		client.Close()
		if err != nil || len(r.Sample.CPUs) == 0 || r.Noop.String() != at {
			t.Errorf("%v: %+v, %v", c.args, r, err)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		for scan.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}

// twoSleepers is a program for the tests: a pair of generators that would take a minute.
func twoSleepers() {
	_, err := (&pair{exe: "/bin/sleep", args: [2][]string{{"60"}, {"60"}}}).run(context.Background())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitRun)
}

// children are the processes that a process has made and that still run.
func children(t *testing.T, of int) []int {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, p := range all {
		if s, err := p.Stat(); err == nil && s.PPID == of && s.State != "Z" {
			out = append(out, p.PID)
		}
	}
	return out
}

// gone says that a process has ended, whoever is to wait for it.
func gone(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return true
	}
	s, err := p.Stat()
	return err != nil || s.State == "Z"
}

// A proof that is killed takes its generators with it: nobody would stop them, or read what they find.
func TestPairEndsWithItsProof(t *testing.T) {
	cmd := exec.Command("twosleepers")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var two []int
	if !eventually(t.Context(), 20*time.Second, func() bool { two = children(t, cmd.Process.Pid); return len(two) == 2 }) {
		t.Fatalf("children %v, want two", two)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !eventually(t.Context(), 20*time.Second, func() bool { return gone(two[0]) && gone(two[1]) }) {
		t.Error("a generator goes on")
	}
}

// TestKernelProveInterrupted: Ctrl-C while the two generators send stops both, and what was found until then is reported as of a proof that
// ended early. The run before was watched while its sockets were open.
func TestKernelProveInterrupted(t *testing.T) {
	server := serveUDP(t, "--mode", "echo")
	p := start(t, func(cmd *exec.Cmd) { cmd.Cancel = nil }, "prove", "--format", "json", server.addr, "--rate", "200", "--flows", "50", "--duration", "2s", "--max-lag", "1s")
	var two []int
	if !eventually(t.Context(), 60*time.Second, func() bool { two = children(t, p.Process.Pid); return len(two) == 2 }) {
		t.Fatalf("children %v, want two", two)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := p.end()
	v, err := stats.ReadProve([]byte(o.stdout))
	if err != nil {
		t.Fatalf("exit %d: %v\n%s", o.code, err, o.stderr)
	}
	if o.code != exitInvalid || v.Interrupted == "" || v.Conclusion.Points != stats.PointsUnknown || !strings.Contains(v.Conclusion.Detail, "it ended early") {
		t.Errorf("exit %d, interrupted %q: %+v", o.code, v.Interrupted, v.Conclusion)
	}
	if !gone(two[0]) || !gone(two[1]) {
		t.Error("a generator goes on")
	}
	use := control(t, v, stats.ControlGenerator).Use
	if use == nil || !slices.ContainsFunc(use.Rooms, func(r stats.RoomUsed) bool { return r.Name == "file descriptors" && r.Used > 50 }) {
		t.Errorf("50 flows, each with a socket: %+v", use)
	}
}

// What a second generator ended with is its own complaint, not the advice below it.
func TestComplaint(t *testing.T) {
	for stderr, want := range map[string]string{
		"blast: warning: few CPUs\nblast: queue 0: EBUSY\n  wall: busy\n  past it: another\n": "queue 0: EBUSY", "": "it ended without a word", "panic: x\n": "it ended without a word",
	} {
		if got := complaint(stderr); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}

// Only flows of one address to one target share a range of ports, and only those whose port the kernel chooses use it up.
func TestChosenPorts(t *testing.T) {
	at := netip.MustParseAddrPort
	a, b := at("10.0.0.2:1"), at("10.0.0.2:2")
	src := func(text string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(text), 0) }
	flows := []backend.Flow{{Dst: a}, {Dst: a}, {Dst: b}, {Src: src("10.0.0.1"), Dst: a}, {Src: at("10.0.0.1:5"), Dst: b}, {Src: at("10.0.0.1:6"), Dst: b}, {Src: at("10.0.0.1:7"), Dst: b}}
	if got := chosenPorts(flows); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}
