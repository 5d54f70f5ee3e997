package main

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"blast/agent"
)

// agentFlags are the flags of blast serve that tell a generator about this host.
type agentFlags struct {
	addr    string
	allow   []string
	running *agent.Server
}

func (f *agentFlags) register(cmd *cobra.Command) {
	fl := cmd.PersistentFlags()
	fl.StringVar(&f.addr, "agent", "", "ADDR:PORT on which to tell blast prove how busy this host is (HTTP, read-only), with a no-op echo on the UDP port of the same number")
	fl.StringArrayVar(&f.allow, "agent-allow", nil, "answer peers in this prefix; repeat. Replaces the default: loopback and the interface's own prefix")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return usage(f.start()) }
	cmd.PersistentPostRunE = func(*cobra.Command, []string) error { return f.stop() }
}

// start starts the agent, where there is to be one, and says where it is.
func (f *agentFlags) start() error {
	if f.addr == "" {
		if f.allow != nil {
			return fmt.Errorf("--agent-allow: says who may ask the agent, and there is none: want --agent ADDR:PORT")
		}
		return nil
	}
	at, err := netip.ParseAddrPort(f.addr)
	if err != nil {
		return fmt.Errorf("agent %q: want ADDR:PORT, such as 10.0.0.2:9101 or [::1]:9101: %w", f.addr, err)
	}
	cfg := agent.Config{Listen: at}
	if cfg.Allow, err = allowedPeers("agent-allow", f.allow); err != nil {
		return err
	}
	if f.running, err = agent.Start(cfg); err != nil {
		return err
	}
	fmt.Printf("agent %s for peers in %s; no-op echo on the UDP port of the same number\n", f.running.Addr(), prefixes(f.running.Allow()))
	return nil
}

func (f *agentFlags) stop() error {
	if f.running == nil {
		return nil
	}
	if n := f.running.Denied(); n > 0 {
		fmt.Fprintf(os.Stderr, "agent: connections of peers outside --agent-allow that were closed: %d\n", n)
	}
	return f.running.Close()
}

// alone runs the agent without a server, until ctx ends.
func (f *agentFlags) alone(cmd *cobra.Command) error {
	if f.running == nil {
		return cmd.Help()
	}
	<-cmd.Context().Done()
	return nil
}
