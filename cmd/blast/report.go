package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"blast/report"
	"blast/stats"
	"blast/verdict"
)

type reportFlags struct {
	format, out    string
	merge, compare bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "show a result again, merge the shards of one run, or compare two runs",
		Long: `Show results that blast udp --out wrote.

  blast report a.json                 the same report again, or --format json, csv, hgrm, hlog, html
  blast report a.json --format html > a.html                 a page for a browser: one file, no network
  blast report prove.json             the proof that blast prove --out wrote, again; text, json, html
  blast report ladder.json            the ladder that blast ladder --out wrote, again; text, json, csv, html
  blast report a.json b.json          two runs side by side; shards of one run (same --run-id) are merged instead
  blast report a.json b.json --compare --format html > ab.html      two runs laid over one another
  blast report s0.json s1.json s2.json --out whole.json      merge; percentiles come from the merged histograms`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no result file: want blast report FILE.json")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runReport(f, args) },
	}
	cmd.Flags().StringVar(&f.format, "format", "text", "text, json, csv, hgrm, hlog, html (a page for a browser)")
	cmd.Flags().StringVar(&f.out, "out", "", "write the (merged) JSON result to this file")
	cmd.Flags().BoolVar(&f.merge, "merge", false, "merge two files even when they do not say that they are shards of one run (and fail saying why)")
	cmd.Flags().BoolVar(&f.compare, "compare", false, "compare two files even when they are shards of one run; as text or html")
	return cmd
}

func runReport(f reportFlags, args []string) error {
	files, err := readFiles(args)
	if err != nil {
		return usage(err)
	}
	alone := len(files) == 1 && !f.merge && !f.compare
	l, err := readAlone(files, alone, "ladder", stats.LadderSchema, func(b []byte) (*stats.Ladder, error) { return stats.ReadLadder(bytes.NewReader(b)) })
	if err != nil {
		return usage(err)
	} else if l != nil {
		return reportLadder(l, f.format, f.out)
	}
	proof, err := readAlone(files, alone, "proof", stats.ProveSchema, stats.ReadProve)
	if err != nil {
		return usage(err)
	} else if proof != nil {
		return reportProof(proof, f.format, f.out)
	}
	if err := checkFormat(f.format); err != nil {
		return usage(err)
	}
	results, err := readResults(files)
	if err != nil {
		return usage(err)
	}
	switch {
	case f.compare && (f.merge || len(results) != 2):
		return usagef("--compare: want two result files and no --merge, not %d", len(results))
	case f.compare || len(results) == 2 && !shardsOfOne(results) && !f.merge:
		return reportComparison(results[0], results[1], f.format, f.out)
	}
	whole := results[0]
	if len(results) > 1 {
		if whole, err = stats.Merge(results); err != nil {
			return usage(fmt.Errorf("merge: %w", err))
		}
		whole.Verdict = verdict.Merged(whole, results, verdict.Limits{})
	}
	o, err := openOutput(f.out)
	if err != nil {
		return usage(err)
	}
	defer o.discard()
	return o.write(whole, f.format, os.Stdout)
}

// resultFile is a file as it was read, once: a pipe has no second time.
type resultFile struct {
	path string
	text []byte
}

func readFiles(paths []string) ([]resultFile, error) {
	var files []resultFile
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, resultFile{path, text})
	}
	return files, nil
}

// readAlone reads what a file of schema holds, which is shown alone; nil where none of the files is one, and whoever reads them then says
// what is wrong with them.
func readAlone[T any](files []resultFile, alone bool, what, schema string, read func([]byte) (*T, error)) (*T, error) {
	for _, f := range files {
		if found, err := stats.SchemaOf(f.text); err != nil || found != schema {
			continue
		}
		if !alone {
			return nil, fmt.Errorf("%s: is a %s, which is shown alone (schema %s): blast report %s", f.path, what, schema, f.path)
		}
		v, err := read(f.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		return v, nil
	}
	return nil, nil
}

func readResults(files []resultFile) ([]*stats.Result, error) {
	var results []*stats.Result
	for _, f := range files {
		r, err := stats.ReadResult(bytes.NewReader(f.text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// reportComparison shows two results side by side. There is no JSON of that.
func reportComparison(a, b *stats.Result, format, out string) error {
	switch {
	case out != "":
		return usagef("--out %s: a comparison has no JSON result; redirect standard output", out)
	case format == "text":
		return report.Compare(os.Stdout, a, b, report.Options{Color: isTerminal(os.Stdout)})
	case format == "html":
		return report.HTMLCompare(os.Stdout, a, b)
	}
	return usagef("format %s: a comparison is shown as text or html", format)
}

func shardsOfOne(results []*stats.Result) bool {
	for _, r := range results {
		if r.Shards < 2 || r.RunID != results[0].RunID {
			return false
		}
	}
	return true
}
