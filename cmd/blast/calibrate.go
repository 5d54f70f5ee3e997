package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/backend/mmsg"
	"blast/calib"
	"blast/stats"
	"blast/tuning"
)

// loopback is the interface of the own sink.
const loopback = "lo"

// crowdOf is the number of flows in the rows for many of them.
const crowdOf = 1000

// trainOf is the number of packets of a train in the rows with trains.
const trainOf = 32

// calibrateFlags are the flags of blast calibrate, as given.
type calibrateFlags struct {
	quick, asJSON, authorized bool
	against, nic              string
	veth                      bool
	backends                  []string
	payloads, workers         []int
	budget                    time.Duration
}

func calibrateCommand() *cobra.Command {
	var f calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "measure what this machine can send, per backend, and store it: later runs are judged against it",
		Long: `Measure what this machine can send: for each backend that works here, each payload and number of workers, first flat out and then
the highest rate that ends VALID, confirmed in three rounds. By default against an own sink on loopback, which shows the software
path and not the NIC.

The result is stored below $XDG_STATE_HOME/blast (or ~/.local/state/blast) for this host: kernel, CPU, cores, virtualisation, governor
and NIC, in place of an earlier one. Later runs print their margin to it, and one above the ceiling is INVALID. Keep the machine idle
meanwhile.

  blast calibrate                                    under 3 minutes
  blast calibrate --quick                            under 20 s: 64 and 1400 bytes, one worker
  blast calibrate --veth                             over a veth pair that drops, instead of loopback (needs root)
  blast calibrate --against 10.0.0.2:9000            through the NIC, to blast serve udp --mode sink there
  blast calibrate --against 10.0.0.2:9000 --nic eth1 the same, af_xdp included
  blast calibrate --backend sendmmsg --payloads 200 --workers 1,2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCalibrate(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVar(&f.quick, "quick", false, "fewer rows and shorter trials, under 20 s")
	fl.StringVar(&f.against, "against", "", "ADDR:PORT of a blast serve udp --mode sink elsewhere; default: an own sink on loopback")
	fl.StringVar(&f.nic, "nic", "", "with --against: measure af_xdp too, through this interface, on which it may put an XDP program")
	fl.BoolVar(&f.veth, "veth", false, "against an XDP program that drops, over a veth pair in namespaces of its own: the nearest thing to a wire without a NIC")
	fl.StringSliceVar(&f.backends, "backend", nil, "only these backends: "+backendNames()+", with --veth "+offloadNames()+" too; default: all that work here")
	fl.IntSliceVar(&f.payloads, "payloads", nil, "UDP payload bytes; default 18,64,512,1400")
	fl.IntSliceVar(&f.workers, "workers", nil, "numbers of sending threads; default 1, 2, 4 ... and one for each CPU")
	fl.DurationVar(&f.budget, "budget", 0, "time for everything, shared over the rows; 0 = 2m30s, with --quick 15s")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON (blast.calibration/1) instead of the table")
	fl.BoolVar(&f.authorized, "authorized", false, "you may load this public address: required for --against one that is not private, loopback or link-local")
	return cmd
}

func runCalibrate(ctx context.Context, f calibrateFlags) error {
	cfg, err := f.config()
	if err != nil {
		return usage(err)
	}
	store, err := writableStore()
	if err != nil {
		return usage(err)
	}
	p, err := f.measure(ctx, cfg)
	if p == nil {
		return usage(explainWall(err))
	}
	show := p.Text
	if f.asJSON {
		show = p.JSON
	}
	if showErr := show(os.Stdout); showErr != nil {
		return errors.Join(err, showErr)
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was stored", err)
	}
	if err := store.Save(p); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "stored in %s\n", store.Path(p.Fingerprint))
	return nil
}

// writableStore is where calibrations are kept, known to take one before the minutes that making it costs.
func writableStore() (calib.Store, error) {
	store, err := calib.DefaultStore()
	if err != nil {
		return store, err
	}
	if err := store.Writable(); err != nil {
		return store, fmt.Errorf("%w; set XDG_STATE_HOME to a directory that takes files", err)
	}
	return store, nil
}

// measure makes the calibration of cfg, with its progress on a terminal, and stores nothing. p is nil when it could not begin; with an error
// beside it, it holds what was measured until then.
func (f *calibrateFlags) measure(ctx context.Context, cfg calib.Config) (p *calib.Profile, err error) {
	end, err := f.throughFrames(&cfg)
	if err != nil {
		return nil, err
	}
	progress, done := calibrateLine()
	cfg.Progress = progress
	p, err = calib.Run(ctx, cfg)
	done()
	return p, errors.Join(err, end())
}

// wallText names the wall behind an error in a sentence; "" where there is none.
func wallText(err error) string {
	if met, ok := (tuning.Reader{}).NameWall(err); ok {
		return "wall: " + met.Name + "; past it: " + met.Remedy
	}
	return ""
}

// config makes a calibration of the flags.
func (f *calibrateFlags) config() (calib.Config, error) {
	cfg := calib.Config{Payloads: f.payloads, Workers: f.workers, Budget: f.budget, Quick: f.quick, Steal: stealOf, Explain: wallText}
	iface := loopback
	if f.against != "" {
		var err error
		if cfg.Against, err = netip.ParseAddrPort(f.against); err != nil || cfg.Against.Port() == 0 {
			return cfg, fmt.Errorf("against %q: want ADDR:PORT, such as 10.0.0.2:9000 or [fd00::2]:9000", f.against)
		}
		if public(cfg.Against.Addr()) && !f.authorized {
			return cfg, fmt.Errorf("against %s is a public address; if you are allowed to load it, say so with --authorized", cfg.Against)
		}
		if iface, _, _, err = tuning.InterfaceFor(cfg.Against.Addr()); err != nil {
			return cfg, fmt.Errorf("against %s: %w", cfg.Against, err)
		}
	}
	var err error
	if cfg.Candidates, err = candidates(f.backends, f.quick, f.veth); err != nil {
		return cfg, err
	}
	if cfg.CPUs, err = (tuning.Reader{}).CPUs(); err != nil {
		return cfg, err
	}
	cfg.Host = tuning.Reader{}.Host(iface)
	cfg.Fingerprint = tuning.Fingerprint(cfg.Host)
	return cfg, nil
}

// candidates are the send paths of the named backends, or of all: plain ones in the order of the table, then those with trains
// and, but for a quick calibration, those of many flows. Backends that execute the plan themselves need an interface that is nobody else's, so
// they take part over the veth pair only.
func candidates(names []string, quick, veth bool) ([]calib.Candidate, error) {
	var plain, trains, crowds []calib.Candidate
	for _, b := range backends() {
		if names != nil && !slices.Contains(names, b.Name) {
			continue
		}
		c := calib.Candidate{Entry: b}
		if b.Name == afxdp.Name {
			c.Sink = netip.IPv6Loopback() // IPv4 frames put on lo reach no socket
		}
		plain = append(plain, c)
		if b.Name == mmsg.Name {
			trains = append(trains, calib.Candidate{Entry: b, GSO: trainOf})
		}
		if !quick {
			c.Flows = crowdOf
			crowds = append(crowds, c)
		}
	}
	for _, o := range offloads() {
		switch named := slices.Contains(names, o.Name); {
		case veth && (named || names == nil):
			plain = append(plain, calib.Candidate{Entry: backend.Entry{Name: o.Name, Probe: o.Probe}, Offload: o.Open})
		case named:
			return nil, fmt.Errorf("backend %s puts its programs on the interface: it is calibrated over a pair of its own, with --veth", o.Name)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(plain, func(c calib.Candidate) bool { return c.Entry.Name == n }) {
			return nil, fmt.Errorf("backend %q: want %s, %s", n, backendNames(), offloadNames())
		}
	}
	return slices.Concat(plain, trains, crowds), nil
}

// stealOf meters the CPU time taken away from cpus; where that cannot be known it reads 0, as runs do.
func stealOf(cpus []int) (read func() float64, stop func()) {
	meter := tuning.Reader{}.StealMeter(cpus)
	if meter.Start() != nil {
		return func() float64 { return 0 }, func() {}
	}
	return func() float64 { share, _ := meter.Read(); return share }, func() { meter.Close() }
}

// calibrateLine returns what prints a line a row on a terminal, rewritten while the row is measured, and what ends it. Without a
// terminal nothing is printed.
func calibrateLine() (func(calib.Progress), func()) {
	if !isTerminal(os.Stderr) {
		return nil, func() {}
	}
	return func(s calib.Progress) {
		name := s.Backend
		if s.GSO > 1 {
			name = fmt.Sprintf("%s gso %d", name, s.GSO)
		}
		if s.Flows > s.Workers {
			name = fmt.Sprintf("%s, %d flows", name, s.Flows)
		}
		line := fmt.Sprintf("\r\x1b[K%d/%d  %s, %d bytes, workers %d: ", s.Cell, s.Cells, name, s.PayloadBytes, s.Workers)
		switch {
		case s.Row != nil:
			stop, _, _ := strings.Cut(s.Row.Wall, ":")
			line += fmt.Sprintf("ceiling %s (%s)\n", stats.FormatPPS(s.Row.CeilingPPS), stop)
		case s.Failure != "":
			line += fmt.Sprintf("not measured: %s\n", s.Failure)
		case s.PPS > 0:
			line += fmt.Sprintf("%s at %s", s.Stage, stats.FormatPPS(s.PPS))
		default:
			line += s.Stage
		}
		fmt.Fprint(os.Stderr, line)
	}, func() { fmt.Fprint(os.Stderr, "\r\x1b[K") }
}
