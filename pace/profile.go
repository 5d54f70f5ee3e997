package pace

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// profileForms is what every profile error says is legal.
const profileForms = `want const, poisson, ramp:FROM..TO/DUR ("ramp:0..1M/30s"), step:FROM+BY/DUR..TO ("step:10k+10k/5s..100k"), ` +
	`burst:N@GAP ("burst:64@10ms"), tick:HZ ("tick:60") or file:PATH`

// Options is what some profiles need beside their text.
type Options struct {
	Sessions int                                      // tick: slots per tick; must be at least 1 for tick
	Seed     uint64                                   // poisson: the seed; every value is a seed of its own
	Open     func(path string) (io.ReadCloser, error) // file: opens PATH; nil refuses file profiles. This package opens nothing itself
}

// ParseProfile reads the text of a profile for a run of the given duration: const | poisson | ramp:FROM..TO/DUR |
// step:FROM+BY/DUR..TO | burst:N@GAP | tick:HZ | file:PATH. rate is used by const and poisson only, the others bring their own;
// const at MaxRate gives Unpaced. A file may have duration 0 (its own length). The String of the schedule parses back to the same
// schedule, given the same rate, duration and options. Errors wrap ErrProfile, quote the text and say what is expected.
func ParseProfile(text string, rate Rate, duration time.Duration, opts Options) (Schedule, error) {
	s, err := parseProfile(text, rate, duration, opts)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrProfile, text, err)
	}
	return s, nil
}

func parseProfile(text string, rate Rate, duration time.Duration, opts Options) (Schedule, error) {
	kind, args, hasArgs := strings.Cut(text, ":")
	switch kind {
	case "const", "poisson":
		if hasArgs {
			return nil, fmt.Errorf("%s takes nothing after it; its rate is given apart", kind)
		}
		if kind == "poisson" {
			return planned(Poisson(rate, opts.Seed, duration))
		}
		if rate.Max {
			return planned(Max(duration))
		}
		return planned(Constant(rate, duration))
	case "ramp":
		return parseRamp(args, duration)
	case "step":
		return parseStep(args, duration)
	case "burst":
		return parseBurst(args, duration)
	case "tick":
		hz, err := ParseRate(args)
		if err != nil {
			return nil, fmt.Errorf("ticks per second: %w", err)
		}
		return planned(Tick(hz, opts.Sessions, duration))
	case "file":
		return openFile(text, args, duration, opts)
	}
	return nil, errors.New(profileForms)
}

// planned turns a constructor's result into an interface that is nil on error.
func planned[S Schedule](s S, err error) (Schedule, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func parseRamp(args string, total time.Duration) (Schedule, error) {
	from, rest, ok := strings.Cut(args, "..")
	slash := strings.LastIndexByte(rest, '/')
	if !ok || slash < 0 {
		return nil, errors.New(`want ramp:FROM..TO/DUR, such as "ramp:0..1M/30s"`)
	}
	r0, err := parseRampRate(from)
	if err != nil {
		return nil, fmt.Errorf("FROM: %w", err)
	}
	r1, err := parseRampRate(rest[:slash])
	if err != nil {
		return nil, fmt.Errorf("TO: %w", err)
	}
	over, err := parseDuration("DUR", rest[slash+1:])
	if err != nil {
		return nil, err
	}
	return planned(Ramp(r0, r1, over, total))
}

// parseRampRate reads a rate, or "0", which only a ramp may start from or end at.
func parseRampRate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	return ParseRate(text)
}

func parseStep(args string, total time.Duration) (Schedule, error) {
	from, rest, plus := strings.Cut(args, "+")
	rise, to, dots := strings.Cut(rest, "..")
	slash := strings.LastIndexByte(rise, '/')
	if !plus || !dots || slash < 0 {
		return nil, errors.New(`want step:FROM+BY/DUR..TO, such as "step:10k+10k/5s..100k"`)
	}
	r0, err := ParseRate(from)
	if err != nil {
		return nil, fmt.Errorf("FROM: %w", err)
	}
	by, err := ParseRate(rise[:slash])
	if err != nil {
		return nil, fmt.Errorf("BY: %w", err)
	}
	every, err := parseDuration("DUR", rise[slash+1:])
	if err != nil {
		return nil, err
	}
	r1, err := ParseRate(to)
	if err != nil {
		return nil, fmt.Errorf("TO: %w", err)
	}
	return planned(Step(r0, by, every, r1, total))
}

func parseBurst(args string, total time.Duration) (Schedule, error) {
	count, every, ok := strings.Cut(args, "@")
	if !ok {
		return nil, errors.New(`want burst:N@GAP, such as "burst:64@10ms"`)
	}
	n, err := strconv.ParseUint(count, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("packets %q: want a whole number of packets, 1 to %d", count, uint64(maxEach))
	}
	gap, err := parseDuration("GAP", every)
	if err != nil {
		return nil, err
	}
	return planned(Burst(n, gap, total))
}

func parseDuration(what, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(`%s %q: want a duration above 0, such as "10s", "250ms" or "1h30m"`, what, text)
	}
	return d, nil
}

func openFile(text, path string, total time.Duration, opts Options) (_ Schedule, err error) {
	if path == "" {
		return nil, errors.New("want file:PATH")
	}
	if opts.Open == nil {
		return nil, fmt.Errorf("no way to open files was given: %w", errors.ErrUnsupported)
	}
	in, err := opts.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := File(text, in, total)
	if closeErr := in.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	return planned(s, err)
}
