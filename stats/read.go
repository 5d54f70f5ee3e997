package stats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadResult reads one result file: exactly one JSON object of ResultSchema. Unknown fields are passed over, so that fields
// may be added within a schema. It refuses a file cut short, another schema, histograms whose figures are not those of
// their buckets, and a VALID result whose ledger does not add up (an INVALID one may say so itself).
func ReadResult(r io.Reader) (*Result, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, errors.New("result: the file is empty")
	}
	var head struct {
		Schema *string `json:"schema"`
	}
	if err := unmarshalWhole(b, &head); err != nil {
		return nil, err
	}
	switch {
	case head.Schema == nil:
		return nil, fmt.Errorf("result: no schema field, want %q", ResultSchema)
	case *head.Schema != ResultSchema:
		return nil, fmt.Errorf("result: schema %q, want %q", *head.Schema, ResultSchema)
	}
	res := &Result{}
	if err := unmarshalWhole(b, res); err != nil {
		return nil, err
	}
	if err := res.check(); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	res.Normalize()
	return res, nil
}

func unmarshalWhole(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(b)):
		return fmt.Errorf("result: cut short after %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	case errors.As(err, &syntax):
		return fmt.Errorf("result: byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("result: %w", err)
}

// check is what cannot be told from JSON syntax.
func (r *Result) check() error {
	for _, h := range append(r.histograms(), r.fartherHistograms()...) {
		if _, err := h.sum.Hist(); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	if r.Shards < 1 || r.Shard < 0 || r.Shard >= r.Shards {
		return fmt.Errorf("shard %d of %d", r.Shard, r.Shards)
	}
	if r.Verdict.Valid {
		if err := r.Ledger.Check(r.Config.Mode); err != nil {
			return fmt.Errorf("says VALID, but its ledger does not add up: %w", err)
		}
	}
	for i := range r.Rounds {
		if err := r.Rounds[i].check(); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	return nil
}

type namedHistogram struct {
	name string
	sum  *Histogram
}

// histograms are those that every result has, by their names in JSON.
func (r *Result) histograms() []namedHistogram {
	return []namedHistogram{{"lag_ns", &r.Lag}, {"latency_ns", &r.Latency}, {"service_ns", &r.Service}, {"server_ns", &r.Server}, {"gap_ns", &r.Gap}}
}

// fartherHistograms are those that only some have.
func (r *Result) fartherHistograms() (all []namedHistogram) {
	if r.Corrected != nil {
		all = append(all, namedHistogram{"corrected_ns", r.Corrected})
	}
	if s := r.Segments; s != nil {
		all = append(all, namedHistogram{"segments.latency_ns", &s.Latency})
		for i := range s.Parts {
			all = append(all, namedHistogram{"segments.parts." + s.Parts[i].Name, &s.Parts[i].NS})
		}
	}
	if r.Departures != nil {
		all = append(all, namedHistogram{"departures.error_ns", &r.Departures.Error})
	}
	return all
}
