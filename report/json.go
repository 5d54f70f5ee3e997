package report

import (
	"encoding/json"
	"fmt"
	"io"

	"blast/stats"
)

// JSON writes r as one object of stats.ResultSchema and a line end. r is normalized (see stats.Result.Normalize) in doing so. A
// number that is not finite is an error, and nothing is written.
func JSON(w io.Writer, r *stats.Result) error {
	r.Normalize()
	return writeJSON(w, r)
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
