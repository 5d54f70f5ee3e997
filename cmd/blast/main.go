// Command blast is a UDP load generator whose every figure is about the target: a run that fell behind its own plan is INVALID.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes; scripts rely on them.
const (
	exitOK      = 0 // valid, SLOs met
	exitRun     = 1 // run-time error
	exitUsage   = 2 // bad input, or something asked for that cannot work here
	exitInvalid = 3 // the run ended INVALID
	exitSLO     = 4 // valid, but an SLO failed
)

// exitError carries an exit code through cobra. A nil err prints nothing: the result was printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as bad input.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// version is set by the linker (see build in the Makefile); empty in a build by hand.
var version string

func main() { os.Exit(run()) }

// run is main with an exit code, for tests that run the command in-process.
func run() int {
	ctx, stop := interruptible()
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(os.Stderr, "blast: %v\n", exit.err)
		}
		return exit.code
	}
	fmt.Fprintf(os.Stderr, "blast: %v\n", err)
	return exitRun
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM; the second ends the process at once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "blast: stopping; what was measured is reported. Once more to quit at once.")
		cancel()
		<-signals
		os.Exit(exitRun)
	}()
	return ctx, cancel
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "blast",
		Version: cmp.Or(version, "devel"), // -v and --version
		Short:   "UDP load whose every figure is about the target",
		Long: `blast sends UDP on an exact open-loop schedule and says whether it kept to it. A run that fell behind its own plan is called
INVALID, with the reasons and the rate that would have passed.

  blast quickstart                                  half a minute: what this machine can send, a first run, how to read it
  blast probe                                       what works on this machine, and what would fix the rest
  blast calibrate                                   what this machine can send, per backend: later runs are judged against it
  blast serve udp --mode echo --listen 127.0.0.1:9000
  blast udp 127.0.0.1:9000 --rate 50k --duration 30s
  blast ladder 127.0.0.1:9000 --from 10k            the rate at which something gives, and what it is
  blast prove 127.0.0.1:9000 --rate 50k             a slow target, or a slow generator: the evidence
  blast lab                                         whether its figures are right here: measured against computed

Exit codes: 0 valid and SLOs met, 1 run-time error, 2 usage, 3 INVALID, 4 valid but an SLO failed.`,
		SilenceUsage:  true,
		SilenceErrors: true, DisableFlagsInUseLine: true,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return printFirst(os.Stdout) },
	}
	root.SetVersionTemplate("blast {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(quickstartCommand(), calibrateCommand(), labCommand(), udpCommand(), serveCommand(), probeCommand(), reportCommand(), tuneCommand(), ladderCommand(), proveCommand(), manCommand())
	complete(root)
	return root
}
