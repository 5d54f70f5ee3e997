package tuning

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"blast/internal/sys"
)

// RSS is how a network card spreads received packets over its queues: queue = Table[hash % len(Table)].
type RSS struct {
	// Function is "toeplitz", "xor", "crc32", or Unknown. Transform is not 0 where the driver rearranges the input first, such as
	// to hash both directions alike (RXH_XFRM_*, kernel 6.8).
	Function  string
	Transform uint8
	Key       []byte
	Table     []uint32
}

// String is the text form of the setting RSSConfig.
func (h RSS) String() string {
	var table strings.Builder
	for i, q := range h.Table {
		if i > 0 {
			table.WriteByte(',')
		}
		table.WriteString(strconv.FormatUint(uint64(q), 10))
	}
	return fmt.Sprintf("function=%s transform=%d key=%s table=%s", h.Function, h.Transform, hex.EncodeToString(h.Key), table.String())
}

// ParseRSS reads it.
func ParseRSS(text string) (RSS, error) {
	p := pairs(text)
	h := RSS{Function: p["function"]}
	transform, err := strconv.ParseUint(cmp.Or(p["transform"], "0"), 10, 8)
	if err != nil {
		return RSS{}, fmt.Errorf("rss transform: %w", err)
	}
	h.Transform = uint8(transform)
	if h.Key, err = hex.DecodeString(p["key"]); err != nil {
		return RSS{}, fmt.Errorf("rss key: %w", err)
	}
	if p["table"] == "" {
		return h, nil
	}
	for entry := range strings.SplitSeq(p["table"], ",") {
		q, err := strconv.ParseUint(entry, 10, 32)
		if err != nil {
			return RSS{}, fmt.Errorf("rss table: %w", err)
		}
		h.Table = append(h.Table, uint32(q))
	}
	return h, nil
}

// Queues is the number of different queues in the table.
func (h RSS) Queues() int {
	seen := map[uint32]bool{}
	for _, q := range h.Table {
		seen[q] = true
	}
	return len(seen)
}

func functionName(bit uint8) string {
	switch bit {
	case sys.RSSToeplitz:
		return "toeplitz"
	case sys.RSSXor:
		return "xor"
	case sys.RSSCRC32:
		return "crc32"
	}
	return Unknown
}

func functionBit(name string) uint8 {
	switch name {
	case "toeplitz":
		return sys.RSSToeplitz
	case "xor":
		return sys.RSSXor
	case "crc32":
		return sys.RSSCRC32
	}
	return 0
}

// hashLetters are ethtool's letters for the RXH_* bits (ethtool(8), rx-flow-hash).
func hashLetters() []struct {
	letter byte
	bit    uint64
} {
	return []struct {
		letter byte
		bit    uint64
	}{{'m', 1 << 1}, {'v', 1 << 2}, {'t', 1 << 3}, {'s', 1 << 4}, {'d', 1 << 5}, {'f', 1 << 6}, {'n', 1 << 7}, {'r', 1 << 31}}
}

func fieldLetters(bits uint64) string {
	var out []byte
	for _, l := range hashLetters() {
		if bits&l.bit != 0 {
			out = append(out, l.letter)
		}
	}
	if out == nil {
		return "-"
	}
	return string(out)
}

func fieldBits(letters string) (uint64, error) {
	var bits uint64
	if letters == "-" {
		return 0, nil
	}
next:
	for i := range len(letters) {
		for _, l := range hashLetters() {
			if l.letter == letters[i] {
				bits |= l.bit
				continue next
			}
		}
		return 0, fmt.Errorf("hash fields %q: unknown letter %q", letters, letters[i])
	}
	return bits, nil
}

// HashesPorts says whether both UDP ports are part of the hash, by the letters of UDP4Fields or UDP6Fields.
func HashesPorts(fields string) bool {
	return strings.Contains(fields, "f") && strings.Contains(fields, "n")
}
