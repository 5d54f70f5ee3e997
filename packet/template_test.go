package packet

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseVary(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Vary
		err      string
	}{
		{"a sequence number", "4:8:seq", Vary{4, 8, VarySeq}, ""},
		{"one random byte at the start", "0:1:rand", Vary{0, 1, VaryRand}, ""},
		{"a flow index", "12:2:flow", Vary{12, 2, VaryFlow}, ""},
		{"a time", "65499:8:time", Vary{65499, 8, VaryTime}, ""},
		{"a missing kind", "4:8", Vary{}, `vary "4:8": want OFFSET:LEN:KIND with KIND one of seq, rand, flow, time`},
		{"a fourth part", "4:8:seq:x", Vary{}, `vary "4:8:seq:x": want OFFSET:LEN:KIND with KIND one of seq, rand, flow, time`},
		{"an unknown kind", "4:8:sequence", Vary{}, `vary "4:8:sequence": kind "sequence": want one of seq, rand, flow, time`},
		{"a negative offset", "-1:8:seq", Vary{}, `vary "-1:8:seq": offset "-1": want a number of bytes, 0 to 65506`},
		{"an offset beyond any payload", "65507:1:seq", Vary{}, `vary "65507:1:seq": offset "65507": want a number of bytes, 0 to 65506`},
		{"an empty offset", ":1:seq", Vary{}, `vary ":1:seq": offset "": want a number of bytes, 0 to 65506`},
		{"no bytes", "4:0:seq", Vary{}, `vary "4:0:seq": length "0": want 1 to 8 bytes`},
		{"more than a number holds", "4:9:seq", Vary{}, `vary "4:9:seq": length "9": want 1 to 8 bytes`},
	} {
		got, err := ParseVary(c.in)
		if text(err) != c.err || got != c.want {
			t.Errorf("%s: ParseVary(%q) = %v, %q; want %v, %q", c.name, c.in, got, text(err), c.want, c.err)
		}
		if err == nil && got.String() != c.in {
			t.Errorf("%s: %q prints as %q", c.name, c.in, got.String())
		}
	}
}

