package xdplive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"blast/backend"
	"blast/packet"
	"blast/xdp"
	"blast/xdp/live"
)

// ways remembers next hops: thousands of flows lead to few targets.
type ways struct {
	resolver      *xdp.Resolver
	known         map[way]*xdp.NextHop
	interfaceName string // the one that all lead to
}

type way struct{ to, from netip.Addr }

func newWays() (*ways, error) {
	r, err := xdp.NewResolver()
	if err != nil {
		return nil, err
	}
	return &ways{resolver: r, known: map[way]*xdp.NextHop{}}, nil
}

func (w *ways) close() { w.resolver.Close() }

// find is the way of a flow by an interface, "" = by route.
func (w *ways) find(f backend.Flow, by string) (*xdp.NextHop, error) {
	key := way{f.Dst.Addr().Unmap(), f.Src.Addr().Unmap()}
	if key.from.IsUnspecified() {
		key.from = netip.Addr{}
	}
	if hop := w.known[key]; hop != nil {
		return hop, nil
	}
	hop, err := w.resolver.Resolve(context.Background(), xdp.Target{Addr: key.to, Source: key.from, Interface: by, Wait: defaultWait})
	if err != nil {
		return nil, err
	}
	switch w.interfaceName {
	case "":
		w.interfaceName = hop.Interface
	case hop.Interface:
	default:
		return nil, fmt.Errorf("flows lead to %s and to %s: want one interface a run; use --backend sendmmsg: %w",
			w.interfaceName, hop.Interface, errors.ErrUnsupported)
	}
	w.known[key] = hop
	return hop, nil
}

// prepare checks the configuration and builds the frames.
func (w *worker) prepare(cfg *backend.OffloadConfig, ways *ways) error {
	if err := supported(cfg); err != nil {
		return err
	}
	w.config = live.SenderConfig{
		Times: nil, Slots: cfg.Slots, First: cfg.First, Unpaced: cfg.Unpaced, CatchUp: live.CatchUp(cfg.CatchUp), MaxLag: cfg.MaxLag,
		Batch: cfg.Batch, Interval: cfg.Interval, Tell: cfg.Tell,
		Departures: !cfg.Unpaced && cfg.Rate <= departuresMost,
	}
	if w.config.Batch == 0 {
		w.config.Batch = batchFor(cfg.Rate, cfg.Unpaced)
	}
	for _, g := range cfg.Segments {
		w.config.Segments = append(w.config.Segments, live.Segment{Start: int64(g.Start), Slots: g.Slots, Acc: g.Acc, Quot: g.Quot, Rem: g.Rem, Den: g.Den, Each: g.Each})
	}
	if cfg.Segments == nil {
		w.config.Times = func() int64 { return int64(cfg.Times()) }
	}
	w.setStamp(cfg)
	for i, f := range cfg.Flows {
		hop, err := ways.find(f, cfg.Interface)
		if err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
		if err := w.addFlow(f, hop, cfg); err != nil {
			return fmt.Errorf("flow %d from %v to %v: %w", i, f.Src, f.Dst, err)
		}
	}
	return nil
}

// supported refuses what cannot be honoured.
func supported(cfg *backend.OffloadConfig) error {
	refuse := func(what, instead string) error {
		return fmt.Errorf("%s: %s: %w", what, instead, errors.ErrUnsupported)
	}
	switch {
	case len(cfg.Flows) == 0:
		return errors.New("no flow")
	case cfg.GSO > 1 || cfg.GRO:
		return refuse("segmentation offload", "there is no socket here; use --backend sendmmsg")
	case cfg.KernelStamp:
		return refuse("kernel receive times", "replies are always timed in the kernel here; leave the option out")
	case cfg.Fragment:
		return refuse("fragments", "use --backend sendmmsg")
	case cfg.SendBuffer != 0 || cfg.ReceiveBuffer != 0:
		return refuse("socket buffers", "there is no socket here; leave the option out")
	case cfg.SQPoll || cfg.ZeroCopy:
		return refuse("options of other backends", "leave them out")
	case cfg.Payload != nil && len(cfg.Payload) != cfg.PayloadBytes:
		return fmt.Errorf("payload of %d bytes given for %d", len(cfg.Payload), cfg.PayloadBytes)
	case cfg.Segments == nil && cfg.Times == nil:
		return errors.New("no plan")
	}
	return nil
}

