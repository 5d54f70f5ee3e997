package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blast/engine"
	"blast/ladder"
	"blast/pace"
	"blast/packet"
	"blast/report"
	"blast/serve"
	"blast/stats"
	"blast/verdict"
)

// ladderFlags are the flags of blast ladder: those of blast udp that describe one run, and its own.
type ladderFlags struct {
	udpFlags
	from, by, to, resolution string
	step                     time.Duration
}

// notOfLadders are the flags of blast udp that a ladder does not take: it sets the rate itself, steps are its rounds, and models that wait
// for replies have no rate.
var notOfLadders = []string{"rate", "bitrate", "layer", "duration", "profile", "rounds", "model", "clients", "think", "senders", "max-in-flight", "co-correct",
	"names", "shard", "run-id", "format", "dry-run", "out"}

func ladderCommand() *cobra.Command {
	var f ladderFlags
	cmd := &cobra.Command{
		Use:   "ladder TARGET...",
		Short: "raise the rate until something gives, and say what it was: the target, an SLO or the generator",
		Long: `Run steps at rising rates against HOST:PORT until something gives, narrow that down, and end with a sentence: target saturated at X,
SLO broken at X, or generator full at X. A step that blast itself could not keep up with is void and says nothing about the target. A bad
step is repeated before it is believed, and before each step blast waits until the target answers as quickly as when it was idle.

  blast ladder 127.0.0.1:9000 --from 1k --step 5s                               as far as it goes
  blast ladder 10.0.0.2:9000 --from 10k --by x2 --to max --slo 'p99<5ms'        the highest rate that keeps an objective
  blast ladder 10.0.0.2:9000 --from 10k --by +10k --to 100k --out ladder.json   ten steps; show them again with blast report
  blast ladder 10.0.0.2:9000 --from 50k --mode oneway                           the generator's own limit alone

Exit codes: 0 the target's limit was found, or the top was reached with every SLO met; 1 run-time error; 2 usage; 3 the generator was the
wall, or nothing held: the target's limit is not known; 4 an SLO broke first.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no target: want blast ladder HOST:PORT --from 10k")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runLadder(cmd.Context(), f, args) },
	}
	f.registerLadder(cmd)
	return cmd
}

// registerLadder takes the flags of blast udp as they are defined there, but for notOfLadders.
func (f *ladderFlags) registerLadder(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.from, "from", "10k", "first rate, packets per second: one that the target surely holds")
	fl.StringVar(&f.by, "by", "x2", "from step to step: xFACTOR such as x2 or x1.5, or +RATE such as +10k")
	fl.StringVar(&f.to, "to", "max", "highest rate, or max: until something gives")
	fl.DurationVar(&f.step, "step", 10*time.Second, "length of the measured part of a step")
	fl.StringVar(&f.resolution, "resolution", "3%", "how near two rates lie, of which one held and one did not, when the search ends")
	f.registerBut(fl, notOfLadders)
	fl.Lookup("warmup").Usage = "send at the step's rate for this long before each step is measured"
	fl.Lookup("slo").Usage = "objective such as 'p99<5ms', 'loss<0.1%'; repeat. The ladder looks for the rate where one breaks, and exits 4"
	fl.StringVar(&f.profile, "profile", "const", "how the packets of a step are spread: const or poisson")
	fl.StringVar(&f.out, "out", "", "write the JSON of the ladder, every step a whole result, to this file")
	fl.StringVar(&f.format, "format", "text", "on standard output: text, json, csv (one row a step), html (a page to itself)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the steps and the time they take, send nothing")
}

func runLadder(ctx context.Context, f ladderFlags, args []string) error {
	c, err := f.climber(ctx, args)
	if err != nil {
		return usage(err)
	}
	if f.dryRun {
		return c.describe(os.Stdout)
	}
	out, err := openOutput(f.out)
	if err != nil {
		return usage(err)
	}
	defer out.discard()
	leave, err := f.serveMetrics(c.base)
	if err != nil {
		return usage(err)
	}
	defer leave(ctx)
	prepareProcess(c.base.engine.Workers)
	unalign, err := c.base.alignHost(f.align)
	if err != nil {
		return usage(err)
	}
	defer func() { reportUndo(unalign()) }()
	if c.base.auto != "" {
		fmt.Fprintf(os.Stderr, "backend auto: %s, because %s\n", c.base.entry.Name, c.base.auto)
	}
	fmt.Fprintln(os.Stderr, c.duration())
	l, runErr := c.run(ctx)
	if l == nil || len(l.Steps) == 0 {
		return cmp.Or(explainWall(runErr), errors.New("interrupted before the first step was finished: there is nothing to report"))
	}
	if err := printLadder(out, l, f.format); err != nil {
		return err
	}
	return ended(l.Verdict, runErr)
}

// climber runs the steps of one ladder.
type climber struct {
	flags  ladderFlags
	base   *udpPlan // the first step's; the others differ in schedule and epoch
	config ladder.Config
	asked  stats.LadderConfig
	args   []string
	epochs int // plans made so far
	calm   calm
}

// climber checks every flag and makes the ladder. Nothing is sent; all errors are bad input.
func (f *ladderFlags) climber(ctx context.Context, args []string) (*climber, error) {
	c := &climber{flags: *f, args: args}
	if err := f.checkLadder(); err != nil {
		return nil, err
	}
	cfg, err := f.search()
	if err != nil {
		return nil, err
	}
	run := f.udpFlags
	run.rate, run.duration, run.rounds = f.from, f.step, 1
	if c.base, err = run.plan(ctx, args); err != nil {
		return nil, err
	}
	if c.base.profile != nil {
		p := &c.base.config
		if row, ok := c.base.profile.Ceiling(c.base.entry.Name, max(f.gso, 1), p.PayloadBytes, p.Workers, p.Flows); ok {
			cfg.Ceiling = row.CeilingPPS
		}
	}
	c.flags.udpFlags = run
	cfg.Run, cfg.Settle, cfg.Progress = c.measure, c.settle, c.progress
	c.config = cfg
	if cfg.To > 0 { // whether the keys of a foreign protocol do for the top is known now
		if _, err := c.at(cfg.To, f.step, f.profile); err != nil {
			return nil, fmt.Errorf("--to %s: %w", stats.FormatPPS(cfg.To), err)
		}
	}
	c.asked = stats.LadderConfig{Targets: args, FromPPS: cfg.From, By: f.by, ToPPS: cfg.To, StepNS: int64(f.step), SLOs: append([]string{}, f.slos...), Resolution: cfg.Resolution}
	return c, nil
}

// search reads the rates, and what makes a ladder of them.
func (f *ladderFlags) search() (ladder.Config, error) {
	var cfg ladder.Config
	var err error
	if f.from == "max" {
		return cfg, errors.New("--from max: a ladder begins at a rate that the target surely holds, such as --from 10k; flat out is blast udp --rate max")
	}
	if cfg.From, err = plannedRate("from", f.from); err != nil {
		return cfg, err
	}
	if f.to != "max" {
		if cfg.To, err = plannedRate("to", f.to); err != nil {
			return cfg, err
		}
	}
	factor, times := strings.CutPrefix(f.by, "x")
	stride, plus := strings.CutPrefix(f.by, "+")
	switch {
	case times:
		if cfg.Factor, err = strconv.ParseFloat(factor, 64); err != nil {
			return cfg, fmt.Errorf("--by %q: want x and a factor, such as x2 or x1.5", f.by)
		}
	case plus && strings.Trim(stride, "0") != "":
		if cfg.Add, err = plannedRate("by", stride); err != nil {
			return cfg, err
		}
	case plus:
		return cfg, fmt.Errorf("--by %s: would never end; want a stride above 0, such as +10k", f.by)
	default:
		return cfg, fmt.Errorf("--by %q: want xFACTOR or +RATE, such as x2 or +10k", f.by)
	}
	cfg.Resolution, err = serve.ParseShare(f.resolution)
	switch {
	case err != nil:
		return cfg, fmt.Errorf("--resolution %q: want a percentage such as 3%%, from 0.5%% to 50%%", f.resolution)
	case !(cfg.Resolution >= 0.005 && cfg.Resolution <= 0.5):
		return cfg, fmt.Errorf("--resolution %s: want 0.5%% to 50%%, such as 3%%", f.resolution)
	}
	need := f.leastPackets()
	cfg.Floor = need.packets / f.step.Seconds()
	if cfg.From > 0 && cfg.From < cfg.Floor {
		return cfg, fmt.Errorf("--from %s with --step %v: %.0f packets a step, and %s; want --step %v, or --from %s at least", stats.FormatPPS(cfg.From), f.step,
			cfg.From*f.step.Seconds(), need.why, roundUp(time.Duration(need.packets/cfg.From*float64(time.Second))), stats.FormatPPS(cfg.Floor))
	}
	cfg.Run = func(context.Context, float64) (*stats.Result, error) { return nil, nil } // for the check; the real one comes with the plan
	return cfg, cfg.Check()
}

// plannedRate reads a rate of a ladder in packets a second. Flat out is none.
func plannedRate(flag, text string) (float64, error) {
	r, err := pace.ParseRate(text)
	if err == nil && r.PPS() == 0 {
		err = errors.New("a ladder has planned rates")
	}
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", flag, err)
	}
	return r.PPS(), nil
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// enough is how many packets a step must have, and for what.
type enough struct {
	packets float64
	why     string
}

const (
	// fewPackets is the least number of packets from which a target that falls behind by some percent can be told from chance.
	fewPackets = 100
	// tailPackets is how many packets a quantile should leave above it.
	tailPackets = 10
	shortStep   = 500 * time.Millisecond
)

// leastPackets is what the figures that were asked for need.
func (f *ladderFlags) leastPackets() enough {
	least := enough{fewPackets, fmt.Sprintf("whether a target keeps up takes %d", fewPackets)}
	for _, text := range f.slos {
		o, err := verdict.ParseSLO(text)
		if err != nil || o.Metric != "p" {
			continue
		}
		if n := tailPackets / (1 - o.Quantile); n > least.packets {
			least = enough{n, fmt.Sprintf("%s takes %.0f, of which %d lie above it", strings.SplitN(o.Text, "<", 2)[0], n, tailPackets)}
		}
	}
	return least
}

// checkLadder refuses what a ladder cannot use.
func (f *ladderFlags) checkLadder() error {
	switch {
	case f.step < shortStep:
		return fmt.Errorf("--step %v: a step shorter than %v is over before a target has settled; want %v or more, 10s is usual", f.step, shortStep, shortStep)
	case f.step > time.Hour:
		return fmt.Errorf("--step %v: want at most 1h", f.step)
	case f.profile != "const" && f.profile != "poisson":
		return fmt.Errorf("--profile %s: want const or poisson, which have one rate a step", f.profile)
	}
	if err := checkLadderFormat(f.format); err != nil {
		return err
	}
	for _, text := range f.slos {
		o, err := verdict.ParseSLO(text)
		switch {
		case err != nil:
			return fmt.Errorf("--slo: %w", err)
		case o.Metric == "loss" && o.Limit == 0 && !o.OrEqual:
			return fmt.Errorf("--slo %s: can never hold, no share is below 0 %%; for no loss at all say loss<=0%%", o.Text)
		case f.mode == stats.ModeOneway && o.Of != "lag" && o.Of != "gap":
			return fmt.Errorf("--slo %s: can never hold with --mode oneway, where nothing comes back; leave --mode oneway out", o.Text)
		case o.Of == "server" && o.Metric != "loss" && f.payload < packet.StampBytes:
			return fmt.Errorf("--slo %s: can never hold with --payload %d: the server's report needs %d bytes", o.Text, f.payload, packet.StampBytes)
		case o.Of == "latency" && o.Metric != "loss" && o.Limit > float64(f.timeout):
			return fmt.Errorf("--slo %s: lies above the --timeout of %v, by which a packet without a reply counts as lost; want --timeout %v or more", o.Text, f.timeout,
				time.Duration(o.Limit))
		}
	}
	return nil
}

// measure runs one step.
func (c *climber) measure(ctx context.Context, pps float64) (*stats.Result, error) {
	p, err := c.at(pps, c.flags.step, c.flags.profile)
	if err != nil {
		return nil, err
	}
	res, err := p.round(ctx, 0)
	if res != nil {
		c.left(res)
	}
	if res != nil && (ctx.Err() != nil || errors.Is(err, engine.ErrNothingSent)) {
		return res, nil // interrupted, or a step so disturbed that all of it was given up: its verdict says so
	}
	return res, err
}

// at is the plan of a step: the first one's again with another schedule. The sockets are new as well.
func (c *climber) at(pps float64, length time.Duration, profile string) (*udpPlan, error) {
	p := c.again()
	f := c.flags.udpFlags
	f.rate, f.duration, f.profile = rateText(pps), length, profile
	f.seed += uint64(c.epochs) // a repeat of the same random arrivals would not be one
	if err := f.planSchedule(p, nil); err != nil {
		return nil, err
	}
	if err := f.checkKeys(p); err != nil {
		return nil, err
	}
	p.engine.Interval = fineInterval(length)
	p.config.Seed = f.seed
	p.config.Profile, p.config.DurationNS = p.engine.Schedule.String(), int64(p.engine.Schedule.Length())
	return p, nil
}

// again is the first plan with an epoch that none before it had, so that no reply to those is taken for one to this.
func (c *climber) again() *udpPlan {
	c.epochs++
	p := *c.base
	p.epoch += uint8(c.epochs)
	return &p
}

// rateText is a rate as the flags of blast udp read it, exact to a thousandth of a packet a second.
func rateText(pps float64) string { return strconv.FormatFloat(pps, 'f', 3, 64) }

// run climbs, and fills what only this command knows.
func (c *climber) run(ctx context.Context) (*stats.Ladder, error) {
	started := time.Now()
	l, err := ladder.Run(ctx, c.config)
	if l == nil {
		return nil, err
	}
	l.Started, l.RunID, l.Command, l.Host, l.Config = started, c.base.runID, os.Args, c.base.host, c.asked
	return l, err
}

// printLadder writes l where it was asked for.
func printLadder(out *output, l *stats.Ladder, format string) error {
	return out.emit(format == "json", os.Stdout,
		func(w io.Writer) error { return renderLadder(w, l, format, isTerminal(os.Stdout)) },
		func(w io.Writer) error { return report.LadderJSON(w, l) })
}

// checkLadderFormat refuses a format that renderLadder does not know.
func checkLadderFormat(format string) error {
	switch format {
	case "text", "json", "csv", "html":
		return nil
	}
	return fmt.Errorf("--format %q: a ladder is shown as text, json, csv or html", format)
}

func renderLadder(w io.Writer, l *stats.Ladder, format string, color bool) error {
	switch format {
	case "json":
		return report.LadderJSON(w, l)
	case "csv":
		return report.LadderCSV(w, l)
	case "html":
		return report.HTMLLadder(w, l)
	}
	return report.Ladder(w, l, report.Options{Color: color})
}

// reportLadder shows a ladder again.
func reportLadder(l *stats.Ladder, format, path string) error {
	if err := checkLadderFormat(format); err != nil {
		return usage(err)
	}
	out, err := openOutput(path)
	if err != nil {
		return usage(err)
	}
	defer out.discard()
	return printLadder(out, l, format)
}

// progress prints a line a step on a terminal.
func (c *climber) progress(p ladder.Progress) {
	if !isTerminal(os.Stderr) {
		return
	}
	if p.Step == nil {
		fmt.Fprintf(os.Stderr, "step %d (at most %d), %s: %s asked ...\n", p.N, p.Most, p.Phase, stats.FormatPPS(p.PPS))
		return
	}
	fmt.Fprintf(os.Stderr, "\x1b[A\r\x1b[Kstep %d (at most %d), %s: %s asked, %s\n", p.N, p.Most, p.Phase, stats.FormatPPS(p.PPS), stepSays(p.Step))
}

// stepSays is a finished step in few words. One way there are no replies to speak of, and without a single one no latency.
func stepSays(x *stats.Step) string {
	got := stats.FormatPPS(x.Result.Rate.AchievedPPS) + " sent"
	if x.Result.Config.Mode == stats.ModeEcho {
		got = stats.FormatPPS(x.ThroughputPPS) + " replied"
	}
	if x.Result.Latency.Count > 0 {
		got += ", p99 " + stats.FormatNS(x.Result.Latency.P99)
	}
	return fmt.Sprintf("%s, generator at %.0f %% (%s): %s", got, 100*x.Water, x.WaterOf, report.OutcomeWord(x.Outcome))
}

// duration says how long it may take: what the steps of a whole climb take, and the most.
func (c *climber) duration() string {
	one := c.flags.step + c.flags.warmup
	climb, most := len(c.config.Rates()), c.config.MostSteps()
	wait := c.flags.timeout + c.patience()
	return fmt.Sprintf("ladder: %d steps of %v from %s up if nothing gives, about %v; at most %d with the search for the knee and repeats, %v, and %v if the target takes its time to become idle",
		climb, c.flags.step, stats.FormatPPS(c.config.From), (time.Duration(climb) * (one + 300*time.Millisecond)).Round(time.Second), most,
		(time.Duration(most) * (one + 300*time.Millisecond)).Round(time.Second), (time.Duration(most) * (one + wait)).Round(time.Second))
}

// describe prints the plan of a dry run.
func (c *climber) describe(w io.Writer) error {
	var b strings.Builder
	p := &c.base.config
	fmt.Fprintf(&b, "dry run: nothing was sent\ntargets   %s (%s)\nbackend   %s, %d worker(s), payload %d B, %s\n", strings.Join(p.Targets, ", "), p.Mode,
		c.base.entry.Name, p.Workers, p.PayloadBytes, c.flags.profile)
	b.WriteString("climb    ")
	for _, pps := range c.config.Rates() {
		b.WriteString(" " + strings.ReplaceAll(stats.FormatPPS(pps), " ", ""))
	}
	fmt.Fprintf(&b, "\nuntil     something gives; then the gap is halved to %s\n", stats.FormatPercent(c.config.Resolution))
	fmt.Fprintln(&b, c.duration())
	_, err := io.WriteString(w, b.String())
	return err
}