func TestParseMatch(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Match
		err      string
	}{
		{"a DNS id", "0:2", Match{0, 2}, ""},
		{"a kind, which belongs to vary", "0:2:seq", Match{}, `match "0:2:seq": want OFFSET:LEN`},
		{"a word for the offset", "id:2", Match{}, `match "id:2": offset "id": want a number of bytes, 0 to 65506`},
		{"a length too many", "0:16", Match{}, `match "0:16": length "16": want 1 to 8 bytes`},
	} {
		got, err := ParseMatch(c.in)
		if text(err) != c.err || got != c.want {
			t.Errorf("%s: ParseMatch(%q) = %v, %q; want %v, %q", c.name, c.in, got, text(err), c.want, c.err)
		}
		if err == nil && got.String() != c.in {
			t.Errorf("%s: %q prints as %q", c.name, c.in, got.String())
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNewTemplateRefuses(t *testing.T) {
	seq := Vary{4, 4, VarySeq}
	for _, c := range []struct {
		name  string
		bytes int
		vary  []Vary
		match Match
		err   string
	}{
		{"a payload no datagram holds", 65508, nil, Match{}, "payload: 65508 bytes: want at most 65507"},
		{"a field beyond the end", 7, []Vary{seq}, Match{}, "vary 4:4:seq: offset 4: 4 bytes from there end outside the payload of 7"},
		{"a field in an empty payload", 0, []Vary{{0, 1, VarySeq}}, Match{}, "vary 0:1:seq: offset 0: 1 bytes from there end outside the payload of 0"},
		{"a negative offset", 16, []Vary{{-1, 1, VarySeq}}, Match{}, "vary -1:1:seq: offset -1: 1 bytes from there end outside the payload of 16"},
		{"an offset that overflows", 16, []Vary{{math.MaxInt, 8, VarySeq}}, Match{}, "vary 9223372036854775807:8:seq: offset 9223372036854775807: 8 bytes from there end outside the payload of 16"},
		{"an empty field", 16, []Vary{{0, 0, VarySeq}}, Match{}, "vary 0:0:seq: length 0: want 1 to 8 bytes"},
		{"an unknown kind", 16, []Vary{{0, 1, 9}}, Match{}, "vary 0:1:kind 9: want one of seq, rand, flow, time"},
		{"fields that share a byte", 16, []Vary{seq, {7, 2, VaryRand}}, Match{}, "vary 7:2:rand: overlaps 4:4:seq at byte 7"},
		{"a field inside another", 16, []Vary{seq, {5, 1, VaryFlow}}, Match{}, "vary 5:1:flow: overlaps 4:4:seq at byte 5"},
		{"a match beyond the end", 16, []Vary{seq}, Match{12, 8}, "match 12:8: offset 12: 8 bytes from there end outside the payload of 16"},
		{"a match on constant bytes", 16, []Vary{seq}, Match{8, 2}, "match 8:2: no varied field there: every packet would have the same key; vary 8:2:seq"},
		{"a match on a random field", 16, []Vary{{0, 4, VaryRand}}, Match{0, 4}, "match 0:4: covers 0:4:rand: only a field of kind seq tells packets apart"},
		{"a match on two fields", 16, []Vary{seq, {8, 4, VaryTime}}, Match{4, 8}, "match 4:8: covers both 4:4:seq and 8:4:time: want one field of kind seq"},
		{"a match on the high bytes only", 16, []Vary{seq}, Match{4, 3}, "match 4:3: ends before 4:4:seq does: without its last byte, packets in a row have the same key"},
	} {
		_, err := NewTemplate(make([]byte, c.bytes), c.vary, c.match, 1)
		if text(err) != c.err {
			t.Errorf("%s:\n got %q\nwant %q", c.name, text(err), c.err)
		}
	}
}

func TestTemplateFill(t *testing.T) {
	payload := bytes.Repeat([]byte{0xEE}, 24)
	m, err := NewTemplate(payload, []Vary{{1, 2, VarySeq}, {4, 1, VaryFlow}, {6, 8, VaryTime}, {16, 3, VarySeq}}, Match{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	payload[0] = 0 // the template has its own copy
	buf := bytes.Repeat([]byte{0x11}, 26)
	if n := m.Fill(buf, 0x1_2345_6789, 0x1FE, 0x0102030405060708); n != 24 || n != m.Len() {
		t.Errorf("Fill returned %d, Len %d", n, m.Len())
	}
	want := "ee6789eefeee0102030405060708eeee456789eeeeeeeeee1111"
	if diff := cmp.Diff(want, hex.EncodeToString(buf)); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
	if _, ok := m.Key(buf); ok || m.Matches() || m.Keys() != 0 {
		t.Error("a template without match has a key")
	}
	defer func() {
		if recover() == nil {
			t.Error("a buffer that is too short was written to beyond its length")
		}
	}()
	m.Fill(buf[:23], 0, 0, 0)
}

func TestTemplateRandIsOfSeedSlotAndField(t *testing.T) {
	fill := func(seed, seq uint64) string {
		m, err := NewTemplate(make([]byte, 16), []Vary{{0, 8, VaryRand}, {8, 8, VaryRand}}, Match{}, seed)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16)
		m.Fill(buf, seq, 0, 0)
		return string(buf)
	}
	if first, again := fill(1, 5), fill(1, 5); first != again {
		t.Error("the same seed and slot give other bytes")
	}
	seen := map[string]bool{}
	for seed := range uint64(8) {
		for seq := range uint64(512) {
			b := fill(seed, seq)
			seen[b[:8]], seen[b[8:]] = true, true
		}
	}
	if len(seen) != 2*8*512 {
		t.Errorf("%d of %d random fields are distinct", len(seen), 2*8*512)
	}
	// Each bit is set in half of the 8192 values: 4096 with a standard deviation of 45.
	var ones [64]int
	for b := range seen {
		for bit := range ones {
			ones[bit] += int(b[bit/8] >> (bit % 8) & 1)
		}
	}
	for bit, n := range ones {
		if n < 4096-6*45 || n > 4096+6*45 {
			t.Errorf("bit %d is set %d times of 8192", bit, n)
		}
	}
}

func TestTemplateKeys(t *testing.T) {
	payload, err := hex.DecodeString("a0a1a2a3a4a5a6a7a8a9")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		seq   Vary
		match Match
		of    uint64
		key   uint64
		keys  uint64
	}{
		{"the field itself", Vary{2, 4, VarySeq}, Match{2, 4}, 0x1_0203_0405, 0x0203_0405, 1 << 32},
		{"its low bytes", Vary{2, 4, VarySeq}, Match{4, 2}, 0x0203_0405, 0x0405, 1 << 16},
		{"the field and fixed bytes around it", Vary{2, 2, VarySeq}, Match{1, 4}, 0x0203, 0xa1_0203_a4, 1 << 16},
		{"low bytes and a fixed one after them", Vary{2, 4, VarySeq}, Match{5, 2}, 0x0203_0405, 0x05_a6, 1 << 8},
		{"all of a uint64", Vary{0, 8, VarySeq}, Match{0, 8}, math.MaxUint64, math.MaxUint64, math.MaxUint64},
	} {
		m, err := NewTemplate(payload, []Vary{c.seq}, c.match, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		buf := make([]byte, m.Len())
		m.Fill(buf, c.of, 0, 0)
		if got, ok := m.Key(buf); got != c.key || !ok || m.KeyOf(c.of) != c.key || m.Keys() != c.keys {
			t.Errorf("%s: Key %x, %v, KeyOf %x, want %x; Keys %x, want %x", c.name, got, ok, m.KeyOf(c.of), c.key, m.Keys(), c.keys)
		}
		if _, ok := m.Key(buf[:c.match.Offset+c.match.Len-1]); ok {
			t.Errorf("%s: a reply cut inside the field has a key", c.name)
		}
	}
	m, err := NewTemplate(payload, []Vary{{2, 2, VarySeq}}, Match{1, 4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, m.Len())
	m.Fill(buf, 1, 0, 0)
	buf[1]++
	if _, ok := m.Key(buf); ok {
		t.Error("a reply with other fixed bytes in the match field has a key")
	}
}

func TestTemplateKeyIsWhatFillWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(8, 64).Draw(t, "size")
		payload := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "payload")
		v := Vary{Len: rapid.IntRange(1, 8).Draw(t, "len"), Kind: VarySeq}
		v.Offset = rapid.IntRange(0, size-v.Len).Draw(t, "offset")
		// The match ends at or after the field's last byte, and begins before it ends.
		end := rapid.IntRange(v.Offset+v.Len, min(size, v.Offset+v.Len+7)).Draw(t, "end")
		begin := rapid.IntRange(max(0, end-8), v.Offset+v.Len-1).Draw(t, "begin")
		match := Match{begin, end - begin}
		m, err := NewTemplate(payload, []Vary{v}, match, 0)
		if err != nil {
			t.Fatalf("%v %v: %v", v, match, err)
		}
		seq := rapid.Uint64().Draw(t, "seq")
		buf := make([]byte, size)
		m.Fill(buf, seq, 0, 0)
		if key, ok := m.Key(buf); !ok || key != m.KeyOf(seq) {
			t.Fatalf("Key %x, %v; KeyOf %x", key, ok, m.KeyOf(seq))
		}
		if keys := m.Keys(); keys != math.MaxUint64 {
			if m.KeyOf(seq) != m.KeyOf(seq+keys) {
				t.Fatalf("keys do not come again after %d", keys)
			}
			d := rapid.Uint64Range(1, keys-1).Draw(t, "distance")
			if m.KeyOf(seq) == m.KeyOf(seq+d) {
				t.Fatalf("keys come again after %d of %d", d, keys)
			}
		}
		for k := range buf {
			if (k < v.Offset || k >= v.Offset+v.Len) && buf[k] != payload[k] {
				t.Fatalf("byte %d outside the field changed", k)
			}
		}
	})
}

