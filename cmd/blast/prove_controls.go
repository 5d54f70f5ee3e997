package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"blast/agent"
	"blast/backend/afxdp"
	"blast/packet"
	"blast/prove"
	"blast/serve"
	"blast/stats"
	"blast/tuning"
)

const (
	// baselineRun is the length of a run against the no-op on loopback, at most.
	baselineRun = 2 * time.Second
	// attempts is how often a run that is INVALID is made: a neighbour may spoil one, a generator that is too slow spoils them all.
	attempts = 2

	sameHostRemark = "the target is on this host: cores without a worker may be busy with it, and are not judged here"
)

// prover makes one proof.
type prover struct {
	flags   proveFlags
	cmd     *cobra.Command
	args    []string
	plan    *udpPlan
	targets []netip.AddrPort
	reader  tuning.Reader
	// local says that the target is on this host.
	local bool
	// ask reads the target's host, nil when nobody tells; first is its first answer.
	ask     func(context.Context) (agent.Reading, error)
	first   agent.Reading
	closers []func()
	// noop is the plan against --noop or the agent's no-op; nil without either.
	noop     *udpPlan
	evidence prove.Evidence
	// idle probes the target between runs, as a ladder does between steps.
	idle climber
}

func (v *prover) close() {
	for _, c := range v.closers {
		c()
	}
	v.closers = nil
}

// remark says why cores without a worker are not the generator's alone.
func (v *prover) remark() string {
	if v.local {
		return sameHostRemark
	}
	return ""
}

// duration says what will be done and how long it takes, before anything is.
func (v *prover) duration() string {
	run := v.flags.duration + v.flags.warmup + time.Second // and opening, draining
	short := min(v.flags.duration, baselineRun) + time.Second
	least := 2*run + 2*short
	if v.noop != nil || v.first.Noop.IsValid() {
		least += run
	}
	most := least + run + 2*short
	return fmt.Sprintf("five controls at %s in about %v; at most about %v, when runs that are INVALID are repeated; and between runs as long as the target takes to work off what one left, at most %v",
		stats.FormatPPS(v.evidence.AskedPPS), least.Round(time.Second), most.Round(time.Second), v.idle.patience())
}

// say is the progress: a line a control.
func (v *prover) say(n int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%d/5 %s\n", n, fmt.Sprintf(format, args...))
}

// run makes the controls and judges them. The order is that of the proof, but the run against the target, which controls 2 and 3 look at, is
// one.
func (v *prover) run(ctx context.Context) (*stats.Prove, error) {
	started := time.Now()
	e := &v.evidence
	for _, step := range []func(context.Context) error{v.answers, v.baseline, v.target, v.compare, v.two} {
		if ctx.Err() != nil {
			break
		}
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		e.Interrupted = "interrupted"
	}
	p := &stats.Prove{Schema: stats.ProveSchema, Started: started, RunID: v.plan.runID, Command: os.Args, Host: v.plan.host, Targets: v.args, AskedPPS: e.AskedPPS, Interrupted: e.Interrupted}
	p.Controls, p.Conclusion = prove.Judge(e)
	p.Normalize()
	return p, nil
}

// against is the plan of the proof with another target, rate and length. Where the backend was chosen automatically it is the same one.
func (v *prover) against(ctx context.Context, target string, pps float64, length time.Duration) (*udpPlan, error) {
	f := v.flags.udpFlags
	f.rate, f.bitrate, f.duration, f.backend = rateText(pps), "", length, v.plan.entry.Name
	f.flows = len(v.plan.engine.Flows)
	p, err := f.plan(ctx, []string{target})
	if err == nil {
		p.engine.Interval = fineInterval(length)
	}
	return p, err
}

// fineInterval is the timeline's: fine enough to tell a run's own pace from its ends.
func fineInterval(length time.Duration) time.Duration {
	return min(max(length/10, 50*time.Millisecond), time.Second)
}

// attempt runs a plan until it is VALID, at most as often as attempts says. Each time is a new epoch, so that
// no reply to an attempt is taken for one to the next.
func attempt(ctx context.Context, p *udpPlan) (*stats.Result, error) {
	for n := 1; ; n++ {
		p.epoch++
		res, err := p.round(ctx, 0)
		if res == nil || !repeat(ctx, res, n) {
			return res, err
		}
	}
}

