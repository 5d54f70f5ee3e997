package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// subcommandOnly refuses a word that is no subcommand of cmd, as bad input, with what was probably meant.
func subcommandOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := nearest(args[0], names); near != "" {
		return usagef("unknown command %q for %q; did you mean %s %s?", args[0], cmd.CommandPath(), cmd.CommandPath(), near)
	}
	if _, _, err := net.SplitHostPort(args[0]); err == nil && cmd.Parent() == nil {
		return usagef("unknown command %q for %q; did you mean %s udp %s?", args[0], cmd.CommandPath(), cmd.CommandPath(), args[0])
	}
	return usagef("unknown command %q for %q: want %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// helpCommand is cobra's, but for words that are no commands: those are bad input.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "help on a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usage(err)
			}
			if len(rest) > 0 && found.HasSubCommands() {
				return subcommandOnly(found, rest)
			}
			return found.Help()
		},
	}
}

// noArgs refuses arguments, as bad input.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name := strings.TrimPrefix(cmd.CommandPath(), "blast ")
	if cmd.Flags().Lookup("listen") != nil {
		return usagef("%s takes no arguments, and %q is one; did you mean --listen %s?", name, args[0], args[0])
	}
	return usagef("%s takes no arguments, and %q is one; all flags: blast %s -h", name, args[0], name)
}

// flagError turns what the flag parser says into what to write instead.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && cmd.HasSubCommands() && cmd.Flags().NArg() > 0:
		return subcommandOnly(cmd, cmd.Flags().Args()) // the flag is not to blame: the word before it is no command
	case errors.As(err, &unknown):
		return usage(unknownFlag(cmd, unknown))
	case errors.As(err, &value):
		f := value.GetFlag()
		if want := wanted(f, value.GetValue()); want != "" {
			return usagef("--%s %q: want %s", f.Name, value.GetValue(), want)
		}
		return usagef("--%s %q: %w", f.Name, value.GetValue(), value.Unwrap())
	case errors.As(err, &missing):
		f := missing.GetFlag()
		return usagef("--%s needs a value: %s", f.Name, f.Usage)
	}
	return usage(err)
}

// unknownFlag says which flag was probably meant: one of that command that is spelt alike, one that other tools call so, or one of
// another command.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	if short := err.GetSpecifiedShortnames(); short != "" {
		return fmt.Errorf("unknown flag: -%s; flags have whole words and two dashes, such as --%s. All of them: %s -h", short, firstFlag(cmd), cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearest(name, names); near != "" {
		return fmt.Errorf("unknown flag: --%s; did you mean --%s?", name, near)
	}
	if called := elsewhere(name); called != "" && cmd.Flags().Lookup(called) != nil {
		return fmt.Errorf("unknown flag: --%s; here it is called --%s", name, called)
	}
	var others []string
	for _, sub := range cmd.Root().Commands() {
		if sub != cmd && sub.Flags().Lookup(name) != nil {
			others = append(others, sub.CommandPath())
		}
	}
	if others != nil {
		return fmt.Errorf("unknown flag: --%s; it is one of %s, not of %s", name, strings.Join(others, ", "), cmd.CommandPath())
	}
	return fmt.Errorf("unknown flag: --%s; all flags: %s -h", name, cmd.CommandPath())
}

// firstFlag is the flag that stands first in a command's help.
func firstFlag(cmd *cobra.Command) string {
	first := "help"
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if first == "help" {
			first = f.Name
		}
	})
	return first
}

// elsewhere is the flag that does what a flag of that name does in other load generators; "" for a name that nobody uses.
func elsewhere(name string) string {
	switch strings.ToLower(name) {
	case "pps", "qps", "rps", "tps", "speed":
		return "rate"
	case "bandwidth", "bps":
		return "bitrate"
	case "time", "seconds", "length", "run-time":
		return "duration"
	case "size", "len", "bytes", "packet-size", "payload-size", "msg-size":
		return "payload"
	case "threads", "cores":
		return "workers"
	case "connections", "concurrency", "sockets", "sessions", "streams", "parallel":
		return "flows"
	case "users", "vus":
		return "clients"
	case "port", "bind", "address", "addr", "host":
		return "listen"
	case "output", "file":
		return "out"
	case "interface", "dev", "device":
		return "iface"
	}
	return ""
}

// wanted says what a flag takes, with an example made of the value where one can be; "" for flags whose own error says it.
func wanted(f *pflag.Flag, value string) string {
	switch f.Value.Type() {
	case "duration":
		if digits(value) {
			return fmt.Sprintf("a time with its unit, such as %ss, %sms or %sm", value, value, value)
		}
		return "a time with its unit, such as 30s, 500ms, 2m or 1m30s"
	case "int", "uint", "uint64":
		return "a whole number, written in digits"
	case "intSlice":
		return "whole numbers with commas between them, such as 64,1400"
	case "bool":
		return "true or false, or the flag alone"
	}
	return ""
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// nearest is the name that word is most likely a misspelling of: one that it begins, of three letters at least, or the one that is the
// fewest edits away, at most two and at most a third of the word. "" when none is near.
func nearest(word string, names []string) string {
	best, least := "", min(2, len(word)/3)+1
	for _, name := range names {
		if len(word) >= 3 && strings.HasPrefix(name, word) {
			return name
		}
		if n := edits(strings.ToLower(word), name); n < least {
			best, least = name, n
		}
	}
	return best
}

// edits is the number of letters to insert, delete, replace or swap with their neighbour to make b of a (optimal string alignment).
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
