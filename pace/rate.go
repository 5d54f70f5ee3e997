package pace

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Rate is an exact rate: Packets per Per. The zero value is no rate and is refused by every constructor. A rate has no rounding:
// seven packets per three seconds is Rate{Packets: 7, Per: 3 * time.Second}.
type Rate struct {
	Packets uint64        // packets in one period, at most one per nanosecond
	Per     time.Duration // the period
	Max     bool          // no rate at all: as fast as the kernel accepts; Packets and Per are then 0
}

// rateForms is what every rate error says is legal.
const rateForms = `want packets per second ("50000", "0.5", "500k", "1.5M", optionally "pps"), ` +
	`packets per unit or duration ("1/h", "30/m", "7/3s") or "max"; above 0, at most 1e9 pps`

// Errors of rates, to be found with errors.Is.
var (
	// ErrRate is wrapped by every error about a rate or bit rate that cannot be read or planned.
	ErrRate = errors.New("bad rate")
	// ErrProfile is wrapped by every error about the text of a profile.
	ErrProfile = errors.New("bad profile")
)

// MaxRate returns the rate that is none: as fast as the kernel accepts.
func MaxRate() Rate { return Rate{Max: true} }

// PPS returns the rate in packets per second, rounded to a float64, for display; 0 for max.
func (r Rate) PPS() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Packets) * 1e9 / float64(r.Per)
}

// Reduced returns the same rate in lowest terms, the form that == compares.
func (r Rate) Reduced() Rate {
	if r.Max || r.Packets == 0 || r.Per <= 0 {
		return r
	}
	g := gcd(r.Packets, uint64(r.Per))
	return Rate{Packets: r.Packets / g, Per: r.Per / time.Duration(g)}
}

// Validate returns an error that wraps ErrRate unless r is max or lies above 0 and at most at one packet per nanosecond.
func (r Rate) Validate() error {
	switch {
	case r.Max && (r.Packets != 0 || r.Per != 0):
		return fmt.Errorf("%w: both max and %d packets per %v", ErrRate, r.Packets, r.Per)
	case r.Max:
		return nil
	case r.Packets == 0 || r.Per <= 0:
		return fmt.Errorf("%w: %d packets per %v is not above 0", ErrRate, r.Packets, r.Per)
	case r.Packets > uint64(r.Per):
		return fmt.Errorf("%w: %d packets per %v is above 1e9 pps", ErrRate, r.Packets, r.Per)
	case r.Per > maxTerm:
		return fmt.Errorf("%w: period %v is longer than %v", ErrRate, r.Per, time.Duration(maxTerm))
	}
	return nil
}

// finite returns r in lowest terms, or an error when it is invalid or max.
func (r Rate) finite() (Rate, error) {
	if err := r.Validate(); err != nil {
		return Rate{}, err
	}
	if r.Max {
		return Rate{}, fmt.Errorf("%w: max cannot be planned", ErrRate)
	}
	return r.Reduced(), nil
}

// String returns the canonical text: ParseRate of it gives back r in lowest terms. Rates that are a decimal number of packets per
// second are written so ("500k", "0.5"), others as packets per duration ("1/h", "7/3s").
func (r Rate) String() string {
	if r.Max {
		return "max"
	}
	if r.Packets == 0 || r.Per <= 0 {
		return "0"
	}
	r = r.Reduced()
	if s, ok := decimal(r); ok {
		return s
	}
	for _, u := range units() {
		if r.Per == u.d {
			return fmt.Sprintf("%d/%s", r.Packets, u.name)
		}
	}
	return fmt.Sprintf("%d/%s", r.Packets, r.Per)
}

// decimal writes a rate as packets per second with at most maxFraction digits after the point.
func decimal(r Rate) (string, bool) {
	pps := new(big.Rat).SetFrac(
		new(big.Int).Mul(new(big.Int).SetUint64(r.Packets), big.NewInt(int64(time.Second))),
		big.NewInt(int64(r.Per)))
	suffix := ""
	for _, m := range [...]struct {
		name string
		of   int64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if pps.Cmp(big.NewRat(m.of, 1)) >= 0 {
			pps.Quo(pps, big.NewRat(m.of, 1))
			suffix = m.name
			break
		}
	}
	digits, exact := pps.FloatPrec()
	if !exact || digits > maxFraction {
		return "", false
	}
	return pps.FloatString(digits) + suffix, true
}

