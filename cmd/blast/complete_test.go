package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blast/internal/testskip"
)

// bashCompletion is the one function that the script of cobra wants of the package bash-completion: the words around the cursor. Here the cursor is
// behind the last word.
const bashCompletion = `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
__ltrim_colon_completions() { :; }
type() { echo builtin; } # which the function below is not
compopt() { [[ $* == *"+o default"* ]] && files=no; return 0; }
files=yes
source <(blast completion bash) || exit 1
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
__start_blast
printf '%s\n' "files=$files" "${COMPREPLY[@]}"
`

// TestCompletionBash: what a bash offers, by the script that blast prints for it.
func TestCompletionBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		testskip.Skip(t, "bash", err.Error(), "apt-get install bash")
	}
	for _, c := range []struct {
		why   string
		words []string
		want  string // what is offered, sorted; descriptions left out. "files" leaves it to bash to offer files
	}{
		{"a word that begins no command", []string{"ta"}, ""},
		{"a command", []string{"qu"}, "quickstart"},
		{"a hidden command is not offered", []string{"ma"}, ""},
		{"a command below another", []string{"tune", "re"}, "restore"},
		{"a flag", []string{"udp", "--max-l"}, "--max-lag"},
		{"every backend", []string{"udp", "--backend", ""}, "af_xdp auto io_uring net sendmmsg xdp_live"},
		{"those that fit", []string{"udp", "--backend", "x"}, "xdp_live"},
		{"in the other form", []string{"udp", "--backend=io"}, "io_uring"},
		{"the lab drives no offload", []string{"lab", "--backend", ""}, "af_xdp auto io_uring net sendmmsg"},
		{"what can be calibrated", []string{"calibrate", "--backend", ""}, "af_xdp io_uring net sendmmsg xdp_live"},
		{"an experiment", []string{"lab", "--only", "closed"}, "closed closed-20s"},
		{"schedules", []string{"udp", "--profile", ""}, "burst: const file: poisson ramp: step: tick:"},
		{"those of a ladder", []string{"ladder", "--profile", ""}, "const poisson"},
		{"modes of a run", []string{"udp", "--mode", ""}, "echo oneway"},
		{"modes of a target", []string{"serve", "udp", "--mode", ""}, "echo sink"},
		{"formats", []string{"udp", "--format", "h"}, "hgrm hlog html"},
		{"formats of a ladder", []string{"ladder", "--format", ""}, "csv html json text"},
		{"who receives", []string{"udp", "--receive", ""}, "auto socket xdp"},
		{"an interface", []string{"udp", "--iface", "l"}, "lo"},
		{"an interface to tune for", []string{"tune", "check", "--nic", "l"}, "lo"},
		{"no files where a number is wanted", []string{"udp", "--rate", ""}, ""},
		{"no files where a target is wanted", []string{"udp", ""}, ""},
		{"files where one is written", []string{"udp", "--out", "here."}, "files"},
		{"files where one is read", []string{"report", "here."}, "files"},
		{"a file behind a colon", []string{"udp", "--profile", "file:here."}, "files"},
	} {
		cmd := exec.Command(bash, append([]string{"--norc", "-o", "pipefail", "-c", bashCompletion, "bash", "blast"}, c.words...)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(os.Getenv(binaryVariable))+":"+os.Getenv("PATH"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", c.why, err, stderr.String())
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch word {
			case "", "files=no":
			case "files=yes":
				got = append(got, "files")
			default:
				got = append(got, word)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want || stderr.Len() > 0 {
			t.Errorf("%s: blast %s: %q, want %q; %s", c.why, strings.Join(c.words, " "), text, c.want, stderr.String())
		}
	}
}

// TestCompletionScripts: there is a script for each shell.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if o := blast(t, "completion", shell); o.code != exitOK || !strings.Contains(o.stdout, "__complete") {
			t.Errorf("%s: exit %d: %.200s%s", shell, o.code, o.stdout, o.stderr)
		}
	}
}

// TestCompletionWords: a word that is offered is one that is taken.
func TestCompletionWords(t *testing.T) {
	udp, _, err := rootCommand().Find([]string{"udp"})
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"layer", "family", "catch-up", "wait", "format", "mode", "cpus", "stamps", "model", "receive", "profile", "backend"} {
		offer, files := words(udp, flag)
		if files {
			t.Errorf("--%s offers files", flag)
			continue
		}
		list, _ := offer(udp, nil, "")
		if len(list) < 2 {
			t.Errorf("--%s offers %q", flag, list)
		}
		for _, word := range list {
			word, _, _ = strings.Cut(word, "\t")
			if strings.HasSuffix(word, ":") {
				continue // the beginning of one
			}
			args := []string{"udp", "127.0.0.1:9", "--dry-run", "--rate", "1k", "--" + flag, word}
			switch {
			case flag == "model" && word == "closed":
				args = []string{"udp", "127.0.0.1:9", "--dry-run", "--model", word, "--clients", "1"}
			case flag == "model" && word == "blocking":
				args = append(args, "--senders", "1")
			case flag == "mode", flag == "family" && word == "6", flag == "backend", flag == "receive" && word == "xdp":
				args = append(args, "--mode", "oneway") // what this machine cannot do is refused by another sentence
			}
			if o := blast(t, args...); o.code != exitOK && (strings.Contains(o.stderr, "want ") || strings.Contains(o.stderr, "unknown")) {
				t.Errorf("--%s %s is offered, and refused: %s", flag, word, o.stderr)
			}
		}
	}
}

// TestCompletionEverywhere: no flag offers all files by accident, but for those that take one.
func TestCompletionEverywhere(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" || f.Name == "help" {
				return
			}
			_, given := cmd.GetFlagCompletionFunc(f.Name)
			if _, files := words(cmd, f.Name); given == files {
				t.Errorf("%s --%s: words %v, files %v", cmd.CommandPath(), f.Name, given, files)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(rootCommand())
}
