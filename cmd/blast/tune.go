package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blast/pace"
	"blast/tuning"
	"blast/tuning/change"
)

// tuneFlags are the flags of blast tune, as given.
type tuneFlags struct {
	protocol, rate, nic, cpus      string
	connections, workers           int
	targets, sources               int
	root, journal, only, skip      string
	json, all, dryRun, force, near bool
	nofile                         uint64
}

func tuneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "read, judge, change and put back the host settings that a run can hit",
		Long: `What of this host is in the way of a load, and what would mend it.

  blast tune check                                              what stands out on this host
  blast tune check --for tcp --connections 100k --nic eth0      which wall comes first, and at what number
  blast tune apply --for udp --workers 4 --nic eth0 --dry-run   what would be changed
  blast tune status                                             what is changed now
  blast tune restore                                            put everything back
  blast tune exec --nofile 1048576 -- blast udp ...             a command with more open files

Every change is written to a journal before it is made, so that restore works after a crash too.`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tuneCheck(), tuneApply(), tuneRestore(), tuneStatus(), tunePlace(), tuneExec())
	return cmd
}

// workloadFlags are those that make findings specific.
func (f *tuneFlags) workloadFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.protocol, "for", "udp", "the load to come: udp or tcp")
	fl.Var((*countFlag)(&f.connections), "connections", "flows (udp) or connections (tcp): 2000, 100k, 1M")
	fl.StringVar(&f.rate, "rate", "", "packets (udp) or new connections (tcp) per second: 200k, 1.5M")
	fl.IntVar(&f.workers, "workers", 1, "sending threads")
	fl.StringVar(&f.nic, "nic", "", "interface that the load leaves by; default: that of the default route")
	fl.IntVar(&f.targets, "targets", 1, "different target addresses and ports")
	fl.IntVar(&f.sources, "sources", 1, "different source addresses")
	fl.StringVar(&f.root, "root", "", "read a host that is kept as files below this directory, instead of this one")
	fl.BoolVar(&f.json, "json", false, "print JSON")
}

func (f *tuneFlags) placeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.cpus, "cpus", "auto", "CPUs of the workers: a list such as 2,4-7; auto = the best of the NIC's node")
	cmd.Flags().BoolVar(&f.near, "beside", false, "interrupts beside the workers' cores, on the SMT sibling or a spare one, not on them")
}

// countFlag is a number of things, with k, M and G.
type countFlag int

func (c *countFlag) String() string { return fmt.Sprint(int(*c)) }
func (c *countFlag) Type() string   { return "count" }
func (c *countFlag) Set(text string) error {
	r, err := pace.ParseRate(text)
	if err != nil || r.PPS() != float64(int(r.PPS())) || strings.Contains(text, "/") {
		return fmt.Errorf("count %q: want a whole number such as 2000, 100k, 1M", text)
	}
	*c = countFlag(r.PPS())
	return nil
}

// load checks the flags and makes the workload.
func (f *tuneFlags) load() (tuning.Workload, error) {
	w := tuning.Workload{Protocol: f.protocol, Connections: f.connections, Workers: f.workers, Targets: f.targets, Sources: f.sources}
	switch {
	case f.protocol != "udp" && f.protocol != "tcp":
		return w, usagef("for %q: want udp or tcp", f.protocol)
	case f.workers < 1 || f.workers > 4096:
		return w, usagef("workers %d: want 1 to 4096", f.workers)
	case f.targets < 1 || f.sources < 1:
		return w, usagef("targets %d, sources %d: want 1 or more", f.targets, f.sources)
	case f.rate == "":
		return w, nil
	}
	r, err := pace.ParseRate(f.rate)
	if err != nil {
		return w, usage(err)
	}
	w.Rate = r.PPS()
	return w, nil
}

// iface is the named interface, or that of the default route.
func (f *tuneFlags) iface() string {
	if f.nic != "" || f.root != "" {
		return f.nic
	}
	// Any address outside of this host asks for the default route; this one is nobody's (RFC 5737). Nothing is sent.
	name, _, _, err := tuning.InterfaceFor(netip.AddrFrom4([4]byte{192, 0, 2, 1}))
	if err != nil {
		return ""
	}
	return name
}

func (f *tuneFlags) reader() tuning.Reader { return tuning.Reader{Root: f.root} }

func (f *tuneFlags) tuner() change.Tuner { return change.Tuner{Reader: f.reader(), Journal: f.journal} }

