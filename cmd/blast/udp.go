package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blast/backend/afxdp"
	"blast/engine"
	"blast/stats"
	"blast/tuning"
	"blast/verdict"
)

// udpFlags are the flags of blast udp, as given.
type udpFlags struct {
	rate, bitrate, layer            string
	duration, warmup                time.Duration
	timeout, drain, maxLag          time.Duration
	backend, profile, mode, catchUp string
	wait, srcPort, cpus, family     string
	src                             []string
	payload, flows, workers, batch  int
	gso, rounds                     int
	gro, fragment, kernelStamp      bool
	align                           bool
	sqpoll, zerocopy                bool
	iface                           string
	queue                           int
	authorized, dryRun              bool
	sndbuf, rcvbuf                  int
	seed                            uint64
	slos                            []string
	payloadHex, payloadFile, match  string
	vary                            []string
	out, format, shard, runID       string
	modelFlags
	stampFlags
	metricsFlags
	receive string
}

func udpCommand() *cobra.Command {
	var f udpFlags
	cmd := &cobra.Command{
		Use:   "udp TARGET...",
		Short: "send UDP to a target by a plan, and judge whether the plan was kept",
		Long: `Send UDP to one or more HOST:PORT targets on an open-loop schedule: every packet's time is fixed before the run, whether replies
come or not. Latency counts from the planned time. The run ends VALID, or INVALID with reasons (exit 3).

  blast udp 127.0.0.1:9000 --rate 50k --duration 30s                    echo round trips against blast serve udp --mode echo
  blast udp 10.0.0.2:9000 --rate 200k --mode oneway --payload 512       one way, counted at the interface
  blast udp 10.0.0.2:53 --rate 5k --payload-hex HEX --vary 0:2:seq --match 0:2        a foreign protocol: here, DNS by its id
  blast udp 10.0.0.2:9000 --rate 30k --profile tick:30 --flows 1000     1,000 game clients at 30 Hz (the rate comes from the tick)
  blast udp 10.0.0.2:9000 --model closed --clients 10 --think 5ms       10 callers that wait for each reply, instead of a plan
  blast udp 10.0.0.2:9000 --profile ramp:10k..200k/60s --duration 60s --slo 'p99<5ms' --slo 'loss<0.1%'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no target: want blast udp HOST:PORT --rate 50k")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runUDP(cmd.Context(), f, args) },
	}
	f.register(cmd)
	return cmd
}

// defaultUDPFlags are the flags of blast udp when none is given, for commands that make a run of their own.
func defaultUDPFlags() udpFlags {
	var f udpFlags
	f.register(&cobra.Command{})
	return f
}

func (f *udpFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.rate, "rate", "", "packets per second: 50000, 500k, 1.5M, 1/h, or max (no plan: as fast as the kernel accepts)")
	fl.StringVar(&f.bitrate, "bitrate", "", "the other way to give the rate: bits per second such as 1Gbit, of the layer that --layer names")
	fl.StringVar(&f.layer, "layer", "l1", "what --bitrate counts: l1 (with preamble and gap), l2 (with Ethernet header and FCS), ip, payload")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "length of the measured part")
	fl.StringVar(&f.profile, "profile", "const", "const | poisson | ramp:FROM..TO/DUR | step:FROM+BY/DUR..TO | burst:N@GAP | tick:HZ | file:PATH (lines TIME,BYTES)")
	fl.StringVar(&f.mode, "mode", "echo", "echo (replies expected) or oneway")
	f.modelFlags.register(cmd)
	fl.StringVar(&f.backend, "backend", "auto", "send path: auto, "+backendNames()+"; "+offloadNames()+" runs the plan inside the kernel")
	fl.StringVar(&f.receive, "receive", "auto", "who takes replies: socket (the backend's own, or beside xdp_live those of sendmmsg), xdp (a program in the kernel that times them where they arrive); auto = xdp with xdp_live, else socket")
	fl.IntVar(&f.payload, "payload", 64, "UDP payload bytes, 0 to 65507; 64 carries the full stamp with the server's report, 16 to 47 the compact one")
	fl.IntVar(&f.flows, "flows", 0, "source/destination pairs; 0 = one per target and worker")
	fl.StringVar(&f.srcPort, "src-port", "", "source ports A-B; default: chosen by the kernel")
	fl.StringArrayVar(&f.src, "src", nil, "source address of this host; repeat for several")
	fl.StringVar(&f.family, "family", "any", "address family for names with both: any (IPv4 first), 4, 6")
	fl.IntVar(&f.workers, "workers", 1, "sending threads")
	fl.StringVar(&f.cpus, "cpus", "auto", "CPUs of the workers: a list such as 2,4-7; auto = the best ones of the NIC's node; none = not pinned")
	fl.BoolVar(&f.align, "align", false, "for this run, put the NIC's queues, interrupts, XPS and RSS where the workers are, and source ports where replies land on them; needs root")
	fl.IntVar(&f.batch, "batch", 0, "most packets offered to the kernel at once; 0 = the backend's default")
	fl.IntVar(&f.gso, "gso", 0, "packets per UDP_SEGMENT train; a train has one planned time. 0 = no trains")
	fl.BoolVar(&f.gro, "gro", false, "receive trains in one piece (UDP_GRO)")
	fl.BoolVar(&f.sqpoll, "sqpoll", false, "io_uring: a kernel thread sends, on a CPU of its own; its time counts as the worker's")
	fl.BoolVar(&f.zerocopy, "zerocopy", false, "io_uring: send from the program's memory; pays from about 1500 bytes on, or with trains. af_xdp: refuse to copy")
	fl.StringVar(&f.iface, "iface", "", "af_xdp, xdp_live: interface to send by; default: the one that the route to the target names")
	fl.IntVar(&f.queue, "queue", 0, "af_xdp: queue of the interface for the first worker; each further worker takes the next one")
	fl.StringVar(&f.catchUp, "catch-up", "burst", "late slots: burst (send them, a batch at a time), skip (abandon those later than --max-lag), abort")
	fl.StringVar(&f.wait, "wait", "hybrid", "between slots: hybrid (sleep, then spin) or spin")
	fl.DurationVar(&f.warmup, "warmup", 0, "send at the plan's first rate for this long before measuring")
	fl.IntVar(&f.rounds, "rounds", 1, "repeat the run; the headline is the median round")
	fl.DurationVar(&f.timeout, "timeout", time.Second, "a reply later than this after its planned time is late, none by then is lost")
	fl.DurationVar(&f.drain, "drain", 0, "wait for replies after the plan's end; 0 = 3 x the largest round trip, at least 100 ms, at most the timeout")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of everything random")
	fl.DurationVar(&f.maxLag, "max-lag", time.Millisecond, "largest lag p99.9 of a VALID run")
	fl.StringArrayVar(&f.slos, "slo", nil, "objective such as 'p99<5ms', 'loss<0.1%'; repeat. A miss exits 4")
	fl.StringVar(&f.payloadHex, "payload-hex", "", "payload for a foreign target, in hex")
	fl.StringVar(&f.payloadFile, "payload-file", "", "payload for a foreign target, from a file")
	fl.StringArrayVar(&f.vary, "vary", nil, "OFFSET:LEN:seq|rand|flow|time: overwrite these payload bytes in every packet; repeat")
	fl.StringVar(&f.match, "match", "", "OFFSET:LEN: bytes of a reply that name its request; they must be varied by seq")
	fl.BoolVar(&f.fragment, "fragment", false, "let the kernel fragment payloads above the path MTU instead of refusing them (DF off)")
	fl.BoolVar(&f.kernelStamp, "kernel-stamp", false, "take receive times from the kernel instead of the receiving thread")
	f.stampFlags.register(cmd)
	fl.IntVar(&f.sndbuf, "sndbuf", 0, "SO_SNDBUF in bytes; 0 = the system's default")
	fl.IntVar(&f.rcvbuf, "rcvbuf", 0, "SO_RCVBUF in bytes; 0 = 4 MiB")
	fl.StringVar(&f.out, "out", "", "write the JSON result to this file")
	fl.StringVar(&f.format, "format", "text", "on standard output: text, json, csv, hgrm, hlog, html (a page for a browser)")
	fl.StringVar(&f.shard, "shard", "", "I/N: this process is shard I (from 0) of N of one run; merge with blast report. Needs --run-id")
	fl.StringVar(&f.runID, "run-id", "", "name shared by the shards of one run; default: random")
	f.metricsFlags.register(cmd)
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the plan and the first packet, send nothing")
	fl.BoolVar(&f.authorized, "authorized", false, "you may load this public address: required for any target that is not private, loopback or link-local")
}

// registerBut takes the flags of blast udp into another command's, but for some, which keep their defaults.
func (f *udpFlags) registerBut(fl *pflag.FlagSet, not []string) {
	whole := &cobra.Command{}
	f.register(whole)
	whole.Flags().SortFlags = false
	whole.Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(not, flag.Name) {
			fl.AddFlag(flag)
		}
	})
}

func runUDP(ctx context.Context, f udpFlags, args []string) error {
	p, err := f.plan(ctx, args)
	if err != nil {
		return usage(err)
	}
	if f.dryRun {
		return p.describe(os.Stdout)
	}
	out, err := openOutput(f.out)
	if err != nil {
		return usage(err)
	}
	defer out.discard()
	names, err := f.openNames()
	if err != nil {
		return usage(err)
	}
	leave, err := f.serveMetrics(p)
	if err != nil {
		return usage(err)
	}
	defer leave(ctx)
	prepareProcess(p.engine.Workers)
	unalign, err := p.alignHost(f.align)
	if err != nil {
		return usage(err)
	}
	defer func() { reportUndo(unalign()) }()
	if p.auto != "" {
		fmt.Fprintf(os.Stderr, "backend auto: %s, because %s\n", p.entry.Name, p.auto)
	}
	res, runErr := p.run(ctx)
	if res == nil {
		return usage(explainWall(runErr))
	}
	if err := errors.Join(out.write(res, f.format, os.Stdout), writeNames(names, p.engine.Names)); err != nil {
		return err
	}
	return ended(res.Verdict, runErr)
}

// ended is how a command ends that has shown its result: by what broke the run off, and else as the verdict says.
func ended(v stats.Verdict, runErr error) error {
	if runErr != nil {
		return &exitError{exitRun, explainWall(runErr)}
	}
	if code := verdict.ExitCode(v); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// run executes every round and returns the headline: the only round, or the median one with all of them inside.
func (p *udpPlan) run(ctx context.Context) (*stats.Result, error) {
	var rounds []stats.Result
	var runErr error
	for n := range p.rounds {
		res, err := p.round(ctx, n)
		if res == nil {
			if len(rounds) == 0 {
				return nil, err
			}
			runErr = err
			break
		}
		rounds = append(rounds, *res)
		if runErr = err; err != nil || res.Interrupted != "" {
			break
		}
	}
	if len(rounds) == 1 {
		return &rounds[0], runErr
	}
	for i := range rounds {
		rounds[i].Round = i + 1
	}
	headline := rounds[stats.MedianRound(rounds)]
	headline.Rounds, headline.Spreads = rounds, stats.SpreadRounds(rounds)
	headline.Verdict = verdict.Judge(&headline, verdict.Limits{})
	return &headline, runErr
}

// execute lets the engine drive the backend, or the backend execute the plan.
func (p *udpPlan) execute(ctx context.Context, cfg engine.Config) (*stats.Result, error) {
	if p.offload != nil {
		return engine.RunOffload(ctx, cfg, p.offload.Open)
	}
	return engine.Run(ctx, cfg)
}

// round executes the plan once and judges it.
func (p *udpPlan) round(ctx context.Context, n int) (*stats.Result, error) {
	cfg := p.engine
	cfg.Epoch = p.epoch + uint8(n)
	cfg.Source = func(worker int) engine.Source { return p.source(worker, cfg.Epoch) }
	meter := tuning.Reader{}.StealMeter(p.usedCPUs())
	if meter.Start() == nil {
		defer meter.Close()
		cfg.Steal = func() float64 { share, _ := meter.Read(); return share }
	}
	live, done := p.watch(n)
	cfg.Live = live
	before, countErr := tuning.Reader{}.Counters(p.iface)
	res, err := p.execute(ctx, cfg)
	if res == nil {
		done(nil)
		return nil, err
	}
	if after, afterErr := (tuning.Reader{}).Counters(p.iface); countErr == nil && afterErr == nil {
		res.Counters = p.withSent(before.Delta(after))
	}
	res.RunID, res.Shard, res.Shards = p.runID, p.shard, p.shards
	res.Command, res.Config, res.Host = os.Args, p.config, p.host
	res.Backend.Name, res.Backend.Auto = p.entry.Name, p.auto
	for i := range res.Workers {
		if p.entry.Name == afxdp.Name {
			res.Workers[i].Queue = cfg.Backend.Queue + i
		}
		if w := &res.Workers[i]; w.CPU >= 0 {
			w.Node = tuning.Reader{}.NodeOf(w.CPU)
		}
	}
	p.calibrated(res)
	p.audit(res)
	res.Normalize()
	res.Verdict = verdict.Judge(res, verdict.Limits{})
	res.Normalize()
	done(res)
	return res, err
}
