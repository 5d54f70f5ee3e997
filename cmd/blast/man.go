package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the manual pages, one for each command. They are made of what -h shows, so that they cannot fall behind it. It is for
// make install and packagers, and so it is hidden. The generator of cobra goes by Markdown: examples would lose their lines, 'p99<5ms' would
// become 'p99', quotes could not be copied, and nothing would be said of exit codes.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages of all commands to an existing directory", Hidden: true, DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d directories: want one, which must be there", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
	}
}

// writeManual writes the page of cmd and of all that is below it.
func writeManual(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	if err := os.WriteFile(filepath.Join(dir, manualName(cmd)+".1"), []byte(manual(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// manualName is a command as a word: blast-tune-check.
func manualName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual is one page in the man macros of roff (groff_man(7)).
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	name := manualName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"blast %s\" \"blast manual\"\n.nh\n.ad l\n", roff(strings.ToUpper(name)), roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n\\fB%s\\fR", roff(name), roffLine(cmd.Short), roff(cmd.CommandPath()))
	if rest := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath()); len(available(cmd)) > 0 {
		b.WriteString(" COMMAND")
	} else {
		b.WriteString(roff(rest))
		if !strings.Contains(rest, "[flags]") {
			b.WriteString(" [flags]")
		}
	}
	b.WriteString("\n.SH DESCRIPTION\n")
	long := cmd.Long
	if long == "" {
		long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	b.WriteString(roffText(long))
	if subs := available(cmd); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(manualName(sub)), roffLine(sub.Short))
		}
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { b.WriteString(roffFlag(f)) })
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { b.WriteString(roffFlag(f)) })
	}
	b.WriteString(manualEnd(cmd))
	return b.String()
}

// available are the commands below cmd that a user sees.
func available(cmd *cobra.Command) (list []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			list = append(list, sub)
		}
	}
	return list
}

// manualEnd is what every page ends with.
func manualEnd(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString(".SH EXIT STATUS\n")
	if cmd.HasParent() {
		b.WriteString("As in \\fBblast\\fR(1), where the description does not say more.\n")
	} else {
		for _, c := range []struct {
			code int
			says string
		}{
			{exitOK, "Valid, and every SLO met."}, {exitRun, "Run-time error."}, {exitUsage, "Usage: bad input, or something asked for that cannot work here."},
			{exitInvalid, "The run ended INVALID: the generator did not keep its plan."}, {exitSLO, "Valid, but an SLO failed."},
		} {
			fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", c.code, roffLine(c.says))
		}
	}
	var others []string
	if parent := cmd.Parent(); parent != nil {
		others = append(others, manualName(parent))
		for _, sub := range available(parent) {
			if sub != cmd {
				others = append(others, manualName(sub))
			}
		}
	}
	for _, sub := range available(cmd) {
		others = append(others, manualName(sub))
	}
	for i, other := range others {
		others[i] = "\\fB" + roff(other) + "\\fR(1)"
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(others, ",\n"))
	return b.String()
}

// roffFlag is one option with what it takes, what it does and what it is when left out.
func roffFlag(f *pflag.Flag) string {
	if f.Hidden {
		return ""
	}
	var b strings.Builder
	kind, usage := pflag.UnquoteUsage(f)
	b.WriteString(".TP\n")
	if f.Shorthand != "" {
		fmt.Fprintf(&b, "\\fB\\-%s\\fR, ", roff(f.Shorthand))
	}
	fmt.Fprintf(&b, "\\fB\\-\\-%s\\fR", roff(f.Name))
	if kind != "" {
		fmt.Fprintf(&b, " \\fI%s\\fR", roff(kind))
	}
	fmt.Fprintf(&b, "\n%s", roffLine(usage))
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
	default:
		fmt.Fprintf(&b, " (default %s)", roff(f.DefValue))
	}
	b.WriteByte('\n')
	return b.String()
}

// roffText is text in paragraphs. Lines that begin with spaces are examples and keep their form.
func roffText(text string) string {
	var b strings.Builder
	example, empty := false, false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			empty = true
			continue
		}
		indented := line[0] == ' ' || line[0] == '\t'
		switch {
		case indented && !example:
			b.WriteString(".PP\n.nf\n.RS 2\n")
		case !indented && example:
			b.WriteString(".RE\n.fi\n.PP\n")
		case empty && !indented && b.Len() > 0:
			b.WriteString(".PP\n")
		}
		example, empty = indented, false
		b.WriteString(roffLine(strings.TrimSpace(line)) + "\n")
	}
	if example {
		b.WriteString(".RE\n.fi\n")
	}
	return b.String()
}

// roffLine is roff at the beginning of a line, where . and ' would be a request.
func roffLine(text string) string {
	text = roff(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

// roff escapes text, so that what it shows can be copied into a shell: hyphens, quotes, carets and tildes stay those of ASCII.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n", " ").Replace(text)
}