// hopeless is the share of the rate below which a run that is INVALID is not repeated: no neighbour takes that much.
const hopeless = 0.5

// repeat reports whether an INVALID run is worth another attempt, and says so.
func repeat(ctx context.Context, res *stats.Result, n int) bool {
	if res.Verdict.Valid || n >= attempts || ctx.Err() != nil || res.Rate.AchievedPPS < hopeless*res.Rate.TargetPPS {
		return false
	}
	fmt.Fprintf(os.Stderr, "    INVALID (%s), once more\n", strings.Join(stats.Codes(res.Verdict.Reasons), ", "))
	return true
}

// answers refuses a target that is not there, and waits, as long as between runs, for one that does not answer yet: it may still be busy with
// what an earlier load left. One that stays silent is given its run all the same, for it may be this host that hears nothing.
func (v *prover) answers(ctx context.Context) error {
	if err := v.refused(v.targets[0]); err != nil {
		return fmt.Errorf("%v: %w: its host says that nobody listens there; start the target first", v.args, err)
	}
	for begun := time.Now(); time.Since(begun) < v.idle.patience() && ctx.Err() == nil; {
		if _, err := v.idle.probe(ctx); err != nil || v.idle.calm.known {
			return err
		}
		if v.idle.calm.attempts == 1 {
			fmt.Fprintf(os.Stderr, "    %v does not answer; waiting for it for %v at most\n", v.args, v.idle.patience())
		}
	}
	return nil
}

// refused sends one packet as the run will, and reports what the target's host says to it at once, if anything: that nobody listens.
func (v *prover) refused(target netip.AddrPort) error {
	payload := make([]byte, v.plan.config.PayloadBytes)
	n := v.plan.source(0, v.plan.epoch).Fill(&packet.Stamp{Epoch: v.plan.epoch, Stride: 1}, 0, payload)
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return nil // the run itself will say why
	}
	defer conn.Close()
	if _, err := conn.Write(payload[:n]); err != nil {
		return nil
	}
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // never fails on an open socket
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, unix.ECONNREFUSED) {
		return unix.ECONNREFUSED
	}
	return nil
}

// settle waits until the target has worked off what the run before left, and reports whether it did. One that does not is remarked: it has
// work from elsewhere, or more of ours than it can do in that time.
func (v *prover) settle(ctx context.Context) bool {
	err := v.idle.settle(ctx)
	if err != nil && ctx.Err() == nil {
		v.evidence.Unsettled = err.Error()
		fmt.Fprintf(os.Stderr, "    warning: %v\n", err)
	}
	return err == nil
}

