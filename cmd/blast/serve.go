package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"blast/serve"
	"blast/tuning"
)

func serveCommand() *cobra.Command {
	var a agentFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "be the target: a no-op sink or an echo server; or tell a generator about this host (--agent)", Args: subcommandOnly, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.alone(cmd) },
		Long: `Be the target of a load: blast serve udp. With --agent, alone or beside it, also tell blast prove how busy this host is, which counters of
losses moved and what time it has, and offer it a no-op to compare the target with. The agent's line "agent ADDR" then comes first.

  blast serve udp --mode echo --listen 10.0.0.2:9000 --agent 10.0.0.2:9101
  blast serve --agent 10.0.0.2:9101                          beside a target of your own
  curl -s http://10.0.0.2:9101/                              what it says`,
	}
	a.register(cmd)
	cmd.AddCommand(serveUDPCommand())
	return cmd
}

func serveUDPCommand() *cobra.Command {
	var cfg serve.Config
	var mode, cpus string
	var inKernel bool
	var listen, allow []string
	var queue queueFlags
	cmd := &cobra.Command{
		Use:   "udp",
		Short: "receive UDP: count it (sink), send it back (echo), or be a service with a queue (--servers)",
		Long: `Receive UDP and count it (sink) or send it back (echo). Prints "listening ADDR" for every address first, its counts on SIGUSR1 and at the
end (SIGINT or SIGTERM). Only peers inside --allow are served: by default loopback and the prefix of the interface that owns the
listen address, so that it is nobody's reflector.

  blast serve udp --mode echo --listen 127.0.0.1:9000
  blast serve udp --mode sink --listen '[::]:9000' --workers 4 --allow fd00::/8
  blast serve udp --xdp --listen 10.0.0.2:9000                                      inside the kernel; with --drop 1% --dup 1% a faulty one
  blast serve udp --servers 16 --service 5ms --stall 5s..7s --drop 1% --seed 7      a service whose right latencies can be computed`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			queued, err := queue.asked(cmd, inKernel)
			if err != nil {
				return usage(err)
			}
			if cfg.Mode, err = serve.ParseMode(mode); err != nil {
				return usage(err)
			}
			if cfg.Listen, err = listenAddrs(listen); err != nil {
				return usage(err)
			}
			if cfg.Allow, err = allowedPeers("allow", allow); err != nil {
				return usage(err)
			}
			if cfg.CPUs, err = serveCPUs(cpus); err != nil {
				return usage(err)
			}
			if cfg.Workers < 1 || cfg.Workers > 256 {
				return usagef("workers %d: want 1 to 256", cfg.Workers)
			}
			if inKernel && (queued || cfg.Workers > 1 || cfg.GRO || cfg.CPUs != nil) {
				return usagef("--xdp serves on whatever CPU a packet comes to: leave --servers, --workers, --cpus and --gro out")
			}
			if inKernel {
				return queue.runXDP(cmd.Context(), serve.XDPConfig{Mode: cfg.Mode, Listen: cfg.Listen, Allow: cfg.Allow})
			}
			if queued {
				return queue.run(cmd.Context(), &cfg)
			}
			return runServe(cmd.Context(), cfg)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&mode, "mode", "echo", "sink (count) or echo (send back, with our stamp's server fields filled)")
	fl.StringArrayVar(&listen, "listen", []string{"127.0.0.1:9000"}, "ADDR:PORT; repeat for several; port 0 lets the kernel choose")
	fl.IntVar(&cfg.Workers, "workers", 1, "sockets and threads per address (SO_REUSEPORT)")
	fl.StringVar(&cpus, "cpus", "none", "CPUs of the workers, in turn: a list such as 0,2-3; auto = all this process may use; none = not pinned")
	fl.StringArrayVar(&allow, "allow", nil, "serve peers in this prefix; repeat. Replaces the default")
	fl.IntVar(&cfg.Batch, "batch", 0, "most datagrams per system call; 0 = 64")
	fl.IntVar(&cfg.ReceiveBuffer, "rcvbuf", 0, "SO_RCVBUF per socket in bytes; 0 = 4 MiB")
	fl.BoolVar(&inKernel, "xdp", false, "serve inside the kernel, by XDP programs on the interfaces that own the addresses: no socket, no wake-up")
	fl.BoolVar(&cfg.GRO, "gro", false, "receive and return trains in one piece (UDP_GRO)")
	queue.register(cmd)
	return cmd
}

