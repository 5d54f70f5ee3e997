package xdp

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"blast/internal/testskip"
)

// TestKernelProgram runs the program on single frames: which it would redirect and which it leaves to the kernel. No socket is in the
// map, so every frame that matches is counted as unclaimed and passes.
func TestKernelProgram(t *testing.T) {
	for name, stamp := range map[string]bool{"plain": false, "noting arrivals": true} {
		t.Run(name, func(t *testing.T) { testProgram(t, stamp) })
	}
}

func testProgram(t *testing.T, stamp bool) {
	p, err := loadProgram(1, stamp)
	if errors.Is(err, unix.EPERM) {
		testskip.Skip(t, "xdp", err.Error(), "sudo -E go test ./xdp")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.setPorts([]uint16{1, 53, 63, 64, 65535}, true); err != nil {
		t.Fatal(err)
	}
	if err := p.setPorts([]uint16{63}, false); err != nil {
		t.Fatal(err)
	}
	v4 := func(port uint16, change func([]byte)) []byte {
		b := make([]byte, 14+20+8+18)
		copy(b[12:], []byte{8, 0, 0x45})
		b[23] = unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(b[36:], port)
		if change != nil {
			change(b)
		}
		return b
	}
	v6 := func(port uint16, change func([]byte)) []byte {
		b := make([]byte, 14+40+8+18)
		copy(b[12:], []byte{0x86, 0xdd, 0x60})
		b[20] = unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(b[56:], port)
		if change != nil {
			change(b)
		}
		return b
	}
	tagged := func(b []byte) []byte {
		return append(append(append([]byte{}, b[:12]...), 0x81, 0, 0, 83), b[12:]...)
	}
	options := func(b []byte) []byte { // 4 bytes of IPv4 options
		b = append(append(append([]byte{}, b[:34]...), 1, 1, 1, 1), b[34:]...)
		b[14] = 0x46
		return b
	}
	for _, c := range []struct {
		name  string
		frame []byte
		ours  bool
	}{
		{"IPv4 to our port", v4(53, nil), true},
		{"IPv6 to our port", v6(53, nil), true},
		{"lowest port", v4(1, nil), true},
		{"highest port", v6(65535, nil), true},
		{"port in the second word", v4(64, nil), true},
		{"port that was given back", v4(63, nil), false},
		{"port of somebody else", v4(54, nil), false},
		{"port of somebody else, IPv6", v6(117, nil), false}, // 53+64: the same bit of the next word
		{"IPv4 in a VLAN", tagged(v4(53, nil)), true},
		{"IPv6 in a VLAN", tagged(v6(53, nil)), true},
		{"two tags", tagged(tagged(v4(53, nil))), false},
		{"IPv4 with options", options(v4(53, nil)), true},
		{"IPv4 with options, the port where it would be without", options(v4(54, func(b []byte) { binary.BigEndian.PutUint16(b[32:], 53) })), false},
		{"TCP", v4(53, func(b []byte) { b[23] = unix.IPPROTO_TCP }), false},
		{"ICMPv6 (neighbour discovery)", v6(53, func(b []byte) { b[20] = unix.IPPROTO_ICMPV6 }), false},
		{"ARP", v4(53, func(b []byte) { b[13] = 6 }), false},
		{"first fragment", v4(53, func(b []byte) { b[20] = 0x20 }), false},
		{"later fragment", v4(53, func(b []byte) { b[21] = 1 }), false},
		{"don't fragment is no fragment", v4(53, func(b []byte) { b[20] = 0x40 }), true},
		{"IPv4 header length below 20", v4(53, func(b []byte) { b[14] = 0x44 }), false},
		{"cut off in the UDP header", v4(53, nil)[:14+20+4], false},
		{"IPv6 cut off in the UDP header", v6(53, nil)[:14+40+4], false},
		{"options that run out of the frame", v4(53, func(b []byte) { b[14] = 0x4f })[:14+20+8], false},
		{"an Ethernet header alone", make([]byte, 14), false},
	} {
		before, err := p.count(countUnclaimed)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.prog.Run(&ebpf.RunOptions{Data: c.frame})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		after, err := p.count(countUnclaimed)
		if err != nil {
			t.Fatal(err)
		}
		if answer != xdpPass || (after != before) != c.ours {
			t.Errorf("%s: answer %d, taken for ours %v, want %v", c.name, answer, after != before, c.ours)
		}
	}
	if n, err := p.count(countRedirected); err != nil || n != 0 {
		t.Errorf("%d redirected, %v", n, err)
	}
}
