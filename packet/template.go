package packet

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxFieldBytes is the longest varied or matched field: what fits a uint64.
const MaxFieldBytes = 8

// MaxPayloadBytes is the largest UDP payload over IPv4: 65535 less 20 of IP and 8 of UDP header.
const MaxPayloadBytes = 65507

// VaryKind says what a varied field holds.
type VaryKind uint8

// The kinds.
const (
	// VarySeq is the slot number.
	VarySeq VaryKind = iota
	// VaryRand is a pseudo-random number that depends on the seed, the slot number and the field's offset alone.
	VaryRand
	// VaryFlow is the flow's index.
	VaryFlow
	// VaryTime is the time passed to Fill, ns.
	VaryTime
	numVaryKinds
)

var varyNames = [numVaryKinds]string{"seq", "rand", "flow", "time"}

// String is the kind's name on the command line.
func (k VaryKind) String() string {
	if k < numVaryKinds {
		return varyNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Vary is a field that Fill writes anew in every packet: big endian, Len bytes from Offset, modulo 2^(8*Len).
type Vary struct {
	Offset, Len int
	Kind        VaryKind
}

// String is the form that ParseVary reads.
func (v Vary) String() string { return fmt.Sprintf("%d:%d:%v", v.Offset, v.Len, v.Kind) }

// Match is the field by which a reply is known: Len bytes from Offset, in the packet sent as in the reply. The zero value is no match.
type Match struct {
	Offset, Len int
}

// String is the form that ParseMatch reads.
func (m Match) String() string { return fmt.Sprintf("%d:%d", m.Offset, m.Len) }

// ParseVary reads OFFSET:LEN:KIND, such as 4:8:seq.
func ParseVary(s string) (Vary, error) {
	part := strings.Split(s, ":")
	if len(part) != 3 {
		return Vary{}, fmt.Errorf("vary %q: want OFFSET:LEN:KIND with KIND one of %s", s, strings.Join(varyNames[:], ", "))
	}
	offset, length, err := parseField(part)
	if err != nil {
		return Vary{}, fmt.Errorf("vary %q: %w", s, err)
	}
	for k, name := range varyNames {
		if part[2] == name {
			return Vary{offset, length, VaryKind(k)}, nil
		}
	}
	return Vary{}, fmt.Errorf("vary %q: kind %q: want one of %s", s, part[2], strings.Join(varyNames[:], ", "))
}

// ParseMatch reads OFFSET:LEN, such as 4:8.
func ParseMatch(s string) (Match, error) {
	part := strings.Split(s, ":")
	if len(part) != 2 {
		return Match{}, fmt.Errorf("match %q: want OFFSET:LEN", s)
	}
	offset, length, err := parseField(part)
	if err != nil {
		return Match{}, fmt.Errorf("match %q: %w", s, err)
	}
	return Match{offset, length}, nil
}

func parseField(part []string) (offset, length int, err error) {
	o, err := strconv.ParseUint(part[0], 10, 32)
	if err != nil || o >= MaxPayloadBytes {
		return 0, 0, fmt.Errorf("offset %q: want a number of bytes, 0 to %d", part[0], MaxPayloadBytes-1)
	}
	l, err := strconv.ParseUint(part[1], 10, 32)
	if err != nil || l < 1 || l > MaxFieldBytes {
		return 0, 0, fmt.Errorf("length %q: want 1 to %d bytes", part[1], MaxFieldBytes)
	}
	return int(o), int(l), nil
}

// Template makes payloads for targets that do not know our stamp: fixed bytes, with fields varied from packet to packet, and
// perhaps one by which a reply is recognised. It does not change once made and is safe for concurrent use.
type Template struct {
	payload []byte
	vary    []Vary
	seed    uint64
	match   Match
	fixed   uint64 // the match field as the payload has it, without the bits that the slot number fills
	mask    uint64 // of the match field's bits that the slot number fills
	up      uint   // bits that the slot number is shifted up in the match field
}

// NewTemplate checks that all fields are inside the payload, 1 to 8 bytes long and apart from each other. A match has to overlap
// exactly one varied field, of kind seq, and to include its last byte, which changes with every packet; other bytes of it are
// fixed. payload and vary are copied. seed is for fields of kind rand.
func NewTemplate(payload []byte, vary []Vary, match Match, seed uint64) (*Template, error) {
	if len(payload) > MaxPayloadBytes {
		return nil, fmt.Errorf("payload: %d bytes: want at most %d", len(payload), MaxPayloadBytes)
	}
	t := &Template{payload: bytes.Clone(payload), vary: append([]Vary(nil), vary...), seed: seed, match: match}
	for i, v := range vary {
		if v.Kind >= numVaryKinds {
			return nil, fmt.Errorf("vary %v: want one of %s", v, strings.Join(varyNames[:], ", "))
		}
		if err := t.inside(v.Offset, v.Len); err != nil {
			return nil, fmt.Errorf("vary %v: %w", v, err)
		}
		for _, o := range vary[:i] {
			if overlap(v.Offset, v.Len, o.Offset, o.Len) {
				return nil, fmt.Errorf("vary %v: overlaps %v at byte %d", v, o, max(v.Offset, o.Offset))
			}
		}
	}
	if match == (Match{}) {
		return t, nil
	}
	if err := t.setMatch(); err != nil {
		return nil, fmt.Errorf("match %v: %w", match, err)
	}
	return t, nil
}

func (t *Template) inside(offset, length int) error {
	if length < 1 || length > MaxFieldBytes {
		return fmt.Errorf("length %d: want 1 to %d bytes", length, MaxFieldBytes)
	}
	if offset < 0 || offset > len(t.payload)-length {
		return fmt.Errorf("offset %d: %d bytes from there end outside the payload of %d", offset, length, len(t.payload))
	}
	return nil
}

func overlap(a, alen, b, blen int) bool { return a < b+blen && b < a+alen }

// setMatch finds the varied field under the match and what of the match it fills.
func (t *Template) setMatch() error {
	m := t.match
	if err := t.inside(m.Offset, m.Len); err != nil {
		return err
	}
	var under []Vary
	for _, v := range t.vary {
		if overlap(v.Offset, v.Len, m.Offset, m.Len) {
			under = append(under, v)
		}
	}
	switch {
	case len(under) == 0:
		return fmt.Errorf("no varied field there: every packet would have the same key; vary %v:seq", m)
	case len(under) > 1:
		return fmt.Errorf("covers both %v and %v: want one field of kind seq", under[0], under[1])
	case under[0].Kind != VarySeq:
		return fmt.Errorf("covers %v: only a field of kind seq tells packets apart", under[0])
	}
	v := under[0]
	last, end := v.Offset+v.Len, m.Offset+m.Len
	if last > end {
		return fmt.Errorf("ends before %v does: without its last byte, packets in a row have the same key", v)
	}
	t.up = uint(8 * (end - last))
	width := uint(8 * (last - max(v.Offset, m.Offset)))
	t.mask = ones(width) << t.up
	t.fixed = field(t.payload, m) &^ t.mask
	return nil
}

// ones is a number of n one bits, n at most 64.
func ones(n uint) uint64 { return 1<<n - 1 }

// field reads a field that is inside b.
func field(b []byte, m Match) uint64 {
	var v uint64
	for _, c := range b[m.Offset : m.Offset+m.Len] {
		v = v<<8 | uint64(c)
	}
	return v
}

// Len is the payload's length in bytes.
func (t *Template) Len() int { return len(t.payload) }

// Matches says whether the template has a match field, so that replies can be told apart.
func (t *Template) Matches() bool { return t.match.Len > 0 }

// Fill writes the payload of slot seq into buf, which has at least Len bytes, and returns Len. now is for fields of kind time, ns.
func (t *Template) Fill(buf []byte, seq uint64, flow int, now int64) int {
	buf = buf[:len(t.payload):len(buf)] // not into spare capacity
	copy(buf, t.payload)
	for i := range t.vary {
		f := &t.vary[i]
		var v uint64
		switch f.Kind {
		case VarySeq:
			v = seq
		case VaryRand:
			v = mix(t.seed ^ mix(seq^mix(uint64(f.Offset))))
		case VaryFlow:
			v = uint64(flow)
		case VaryTime:
			v = uint64(now)
		}
		for k := f.Offset + f.Len - 1; k >= f.Offset; k-- {
			buf[k] = byte(v)
			v >>= 8
		}
	}
	return len(buf)
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Key is the match field of a reply. It reports false where the reply is too short, the fixed bytes in the field are not ours, or
// there is no match.
func (t *Template) Key(reply []byte) (uint64, bool) {
	if t.match.Len == 0 || len(reply) < t.match.Offset+t.match.Len {
		return 0, false
	}
	key := field(reply, t.match)
	return key, key&^t.mask == t.fixed
}

// KeyOf is the key of slot seq: what Key finds in a reply that echoes the field.
func (t *Template) KeyOf(seq uint64) uint64 { return t.fixed | seq<<t.up&t.mask }

// Index numbers the distinct keys from 0, in the order of the slots that use them.
func (t *Template) Index(key uint64) uint64 { return key & t.mask >> t.up }

// Keys is the number of distinct keys, after which they come again: a timeout must be shorter than it takes to send so many. It is
// MaxUint64, one less than the truth, for a field of 8 bytes, and 0 without a match.
func (t *Template) Keys() uint64 {
	if t.match.Len == 0 {
		return 0
	}
	if n := t.mask >> t.up; n != math.MaxUint64 {
		return n + 1
	}
	return math.MaxUint64
}
