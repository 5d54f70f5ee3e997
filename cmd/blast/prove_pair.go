package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"blast/internal/sys"
	"blast/stats"
	"blast/tuning"
)

// pair is two generators: processes of this program, as shards of one run, each with the whole rate and half of the CPUs.
type pair struct {
	exe    string
	args   [2][]string
	cpus   [2][]int // nil = all
	shared string
}

// notOfShards are flags of the proof that its two generators do not get: they are given anew, or are the proof's own. Source ports cannot be
// bound twice, and CPUs that are named are those of one generator; sharing says so.
var notOfShards = []string{"agent", "node-exporter", "noop", "out", "format", "dry-run", "duration", "backend", "cpus", "src-port"}

// pair plans the two.
func (v *prover) pair() (*pair, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	inv, err := v.reader.Inventory(v.plan.iface)
	if err != nil {
		return nil, err
	}
	p := &pair{exe: exe}
	workers, choose := v.plan.config.Workers, "none"
	sets := halves(inv.CPUs)
	if v.flags.cpus != "none" && len(sets[1]) >= workers {
		p.cpus, choose = sets, "auto" // the best ones of those that it may use
	}
	p.shared = v.sharing(len(sets[0])+len(sets[1]), len(sets[1]), workers)
	given := []string{"udp"}
	given = append(given, v.args...)
	v.cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(notOfShards, f.Name) {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, one := range list.GetSlice() {
				given = append(given, "--"+f.Name+"="+one)
			}
			return
		}
		given = append(given, "--"+f.Name+"="+f.Value.String())
	})
	for i := range p.args {
		p.args[i] = append(slices.Clone(given), "--duration="+v.flags.duration.String(), "--backend="+v.plan.entry.Name, "--cpus="+choose, "--format=json",
			fmt.Sprintf("--shard=%d/2", i), "--run-id="+v.plan.runID)
	}
	return p, nil
}

// halves deals the CPUs that this process may use to two generators: whole physical cores in turn, so that neither slows the other down by
// its hyperthreads, and as many of each NUMA node to both. A single core is shared out by its CPUs. The first half is never the smaller one.
func halves(cpus []tuning.CPU) [2][]int {
	var order []tuning.CPU
	for _, c := range cpus {
		if c.Online && c.Allowed {
			order = append(order, c)
		}
	}
	core := func(c tuning.CPU) int {
		if len(c.Siblings) == 0 {
			return c.ID
		}
		return slices.Min(c.Siblings)
	}
	slices.SortFunc(order, func(a, b tuning.CPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(core(a), core(b)), cmp.Compare(a.ID, b.ID))
	})
	one := len(order) > 0 && !slices.ContainsFunc(order, func(c tuning.CPU) bool { return core(c) != core(order[0]) })
	var out [2][]int
	turn := 1
	for i, c := range order {
		if one || i == 0 || core(c) != core(order[i-1]) {
			turn = 1 - turn
		}
		out[turn] = append(out[turn], c.ID)
	}
	slices.Sort(out[0])
	slices.Sort(out[1])
	if len(out[1]) > len(out[0]) {
		out[0], out[1] = out[1], out[0]
	}
	return out
}

// sharing says what two generators take from each other on this host.
func (v *prover) sharing(usable, half, workers int) string {
	var parts []string
	switch {
	case half < workers:
		parts = append(parts, fmt.Sprintf("the two shared %d CPUs, too few for the %d workers of each on cores of their own: neither had the room of the first run, and a total that stays is weak evidence", usable, workers))
	case v.flags.cpus == "none":
		parts = append(parts, fmt.Sprintf("the two shared the %d CPUs, not pinned (--cpus none): less room than the first run had", usable))
	case half < workers+1:
		parts = append(parts, fmt.Sprintf("each had %d of the %d CPUs, for sending and receiving on the same: less room than the first run had", half, usable))
	}
	if v.local {
		parts = append(parts, "the target is on this host and competes with both")
	}
	if v.flags.cpus != "auto" && v.flags.cpus != "none" {
		parts = append(parts, "--cpus was left out: it names CPUs for the workers of one, and each had half of all")
	}
	if v.flags.srcPort != "" {
		parts = append(parts, "--src-port was left out: two processes cannot have the same ports")
	}
	return strings.Join(parts, "; ")
}

// run starts both at once and waits for both.
func (p *pair) run(ctx context.Context) ([]stats.Result, error) {
	var parts [2]*stats.Result
	var errs [2]error
	var running sync.WaitGroup
	for i := range p.args {
		running.Go(func() {
			if parts[i], errs[i] = p.one(ctx, i); errs[i] != nil {
				errs[i] = fmt.Errorf("generator %d of 2: %w", i+1, errs[i])
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return []stats.Result{*parts[0], *parts[1]}, nil
}

// one runs a generator and reads its result, whatever the verdict.
func (p *pair) one(ctx context.Context, i int) (*stats.Result, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.exe, p.args[i]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// An interrupt of the terminal is for the proof alone; it passes it on, once. Where it is killed itself nobody reads what the two find, and
	// they must not go on: the kernel kills them with the thread that made them (PR_SET_PDEATHSIG, prctl(2)), which is therefore kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := startOn(cmd, p.cpus[i]); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if code != exitOK && code != exitInvalid && code != exitSLO {
		return nil, fmt.Errorf("%s (%w)", complaint(stderr.String()), err)
	}
	return stats.ReadResult(&stdout)
}

// startOn starts a command on some CPUs: a child has the affinity of the thread that makes it (sched_setaffinity(2)). The caller has locked
// that thread.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if cpus == nil {
		return cmd.Start()
	}
	restore, err := sys.Pin(cpus...)
	if err != nil {
		return err
	}
	defer restore()
	return cmd.Start()
}

// complaint is the error that a blast ended with, without what it says about the way past it.
func complaint(stderr string) string {
	says := "it ended without a word"
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "blast: "); ok {
			says = text
		}
	}
	return says
}