// setStamp chooses the form of the stamp for the payload size.
func (w *worker) setStamp(cfg *backend.OffloadConfig) {
	var whole [packet.StampBytes]byte
	stamp := packet.Stamp{Epoch: cfg.Epoch, Worker: cfg.Worker}
	if len(cfg.Flows) <= 0xffff {
		stamp.Stride = uint16(len(cfg.Flows))
	}
	switch n := cfg.PayloadBytes; {
	case cfg.Payload != nil || n < packet.CompactBytes:
		return
	case n >= packet.StampBytes+packet.ReportBytes:
		w.config.StampBytes = packet.StampBytes + packet.ReportBytes
	case n >= packet.StampBytes:
		w.config.StampBytes = packet.StampBytes
	default:
		w.config.StampBytes = packet.CompactBytes
		packet.PutCompact(whole[:], &stamp)
		copy(w.config.StampHead[:2], whole[:])
		return
	}
	packet.PutStamp(whole[:], &stamp)
	copy(w.config.StampHead[:], whole[:])
}

// addFlow builds the frame of one flow and takes its source port.
func (w *worker) addFlow(f backend.Flow, hop *xdp.NextHop, cfg *backend.OffloadConfig) error {
	src := netip.AddrPortFrom(hop.Source, f.Src.Port())
	if !cfg.Held {
		var err error
		if src, err = w.hold(src); err != nil {
			return err
		}
	}
	flow, err := packet.NewFlow(packet.Headers{
		SrcMAC: hop.SrcMAC, DstMAC: hop.DstMAC, VLAN: hop.VLAN, Tagged: hop.Tagged,
		Src: src, Dst: netip.AddrPortFrom(f.Dst.Addr().Unmap().WithZone(""), f.Dst.Port()),
	})
	if err != nil {
		return err
	}
	layout := flow.Layout()
	if len(w.config.Frames) == 0 {
		w.config.Header, w.layoutIP, w.mtu, w.ipv6 = layout.Payload, layout.IP, hop.MTU, layout.V6
	}
	if layout.Payload != w.config.Header {
		return fmt.Errorf("headers of %d and of %d bytes in one worker (IPv4 and IPv6, or with and without a VLAN tag): give each kind its own run, "+
			"or use --backend sendmmsg: %w", w.config.Header, layout.Payload, errors.ErrUnsupported)
	}
	w.mtu = min(w.mtu, hop.MTU)
	frame := make([]byte, max(layout.Payload+cfg.PayloadBytes, packet.MinFrameBytes))
	copy(flow.Payload(frame), cfg.Payload)
	w.config.Frames = append(w.config.Frames, frame[:flow.Write(frame, cfg.PayloadBytes)])
	w.sources = append(w.sources, src)
	return nil
}

// hold binds a socket to the source of a flow, so that the port is ours alone and the kernel chooses one where none is named. Flows to
// several targets may share a source.
func (w *worker) hold(src netip.AddrPort) (netip.AddrPort, error) {
	if src.Port() != 0 {
		if _, held := w.run.held[src]; held {
			return src, nil
		}
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(src))
	if err != nil {
		return src, fmt.Errorf("source: %w", err)
	}
	w.sockets = append(w.sockets, conn)
	bound := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	src = netip.AddrPortFrom(src.Addr(), bound.Port())
	if w.run.held == nil {
		w.run.held = map[netip.AddrPort]struct{}{}
	}
	w.run.held[src] = struct{}{}
	return src, nil
}
