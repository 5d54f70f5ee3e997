package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blast/agent"
	"blast/pace"
	"blast/prove"
	"blast/report"
	"blast/stats"
)

// proveFlags are the flags of blast prove: those of blast udp that describe one run, and its own.
type proveFlags struct {
	udpFlags
	agent, exporter, noop string
}

// notOfProofs are the flags of blast udp that a proof does not take: models that wait for replies have no rate to reach, and each run is
// judged by throughput. A page of metrics would add up runs against different targets. The last line are those that a proof has in its own way.
var notOfProofs = []string{"rounds", "model", "clients", "think", "senders", "max-in-flight", "co-correct", "names", "shard", "run-id", "slo", "align", "metrics", "metrics-linger",
	"duration", "format", "out", "dry-run"}

// proveDuration is the default length of a run of a proof.
const proveDuration = 5 * time.Second

func proveCommand() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use:   "prove TARGET --rate R",
		Short: "tell a slow target from a slow generator, by five controls",
		Long: `Put the rate on HOST:PORT and find out, by five controls, who is the wall when it is not reached:

  1 baseline        the generator against a no-op echo on loopback: is its own ceiling at least 3 times the rate?
  2 generator       its verdict and its cores, one by one, during the run against the target
  3 target          the cores and counters of the target's host: from blast serve --agent there, or a node_exporter
  4 no-op           the same load against a no-op: on the target's host where there is an agent or --noop, else on loopback
  5 two generators  two processes with the rate each: does the total double, or stay?

  blast prove 127.0.0.1:9000 --rate 3k                              controls 1, 2, 4 and 5; nobody tells about the target's host
  blast prove 10.0.0.2:9000 --rate 200k --agent 10.0.0.2:9101       all five; there: blast serve --agent 10.0.0.2:9101
  blast prove 10.0.0.2:53 --rate 5k --payload-hex HEX --vary 0:2:seq --match 0:2 --node-exporter http://10.0.0.2:9100/metrics

Exit codes: 0 the target is the wall, or nobody is at this rate: figures taken at it speak about the target; 3 the generator is the wall,
or it cannot be told: they do not (the report and the JSON say which); 1 run-time error; 2 usage.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no target: want blast prove HOST:PORT --rate 50k")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runProve(cmd, f, args) },
	}
	f.registerProof(cmd)
	return cmd
}

// registerProof takes the flags of blast udp as they are defined there, but for notOfProofs.
func (f *proveFlags) registerProof(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.agent, "agent", "", "HOST:PORT of blast serve --agent on the target's host: control 3, and a no-op there for control 4")
	fl.StringVar(&f.exporter, "node-exporter", "", "URL of the page of a node_exporter on the target's host: control 3")
	fl.StringVar(&f.noop, "noop", "", "HOST:PORT of a no-op server of the same protocol, best on the target's host: control 4; default: the agent's, else one on loopback")
	f.registerBut(fl, notOfProofs)
	fl.Lookup("rate").Usage = "packets per second that the target is to answer: 50000, 500k, 1.5M"
	fl.Lookup("profile").Usage = "how the packets are spread: const or poisson"
	fl.Lookup("mode").Usage = "echo: a target is known by its answers"
	fl.DurationVar(&f.duration, "duration", proveDuration, "length of the measured part of each run")
	fl.StringVar(&f.out, "out", "", "write the JSON of the proof, every run a whole result, to this file")
	fl.StringVar(&f.format, "format", "text", "on standard output: text, json, html (a page for a browser)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print how long the controls take, and send nothing but the question to --agent or --node-exporter")
}

func runProve(cmd *cobra.Command, f proveFlags, args []string) error {
	ctx := cmd.Context()
	v, err := f.prover(ctx, cmd, args)
	if err != nil {
		return usage(err)
	}
	defer v.close()
	if f.dryRun {
		_, err := fmt.Println(v.duration())
		return err
	}
	out, err := openOutput(f.out)
	if err != nil {
		return usage(err)
	}
	defer out.discard()
	prepareProcess(v.plan.engine.Workers)
	if v.plan.auto != "" {
		fmt.Fprintf(os.Stderr, "backend auto: %s, because %s\n", v.plan.entry.Name, v.plan.auto)
	}
	fmt.Fprintln(os.Stderr, v.duration())
	proof, err := v.run(ctx)
	if err != nil {
		return &exitError{exitRun, explainWall(err)}
	}
	if err := printProof(out, proof, f.format); err != nil {
		return err
	}
	if code := prove.ExitCode(proof.Conclusion); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// proofFormat reports whether a proof can be shown so.
func proofFormat(format string) bool { return format == "text" || format == "json" || format == "html" }

// printProof shows a proof and writes its file.
func printProof(out *output, proof *stats.Prove, format string) error {
	return out.emit(format == "json", os.Stdout, func(w io.Writer) error {
		switch format {
		case "json":
			return report.ProveJSON(w, proof)
		case "html":
			return report.HTMLProve(w, proof)
		}
		return report.Prove(w, proof, report.Options{Color: isTerminal(os.Stdout)})
	}, func(w io.Writer) error { return report.ProveJSON(w, proof) })
}

// checkProof refuses what a proof cannot use.
func (f *proveFlags) checkProof() error {
	switch {
	case f.mode != stats.ModeEcho:
		return fmt.Errorf("--mode %s: what a target did is known by its answers, and there are none: leave it out; how far a generator gets one way is blast calibrate", f.mode)
	case f.profile != "const" && f.profile != "poisson":
		return fmt.Errorf("--profile %s: want const or poisson, which have one rate to prove", f.profile)
	case !proofFormat(f.format):
		return fmt.Errorf("--format %q: want text, json or html", f.format)
	case f.agent != "" && f.exporter != "":
		return errors.New("--agent and --node-exporter: both tell about the target's host; want one")
	case f.duration < shortStep:
		return fmt.Errorf("--duration %v: want at least %v a run, 5s is usual", f.duration, shortStep)
	}
	if rate, err := pace.ParseRate(f.rate); f.rate != "" && err == nil && rate.PPS() == 0 {
		return errors.New("--rate max: a proof is about a rate that is reached or not; name one, such as --rate 50k. Flat out is blast udp --rate max")
	}
	return nil
}

// prover checks every flag and makes the proof. The target's host is asked, nothing else is sent; all errors are bad input.
func (f *proveFlags) prover(ctx context.Context, cmd *cobra.Command, args []string) (*prover, error) {
	if err := f.checkProof(); err != nil {
		return nil, err
	}
	v := &prover{flags: *f, cmd: cmd, args: args}
	var err error
	if v.plan, err = v.flags.plan(ctx, args); err != nil {
		return nil, err
	}
	v.plan.engine.Interval = fineInterval(f.duration)
	for _, flow := range v.plan.engine.Flows { // as the plan found them: a name may have another address the next time
		if !slices.Contains(v.targets, flow.Dst) {
			v.targets = append(v.targets, flow.Dst)
		}
	}
	v.evidence.AskedPPS = v.plan.engine.Schedule.MeanPPS()
	v.idle = climber{flags: ladderFlags{udpFlags: v.flags.udpFlags, step: f.duration}, base: v.plan, args: args}
	v.idle.flags.bitrate, v.idle.config.From = "", v.evidence.AskedPPS
	v.local = v.plan.iface == loopback || slices.ContainsFunc(v.targets, func(t netip.AddrPort) bool { _, err := sources([]string{t.Addr().String()}); return err == nil })
	v.evidence.OwnRemark = v.remark()
	if f.noop != "" {
		if v.noop, err = v.against(ctx, f.noop, v.evidence.AskedPPS, f.duration); err != nil {
			return nil, fmt.Errorf("--noop: %w", err)
		}
	}
	if err := v.openHost(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// openHost makes the way to the facts of the target's host, and tries it.
func (v *prover) openHost(ctx context.Context) error {
	v.evidence.TargetWhy = "nobody was asked about the target's host: --agent HOST:PORT with blast serve --agent there, or --node-exporter URL"
	switch {
	case v.flags.agent != "":
		c, err := agent.NewClient(v.flags.agent)
		if err != nil {
			return fmt.Errorf("--agent: %w", err)
		}
		v.ask, v.closers = c.Ask, append(v.closers, c.Close)
	case v.flags.exporter != "":
		c, err := agent.NewExporter(v.flags.exporter)
		if err != nil {
			return fmt.Errorf("--node-exporter: %w", err)
		}
		v.ask, v.closers = c.Ask, append(v.closers, c.Close)
	default:
		return nil
	}
	first, err := agent.Best(ctx, v.ask)
	if err == nil {
		err = checkClocks(&first, v.flags.duration)
	}
	if err != nil {
		v.close()
		return err
	}
	v.first, v.evidence.TargetWhy = first, ""
	if v.evidence.OwnRemark == "" && first.SameHost(v.reader) {
		v.evidence.OwnRemark = sameHostRemark
	}
	return nil
}

// checkClocks refuses wall clocks that are further apart than a run is long: by its times, a run on one host would then not even overlap
// with the same run on the other, and no log or capture of the two could be laid side by side. Intervals are not measured across hosts.
func checkClocks(r *agent.Reading, run time.Duration) error {
	if apart := r.Offset.Abs() - r.Within; apart > run {
		return fmt.Errorf("%s: its clock is %s away from this host's (known to %s), more than a run of %v is long: records of the two hosts cannot be laid side by side; "+
			"set both, such as by: chronyc makestep", r.Source, stats.FormatDuration(r.Offset.Abs()), stats.FormatDuration(r.Within), run)
	}
	return nil
}

// reportProof shows a proof again.
func reportProof(proof *stats.Prove, format, path string) error {
	if !proofFormat(format) {
		return usagef("format %s: a proof is shown as text, json or html", format)
	}
	out, err := openOutput(path)
	if err != nil {
		return usage(err)
	}
	defer out.discard()
	return printProof(out, proof, format)
}
