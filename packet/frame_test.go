package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

var (
	macA = MAC{2, 0, 0, 0, 0, 1}
	macB = MAC{2, 0, 0, 0, 0, 2}
	v4   = Headers{SrcMAC: macA, DstMAC: macB, Src: netip.MustParseAddrPort("192.0.2.1:4000"), Dst: netip.MustParseAddrPort("198.51.100.7:53")}
	v6   = Headers{SrcMAC: macA, DstMAC: macB, Src: netip.MustParseAddrPort("[2001:db8::1]:4000"), Dst: netip.MustParseAddrPort("[2001:db8:1::9]:53")}
)

func tagged(h Headers, tci uint16) Headers {
	h.Tagged, h.VLAN = true, tci
	return h
}

// slowSum is RFC 1071 as its text says it: 16 bits at a time.
func slowSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		if sum += w; sum > 0xffff {
			sum -= 0xffff
		}
	}
	return uint16(sum)
}

func TestSumAgainstDefinition(t *testing.T) {
	// The worked example of RFC 1071, 3.
	if got := Fold(Sum(0, []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7})); got != 0xddf2 {
		t.Fatalf("RFC 1071 example: %#04x, want 0xddf2", got)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		for _, fill := range []byte{0, 0xff, 1} {
			b := bytes.Repeat([]byte{fill}, n)
			if fill == 1 {
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			}
			if got, want := Fold(Sum(0, b)), slowSum(b); got != want {
				t.Fatalf("%d bytes of %#x: %#04x, want %#04x", n, fill, got, want)
			}
			// In two pieces, cut at an even place, and upon an accumulator that is about to carry.
			cut := n / 2 &^ 1
			if got, want := Fold(Sum(Sum(0, b[:cut]), b[cut:])), slowSum(b); got != want {
				t.Fatalf("%d bytes of %#x in two pieces: %#04x, want %#04x", n, fill, got, want)
			}
			whole := Fold(uint64(Fold(^uint64(0))) + uint64(slowSum(b)))
			if got := Fold(Sum(^uint64(0), b)); got != whole {
				t.Fatalf("%d bytes of %#x upon all ones: %#04x, want %#04x", n, fill, got, whole)
			}
		}
	}
}

// Incremental and full checksums agree, whatever changes and wherever it lies.
func TestUpdateAgainstFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A first word that is not zero keeps the data from being all zero, which no real header is.
		b := append([]byte{0x45, 0}, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 1, 0x7f, 0xff, 0xff}), 2, 80).Draw(t, "data")...)
		check := Checksum(b)
		at := rapid.IntRange(2, len(b)-1).Draw(t, "at")
		n := rapid.IntRange(0, len(b)-at).Draw(t, "n")
		after := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), n, n).Draw(t, "after")
		got := Update(check, at&1 != 0, b[at:at+n], after)
		copy(b[at:], after)
		if want := Checksum(b); got != want {
			t.Fatalf("at %d: %#04x, want %#04x", at, got, want)
		}
	})
}

// TestUpdateRFC1624 is the case that equation 2 (RFC 1141) gets wrong: RFC 1624, section 4.
func TestUpdateRFC1624(t *testing.T) {
	if got := UpdateWord(0xdd2f, 0x5555, 0x3285); got != 0x0000 {
		t.Fatalf("%#04x, want 0x0000", got)
	}
}

