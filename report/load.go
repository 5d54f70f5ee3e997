package report

import (
	"fmt"
	"os"

	"blast/stats"
)

// Load reads result files; errors name the file and what is wrong with it (see stats.ReadResult). It needs only to read them.
func Load(paths ...string) ([]*stats.Result, error) {
	var results []*stats.Result
	for _, path := range paths {
		r, err := load(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func load(path string) (*stats.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return stats.ReadResult(f)
}

// Runs groups results by run, in the order of their first appearance: the shards of one run belong together and are merged before
// anything is read from them (stats.Merge, then verdict.Merged).
func Runs(results []*stats.Result) [][]*stats.Result {
	var runs [][]*stats.Result
	at := map[string]int{}
	for _, r := range results {
		i, ok := at[r.RunID]
		if !ok || r.Shards == 1 {
			i, at[r.RunID] = len(runs), len(runs)
			runs = append(runs, nil)
		}
		runs[i] = append(runs[i], r)
	}
	return runs
}