// serveCPUs parses --cpus of a server; auto is every CPU that it may use.
func serveCPUs(text string) ([]int, error) {
	list, auto, err := cpuList(text)
	if err != nil || list == nil && !auto {
		return nil, err
	}
	usable, err := tuning.Reader{}.CPUs()
	if err != nil {
		return nil, err
	}
	if auto {
		return usable, nil
	}
	return list, checkCPUs(text, list, usable)
}

// listenAddrs parses --listen.
func listenAddrs(list []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, text := range list {
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("listen %q: want ADDR:PORT, such as 127.0.0.1:9000%s", text, listenInstead(text))
		}
		out = append(out, a)
	}
	return out, nil
}

// allowedPeers parses the prefixes of a flag.
func allowedPeers(flag string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s %q: want a prefix such as 10.0.0.0/8: %w", flag, text, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// listenInstead says what would be an address to listen on in place of text.
func listenInstead(text string) string {
	host, port, err := net.SplitHostPort(text)
	switch {
	case digits(text):
		return fmt.Sprintf("; for peers on this host 127.0.0.1:%s, for peers elsewhere too 0.0.0.0:%s or [::]:%s", text, text, text)
	case err == nil && host == "":
		return fmt.Sprintf("; for peers on this host 127.0.0.1:%s, for peers elsewhere too 0.0.0.0:%s or [::]:%s", port, port, port)
	case err == nil:
		return fmt.Sprintf("; an address and no name, and a port from 0 to 65535. For this host: 127.0.0.1:%s", port)
	}
	return " or [::1]:9000"
}

// explainListen adds what is in the way of a socket that is to listen, and how to get past it.
func explainListen(err error) error {
	wall, past := "", ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		wall, past = "EADDRINUSE: another process listens there", "another port, or 0 and the kernel chooses one; ss -ulpn says who it is"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		wall, past = "EADDRNOTAVAIL: no interface of this host has that address", "ip address lists those it has; 0.0.0.0 and [::] are all of them"
	case errors.Is(err, syscall.EACCES):
		wall, past = "EACCES: low ports are for root", "a port from 1024 on, or CAP_NET_BIND_SERVICE"
	default:
		return explainWall(err)
	}
	return fmt.Errorf("%w\n  wall: %s\n  past it: %s", err, wall, past)
}

// runServe serves until ctx ends.
func runServe(ctx context.Context, cfg serve.Config) error {
	prepareProcess(cfg.Workers * len(cfg.Listen))
	srv, err := serve.Listen(cfg)
	if err != nil {
		return usage(explainListen(err))
	}
	defer srv.Close()
	announce := func() { fmt.Printf("%s%s for peers in %s\n", listening(srv.Addrs()), cfg.Mode, prefixes(srv.Allow())) }
	return serveUntil(ctx, announce, srv.Run, func() error {
		fmt.Println(srv.Counts())
		return nil
	})
}

// runXDP serves inside the kernel until ctx ends; the programs are gone when it returns, and also when the process dies.
func (f *queueFlags) runXDP(ctx context.Context, cfg serve.XDPConfig) error {
	var err error
	if cfg.Faults, err = f.faults(); err != nil {
		return usage(err)
	}
	file, err := f.openTruth()
	if err != nil {
		return usage(err)
	}
	defer file.Close()
	srv, err := serve.ListenXDP(cfg)
	if err != nil {
		return usage(explainWall(err))
	}
	defer srv.Close()
	announce := func() {
		fmt.Printf("%s%s inside the kernel for peers in %s\n", listening(srv.Addrs()), cfg.Mode, prefixes(srv.Allow()))
		for _, note := range srv.Notes() {
			fmt.Println(note)
		}
	}
	err = serveUntil(ctx, announce, srv.Run, func() error {
		c, err := srv.Counts()
		fmt.Println(c)
		return err
	})
	truth, truthErr := srv.Truth()
	if len(truth.Runs) > 0 {
		fmt.Println(truth.String())
	}
	if file != nil {
		truthErr = errors.Join(truthErr, truth.WriteJSON(file), file.Close())
	}
	return errors.Join(err, truthErr)
}

// serveUntil announces a server, runs it until ctx ends, and shows its counts on every SIGUSR1 and at the end.
func serveUntil(ctx context.Context, announce func(), run func(context.Context) error, show func() error) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1) // before anybody can know that the server is there
	defer signal.Stop(asked)
	announce()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	for {
		select {
		case <-asked:
			if err := show(); err != nil {
				return err
			}
		case err := <-ended:
			return errors.Join(err, show())
		}
	}
}

// listening is the line for each address that whoever starts a server waits for.
func listening(addrs []netip.AddrPort) string {
	var b strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&b, "listening %s\n", a)
	}
	return b.String()
}

// prefixes lists prefixes for people.
func prefixes(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}
