package pace

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

const bitrateForms = `want bits per second with an SI unit ("64kbit", "100Mbit", "1Gbit", "2.5Gbit", "1000bit"); whole bits, above 0`

// ParseBitrate reads "1Gbit", "2.5Gbit", "100Mbit", "64kbit" or "1000bit" (SI: k is 1000) and returns exact bits per second. Which bits
// are meant (L1, L2, IP, payload) is the caller's to know. Errors wrap ErrRate.
func ParseBitrate(text string) (uint64, error) {
	n, err := parseNumber(text, bitSuffixes)
	switch {
	case err != nil:
	case n.Sign() == 0:
		err = errors.New("zero")
	case !n.IsInt():
		err = errors.New("not a whole number of bits per second")
	case !n.Num().IsUint64() || n.Num().Uint64() > maxTerm:
		err = errors.New("above 2^62 bits per second")
	}
	if err != nil {
		return 0, fmt.Errorf("%w %q: %w; %s", ErrRate, text, err, bitrateForms)
	}
	return n.Num().Uint64(), nil
}

func bitSuffixes(suffix string) (power int64, ok bool) {
	switch suffix {
	case "bit":
		return 0, true
	case "kbit":
		return 3, true
	case "Mbit":
		return 6, true
	case "Gbit":
		return 9, true
	}
	return 0, false
}

// BitrateRate returns the exact packet rate at which packets of bitsPerPacket bits, counted at the layer the bit rate means, make
// bitsPerSecond. Errors wrap ErrRate.
func BitrateRate(bitsPerSecond, bitsPerPacket uint64) (Rate, error) {
	if bitsPerSecond == 0 || bitsPerPacket == 0 {
		return Rate{}, fmt.Errorf("%w: %d bits per second in packets of %d bits", ErrRate, bitsPerSecond, bitsPerPacket)
	}
	per := new(big.Int).Mul(new(big.Int).SetUint64(bitsPerPacket), big.NewInt(int64(time.Second)))
	r := new(big.Rat).SetFrac(new(big.Int).SetUint64(bitsPerSecond), per)
	if !r.Num().IsUint64() || !r.Denom().IsInt64() {
		return Rate{}, fmt.Errorf("%w: %d bits per second in packets of %d bits does not fit", ErrRate, bitsPerSecond, bitsPerPacket)
	}
	rate := Rate{Packets: r.Num().Uint64(), Per: time.Duration(r.Denom().Int64())}
	return rate, rate.Validate()
}
