package pace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Recording is a schedule of given times and payload sizes, from a file or a capture. It is immutable.
type Recording struct {
	times  []time.Duration
	sizes  []int32
	length time.Duration
	text   string
}

// maxPayload bounds a payload size: the length field of UDP is 16 bits and counts its 8-byte header (RFC 768).
const maxPayload = 65535 - 8

// Record plans slots at the given times, counted from the first of them, with payloads of the given sizes in bytes. Times must not go
// back. Slots at or after total are left out; total 0 takes the whole recording, whose length is then its extent plus one mean gap (one
// second when it has no extent). name is what String returns. The slices are copied.
func Record(name string, times []time.Duration, sizes []int, total time.Duration) (*Recording, error) {
	switch {
	case len(times) == 0:
		return nil, fmt.Errorf("%s: no packets", name)
	case len(times) != len(sizes):
		return nil, fmt.Errorf("%s: %d times but %d sizes", name, len(times), len(sizes))
	case total < 0 || total > maxTerm:
		return nil, fmt.Errorf("%s: %w", name, checkLength(total))
	}
	r := &Recording{length: total, text: name}
	for i, at := range times {
		if err := r.add(at-times[0], sizes[i]); err != nil {
			return nil, fmt.Errorf("%s: packet %d: %w", name, i, err)
		}
	}
	r.close()
	return r, nil
}

// File reads a recording: one packet per line, "time,size". Time is seconds ("0.25", at most 9 digits after the point) or a duration
// ("250ms"), counted from the first line's; size is payload bytes. Empty lines and lines that begin with # are skipped. name and total are
// as in Record. Errors name the line.
func File(name string, in io.Reader, total time.Duration) (*Recording, error) {
	if total < 0 || total > maxTerm {
		return nil, fmt.Errorf("%s: %w", name, checkLength(total))
	}
	r := &Recording{length: total, text: name}
	lines := bufio.NewScanner(in)
	var zero time.Duration
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		at, size, err := parseLine(line)
		if err == nil {
			if len(r.times) == 0 {
				zero = at
			}
			err = r.add(at-zero, size)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(r.times) == 0 {
		return nil, fmt.Errorf("%s: no packets", name)
	}
	r.close()
	return r, nil
}

func parseLine(line string) (at time.Duration, size int, err error) {
	when, bytes, ok := strings.Cut(line, ",")
	if !ok {
		return 0, 0, fmt.Errorf("%q: want time,size", line)
	}
	if at, err = parseSeconds(strings.TrimSpace(when)); err != nil {
		return 0, 0, err
	}
	if size, err = strconv.Atoi(strings.TrimSpace(bytes)); err != nil {
		return 0, 0, fmt.Errorf("size %q: want payload bytes, 0 to %d", bytes, maxPayload)
	}
	return at, size, nil
}

// parseSeconds reads a decimal number of seconds, exactly, or a duration.
func parseSeconds(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	n, err := parseNumber(text, func(suffix string) (int64, bool) { return 9, suffix == "" })
	if err == nil && !n.IsInt() {
		err = errors.New("finer than a nanosecond")
	}
	if err == nil && n.Cmp(new(big.Rat).SetInt64(maxTerm)) > 0 {
		err = errors.New("above 146 years")
	}
	if err != nil {
		return 0, fmt.Errorf("time %q: %w; want seconds (\"0.25\") or a duration (\"250ms\")", text, err)
	}
	return time.Duration(n.Num().Int64()), nil
}

// add appends a packet. It checks also those past the end, so that a file is good or bad whatever the length of the run.
func (r *Recording) add(at time.Duration, size int) error {
	if size < 0 || size > maxPayload {
		return fmt.Errorf("size %d: want payload bytes, 0 to %d", size, maxPayload)
	}
	if n := len(r.times); at < 0 || at > maxTerm || (n > 0 && at < r.times[n-1]) {
		return fmt.Errorf("time %v after the first packet: want no earlier than the packet before and at most %v", at, time.Duration(maxTerm))
	}
	r.times = append(r.times, at)
	r.sizes = append(r.sizes, int32(size))
	return nil
}

// close cuts the recording at its length, or finds its length.
func (r *Recording) close() {
	n := len(r.times)
	if r.length > 0 {
		n = sort.Search(n, func(i int) bool { return r.times[i] >= r.length })
		r.times, r.sizes = r.times[:n:n], r.sizes[:n:n]
		return
	}
	extent := r.times[n-1]
	if extent == 0 {
		r.length = time.Second
		return
	}
	r.length = extent + max(extent/time.Duration(n-1), 1)
}

// At returns the planned offset of slot i; see Schedule.
func (r *Recording) At(i uint64) time.Duration { return r.times[i] }

// Size returns the payload size of slot i < Slots, bytes.
func (r *Recording) Size(i uint64) int { return int(r.sizes[i]) }

// Due returns how many slots are planned at or before elapsed; see Schedule.
func (r *Recording) Due(elapsed time.Duration) uint64 {
	return uint64(sort.Search(len(r.times), func(i int) bool { return r.times[i] > elapsed }))
}

// Slots returns the number of slots.
func (r *Recording) Slots() uint64 { return uint64(len(r.times)) }

// Length returns the length of the plan; see Record.
func (r *Recording) Length() time.Duration { return r.length }

// MeanPPS returns Slots / Length in packets per second.
func (r *Recording) MeanPPS() float64 { return meanPPS(r.Slots(), r.length) }

// String returns the name the recording was given.
func (r *Recording) String() string { return r.text }

var _ Schedule = (*Recording)(nil)
