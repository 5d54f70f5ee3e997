package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blast/backend"
	"blast/internal/sys"
	"blast/live"
	"blast/verdict"
)

// metricsFlags are the flags of the Prometheus page.
type metricsFlags struct {
	metrics string
	linger  time.Duration
}

func (f *metricsFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.metrics, "metrics", "", "serve the run's figures for Prometheus at http://HOST:PORT/metrics while it runs, with native histograms")
	cmd.Flags().DurationVar(&f.linger, "metrics-linger", 0, "with --metrics: after the end keep the page, which then has the result's own figures, for this long, so that it is "+
		"scraped once more: two scrape intervals do. Ctrl-C ends it")
}

// serveMetrics opens the page of a run, if one was asked for; errors are bad input. Once the result is printed, leave keeps the page for as
// long as --metrics-linger says and takes it down.
func (f *metricsFlags) serveMetrics(p *udpPlan) (leave func(context.Context), err error) {
	switch {
	case f.linger < 0:
		return nil, fmt.Errorf("metrics-linger %v: want 0 or more", f.linger)
	case f.metrics == "" && f.linger > 0:
		return nil, errors.New("--metrics-linger: there is no page to keep; say where with --metrics")
	case f.metrics == "":
		return func(context.Context) {}, nil
	}
	if _, port, err := net.SplitHostPort(f.metrics); err != nil || port == "" {
		return nil, fmt.Errorf("metrics %q: want HOST:PORT, such as 127.0.0.1:9091, or :9091 for all addresses", f.metrics)
	}
	cfg := live.Config{
		Addr: f.metrics, RunID: p.runID, Backend: p.entry.Name, Target: strings.Join(p.config.Targets, ","), Mode: p.config.Mode, Model: p.config.Model,
		Version: p.host.Blast, Codes: verdict.Codes(), Confine: confineTo(p.engine.ReceiveCPUs),
	}
	for c := range backend.NumCauses {
		cfg.Causes = append(cfg.Causes, backend.Cause(c).String())
	}
	page, err := live.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("--metrics %s: %w", f.metrics, err)
	}
	p.page = page
	fmt.Fprintf(os.Stderr, "metrics at http://%s/metrics\n", page.Addr())
	return func(ctx context.Context) {
		if page.Rounds() > 0 && f.linger > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(f.linger):
			}
		}
		if err := page.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "blast: %v\n", err)
		}
	}, nil
}

// confineTo keeps the making of a page on these CPUs; nil where there are none to choose.
func confineTo(cpus []int) func() func() {
	if len(cpus) == 0 {
		return nil
	}
	return func() func() {
		runtime.LockOSThread()
		restore, err := sys.Pin(cpus...)
		if err != nil { // it is a favour to the sending threads, and nothing depends on it
			restore = func() {}
		}
		return func() {
			restore()
			runtime.UnlockOSThread()
		}
	}
}
