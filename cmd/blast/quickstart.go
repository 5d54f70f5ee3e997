package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blast/calib"
	"blast/report"
	"blast/serve"
	"blast/stats"
	"blast/tuning"
)

// quickstartFlags are the flags of blast quickstart, as given.
type quickstartFlags struct {
	out      string
	duration time.Duration
	open     bool
}

const (
	// quickCalibration is about what a quick calibration takes.
	quickCalibration = 15 * time.Second
	// longestQuickRun keeps the whole below a minute.
	longestQuickRun = 30 * time.Second
	// quickName is how the files of a quickstart are called, before a number and the extension.
	quickName = "blast-quickstart"
	// rateUnmeasured is the rate of the run, pps, where no ceiling could be found.
	rateUnmeasured = 1000
)

func quickstartCommand() *cobra.Command {
	var f quickstartFlags
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "the first half minute: what this machine can send, a first run, and how to read its report",
		Long: `Learn blast by watching it once: it looks at what works here, measures what this machine can send (as blast calibrate --quick does, and
stores it; where blast calibrate took its minutes already, that counts), puts a third of that on an echo of its own on loopback, and
explains the report that comes of it. Half a minute in all; no root, no setting of the host is changed, and nothing is sent beyond loopback.

The report is written to the working directory, or --out, as a page (blast-quickstart.html) and as JSON for blast report. Files that are
there stay: the next ones get a number. Exits as blast udp does: 3 when the run ends INVALID, with what to do about it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runQuickstart(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.out, "out", ".", "directory for the report, which must be there")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "length of the run, at most 30s")
	fl.BoolVar(&f.open, "open", false, "open the page with xdg-open")
	return cmd
}

func runQuickstart(ctx context.Context, f quickstartFlags) error {
	if f.duration <= 0 || f.duration > longestQuickRun {
		return usagef("duration %v: want more than 0 and at most %v", f.duration, longestQuickRun)
	}
	if err := writableDir(f.out); err != nil {
		return usage(err)
	}
	store, err := writableStore()
	if err != nil {
		return usage(err)
	}
	kept := keptProfile(store)
	takes := f.duration + time.Second
	if kept == nil {
		takes += quickCalibration
	}
	fmt.Printf("blast quickstart: what this machine can send, a first run, and how to read its report. About %.0f s.\n\n", takes.Seconds())
	fmt.Printf("1 of 3  what works here\n        %s\n\n", worksLine())
	profile, err := quickCalibrate(ctx, store, kept)
	if err != nil {
		return err
	}
	res, err := quickRun(ctx, profile, f.duration)
	if res == nil {
		return usage(explainWall(err))
	}
	if shown := f.present(res); shown != nil {
		return errors.Join(err, shown)
	}
	return ended(res.Verdict, err)
}

// writableDir refuses a directory that takes no files, before the half minute that their content costs.
func writableDir(dir string) error {
	temp, err := os.CreateTemp(dir, "."+quickName+".*")
	if err != nil {
		return fmt.Errorf("--out %s: want a directory that takes files: %w", dir, err)
	}
	return errors.Join(temp.Close(), os.Remove(temp.Name()))
}

// worksLine lists the backends by whether they work here.
func worksLine() string {
	var yes, no []string
	for _, r := range probeAll() {
		if r.Works == "yes" {
			yes = append(yes, r.Backend)
		} else {
			no = append(no, r.Backend)
		}
	}
	text := strings.Join(yes, ", ")
	if len(no) > 0 {
		text += "; not " + strings.Join(no, ", ") + " (blast probe says why, and what would help)"
	}
	return text
}

// keptProfile is a stored calibration of loopback that a quick one is not to replace: a full one, which took minutes. nil where there is none.
func keptProfile(store calib.Store) *calib.Profile {
	p, err := store.Load(tuning.Fingerprint(tuning.Reader{}.Host(loopback)))
	if err != nil || p.Quick || bestSocket(p) == nil {
		return nil
	}
	return p
}

// quickCalibrate makes a quick calibration and stores it, unless kept is there. A machine too busy for one is no error here: the run
// that follows shows what that means. Stopping is one, with what was measured.
func quickCalibrate(ctx context.Context, store calib.Store, kept *calib.Profile) (*calib.Profile, error) {
	if kept != nil {
		fmt.Printf("2 of 3  what this machine can send at 64 bytes from one core, %s by blast calibrate\n%s\n\n", age(time.Since(kept.Created)), folded(ceilingsLine(kept), "        "))
		return kept, nil
	}
	fmt.Printf("2 of 3  what this machine can send: a sink of its own on loopback, %.0f s. Leave the machine alone meanwhile\n", quickCalibration.Seconds())
	flags := calibrateFlags{quick: true}
	cfg, err := flags.config()
	if err != nil {
		return nil, usage(err)
	}
	p, err := flags.measure(ctx, cfg)
	switch {
	case p == nil:
		return nil, usage(explainWall(err))
	case errors.Is(err, calib.ErrNothingMeasured):
		fmt.Printf("        nothing: every trial was interrupted. Something else keeps this machine busy; the run below is at a modest rate\n\n")
		return p, nil
	case err != nil:
		if line := ceilingsLine(p); line != "" {
			fmt.Printf("        until it was stopped:\n%s\n", folded(line, "        "))
		}
		return nil, fmt.Errorf("%w; nothing was stored or written", err)
	}
	if err := store.Save(p); err != nil {
		return nil, err
	}
	fmt.Printf("%s\n        at 64 bytes from one core; stored, so that later runs are judged against it\n", folded(ceilingsLine(p), "        "))
	if n := p.Disturbed(); n > 0 {
		fmt.Printf("        %d of %d figures are too low: the machine was busy with something else\n", n, len(p.Rows)+len(p.Failed))
	}
	fmt.Println()
	return p, nil
}

// quickRun puts load on an echo server of this process and judges it as blast udp does. The result is nil when nothing could be sent.
func quickRun(ctx context.Context, profile *calib.Profile, length time.Duration) (*stats.Result, error) {
	usable, err := tuning.Reader{}.CPUs()
	if err != nil {
		return nil, err
	}
	srv, err := startEcho(usable)
	if err != nil {
		return nil, err
	}
	addr := srv.Addrs()[0]
	f := defaultUDPFlags()
	f.duration, f.rate = length, fmt.Sprint(rateUnmeasured)
	if best := bestSocket(profile); best != nil {
		share := float64(calib.Margin)
		if len(usable) == 1 {
			share = 10 // the echo shares the CPU
		}
		f.backend, f.rate = best.Backend, shortRate(best.CeilingPPS/share)
	}
	p, err := f.plan(ctx, []string{addr.String()})
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	prepareProcess(p.engine.Workers)
	if _, err := p.alignHost(false); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	fmt.Printf("3 of 3  a run: %s for %v through %s, to an echo of its own on %s\n\n", stats.FormatPPS(p.engine.Schedule.MeanPPS()), length, p.entry.Name, addr)
	res, err := p.run(ctx)
	return res, errors.Join(err, srv.Close())
}

// startEcho serves echoes on a port of loopback that the kernel chooses, until it is closed.
func startEcho(usable []int) (*serve.Server, error) {
	cfg := serve.Config{Mode: serve.Echo, Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}}
	if len(usable) > 1 {
		cfg.CPUs = usable[:1] // the worker takes the last one
	}
	return serve.Start(cfg)
}

// present explains the result and writes its files.
func (f *quickstartFlags) present(res *stats.Result) error {
	var page, js bytes.Buffer
	if err := errors.Join(report.Heart(os.Stdout, res, report.Options{Color: isTerminal(os.Stdout)}), report.HTML(&page, res), report.JSON(&js, res)); err != nil {
		return err
	}
	fmt.Printf("\n%s\n", explained(res))
	files, err := newFiles(f.out, quickName, map[string][]byte{".html": page.Bytes(), ".json": js.Bytes()})
	if err != nil {
		return fmt.Errorf("%w; blast quickstart --out DIR writes elsewhere", err)
	}
	fmt.Printf("page      %s   (open it in a browser)\nresult    %s   (blast report shows it in full)\nnext      blast\n", files[".html"], files[".json"])
	if f.open {
		fmt.Println(openPage(files[".html"]))
	}
	return nil
}

// openPage lets the desktop open a file, and says what came of it. A browser that xdg-open becomes is left running.
func openPage(path string) string {
	const byHand = "; open the page by hand"
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return "opening   there is no xdg-open here" + byHand
	}
	cmd := exec.Command(opener, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in this terminal is not for it
	if err := cmd.Start(); err != nil {
		return fmt.Sprintf("opening   %v%s", err, byHand)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Sprintf("opening   xdg-open: %v%s", err, byHand)
		}
	case <-time.After(2 * time.Second):
	}
	return "opening   handed to xdg-open"
}