// baseline is control 1, with a no-op echo in this process, on CPUs that no worker has where there are such.
func (v *prover) baseline(ctx context.Context) error {
	b := &v.evidence.Baseline
	p := v.plan
	if p.profile != nil {
		b.Stored, _ = p.profile.Ceiling(p.entry.Name, max(v.flags.gso, 1), p.config.PayloadBytes, p.config.Workers, p.config.Flows)
	}
	if p.offload != nil || p.engine.Replies != nil {
		b.Why = "programs in the kernel are not put on lo"
		v.say(1, "baseline: not measured, %s", b.Why)
		return nil
	}
	at := netip.MustParseAddrPort("127.0.0.1:0")
	if v.targets[0].Addr().Unmap().Is6() || p.entry.Name == afxdp.Name { // IPv4 frames put on lo reach no socket
		at = netip.MustParseAddrPort("[::1]:0")
	}
	srv, err := serve.Start(serve.Config{Mode: serve.Echo, Listen: []netip.AddrPort{at}, CPUs: p.engine.ReceiveCPUs})
	if err != nil {
		b.Why = err.Error()
		v.say(1, "baseline: not measured, %s", b.Why)
		return nil
	}
	defer srv.Close()
	for _, r := range []struct {
		pps float64
		to  **stats.Result
	}{{v.evidence.AskedPPS, &b.Same}, {prove.Margin * v.evidence.AskedPPS, &b.Ample}} {
		v.say(1, "baseline: %s against a no-op on loopback", stats.FormatPPS(r.pps))
		if *r.to, err = v.onLoopback(ctx, srv.Addrs()[0].String(), r.pps); err != nil {
			b.Why = err.Error()
			return nil
		}
		if !(*r.to).Verdict.Valid || ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// onLoopback runs against the no-op. What belongs to the way to the target is left out.
func (v *prover) onLoopback(ctx context.Context, addr string, pps float64) (*stats.Result, error) {
	f := v.flags
	f.src, f.srcPort, f.iface, f.queue, f.warmup = nil, "", "", 0, 0
	loop := *v
	loop.flags = f
	p, err := loop.against(ctx, addr, pps, min(f.duration, baselineRun))
	if err != nil {
		return nil, err
	}
	res, err := attempt(ctx, p)
	if res == nil {
		return nil, err
	}
	return res, nil
}

// target is the run that controls 2 and 3 look at.
func (v *prover) target(ctx context.Context) error {
	v.say(2, "generator: %s against the target, with this host's cores watched", stats.FormatPPS(v.evidence.AskedPPS))
	if v.ask != nil {
		v.say(3, "target: %s is asked meanwhile", v.first.Source)
	} else {
		v.say(3, "target: nobody tells (--agent, --node-exporter)")
	}
	e := &v.evidence
	for n := 1; ; n++ {
		if !v.settle(ctx) && e.Run != nil {
			return nil // the attempt before stands: this one would find its leftovers
		}
		w := v.watchHosts(ctx)
		res, err := v.idle.again().round(ctx, 0)
		w.end(ctx)
		if res == nil {
			return err
		}
		e.Run, e.Attempts = res, n
		e.Own, e.Target = w.own(res), w.others()
		if v.ask != nil && e.Target == nil {
			e.TargetWhy = w.why()
		}
		if res.Ledger.Replied+res.Ledger.Late == 0 && ctx.Err() == nil {
			return v.silent(res)
		}
		if !repeat(ctx, res, n) {
			return nil
		}
	}
}

// silent explains a target that answers nothing: it cannot be slow when it is not there.
func (v *prover) silent(res *stats.Result) error {
	if n := res.Events["conn_refused"]; n > 0 {
		return fmt.Errorf("%v answered none of %s packets, and its host said %s times that nobody listens there: start the target first", v.args, stats.FormatCount(res.Ledger.Sent),
			stats.FormatCount(n))
	}
	return fmt.Errorf("%v answered none of %s packets: a proof compares answers; is it there, does it answer this payload, is a firewall between?", v.args, stats.FormatCount(res.Ledger.Sent))
}

// compare is control 4.
func (v *prover) compare(ctx context.Context) error {
	n := &v.evidence.Noop
	if v.noop == nil && v.first.Noop.IsValid() {
		var err error
		if v.noop, err = v.against(ctx, v.first.Noop.String(), v.evidence.AskedPPS, v.flags.duration); err != nil {
			return fmt.Errorf("no-op of %s: %w", v.first.Source, err)
		}
		n.OnTarget = true
	}
	if v.noop == nil {
		v.say(4, "no-op: the one on loopback, as measured for the baseline")
		n.Run, n.Where, n.Why = v.evidence.Baseline.Same, "loopback", v.evidence.Baseline.Why
		return nil
	}
	at := v.noop.engine.Flows[0].Dst
	n.Where = at.String()
	n.OnTarget = n.OnTarget || at.Addr() == v.targets[0].Addr()
	v.say(4, "no-op: %s against %s", stats.FormatPPS(v.evidence.AskedPPS), n.Where)
	res, err := attempt(ctx, v.noop)
	if res == nil {
		n.Why = err.Error()
		return nil
	}
	n.Run = res
	return nil
}

// two is control 5.
func (v *prover) two(ctx context.Context) error {
	t := &v.evidence.Two
	v.say(5, "two generators: two processes, %s each, against the target", stats.FormatPPS(v.evidence.AskedPPS))
	if !v.settle(ctx) {
		t.Why = "the target had not worked off the run before: " + v.evidence.Unsettled
		return nil
	}
	pair, err := v.pair()
	if err == nil {
		t.Shared = pair.shared
		t.Parts, err = pair.run(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Why = err.Error()
	}
	return nil
}
