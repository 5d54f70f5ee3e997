package main

import (
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blast/lab"
	"blast/stats"
)

// complete gives every command and flag below root what a shell may offer for it: the words of words, files where a file is wanted, and
// nothing elsewhere, where the default would be all files.
func complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		complete(cmd)
	}
	if root.ValidArgsFunction == nil && !root.HasSubCommands() && !takesFiles(root) {
		root.ValidArgsFunction = cobra.NoFileCompletions
	}
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" || f.Name == "help" {
			return
		}
		offer, files := words(root, f.Name)
		if files {
			return
		}
		// An error says that the command has no such flag, or that somebody who knows better registered words for it.
		_ = root.RegisterFlagCompletionFunc(f.Name, offer)
	})
}

// takesFiles says which commands have files or commands for arguments.
func takesFiles(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "report", "exec", "man":
		return true
	}
	return false
}

// words are what a flag of cmd takes, or files = true for names of files.
func words(cmd *cobra.Command, flag string) (offer cobra.CompletionFunc, files bool) {
	fixed := func(list ...string) (cobra.CompletionFunc, bool) {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp), false
	}
	switch flag {
	case "out", "names", "payload-file", "truth", "journal", "root":
		return nil, true
	case "backend":
		return fixed(backendWords(cmd)...)
	case "profile":
		return profileWords(cmd), false
	case "mode":
		return fixed(modeWords(cmd)...)
	case "format":
		return fixed(formatWords(cmd)...)
	case "receive":
		return fixed("auto\txdp with xdp_live, else socket", "socket\tthe backend's own", "xdp\ta program in the kernel")
	case "iface", "nic":
		return interfaceWords, false
	case "layer":
		return fixed("l1\twith preamble and gap", "l2\twith Ethernet header and FCS", "ip", "payload")
	case "model":
		return fixed(stats.ModelOpen+"\tthe plan alone decides", stats.ModelClosed+"\tclients that wait for replies", stats.ModelBlocking+"\ta plan, but senders that wait")
	case "family":
		return fixed("any", "4", "6")
	case "catch-up":
		return fixed("burst\tsend what is late", "skip\tabandon what is later than --max-lag", "abort\tend the run")
	case "wait":
		return fixed("hybrid\tsleep, then spin", "spin")
	case "stamps":
		return fixed("auto\tabout 1,000 packets a second", "off", "1/100\tone packet in a hundred")
	case "cpus":
		return fixed("auto", "none")
	case "for":
		return fixed("udp", "tcp")
	case "only":
		if cmd.Name() == "lab" {
			return fixed(lab.Names()...)
		}
	case "by":
		return fixed("x2", "x1.5", "+10k")
	case "to":
		return fixed("max\tuntil something gives")
	}
	return cobra.NoFileCompletions, false
}

// backendWords are the backends that a command can drive.
func backendWords(cmd *cobra.Command) []string {
	list := []string{"auto\twhat this host's calibration recommends, or the first that works"}
	for _, b := range backends() {
		list = append(list, b.Name)
	}
	about := "the plan runs inside the kernel"
	switch cmd.Name() {
	case "lab":
		return list
	case "calibrate":
		list, about = list[1:], "with --veth"
	}
	for _, o := range offloads() {
		list = append(list, o.Name+"\t"+about)
	}
	return list
}

// profileWords are the kinds of schedule; those that need more end in a colon, and no space follows. A file profile goes on with names of files.
func profileWords(cmd *cobra.Command) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		whole := []string{"const\tevenly", "poisson\tindependent arrivals"}
		if cmd.Name() != "udp" {
			return whole, cobra.ShellCompDirectiveNoFileComp
		}
		if strings.HasPrefix(typed, "file:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		more := []string{"ramp:\tFROM..TO/DUR, such as ramp:10k..200k/60s", "step:\tFROM+BY/DUR..TO, such as step:10k+10k/10s..100k",
			"burst:\tN@GAP, such as burst:100@10ms", "tick:\tHZ for every flow, such as tick:30", "file:\tPATH, lines of TIME,BYTES"}
		directive := cobra.ShellCompDirectiveNoFileComp
		for _, m := range more {
			if kind, _, _ := strings.Cut(m, "\t"); typed != "" && strings.HasPrefix(kind, typed) {
				directive |= cobra.ShellCompDirectiveNoSpace
			}
		}
		return append(whole, more...), directive
	}
}

func modeWords(cmd *cobra.Command) []string {
	switch {
	case cmd.Parent() != nil && cmd.Parent().Name() == "serve":
		return []string{"echo\tsend back", "sink\tcount"}
	case cmd.Name() == "prove":
		return []string{stats.ModeEcho}
	}
	return []string{stats.ModeEcho + "\treplies expected", stats.ModeOneway}
}

func formatWords(cmd *cobra.Command) []string {
	text, json, page := "text", "json", "html\ta page for a browser"
	switch cmd.Name() {
	case "ladder":
		return []string{text, json, "csv\tone row a step", page}
	case "prove":
		return []string{text, json, page}
	}
	return []string{text, json, "csv", "hgrm\tlatency by percentile", "hlog\tHdrHistogram log", page}
}

// interfaceWords are the interfaces of this host that are up.
func interfaceWords(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveError
	}
	var names []string
	for _, i := range list {
		if i.Flags&net.FlagUp != 0 {
			names = append(names, i.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