// build makes the same packet by gopacket.
func build(t testing.TB, h Headers, payload []byte) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: h.SrcMAC[:], DstMAC: h.DstMAC[:]}
	udp := &layers.UDP{SrcPort: layers.UDPPort(h.Src.Port()), DstPort: layers.UDPPort(h.Dst.Port())}
	ttl := h.TTL
	if ttl == 0 {
		ttl = 64
	}
	var ip gopacket.SerializableLayer
	kind := layers.EthernetTypeIPv4
	if h.Src.Addr().Is4() {
		l := &layers.IPv4{Version: 4, TTL: ttl, TOS: h.TOS, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolUDP,
			SrcIP: h.Src.Addr().AsSlice(), DstIP: h.Dst.Addr().AsSlice()}
		_ = udp.SetNetworkLayerForChecksum(l)
		ip = l
	} else {
		kind = layers.EthernetTypeIPv6
		l := &layers.IPv6{Version: 6, HopLimit: ttl, TrafficClass: h.TOS, FlowLabel: h.FlowLabel, NextHeader: layers.IPProtocolUDP,
			SrcIP: h.Src.Addr().AsSlice(), DstIP: h.Dst.Addr().AsSlice()}
		_ = udp.SetNetworkLayerForChecksum(l)
		ip = l
	}
	stack := []gopacket.SerializableLayer{eth}
	eth.EthernetType = kind
	if h.Tagged {
		eth.EthernetType = layers.EthernetTypeDot1Q
		stack = append(stack, &layers.Dot1Q{Priority: uint8(h.VLAN >> 13), DropEligible: h.VLAN>>12&1 != 0,
			VLANIdentifier: h.VLAN & 0xfff, Type: kind})
	}
	stack = append(stack, ip, udp, gopacket.Payload(payload))
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	// gopacket writes a computed zero as it is; RFC 768 wants its other form. It pads to 60 bytes by itself.
	at := EthernetBytes + IPv4Bytes + udpCheck
	if h.Src.Addr().Is6() {
		at += IPv6Bytes - IPv4Bytes
	}
	if h.Tagged {
		at += VLANBytes
	}
	sum := b[at:]
	if binary.BigEndian.Uint16(sum) == 0 {
		binary.BigEndian.PutUint16(sum, 0xffff)
	}
	return b
}

// write makes the packet by Flow.
func write(t testing.TB, h Headers, payload []byte) ([]byte, *Flow) {
	t.Helper()
	f, err := NewFlow(h)
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{0xaa}, f.HeaderBytes()+max(len(payload), MinFrameBytes))
	copy(f.Payload(frame), payload)
	n := f.Write(frame, len(payload))
	return frame[:n], f
}

func anyHeaders(t *rapid.T) Headers {
	ip4 := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ip4")))
	})
	ip6 := rapid.Custom(func(t *rapid.T) netip.Addr {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ip6")
		b[0] = 0x20 // no mapped address
		return netip.AddrFrom16([16]byte(b))
	})
	h := Headers{
		SrcMAC: MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "smac")), DstMAC: MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "dmac")),
		TTL: rapid.Byte().Draw(t, "ttl"), TOS: rapid.Byte().Draw(t, "tos"), Tagged: rapid.Bool().Draw(t, "tagged"),
	}
	if h.Tagged {
		h.VLAN = rapid.Uint16().Draw(t, "tci")
	}
	ip := ip4
	if rapid.Bool().Draw(t, "v6") {
		ip, h.FlowLabel = ip6, rapid.Uint32Max(1<<20-1).Draw(t, "label")
	}
	h.Src = netip.AddrPortFrom(ip.Draw(t, "src"), rapid.Uint16().Draw(t, "sport"))
	h.Dst = netip.AddrPortFrom(ip.Draw(t, "dst"), rapid.Uint16().Draw(t, "dport"))
	return h
}

// Whatever the headers and the payload: our frame is the frame that gopacket makes, and our parser reads back what went in.
func TestWriteAgainstGopacket(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := anyHeaders(rt)
		payload := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(rt, "payload")
		got, _ := write(t, h, payload)
		if want := build(t, h, payload); !bytes.Equal(got, want) {
			rt.Fatalf("frames differ:\n%s", cmp.Diff(want, got))
		}
		var p Parsed
		if r := Parse(got, &p); r != 0 {
			rt.Fatalf("our own frame: %v", r)
		}
		if h.TTL == 0 {
			h.TTL = 64
		}
		back := Headers{SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN, Tagged: p.Tagged, Src: p.Src, Dst: p.Dst, TTL: p.TTL, TOS: p.TOS,
			FlowLabel: h.FlowLabel}
		if back != h || !bytes.Equal(p.Payload, payload) || p.SumState() != SumGood {
			rt.Fatalf("read back %+v, checksum %d, payload equal %v", back, p.SumState(), bytes.Equal(p.Payload, payload))
		}
	})
}

