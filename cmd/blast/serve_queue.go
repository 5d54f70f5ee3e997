package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blast/serve"
)

// queueFlags are the flags of blast serve udp that make it a queueing target.
type queueFlags struct {
	servers, capacity                         int
	service, jitter, delayBy                  time.Duration
	stalls                                    []string
	drop, dropReply, reorder, duplicate, late string
	seed                                      uint64
	truth                                     string
}

// queueNames are those flags, but for --servers, which turns the others on.
var queueNames = []string{"service", "jitter", "stall", "drop", "drop-reply", "reorder", "dup", "delay", "delay-by", "capacity", "seed", "truth"}

// faultNames are those that a target inside the kernel has too.
var faultNames = []string{"drop", "drop-reply", "reorder", "dup", "seed", "truth"}

func (f *queueFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.servers, "servers", 0, "be a queueing service with this many parallel servers and one FIFO queue; the flags below are its own")
	fl.DurationVar(&f.service, "service", 0, "service time of a request, held exactly")
	fl.DurationVar(&f.jitter, "jitter", 0, "draw service times evenly from service-jitter to service+jitter")
	fl.StringArrayVar(&f.stalls, "stall", nil, "FROM..TO: freeze everything then, counted from the first packet of a run, warm-up included; repeat")
	fl.StringVar(&f.drop, "drop", "0%", "share of requests dropped before service, as if lost on the way up; this and the next three, --seed and --truth also with --xdp")
	fl.StringVar(&f.dropReply, "drop-reply", "0%", "share of replies dropped after service, as if lost on the way down")
	fl.StringVar(&f.reorder, "reorder", "0%", "share of replies held until the next reply of their flow has left")
	fl.StringVar(&f.duplicate, "dup", "0%", "share of replies sent twice")
	fl.StringVar(&f.late, "delay", "0%", "share of replies sent later by --delay-by")
	fl.DurationVar(&f.delayBy, "delay-by", 100*time.Millisecond, "how much later a delayed reply leaves")
	fl.IntVar(&f.capacity, "capacity", 0, "most requests inside at once, what comes beyond is dropped; 0 = 65536")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of jitter and faults: the same sequence numbers are touched in every run")
	fl.StringVar(&f.truth, "truth", "", "write what the target did, by sequence number, to this file as JSON at the end")
}

// asked reports whether the flags ask for a queueing target, and refuses those that need one or that do not go with it.
func (f *queueFlags) asked(cmd *cobra.Command, inKernel bool) (bool, error) {
	set := cmd.Flags().Changed
	if !set("servers") {
		for _, name := range queueNames {
			if set(name) && !(inKernel && slices.Contains(faultNames, name)) {
				return false, fmt.Errorf("--%s describes a queueing service: it needs --servers", name)
			}
		}
		return false, nil
	}
	for _, name := range []string{"mode", "workers", "batch", "gro"} {
		if set(name) {
			return false, fmt.Errorf("--%s and --servers: a queueing service answers by one thread, a packet at a time; leave one out", name)
		}
	}
	if f.servers < 1 {
		return false, fmt.Errorf("servers %d: want 1 or more", f.servers)
	}
	return true, nil
}

// config makes the target of the flags and of those that it shares with the other modes.
func (f *queueFlags) config(shared *serve.Config) (serve.QueueConfig, error) {
	cfg := serve.QueueConfig{
		Allow: shared.Allow, CPUs: shared.CPUs, ReceiveBuffer: shared.ReceiveBuffer, Servers: f.servers, Service: f.service, Jitter: f.jitter,
		Capacity: f.capacity,
	}
	if len(shared.Listen) != 1 {
		return cfg, errors.New("--listen: a queueing service has one address")
	}
	cfg.Listen = shared.Listen[0]
	var err error
	if cfg.Faults, err = f.faults(); err != nil {
		return cfg, err
	}
	for _, text := range f.stalls {
		s, err := serve.ParseStall(text)
		if err != nil {
			return cfg, err
		}
		cfg.Stalls = append(cfg.Stalls, s)
	}
	return cfg, nil
}

// faults are those of the flags.
func (f *queueFlags) faults() (serve.Faults, error) {
	faults := serve.Faults{DelayBy: f.delayBy, Seed: f.seed}
	for _, s := range []struct {
		name, text string
		to         *float64
	}{
		{"drop", f.drop, &faults.Drop}, {"drop-reply", f.dropReply, &faults.DropReply}, {"reorder", f.reorder, &faults.Reorder},
		{"dup", f.duplicate, &faults.Duplicate}, {"delay", f.late, &faults.Delay},
	} {
		share, err := serve.ParseShare(s.text)
		if err != nil {
			return faults, fmt.Errorf("--%s: %w", s.name, err)
		}
		*s.to = share
	}
	return faults, nil
}

// openTruth makes the file of --truth before anything is served; nil without one.
func (f *queueFlags) openTruth() (*os.File, error) {
	if f.truth == "" {
		return nil, nil
	}
	file, err := os.Create(f.truth)
	if err != nil {
		return nil, fmt.Errorf("--truth: %w", err)
	}
	return file, nil
}

// run serves until ctx ends.
func (f *queueFlags) run(ctx context.Context, shared *serve.Config) error {
	cfg, err := f.config(shared)
	if err != nil {
		return usage(err)
	}
	file, err := f.openTruth()
	if err != nil {
		return usage(err)
	}
	defer file.Close()
	prepareProcess(1)
	srv, err := serve.ListenQueue(cfg)
	if err != nil {
		return usage(explainListen(err))
	}
	defer srv.Close()
	announce := func() {
		fmt.Printf("listening %s\nqueue for peers in %s: %s\n", srv.Addr(), prefixes(srv.Allow()), srv)
	}
	err = serveUntil(ctx, announce, srv.Run, func() error {
		truth := srv.Truth()
		fmt.Println(truth.String())
		return nil
	})
	if file != nil {
		truth := srv.Truth()
		err = errors.Join(err, truth.WriteJSON(file), file.Close())
	}
	return err
}