func TestTemplateDoesNotAllocate(t *testing.T) {
	m, err := NewTemplate(make([]byte, 64), []Vary{{0, 8, VarySeq}, {8, 8, VaryRand}, {16, 8, VaryTime}, {24, 2, VaryFlow}}, Match{0, 8}, 1)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	var seq uint64
	if n := testing.AllocsPerRun(100, func() {
		m.Fill(buf, seq, 1, 2)
		if key, ok := m.Key(buf); !ok || key != m.KeyOf(seq) {
			t.Error("wrong key")
		}
		seq++
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func FuzzParseVary(f *testing.F) {
	for _, s := range []string{"4:8:seq", "0:1:rand", "1:2", "::", "9999999999999999999:1:seq"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVary(s)
		switch {
		case err != nil && !strings.Contains(err.Error(), "vary "):
			t.Errorf("%q: error %q does not say where", s, err)
		case err == nil:
			again, err := ParseVary(v.String())
			if err != nil || again != v {
				t.Errorf("%q: %v prints as %q, which reads as %v, %v", s, v, v.String(), again, err)
			}
		}
	})
}

func BenchmarkTemplateFill(b *testing.B) {
	m, err := NewTemplate(make([]byte, 64), []Vary{{0, 8, VarySeq}, {8, 8, VaryRand}}, Match{0, 8}, 1)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64)
	b.ReportAllocs()
	var seq uint64
	for b.Loop() {
		m.Fill(buf, seq, 1, 2)
		seq++
	}
}