// A frame that is patched is the frame that would have been written whole.
func TestPatchAgainstWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := anyHeaders(rt)
		payload := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xff, 0x5a}), 1, 100).Draw(rt, "payload")
		frame, f := write(t, h, payload)
		for range 5 {
			off := rapid.IntRange(0, len(payload)-1).Draw(rt, "off")
			b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xff, 1}), 0, len(payload)-off).Draw(rt, "bytes")
			f.Patch(frame, off, b)
			copy(payload[off:], b)
			src, dst := rapid.Uint16().Draw(rt, "sport"), rapid.Uint16().Draw(rt, "dport")
			f.PatchPorts(frame, src, dst)
			h.Src, h.Dst = netip.AddrPortFrom(h.Src.Addr(), src), netip.AddrPortFrom(h.Dst.Addr(), dst)
			if want, _ := write(t, h, payload); !bytes.Equal(frame, want) {
				rt.Fatalf("patched frame differs:\n%s", cmp.Diff(want, frame))
			}
		}
	})
}

// A checksum that computes to zero goes out as 0xFFFF: by a whole write, by a patch of the payload and by a patch of the ports.
// A frame that is finished again is the frame that would have been written, whatever lies in the payload and where the padding goes.
func TestResumAgainstWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom([]Headers{v4, v6, tagged(v4, 83), tagged(v6, 83)}).Draw(t, "headers")
		h.Sum = rapid.SampledFrom([]UDPSum{SumFull, SumPartial}).Draw(t, "sum")
		f, err := NewFlow(h)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, 80).Draw(t, "bytes")
		frame := make([]byte, f.HeaderBytes()+MinFrameBytes+n)
		f.Write(frame, n)
		copy(f.Payload(frame), rapid.SliceOfN(rapid.Byte(), MinFrameBytes, MinFrameBytes).Draw(t, "payload and what lies behind it"))
		want := bytes.Clone(frame)
		end := f.Write(want, n)
		f.Resum(frame, n)
		if !bytes.Equal(frame[:end], want[:end]) {
			t.Fatalf("finished again\n% x, written\n% x", frame[:end], want[:end])
		}
	})
}

func TestZeroChecksum(t *testing.T) {
	for _, h := range []Headers{v4, v6, tagged(v4, 7), tagged(v6, 7)} {
		frame, f := write(t, h, make([]byte, 20))
		sum := frame[f.Layout().UDP+udpCheck:]
		check := binary.BigEndian.Uint16(sum)
		// Adding the checksum itself to the data makes the new checksum zero.
		f.Patch(frame, 4, []byte{byte(check >> 8), byte(check)})
		if got := binary.BigEndian.Uint16(sum); got != 0xffff {
			t.Errorf("patched: %#04x, want 0xffff", got)
		}
		payload := make([]byte, 20)
		binary.BigEndian.PutUint16(payload[4:], check)
		whole, _ := write(t, h, payload)
		if !bytes.Equal(whole, frame) {
			t.Errorf("written: %x\npatched: %x", whole, frame)
		}
		f.PatchPorts(frame, 1, 2)
		f.PatchPorts(frame, h.Src.Port(), h.Dst.Port())
		if !bytes.Equal(whole, frame) {
			t.Errorf("ports patched there and back: %x, want %x", frame, whole)
		}
		var p Parsed
		if r := Parse(frame, &p); r != 0 || p.SumState() != SumGood {
			t.Errorf("parse: %v, checksum %d", r, p.SumState())
		}
	}
}

func TestSumWays(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Headers
		sum  UDPSum
		want SumState
	}{
		{"full IPv4", v4, SumFull, SumGood},
		{"full IPv6", v6, SumFull, SumGood},
		{"for a network card to finish, IPv4", v4, SumPartial, SumUnfinished},
		{"for a network card to finish, IPv6", v6, SumPartial, SumUnfinished},
		{"none, IPv4", v4, SumNone, SumAbsent},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.h.Sum = c.sum
			frame, f := write(t, c.h, []byte("some payload of odd length: 37 bytes!"))
			var p Parsed
			if r := Parse(frame, &p); r != 0 || p.SumState() != c.want {
				t.Fatalf("parse %v, state %d, want %d", r, p.SumState(), c.want)
			}
			if c.sum == SumPartial { // finish it as the card would: sum from the UDP header on, complement, store
				udp := frame[f.Layout().UDP : f.Layout().Payload+len(p.Payload)]
				binary.BigEndian.PutUint16(udp[udpCheck:], udpField(Checksum(udp)))
				if p.SumState() != SumGood {
					t.Fatal("finished by the card, the checksum is wrong")
				}
			}
		})
	}
	frame, f := write(t, v4, []byte("damaged on the way"))
	frame[f.HeaderBytes()] ^= 1
	var p Parsed
	if r := Parse(frame, &p); r != 0 || p.SumState() != SumBad {
		t.Fatalf("damaged: parse %v, state %d", r, p.SumState())
	}
}

func TestNewFlowRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Headers)
	}{
		{"no address", func(h *Headers) { h.Src = netip.AddrPort{} }},
		{"two families", func(h *Headers) { h.Src = v6.Src }},
		{"mapped address", func(h *Headers) { h.Src = netip.MustParseAddrPort("[::ffff:1.2.3.4]:5") }},
		{"zone", func(h *Headers) { h.Src, h.Dst = netip.MustParseAddrPort("[fe80::1%eth0]:5"), v6.Dst }},
		{"flow label of 21 bits", func(h *Headers) { h.FlowLabel = 1 << 20 }},
		{"IPv6 without checksum", func(h *Headers) { h.Src, h.Dst, h.Sum = v6.Src, v6.Dst, SumNone }},
		{"unknown checksum way", func(h *Headers) { h.Sum = 9 }},
		{"VLAN id that would not be written", func(h *Headers) { h.VLAN = 5 }},
	} {
		h := v4
		c.change(&h)
		if _, err := NewFlow(h); err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
}

func TestMaxPayload(t *testing.T) {
	for _, c := range []struct {
		name       string
		h          Headers
		mtu, frame int
		want       int
	}{
		{"IPv4, limited by the MTU", v4, 1500, 2048, 1472},
		{"IPv6, limited by the MTU", v6, 1500, 2048, 1452},
		{"a tag does not count towards the MTU", tagged(v4, 5), 1500, 2048, 1472},
		{"limited by the frame buffer", v4, 9000, 2048, 2048 - 42},
		{"limited by the frame buffer, with a tag", tagged(v6, 5), 9000, 2048, 2048 - 66},
		{"limited by the IPv4 length field", v4, 1 << 20, 1 << 20, 65507},
		{"limited by the UDP length field", v6, 1 << 20, 1 << 20, 65527},
		{"not even the headers fit", v4, 20, 2048, -8},
	} {
		f, err := NewFlow(c.h)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.MaxPayload(c.mtu, c.frame); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// with returns a copy of the frame with some bytes replaced, the IPv4 header checksum mended.
func with(frame []byte, at int, b ...byte) []byte {
	frame = bytes.Clone(frame)
	copy(frame[at:], b)
	if binary.BigEndian.Uint16(frame[12:]) == etherIPv4 {
		copy(frame[24:], []byte{0, 0})
		binary.BigEndian.PutUint16(frame[24:], Checksum(frame[14:14+int(frame[14]&15)*4]))
	}
	return frame
}

func TestParseRejects(t *testing.T) {
	good4, _ := write(t, v4, make([]byte, 30))
	good6, _ := write(t, v6, make([]byte, 30))
	badSum := bytes.Clone(good4)
	badSum[22]++
	ext := func(kind byte, header ...byte) []byte { // puts one extension header in
		b := insert(good6, 54, append([]byte{protoUDP}, header...)...)
		b[20] = kind
		binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
		return b
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  Reject
	}{
		{"whole IPv4 packet", good4, 0},
		{"whole IPv6 packet", good6, 0},
		{"nothing", nil, RejectShort},
		{"half an Ethernet header", good4[:13], RejectShort},
		{"half an IPv4 header", good4[:30], RejectShort},
		{"half an IPv6 header", good6[:50], RejectShort},
		{"packet cut off", good4[:50], RejectShort},
		{"ARP", with(good4, 12, 8, 6), RejectNotIP},
		{"a tag and nothing behind it", with(good4[:15], 12, 0x81, 0), RejectShort},
		{"version 5", with(good4, 14, 0x55), RejectHeader},
		{"IPv4 header of 16 bytes", with(good4, 14, 0x44), RejectHeader},
		{"total length below the header", with(good4, 16, 0, 10), RejectHeader},
		{"damaged IPv4 header", badSum, RejectHeaderSum},
		{"first fragment", with(good4, 20, 0x20, 0), RejectFragment},
		{"later fragment", with(good4, 20, 0, 9), RejectFragment},
		{"TCP", with(good4, 23, 6), RejectNotUDP},
		{"ICMPv6", with(good6, 20, 58), RejectNotUDP},
		{"UDP length below its header", with(good4, 38, 0, 7), RejectLength},
		{"UDP length beyond the packet", with(good4, 38, 0, 200), RejectLength},
		{"no room for a UDP header", with(good4, 16, 0, 24), RejectLength},
		{"behind hop-by-hop options", ext(0, 0, 1, 4, 0, 0, 0, 0), 0},
		{"behind an atomic fragment header", ext(44, 0, 0, 0, 0, 0, 0, 1), 0},
		{"IPv6 fragment", ext(44, 0, 0, 1, 0, 0, 0, 1), RejectFragment},
		{"options that run out of the packet", ext(0, 200, 1, 4, 0, 0, 0, 0), RejectLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p Parsed
			if got := Parse(c.frame, &p); got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
		})
	}
}

func insert(b []byte, at int, x ...byte) []byte {
	return append(append(bytes.Clone(b[:at]), x...), b[at:]...)
}

// Parse agrees with gopacket on what it accepts, and reads nothing beyond the frame, whatever the bytes.
func FuzzParse(f *testing.F) {
	for _, h := range []Headers{v4, v6, tagged(v4, 0x6005), tagged(v6, 4095)} {
		frame, _ := write(f, h, []byte("seed payload"))
		f.Add(frame)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var p Parsed
		if Parse(frame, &p) != 0 {
			return
		}
		p.SumState()
		pkt := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
		udp, ok := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			// gopacket does not walk every extension header and knows no 802.1ad; what it stops at is not a contradiction.
			return
		}
		if uint16(udp.SrcPort) != p.Src.Port() || uint16(udp.DstPort) != p.Dst.Port() {
			t.Fatalf("ports %d %d, gopacket %d %d", p.Src.Port(), p.Dst.Port(), udp.SrcPort, udp.DstPort)
		}
		if udp.Length != 0 && !bytes.Equal(udp.Payload, p.Payload) {
			t.Fatalf("payload of %d bytes, gopacket %d", len(p.Payload), len(udp.Payload))
		}
		src, _ := netip.AddrFromSlice(pkt.NetworkLayer().NetworkFlow().Src().Raw())
		if src != p.Src.Addr() {
			t.Fatalf("source %s, gopacket %s", p.Src.Addr(), src)
		}
	})
}

