package sys

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestControl(t *testing.T) {
	// Layouts of linux/errqueue.h and linux/socket.h: kernel ABI.
	if got := unsafe.Sizeof(SocketError{}); got != 16 {
		t.Errorf("sock_extended_err has %d bytes, want 16", got)
	}
	b := make([]byte, ControlSpace(2)+ControlSpace(4))
	PutSegment(b, 1472)
	level, typ, data, rest, ok := NextControl(b)
	if !ok || level != unix.IPPROTO_UDP || typ != unix.UDP_SEGMENT || len(data) != 2 || binary.NativeEndian.Uint16(data) != 1472 {
		t.Fatalf("level %d, type %d, data %x, %v", level, typ, data, ok)
	}
	if len(rest) != ControlSpace(4) {
		t.Fatalf("%d bytes left, want %d", len(rest), ControlSpace(4))
	}
	if _, _, _, _, ok := NextControl(rest); ok {
		t.Fatal("a header of length 0 was taken for a message")
	}
	parsed, err := unix.ParseSocketControlMessage(b[:ControlSpace(2)])
	if err != nil || len(parsed) != 1 || !bytes.Equal(parsed[0].Data, data) {
		t.Fatalf("another parser reads %v, %v", parsed, err)
	}
}

// FuzzNextControl looks for control data that makes the walk leave its memory or never end.
func FuzzNextControl(f *testing.F) {
	good := make([]byte, ControlSpace(2))
	PutSegment(good, 9)
	f.Add(good)
	f.Add(bytes.Repeat([]byte{255}, 40))
	f.Fuzz(func(t *testing.T, in []byte) {
		words := make([]uint64, len(in)/8+1) // word aligned, as the kernel's buffer is
		b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[:len(in)]
		copy(b, in)
		for {
			_, _, data, rest, ok := NextControl(b)
			if !ok {
				return
			}
			if len(rest) >= len(b) || len(data) > len(b)-unix.SizeofCmsghdr {
				t.Fatalf("%d bytes of data and %d left of %d", len(data), len(rest), len(b))
			}
			b = rest
		}
	})
}

func TestParseSockaddr(t *testing.T) {
	v4 := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(v4, unix.AF_INET)
	binary.BigEndian.PutUint16(v4[2:], 4000)
	copy(v4[4:], []byte{192, 0, 2, 1})
	v6 := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(v6, unix.AF_INET6)
	binary.BigEndian.PutUint16(v6[2:], 4000)
	scoped := func(addr string, scope uint32) []byte {
		b := bytes.Clone(v6)
		a := netip.MustParseAddr(addr).As16()
		copy(b[8:], a[:])
		binary.NativeEndian.PutUint32(b[24:], scope)
		return b
	}
	for _, c := range []struct {
		about, want string
		in          []byte
	}{
		{"IPv4", "192.0.2.1:4000", v4},
		{"IPv6", "[2001:db8::1]:4000", scoped("2001:db8::1", 0)},
		{"link-local: the scope is the zone", "[fe80::1%3]:4000", scoped("fe80::1", 3)},
		{"a scope of a global address means nothing", "[2001:db8::1]:4000", scoped("2001:db8::1", 3)},
		{"too short", "", v4[:8]},
		{"IPv6 cut off", "", v6[:20]},
		{"another family", "", make([]byte, 28)},
	} {
		got, ok := ParseSockaddr(c.in)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %v, %v; want %q", c.about, got, ok, c.want)
		}
	}
}
