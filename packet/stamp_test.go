package packet

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawStamp(t *rapid.T) Stamp {
	return Stamp{
		Epoch: rapid.Uint8().Draw(t, "epoch"), Worker: rapid.Uint16().Draw(t, "worker"), Stride: rapid.Uint16().Draw(t, "stride"),
		Seq: rapid.Uint64().Draw(t, "seq"), Planned: rapid.Int64().Draw(t, "planned"), Sent: rapid.Int64().Draw(t, "sent"),
	}
}

func TestStampRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawStamp(t)
		b := rapid.SliceOfN(rapid.Byte(), StampBytes, 100).Draw(t, "before")
		tail := bytes.Clone(b)
		PutStamp(b, &want)
		var got Stamp
		if !ParseStamp(b, rapid.Int64().Draw(t, "now"), &got) {
			t.Fatal("not recognised")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("sender's part (-want +got):\n%s", diff)
		}
		end := StampBytes
		if len(b) >= StampBytes+ReportBytes {
			end += ReportBytes
		}
		if !bytes.Equal(b[end:], tail[end:]) {
			t.Fatal("bytes behind the stamp changed")
		}

		want.ServerReceived, want.ServerSent = rapid.Int64().Draw(t, "received"), rapid.Int64().Draw(t, "server sent")
		count, window := rapid.Uint64().Draw(t, "count"), rapid.Uint64().Draw(t, "window")
		if end > StampBytes {
			want.ServerCount, want.ServerWindow, want.HasReport = count, window, count != 0
		}
		PutServer(b, want.ServerReceived, -1, count, window)
		PutServerSent(b, want.ServerSent)
		if !ParseStamp(b, 0, &got) {
			t.Fatal("not recognised after the server")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("server's part (-want +got):\n%s", diff)
		}
		if !bytes.Equal(b[end:], tail[end:]) {
			t.Fatal("the server changed bytes behind the stamp")
		}
	})
}

// TestStampLayout holds the bytes still: another program, or another version of this one, reads them.
func TestStampLayout(t *testing.T) {
	b := make([]byte, StampBytes+ReportBytes)
	PutStamp(b, &Stamp{Epoch: 0x01, Worker: 0x0203, Stride: 0x0405, Seq: 0x1112131415161718, Planned: 0x2122232425262728, Sent: 0x3132333435363738})
	PutServer(b, 0x4142434445464748, 0x5152535455565758, 0x6162636465666768, 0x7172737475767778)
	want := []byte{0xB1, 0xA5, 1, 0x01, 2, 3, 4, 5}
	for high := byte(0x10); high <= 0x70; high += 0x10 {
		for low := byte(1); low <= 8; low++ {
			want = append(want, high|low)
		}
	}
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("full (-want +got):\n%s", diff)
	}
	c := make([]byte, CompactBytes)
	PutCompact(c, &Stamp{Worker: 0x0102, Seq: 0x9999_111213141516, Planned: 0x99_2122232425, Sent: 0x99_2122232425 + 0x313233*64})
	want = []byte{0xB2, 2, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x21, 0x22, 0x23, 0x24, 0x25, 0x31, 0x32, 0x33}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("compact (-want +got):\n%s", diff)
	}
}

func TestCompactRoundTrip(t *testing.T) {
	const nineMinutes = 9 * 60 * 1e9 // the wrap is at 18.3 minutes, so half of it is 9.16
	rapid.Check(t, func(t *rapid.T) {
		want := drawStamp(t)
		now := rapid.Int64Range(0, 1<<62).Draw(t, "now")
		want.Planned = now + rapid.Int64Range(-nineMinutes, nineMinutes).Draw(t, "planned - now")
		lag := rapid.Int64Range(-1e9, 1e10).Draw(t, "lag")
		want.Sent = want.Planned + lag
		b := rapid.SliceOfN(rapid.Byte(), CompactBytes, 40).Draw(t, "before")
		tail := bytes.Clone(b[CompactBytes:])
		PutCompact(b, &want)
		var got Stamp
		if !ParseStamp(b, now, &got) {
			t.Fatal("not recognised")
		}
		// What the form has room for.
		want.Epoch, want.Stride, want.Compact = 0, 0, true
		want.Worker &= 0xff
		want.Seq &= 1<<48 - 1
		want.Sent = want.Planned + min(max(lag, 0), (1<<24-1)*64)/64*64
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		before := bytes.Clone(b)
		PutServer(b, 1, 2, 3, 4)
		PutServerSent(b, 5)
		if !bytes.Equal(before, b) || !bytes.Equal(tail, b[CompactBytes:]) {
			t.Fatal("bytes changed that are not the sender's part of the stamp")
		}
	})
}