func tuneCheck() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "what stands out on this host, what was wanted, why, and the command that mends it",
		Long: `Judge this host's settings. With a workload, say which wall comes first and at what number. Nothing is changed, and no privilege is
needed: what cannot be read is marked. Exit code 3 when the workload is beyond a wall, 0 otherwise.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			w, err := f.load()
			if err != nil {
				return err
			}
			inv, err := f.reader().Inventory(f.iface())
			if err != nil {
				return usage(err)
			}
			findings := tuning.Check(inv, w)
			if f.json {
				err = printJSON(struct {
					Schema    string           `json:"schema"`
					Inventory tuning.Inventory `json:"inventory"`
					Findings  []tuning.Finding `json:"findings"`
				}{"blast.tune.check/1", inv, findings})
			} else {
				err = tuning.WriteFindings(os.Stdout, findings, w, f.iface(), f.all)
			}
			if err != nil {
				return err
			}
			if slices.ContainsFunc(findings, func(f tuning.Finding) bool { return f.Level == tuning.Wall }) {
				return &exitError{code: exitInvalid}
			}
			return nil
		},
	}
	f.workloadFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "what is fine too, in full")
	return cmd
}

func tuneApply() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "change what the workload needs; blast tune restore undoes it",
		Long:  "Change what the workload needs and what puts workers, queues and interrupts of the NIC together. The items:\n\n" + itemList(),
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			w, err := f.load()
			if err != nil {
				return err
			}
			items, err := f.items()
			if err != nil {
				return usage(err)
			}
			cpus, _, err := cpuList(f.cpus)
			if err != nil {
				return usage(err)
			}
			cfg := tuning.PlaceConfig{CPUs: cpus, Beside: f.near}
			out, p, err := f.tuner().Preview(w, f.iface(), cfg, items)
			if err != nil {
				return usage(err) // bad input, found before anything is changed
			}
			if f.dryRun {
				return f.printChanges("would change", out, &p)
			}
			s, err := f.tuner().Begin(os.Args)
			if err != nil {
				return err
			}
			if out, p, err = s.Align(w, f.iface(), cfg, items); err != nil {
				return err
			}
			if err := s.Close(); err != nil {
				return err
			}
			if err := f.printChanges("changed", out, &p); err != nil {
				return err
			}
			return refusedError(out)
		},
	}
	f.workloadFlags(cmd)
	f.journalFlag(cmd)
	f.placeFlags(cmd)
	cmd.Flags().StringVar(&f.only, "only", "", "only these items, such as irq,xps")
	cmd.Flags().StringVar(&f.skip, "skip", "", "all items but these")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the changes, make none")
	return cmd
}

func itemList() string {
	var b strings.Builder
	for _, i := range change.Items() {
		fmt.Fprintf(&b, "  %-9s %s\n", i, i.About())
	}
	return b.String() + "  (nofile    open files: per process, so by blast tune exec)"
}

// items are those of --only without those of --skip.
func (f *tuneFlags) items() ([]change.Item, error) {
	items, err := change.ParseItems(f.only)
	if err != nil || f.skip == "" {
		return items, err
	}
	skip, err := change.ParseItems(f.skip)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(items, func(i change.Item) bool { return slices.Contains(skip, i) }), nil
}

func (f *tuneFlags) journalFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.journal, "journal", "", "file of the journal; default: /var/lib/blast/tune.journal")
}

// refusedError counts what the kernel did not allow; each was printed.
func refusedError(out []change.Outcome) error {
	refused := 0
	for _, o := range out {
		if o.State == change.StateRefused {
			refused++
		}
	}
	if refused == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d changes were refused and left as they were; the others are made", refused, len(out))
}

// printChanges prints a diff of settings: what was there with -, what is wanted or there now with +.
func (f *tuneFlags) printChanges(did string, out []change.Outcome, p *tuning.Placement) error {
	if f.json {
		return printJSON(struct {
			Schema    string            `json:"schema"`
			Changes   []change.Outcome  `json:"changes"`
			Placement *tuning.Placement `json:"placement,omitempty"`
		}{"blast.tune.changes/1", out, p})
	}
	writeChanges(os.Stdout, did, out)
	if p != nil {
		for _, note := range p.Notes {
			fmt.Println("note:", note)
		}
	}
	return nil
}

func writeChanges(w io.Writer, did string, out []change.Outcome) {
	n := 0
	for _, o := range out {
		switch o.State {
		case change.StateAlready:
			continue
		case change.StateRefused:
			fmt.Fprintf(w, "%s\n  refused: %s\n", o.Key, o.Why)
			continue
		}
		n++
		fmt.Fprintf(w, "%s\n  - %s\n  + %s\n", o.Key, cut(o.Old), cut(o.New))
	}
	fmt.Fprintf(w, "%s: %d settings\n", did, n)
}

// cut keeps a value on its line of 100 columns.
func cut(v string) string {
	v = strings.Join(strings.Fields(v), " ")
	const most = 96
	if len(v) > most {
		return v[:most-3] + "..."
	}
	return v
}

func tuneRestore() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "put back everything that blast tune apply changed",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			out, err := f.tuner().Restore(f.force)
			if errors.Is(err, change.ErrNoJournal) {
				fmt.Fprintln(os.Stderr, "blast: nothing is applied, so there is nothing to put back")
				return nil
			}
			if f.json {
				return errors.Join(f.printChanges("", out, nil), err)
			}
			for _, o := range out {
				line := fmt.Sprintf("%-9s %s", o.State, o.Key)
				if o.Why != "" {
					line += ": " + o.Why
				}
				fmt.Println(line)
			}
			return err
		},
	}
	f.journalFlag(cmd)
	cmd.Flags().StringVar(&f.root, "root", "", "the directory that apply was given")
	cmd.Flags().BoolVar(&f.force, "force", false, "also what somebody else changed since")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func tuneStatus() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "what is changed now, by whom, and whether it still holds",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := f.tuner().Status()
			if errors.Is(err, change.ErrNoJournal) {
				fmt.Println("nothing is applied")
				return nil
			}
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(s)
			}
			fmt.Printf("applied by process %d at %s: %s\n", s.Header.PID, s.Header.Started.Format("2006-01-02 15:04:05 UTC"), strings.Join(s.Header.Command, " "))
			if s.Rebooted {
				fmt.Println("the host was rebooted since: its settings went back by themselves; blast tune restore clears the journal")
			}
			if s.Busy {
				fmt.Println("that process is at work and puts its changes back itself")
			}
			for _, o := range s.Changes {
				fmt.Printf("%-9s %s: %s -> %s %s\n", o.State, o.Key, cut(o.Old), cut(o.New), o.Why)
			}
			return nil
		},
	}
	f.journalFlag(cmd)
	cmd.Flags().StringVar(&f.root, "root", "", "the directory that apply was given")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func tunePlace() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "place",
		Short: "which cores, queues and interrupts the workers would get, and where they are now",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := f.load(); err != nil {
				return err
			}
			cpus, _, err := cpuList(f.cpus)
			if err != nil {
				return usage(err)
			}
			inv, err := f.reader().Inventory(f.iface())
			if err != nil {
				return usage(err)
			}
			p, err := tuning.Place(inv, tuning.PlaceConfig{Workers: f.workers, CPUs: cpus, Beside: f.near})
			if err != nil {
				return usage(err)
			}
			audit := tuning.AuditSeats(inv, p.Seats)
			if f.json {
				return printJSON(struct {
					Schema    string           `json:"schema"`
					Placement tuning.Placement `json:"placement"`
					Audit     []tuning.Audit   `json:"audit"`
				}{"blast.tune.place/1", p, audit})
			}
			if err := tuning.WriteAudit(os.Stdout, audit); err != nil {
				return err
			}
			fmt.Printf("GOMAXPROCS %d, spare CPUs %s, other interrupts to %s\n", p.GOMAXPROCS, cmp.Or(tuning.FormatCPUs(p.Spare), "none"),
				cmp.Or(tuning.FormatCPUs(p.Housekeeping), "any"))
			for _, note := range p.Notes {
				fmt.Println("note:", note)
			}
			return nil
		},
	}
	f.workloadFlags(cmd)
	f.placeFlags(cmd)
	return cmd
}

func tuneExec() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "exec --nofile N -- COMMAND...",
		Short: "run a command with more open files; nothing of the host is changed",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no command: want blast tune exec --nofile 1048576 -- blast udp ...")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if f.nofile == 0 {
				return usagef("--nofile: want the number of open files, such as 1048576")
			}
			return change.Exec(f.nofile, args)
		},
	}
	cmd.Flags().Uint64Var(&f.nofile, "nofile", 0, "open files that the command may have")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