const (
	maxFraction = 9  // digits after the point of a number
	maxText     = 64 // bytes of a rate
)

// unit is a time unit that may follow the slash of a rate.
type unit struct {
	name string
	d    time.Duration
}

func units() [7]unit {
	return [...]unit{{"ns", 1}, {"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute},
		{"h", time.Hour}, {"d", 24 * time.Hour}}
}

// ParseRate reads "500k", "1.5M", "50000", "0.5" (packets per second, optionally followed by "pps"), "1/h", "30/m", "7/3s"
// (packets per unit or duration) or "max". The value is exact. Errors wrap ErrRate, quote the input and list the legal forms.
func ParseRate(text string) (Rate, error) {
	if text == "max" {
		return MaxRate(), nil
	}
	r, err := parseRate(text)
	if err != nil {
		return Rate{}, fmt.Errorf("%w %q: %w; %s", ErrRate, text, err, rateForms)
	}
	return r, nil
}

func parseRate(text string) (Rate, error) {
	number, period, perGiven := strings.Cut(text, "/")
	per := time.Second
	if perGiven {
		var err error
		if per, err = parsePeriod(period); err != nil {
			return Rate{}, err
		}
	} else {
		number = strings.TrimSuffix(number, "pps")
	}
	packets, err := parseNumber(number, packetSuffixes)
	if err != nil {
		return Rate{}, err
	}
	// packets per period, as a fraction in lowest terms: packets.Num / (packets.Denom * per).
	packets.Quo(packets, new(big.Rat).SetInt64(int64(per)))
	switch {
	case packets.Sign() == 0:
		return Rate{}, errors.New("zero")
	case packets.Cmp(big.NewRat(1, 1)) > 0:
		return Rate{}, errors.New("above 1e9 pps")
	case !packets.Denom().IsInt64() || packets.Denom().Int64() > maxTerm:
		return Rate{}, errors.New("too small or too fine: its period does not fit 146 years")
	}
	return Rate{Packets: packets.Num().Uint64(), Per: time.Duration(packets.Denom().Int64())}, nil
}

func parsePeriod(text string) (time.Duration, error) {
	for _, u := range units() {
		if text == u.name {
			return u.d, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("period %q is neither a unit (ns us ms s m h d) nor a duration", text)
	}
	if d <= 0 || d > maxTerm {
		return 0, fmt.Errorf("period %q is not above 0 and at most 146 years", text)
	}
	return d, nil
}

// packetSuffixes gives the power of ten of the suffix of a packet rate.
func packetSuffixes(suffix string) (power int64, ok bool) {
	switch suffix {
	case "":
		return 0, true
	case "k":
		return 3, true
	case "M":
		return 6, true
	case "G":
		return 9, true
	}
	return 0, false
}

// parseNumber reads digits, optionally a point and more digits, and a suffix that power turns into a power of ten.
func parseNumber(text string, power func(suffix string) (int64, bool)) (*big.Rat, error) {
	switch {
	case text == "":
		return nil, errors.New("empty")
	case len(text) > maxText:
		return nil, fmt.Errorf("longer than %d bytes", maxText)
	case text[0] == '-':
		return nil, errors.New("negative")
	}
	end := strings.IndexFunc(text, func(c rune) bool { return c != '.' && (c < '0' || c > '9') })
	if end < 0 {
		end = len(text)
	}
	p, ok := power(text[end:])
	whole, fraction, point := strings.Cut(text[:end], ".")
	switch {
	case end == 0 || whole == "" || (point && fraction == ""):
		return nil, errors.New("not a number")
	case strings.Contains(fraction, "."):
		return nil, errors.New("not a number")
	case !ok:
		return nil, fmt.Errorf("unknown unit %q", text[end:])
	case len(fraction) > maxFraction:
		return nil, fmt.Errorf("more than %d digits after the point", maxFraction)
	}
	n, ok := new(big.Rat).SetString(whole + fraction)
	if !ok {
		return nil, errors.New("not a number")
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(p-int64(len(fraction)), int64(len(fraction))-p)), nil)
	if p >= int64(len(fraction)) {
		return n.Mul(n, new(big.Rat).SetInt(scale)), nil
	}
	return n.Quo(n, new(big.Rat).SetInt(scale)), nil
}