// Patch and Update agree with writing whole, for any bytes.
func FuzzPatch(f *testing.F) {
	f.Add([]byte("payload"), []byte{1}, uint8(3), true)
	f.Fuzz(func(t *testing.T, payload, change []byte, at uint8, six bool) {
		if len(payload) > 1400 || int(at)+len(change) > len(payload) {
			return
		}
		h := v4
		if six {
			h = v6
		}
		frame, flow := write(t, h, payload)
		flow.Patch(frame, int(at), change)
		copy(payload[at:], change)
		if want, _ := write(t, h, payload); !bytes.Equal(frame, want) {
			t.Fatalf("patched %x\nwritten %x", frame, want)
		}
	})
}

func TestNoAllocations(t *testing.T) {
	frame, f := write(t, v6, make([]byte, 100))
	stamp := make([]byte, 16)
	var p Parsed
	if r := Parse(frame, &p); r != 0 {
		t.Fatal(r)
	}
	for name, fn := range map[string]func(){
		"Write":    func() { f.Write(frame, 100) },
		"Resum":    func() { f.Resum(frame, 100) },
		"Patch":    func() { f.Patch(frame, 1, stamp) },
		"Parse":    func() { Parse(frame, &p) },
		"SumState": func() { p.SumState() },
	} {
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	stamp := make([]byte, 16)
	for _, size := range []int{18, 1400} {
		frame, f := write(b, v4, make([]byte, size))
		var p Parsed
		for _, c := range []struct {
			name string
			fn   func()
		}{
			{"write", func() { f.Write(frame, size) }},
			{"resum", func() { f.Resum(frame, size) }},
			{"patch16", func() { f.Patch(frame, 0, stamp) }},
			{"parse", func() { Parse(frame, &p) }},
			{"sum", func() { Sum(0, frame) }},
		} {
			b.Run(c.name+map[int]string{18: "/18B", 1400: "/1400B"}[size], func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.fn()
				}
			})
		}
	}
}