func TestCompactAtItsLimits(t *testing.T) {
	const wrap = int64(1) << 40
	for _, c := range []struct {
		name               string
		now, planned, sent int64
		wantSent           int64
	}{
		{"now just after a wrap, planned just before it", 5*wrap + 10, 5*wrap - 10, 5*wrap + 54, 5*wrap + 54},
		{"now just before a wrap, planned just after it", 5*wrap - 10, 5*wrap + 10, 5*wrap + 10, 5*wrap + 10},
		{"a machine that has only just started", 3, wrap / 4, wrap / 4, wrap / 4},
		{"lag below the unit of 64 ns is cut off", 1000, 1000, 1063, 1000},
		{"the largest lag there is", 1000, 1000, 1000 + (1<<24-1)*64, 1000 + (1<<24-1)*64},
		{"a larger lag saturates", 1000, 1000, 1000 + 2e9, 1000 + (1<<24-1)*64},
		{"sent before planned is no lag", 1000, 1000, 500, 1000},
	} {
		b := make([]byte, CompactBytes)
		PutCompact(b, &Stamp{Planned: c.planned, Sent: c.sent})
		var got Stamp
		if !ParseStamp(b, c.now, &got) || got.Planned != c.planned || got.Sent != c.wantSent {
			t.Errorf("%s: planned %d sent %d, want %d and %d", c.name, got.Planned, got.Sent, c.planned, c.wantSent)
		}
	}
}

func TestCutStampsAreRefused(t *testing.T) {
	full, compact := make([]byte, 100), make([]byte, 100)
	PutStamp(full, &Stamp{Seq: 1})
	PutCompact(compact, &Stamp{Seq: 1})
	for n := range 100 {
		var s Stamp
		if got, want := ParseStamp(full[:n], 0, &s), n >= StampBytes; got != want {
			t.Errorf("full stamp cut to %d bytes: %v, want %v", n, got, want)
		}
		if got, want := ParseStamp(compact[:n], 0, &s), n >= CompactBytes; got != want {
			t.Errorf("compact stamp cut to %d bytes: %v, want %v", n, got, want)
		}
		if got, want := BeginsStamp(full[:n]), n >= 2; got != want {
			t.Errorf("full stamp cut to %d bytes begins a stamp: %v, want %v", n, got, want)
		}
		if got, want := BeginsStamp(compact[:n]), n >= 1; got != want {
			t.Errorf("compact stamp cut to %d bytes begins a stamp: %v, want %v", n, got, want)
		}
		before := bytes.Clone(full[:n])
		PutServer(full[:n:n], 0, 0, 0, 0)
		PutServerSent(full[:n:n], 0)
		if !bytes.Equal(before, full[:n]) {
			t.Errorf("the server's zeros changed a stamp cut to %d bytes", n)
		}
	}
	full[2]++
	if ParseStamp(full, 0, new(Stamp)) || !BeginsStamp(full) {
		t.Error("a stamp of another version is not told from ours")
	}
}

func TestStampsDoNotAllocate(t *testing.T) {
	b := make([]byte, 64)
	s := Stamp{Seq: 1}
	if n := testing.AllocsPerRun(100, func() {
		PutStamp(b, &s)
		PutServer(b, 1, 2, 3, 4)
		ParseStamp(b, 5, &s)
		PutCompact(b, &s)
		ParseStamp(b, 5, &s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParseStamp: nothing that comes from the network makes it panic, and what it takes for a full stamp is one.
func FuzzParseStamp(f *testing.F) {
	b := make([]byte, StampBytes+ReportBytes)
	PutStamp(b, &Stamp{Epoch: 1, Worker: 2, Stride: 3, Seq: 4, Planned: 5, Sent: 6})
	PutServer(b, 7, 8, 9, 10)
	f.Add(b, int64(0))
	f.Add(b[:StampBytes], int64(1))
	f.Add(b[:StampBytes-1], int64(1))
	PutCompact(b, &Stamp{Worker: 1, Seq: 2, Planned: 3, Sent: 4})
	f.Add(b[:CompactBytes], int64(-1))
	f.Add(b[:CompactBytes], int64(1<<63-1))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, now int64) {
		var s Stamp
		if !ParseStamp(b, now, &s) {
			if s != (Stamp{}) {
				t.Error("a refused payload left something in the stamp")
			}
			return
		}
		again := bytes.Clone(b)
		if s.Compact {
			PutCompact(again, &s)
		} else {
			PutStamp(again, &s)
			PutServer(again, s.ServerReceived, s.ServerSent, s.ServerCount, s.ServerWindow)
		}
		if !bytes.Equal(b, again) {
			t.Errorf("% x\nreads as %+v, which is written\n% x", b, s, again)
		}
		PutServer(b, 1, 2, 3, 4)
	})
}

func BenchmarkParseStamp(b *testing.B) {
	buf := make([]byte, 64)
	PutStamp(buf, &Stamp{Seq: 1})
	b.ReportAllocs()
	var s Stamp
	for b.Loop() {
		ParseStamp(buf, 5, &s)
	}
}
