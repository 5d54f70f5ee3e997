package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"blast/lab"
	"blast/tuning"
)

// labFlags are the flags of blast lab, as given.
type labFlags struct {
	backend  string
	only     []string
	attempts int
	budget   time.Duration
	asJSON   bool
}

func labCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "measure what has a right answer on this machine, and print measured against computed",
		Long: `Run the known cases of load testing against blast's own queueing service on loopback, and hold what was measured against what was
computed: a stall under open, closed and blocking load, a generator that is the bottleneck, caps, Little's law, the coordinated omission
correction, shards, and faults by seed, each packet by name. Under 2 minutes; keep the machine idle meanwhile.

An experiment that fails is tried again, since a neighbour can spoil a run; what passing means stays the same. Exits 3 when one fails.
On a machine that others use too, real-time priority keeps them out: chrt -f 20 blast lab

Experiments: ` + strings.Join(lab.Names(), ", ") + ".",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLab(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringSliceVar(&f.only, "only", nil, "only these experiments")
	fl.StringVar(&f.backend, "backend", "auto", "send path: auto, "+backendNames())
	fl.IntVar(&f.attempts, "attempts", 3, "how often an experiment may be tried until it passes")
	fl.DurationVar(&f.budget, "budget", 110*time.Second, "nothing is tried again that would not end within this time")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON instead of the table")
	return cmd
}

func runLab(ctx context.Context, f labFlags) error {
	if f.attempts < 1 || f.budget <= 0 {
		return usagef("--attempts wants 1 or more, --budget more than 0")
	}
	entry, _, err := choose(f.backend, "")
	if err != nil {
		return usage(err)
	}
	cpus, err := tuning.Reader{}.CPUs()
	if err != nil {
		return usage(err)
	}
	prepareProcess(4)
	cfg := lab.Config{Open: entry.Open, CPUs: cpus, Attempts: f.attempts, Budget: f.budget, Only: f.only}
	if isTerminal(os.Stderr) {
		cfg.Progress = func(e *lab.Experiment) {
			if !e.Done {
				fmt.Fprintf(os.Stderr, "%s: attempt %d\n", e.Name, e.Attempts)
			}
		}
	}
	began := time.Now()
	all, err := lab.Run(ctx, cfg)
	if all == nil {
		return usage(err)
	}
	show := labText
	if f.asJSON {
		show = labJSON
	}
	passed, showErr := show(os.Stdout, all, entry.Name, time.Since(began))
	switch {
	case err != nil || showErr != nil:
		return errors.Join(err, showErr)
	case !passed:
		return &exitError{code: exitInvalid}
	}
	return nil
}

// labText prints every check and reports whether all experiments passed.
func labText(w io.Writer, all []*lab.Experiment, backend string, took time.Duration) (bool, error) {
	var b strings.Builder
	passed, checks := 0, 0
	for _, e := range all {
		word := "FAIL"
		if e.OK() {
			word = "pass"
			passed++
		}
		fmt.Fprintf(&b, "%s  %s: %s (%.1f s", word, e.Name, e.About, e.Took.Seconds())
		if e.Attempts > 1 {
			fmt.Fprintf(&b, ", attempt %d", e.Attempts)
		}
		b.WriteString(")\n")
		rows := [][]string{{"", "", "measured", "computed", "allowed"}}
		for _, c := range e.Checks {
			checks++
			mark := "  ok  "
			if !c.OK {
				mark = "  FAIL"
			}
			rows = append(rows, []string{mark, c.What, c.Measured, c.Computed, c.Allowed})
		}
		columns(&b, rows)
		switch {
		case e.Err != nil:
			fmt.Fprintf(&b, "        could not be run: %v\n", e.Err)
		case !e.OK():
			fmt.Fprintf(&b, "        the machine meanwhile: %s\n", e.Noise)
		}
		for i, why := range e.Earlier {
			fmt.Fprintf(&b, "        attempt %d failed by %s\n", i+1, why)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d of %d experiments passed, %d checks, by %s, in %.0f s\n", passed, len(all), checks, backend, took.Seconds())
	_, err := io.WriteString(w, b.String())
	return passed == len(all), err
}

// columns writes rows with the first two columns to the left and the others to the right.
func columns(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 2 {
				line += cell + space + "  "
			} else {
				line += space + cell + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// labJSON prints the same as JSON.
func labJSON(w io.Writer, all []*lab.Experiment, backend string, took time.Duration) (bool, error) {
	type check struct {
		What     string `json:"what"`
		Measured string `json:"measured"`
		Computed string `json:"computed"`
		Allowed  string `json:"allowed"`
		OK       bool   `json:"ok"`
	}
	type row struct {
		Name     string   `json:"name"`
		About    string   `json:"about"`
		OK       bool     `json:"ok"`
		Attempts int      `json:"attempts"`
		Earlier  []string `json:"earlier"`
		TookNS   int64    `json:"took_ns"`
		Noise    string   `json:"noise"`
		Error    string   `json:"error,omitempty"`
		Checks   []check  `json:"checks"`
	}
	out := struct {
		Schema      string `json:"schema"`
		Backend     string `json:"backend"`
		TookNS      int64  `json:"took_ns"`
		OK          bool   `json:"ok"`
		Experiments []row  `json:"experiments"`
	}{Schema: "blast.lab/1", Backend: backend, TookNS: int64(took), OK: true}
	for _, e := range all {
		r := row{Name: e.Name, About: e.About, OK: e.OK(), Attempts: e.Attempts, Earlier: append([]string{}, e.Earlier...), TookNS: int64(e.Took), Noise: e.Noise, Checks: []check{}}
		if e.Err != nil {
			r.Error = e.Err.Error()
		}
		for _, c := range e.Checks {
			r.Checks = append(r.Checks, check(c))
		}
		out.OK = out.OK && r.OK
		out.Experiments = append(out.Experiments, r)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return out.OK, enc.Encode(out)
}
