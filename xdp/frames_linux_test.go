package xdp_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"blast/internal/testnet"
)

// testFlow builds UDP frames by gopacket: whoever sends them through this package, it is an independent judge who made them.
type testFlow struct {
	t            testing.TB
	src, dst     netip.AddrPort
	smac, dmac   net.HardwareAddr
	vlan         int
	partial      bool // leave the checksum to be finished
	payload, udp int  // where they start
}

// flow makes headers from one address to another.
func flow(t testing.TB, src, dst netip.AddrPort, srcMAC, dstMAC []byte, vlan int) *testFlow {
	f := &testFlow{t: t, src: src, dst: dst, smac: srcMAC, dmac: dstMAC, vlan: vlan, udp: 14 + 20}
	if src.Addr().Is6() {
		f.udp = 14 + 40
	}
	if vlan != 0 {
		f.udp += 4
	}
	f.payload = f.udp + 8
	return f
}

// across makes headers from left to right.
func across(t testing.TB, p *testnet.Pair, src, dst netip.Prefix, vlan int) *testFlow {
	t.Helper()
	return flow(t, netip.AddrPortFrom(src.Addr(), ourPort), netip.AddrPortFrom(dst.Addr(), theirPort), p.Left.MAC, p.Right.MAC, vlan)
}

// Payload is where the payload goes in a frame.
func (f *testFlow) Payload(frame []byte) []byte { return frame[f.payload:] }

// Write puts the headers around a payload of n bytes that is in its place.
func (f *testFlow) Write(frame []byte, n int) int {
	return copy(frame, f.frame(append([]byte{}, frame[f.payload:f.payload+n]...)))
}

// frame makes a whole frame.
func (f *testFlow) frame(payload []byte) []byte {
	f.t.Helper()
	eth := &layers.Ethernet{SrcMAC: f.smac, DstMAC: f.dmac}
	udp := &layers.UDP{SrcPort: layers.UDPPort(f.src.Port()), DstPort: layers.UDPPort(f.dst.Port())}
	stack := []gopacket.SerializableLayer{eth}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	kind := layers.EthernetTypeIPv4
	if f.src.Addr().Is4() {
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: f.src.Addr().AsSlice(), DstIP: f.dst.Addr().AsSlice()}
	} else {
		kind = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: f.src.Addr().AsSlice(), DstIP: f.dst.Addr().AsSlice()}
	}
	eth.EthernetType = kind
	if f.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: uint16(f.vlan), Type: kind})
	}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		f.t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(stack, ip, udp, gopacket.Payload(payload))...); err != nil {
		f.t.Fatal(err)
	}
	b := buf.Bytes()
	if f.partial {
		binary.BigEndian.PutUint16(b[f.udp+6:], f.pseudoSum(8+len(payload)))
	}
	return b
}

// pseudoSum is what a network card finds in the checksum field of a packet that it is to finish: the sum of the pseudo-header (RFC 768).
func (f *testFlow) pseudoSum(length int) uint16 {
	b := append(append(f.src.Addr().AsSlice(), f.dst.Addr().AsSlice()...), 0, 17, byte(length>>8), byte(length))
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// decoded is a UDP packet as gopacket reads it.
type decoded struct {
	port    uint16 // destination
	vlan    int
	payload []byte
	packet  gopacket.Packet
	udp     *layers.UDP
}

// decode reads a frame; nil when it carries no UDP.
func decode(frame []byte) *decoded {
	pkt := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	udp, ok := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || pkt.ErrorLayer() != nil {
		return nil
	}
	d := &decoded{port: uint16(udp.DstPort), payload: udp.Payload, packet: pkt, udp: udp}
	if tag, ok := pkt.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
		d.vlan = int(tag.VLANIdentifier)
	}
	return d
}

// checkFrame lets gopacket check the checksums of a frame and compares its payload.
func checkFrame(t testing.TB, frame, payload []byte) {
	t.Helper()
	d := decode(frame)
	if d == nil {
		t.Fatalf("gopacket cannot read the frame %x", frame)
	}
	if err := d.udp.SetNetworkLayerForChecksum(d.packet.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	if err, bad := d.packet.VerifyChecksums(); err != nil || len(bad) > 0 {
		t.Fatalf("gopacket finds wrong checksums: %v %v", err, bad)
	}
	if string(d.payload) != string(payload) {
		t.Fatalf("captured payload %q", d.payload[:min(len(d.payload), 20)])
	}
}
