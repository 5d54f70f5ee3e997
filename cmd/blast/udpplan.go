package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/backend/mmsg"
	"blast/calib"
	"blast/engine"
	"blast/live"
	"blast/pace"
	"blast/packet"
	"blast/stats"
	"blast/tuning"
	"blast/verdict"
	"blast/xdp"
)

// udpPlan is a run of blast udp, ready to go.
type udpPlan struct {
	engine        engine.Config
	entry         backend.Entry
	offload       *backend.OffloadEntry // executes the plan itself; nil for the backends that the engine drives
	auto          string                // why auto chose entry
	rounds        int
	config        stats.Config
	host          stats.Host
	iface         string         // by which packets leave; the first target's where there are several
	profile       *calib.Profile // of this host; nil = not calibrated
	runID         string
	shard, shards int
	template      *packet.Template

	page *live.Page // nil without --metrics

	manyInterfaces bool
	placed         *placed // what --align did, and what it could not

	epoch uint8 // of the first round; random, so that a server does not take a new run from the same port for the old one
}

// plan checks every flag and makes the run. Nothing is sent or changed; all errors are bad input.
func (f *udpFlags) plan(ctx context.Context, args []string) (*udpPlan, error) {
	p := &udpPlan{rounds: f.rounds, epoch: randomEpoch()}
	targets, err := resolve(ctx, args, f.family)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(*udpPlan, []netip.AddrPort) error{
		f.checkNumbers, f.checkTargets, f.planModel, f.planPayload, f.planSchedule, f.checkFits, f.planFlows, f.planWorkers, f.planHost, f.planBackend, f.planStamps, f.planShard,
	} {
		if err := step(p, targets); err != nil {
			return nil, err
		}
	}
	f.fillConfig(p, args)
	if err := f.fillModel(p); err != nil {
		return nil, err
	}
	return p, nil
}

// checkTargets refuses public targets without --authorized, and finds the interface.
func (f *udpFlags) checkTargets(p *udpPlan, targets []netip.AddrPort) error {
	for _, t := range targets {
		if public(t.Addr()) && !f.authorized {
			kind := "public"
			if t.Addr().IsMulticast() {
				kind = "multicast"
			}
			return fmt.Errorf("target %s is a %s address; if you are allowed to load it, say so with --authorized", t, kind)
		}
		iface, _, _, err := tuning.InterfaceFor(t.Addr())
		if err != nil {
			return fmt.Errorf("target %s: %w", t, err)
		}
		if p.iface == "" {
			p.iface = iface
		}
		p.manyInterfaces = p.manyInterfaces || iface != p.iface
	}
	return nil
}

func (f *udpFlags) checkNumbers(p *udpPlan, _ []netip.AddrPort) error {
	switch {
	case f.mode != stats.ModeEcho && f.mode != stats.ModeOneway:
		return fmt.Errorf("mode %q: want echo or oneway", f.mode)
	case f.payload < 0 || f.payload > 65507:
		return fmt.Errorf("payload %d bytes: want 0 to 65507, what one UDP datagram over IPv4 can carry", f.payload)
	case f.duration <= 0:
		return fmt.Errorf("duration %v: want more than 0, such as 30s", f.duration)
	case f.warmup < 0 || f.timeout <= 0 || f.drain < 0 || f.maxLag <= 0:
		return errors.New("--warmup and --drain want 0 or more, --timeout and --max-lag more than 0")
	case f.workers < 1 || f.workers > 256:
		return fmt.Errorf("workers %d: want 1 to 256", f.workers)
	case f.rounds < 1 || f.rounds > 100:
		return fmt.Errorf("rounds %d: want 1 to 100", f.rounds)
	case f.flows < 0 || f.batch < 0 || f.gso < 0 || f.sndbuf < 0 || f.rcvbuf < 0 || f.queue < 0:
		return errors.New("--flows, --batch, --gso, --sndbuf, --rcvbuf and --queue want 0 or more")
	}
	for _, slo := range f.slos {
		if _, err := verdict.ParseSLO(slo); err != nil {
			return err
		}
	}
	switch f.catchUp {
	case "burst":
	case "skip":
		p.engine.CatchUp = engine.CatchUpSkip
	case "abort":
		p.engine.CatchUp = engine.CatchUpAbort
	default:
		return fmt.Errorf("catch-up %q: want burst, skip or abort", f.catchUp)
	}
	switch f.wait {
	case "hybrid":
	case "spin":
		p.engine.Spin = true
	default:
		return fmt.Errorf("wait %q: want hybrid or spin", f.wait)
	}
	return checkFormat(f.format)
}

// planPayload settles what the packets carry.
func (f *udpFlags) planPayload(p *udpPlan, _ []netip.AddrPort) error {
	payload, err := f.foreignPayload()
	if err != nil {
		return err
	}
	if payload == nil {
		if len(f.vary) > 0 || f.match != "" {
			return errors.New("--vary and --match need --payload-hex or --payload-file")
		}
		if f.mode == stats.ModeEcho && f.payload < packet.CompactBytes {
			return fmt.Errorf("payload %d bytes: replies are known by a stamp of %d bytes (%d for the full one); send at least that, or --mode oneway",
				f.payload, packet.CompactBytes, packet.StampBytes)
		}
		return nil
	}
	f.payload = len(payload)
	if f.mode == stats.ModeEcho && f.match == "" {
		return errors.New("a foreign payload in echo mode needs --match OFFSET:LEN (which bytes of a reply name its request), or --mode oneway")
	}
	var vary []packet.Vary
	for _, text := range f.vary {
		v, err := packet.ParseVary(text)
		if err != nil {
			return err
		}
		vary = append(vary, v)
	}
	var match packet.Match
	if f.match != "" {
		if match, err = packet.ParseMatch(f.match); err != nil {
			return err
		}
	}
	p.template, err = packet.NewTemplate(payload, vary, match, f.seed)
	return err
}

func (f *udpFlags) foreignPayload() ([]byte, error) {
	switch {
	case f.payloadHex != "" && f.payloadFile != "":
		return nil, errors.New("--payload-hex and --payload-file: want one")
	case f.payloadHex != "":
		b, err := hex.DecodeString(strings.Join(strings.Fields(f.payloadHex), ""))
		if err != nil {
			return nil, fmt.Errorf("--payload-hex: %w", err)
		}
		return b, nil
	case f.payloadFile != "":
		b, err := os.ReadFile(f.payloadFile)
		if err != nil {
			return nil, fmt.Errorf("--payload-file: %w", err)
		}
		if len(b) > 65507 {
			return nil, fmt.Errorf("--payload-file: %d bytes: want at most 65507", len(b))
		}
		return b, nil
	}
	return nil, nil
}

// planSchedule makes the plan from rate or bit rate and profile.
func (f *udpFlags) planSchedule(p *udpPlan, targets []netip.AddrPort) error {
	kind, _, _ := strings.Cut(f.profile, ":")
	needsRate := kind == "const" || kind == "poisson"
	var rate pace.Rate
	var err error
	switch {
	case f.rate != "" && f.bitrate != "":
		return errors.New("--rate and --bitrate: want one")
	case f.bitrate != "":
		if rate, err = f.rateOfBits(targets); err != nil {
			return err
		}
	case f.rate != "":
		if rate, err = pace.ParseRate(f.rate); err != nil {
			return err
		}
	case needsRate:
		return errors.New("no rate: want --rate, such as --rate 50k, or --rate max")
	}
	sessions := max(f.flows, max(f.workers, len(targets)))
	p.engine.Schedule, err = pace.ParseProfile(f.profile, rate, f.duration, pace.Options{
		Sessions: sessions, Seed: f.seed,
		Open: func(path string) (io.ReadCloser, error) { return os.Open(path) },
	})
	if err != nil {
		return err
	}
	if !needsRate && (f.rate != "" || f.bitrate != "") && !f.tickMakes(rate, sessions) {
		return fmt.Errorf("profile %s brings its own rate, %s: leave --rate and --bitrate out", p.engine.Schedule, stats.FormatPPS(p.engine.Schedule.MeanPPS()))
	}
	if p.engine.Schedule.Slots() == 0 {
		return fmt.Errorf("profile %s: no packet is planned within %v", p.engine.Schedule, f.duration)
	}
	if rec, ok := p.engine.Schedule.(*pace.Recording); ok {
		if f.gso > 1 {
			return errors.New("--gso: a file profile gives every packet its own time and size; leave one out")
		}
		if p.template != nil {
			return errors.New("--payload-hex, --payload-file: a file profile gives every packet its own size; leave one out")
		}
		p.engine.Varied = true
		f.payload = 0
		for i := range rec.Slots() {
			if size := rec.Size(i); f.mode == stats.ModeEcho && size < packet.CompactBytes {
				return fmt.Errorf("profile %s: packet %d has %d bytes: replies are known by a stamp of %d bytes; plan at least that, or --mode oneway",
					rec, i, size, packet.CompactBytes)
			}
			f.payload = max(f.payload, rec.Size(i))
		}
	}
	return f.planWarmup(p)
}

// tickMakes reports whether a tick profile, whose rate is sessions x ticks per second, makes just the rate that was given too.
func (f *udpFlags) tickMakes(rate pace.Rate, sessions int) bool {
	ticks, ok := strings.CutPrefix(f.profile, "tick:")
	hz, err := pace.ParseRate(ticks)
	return ok && err == nil && math.Abs(hz.PPS()*float64(sessions)-rate.PPS()) <= 1e-9*rate.PPS()
}

// checkFits refuses payloads, also those of a file, that are too long for the path to a target to take whole.
func (f *udpFlags) checkFits(_ *udpPlan, targets []netip.AddrPort) error {
	if f.fragment {
		return nil
	}
	for _, t := range targets {
		iface, mtu, _, err := tuning.InterfaceFor(t.Addr())
		if err != nil {
			return fmt.Errorf("target %s: %w", t, err)
		}
		fits := mtu - packet.IPv4Bytes - packet.UDPBytes
		if t.Addr().Unmap().Is6() {
			fits = mtu - packet.IPv6Bytes - packet.UDPBytes
		}
		if f.payload > fits {
			return fmt.Errorf("payload %d bytes: the path to %s takes %d bytes whole (MTU %d on %s); send at most that, or let the kernel fragment with --fragment",
				f.payload, t, fits, mtu, iface)
		}
	}
	return nil
}

// planWarmup puts a constant rate before the plan: the plan's own over its first second.
func (f *udpFlags) planWarmup(p *udpPlan) error {
	if f.warmup == 0 {
		return nil
	}
	var err error
	if _, unpaced := p.engine.Schedule.(pace.Unpaced); unpaced {
		p.engine.Warmup, err = pace.Max(f.warmup)
		return err
	}
	first := min(time.Second, p.engine.Schedule.Length())
	p.engine.Warmup, err = pace.Constant(pace.Rate{Packets: max(p.engine.Schedule.Due(first-1), 1), Per: first}, f.warmup)
	return err
}

// rateOfBits turns --bitrate into packets per second, by the size of a packet at --layer.
func (f *udpFlags) rateOfBits(targets []netip.AddrPort) (pace.Rate, error) {
	bits, err := pace.ParseBitrate(f.bitrate)
	if err != nil {
		return pace.Rate{}, err
	}
	var t stats.Traffic
	t.Add(f.payload, targets[0].Addr().Unmap().Is6(), 1)
	bytes, ok := map[string]uint64{"l1": t.L1, "l2": t.L2, "ip": t.IP, "payload": t.Payload}[f.layer]
	if !ok {
		return pace.Rate{}, fmt.Errorf("layer %q: want l1, l2, ip or payload", f.layer)
	}
	if bytes == 0 {
		return pace.Rate{}, errors.New("--layer payload: an empty payload has no bit rate")
	}
	return pace.BitrateRate(bits, 8*bytes)
}

func (f *udpFlags) planFlows(p *udpPlan, targets []netip.AddrPort) error {
	space := backend.FlowSpace{Targets: targets}
	var err error
	if space.Sources, err = sources(f.src); err != nil {
		return err
	}
	if space.PortFrom, space.PortTo, err = portRange(f.srcPort); err != nil {
		return err
	}
	n := f.flows
	if n == 0 {
		n = max(f.workers, len(targets))
		if p.engine.Workers = f.workers; n%f.workers != 0 {
			n += f.workers - n%f.workers
		}
	}
	if n < f.workers {
		return fmt.Errorf("flows %d for %d workers: each worker needs a flow of its own", n, f.workers)
	}
	if strings.HasPrefix(f.profile, "tick:") && n%f.workers != 0 {
		return fmt.Errorf("profile tick: %d sessions do not divide among %d workers", n, f.workers)
	}
	p.engine.Flows, err = space.Flows(n)
	return err
}

// planWorkers pins the workers, and keeps the receiving threads off their CPUs where there are others.
func (f *udpFlags) planWorkers(p *udpPlan, _ []netip.AddrPort) error {
	p.engine.Workers = f.workers
	list, auto, err := cpuList(f.cpus)
	if err != nil {
		return err
	}
	usable, err := tuning.Reader{}.CPUs()
	if err != nil {
		return err
	}
	switch {
	case list != nil:
		if len(list) != f.workers {
			return fmt.Errorf("cpus %q: %d CPUs for %d workers; name one each", f.cpus, len(list), f.workers)
		}
		if err := checkCPUs(f.cpus, list, usable); err != nil {
			return err
		}
		p.engine.CPUs = list
	case auto && f.workers <= len(usable):
		p.engine.CPUs = p.bestCPUs(usable, f.workers)
	case auto:
		return fmt.Errorf("workers %d: more than the %d CPUs this process may use %v; a pinned worker needs one to itself. Lower --workers, or --cpus none",
			f.workers, len(usable), usable)
	}
	for _, c := range usable {
		if !slices.Contains(p.engine.CPUs, c) {
			p.engine.ReceiveCPUs = append(p.engine.ReceiveCPUs, c)
		}
	}
	return nil
}

func (f *udpFlags) planBackend(p *udpPlan, targets []netip.AddrPort) error {
	p.engine.Echo = f.mode == stats.ModeEcho
	p.engine.Timeout, p.engine.Drain, p.engine.MaxLag = f.timeout, f.drain, f.maxLag
	p.engine.Backend = backend.Config{
		PayloadBytes: f.payload, Batch: f.batch, GSO: f.gso, GRO: f.gro, KernelStamp: f.kernelStamp,
		SendBuffer: f.sndbuf, ReceiveBuffer: f.rcvbuf, Fragment: f.fragment,
		SQPoll: f.sqpoll, ZeroCopy: f.zerocopy, Interface: f.iface, Queue: f.queue,
	}
	if f.backend == "auto" && (f.sqpoll || f.zerocopy || f.iface != "" || f.queue != 0) {
		return errors.New("--sqpoll, --zerocopy, --iface and --queue are switches of one backend; name it, such as --backend io_uring")
	}
	var err error
	if p.offload, err = chooseOffload(f.backend, p.engine.Flows); err != nil {
		return err
	}
	if err := f.planReceive(p); err != nil {
		return err
	}
	if p.offload != nil {
		p.entry.Name = p.offload.Name
		return nil
	}
	p.entry, p.auto, err = chooseFrom(f.table(p, targets), f.backend, p.preferred())
	if err != nil {
		return err
	}
	p.engine.Open = p.entry.Open
	if f.backend == "auto" {
		p.auto += aboutOffloads(p.engine.Flows)
	}
	return f.checkKeys(p)
}

// checkKeys refuses a rate at which a foreign protocol's keys come round before the timeout.
func (f *udpFlags) checkKeys(p *udpPlan) error {
	if p.template == nil || f.mode != stats.ModeEcho {
		return nil
	}
	keys, pps := float64(p.template.Keys()), p.engine.Schedule.MeanPPS()/float64(f.workers)
	if keys/pps < f.timeout.Seconds() {
		return fmt.Errorf("match %s: %.0f distinct keys come round after %s at %s per worker, before the timeout of %v; lower the rate or --timeout",
			f.match, keys, time.Duration(keys/pps*1e9), stats.FormatPPS(pps), f.timeout)
	}
	return nil
}

// planReceive settles who takes the replies.
func (f *udpFlags) planReceive(p *udpPlan) error {
	switch {
	case f.receive == "auto", f.receive == "socket" && p.offload == nil, f.receive == "xdp" && p.offload != nil:
		return nil
	case f.receive == "socket":
		p.engine.ReplySockets = mmsg.Entry().Open
		return nil
	case f.receive != "xdp":
		return fmt.Errorf("receive %q: want auto, socket or xdp", f.receive)
	case p.manyInterfaces:
		return errors.New("receive xdp: the targets are reached by several interfaces; one run receives on one")
	}
	o := offloads()[0]
	if err := o.Probe(); err != nil {
		return fmt.Errorf("receive xdp: %w", err)
	}
	p.engine.Replies = func(cfg backend.ReceiverConfig) (backend.OffloadReceiver, error) {
		cfg.Interface = p.iface
		return o.Receiver(cfg)
	}
	return nil
}

// table is that of the run. auto takes AF_XDP only where it was calibrated and gets through: it puts a program on the interface, which is
// not to happen to one that nobody named.
func (f *udpFlags) table(p *udpPlan, targets []netip.AddrPort) []backend.Entry {
	t := backends()
	for i := range t {
		if t[i].Name != afxdp.Name || f.backend != "auto" {
			continue
		}
		t[i].Probe = func() error {
			switch {
			case p.profile != nil && p.profile.Host.NIC != p.iface:
				return fmt.Errorf("the calibration is of %s and the targets are reached by %s; name it to use it there: %w", p.profile.Host.NIC, p.iface, errors.ErrUnsupported)
			case p.iface == loopback && slices.ContainsFunc(targets, func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() }):
				return fmt.Errorf("IPv4 frames put on %s do not reach sockets of this host: %w", loopback, errors.ErrUnsupported)
			}
			return xdp.Probe(p.iface)
		}
	}
	return t
}

func (f *udpFlags) planShard(p *udpPlan, _ []netip.AddrPort) error {
	p.shards, p.runID = 1, f.runID
	if p.runID == "" {
		p.runID = rand.Text()
	}
	if f.shard == "" {
		return nil
	}
	i, n, ok := strings.Cut(f.shard, "/")
	shard, errI := strconv.Atoi(i)
	shards, errN := strconv.Atoi(n)
	if !ok || errI != nil || errN != nil || shard < 0 || shards < 1 || shard >= shards {
		return fmt.Errorf("shard %q: want I/N with 0 <= I < N", f.shard)
	}
	if f.runID == "" {
		return errors.New("--shard needs --run-id, the same word for all shards of the run")
	}
	p.shard, p.shards = shard, shards
	return nil
}

// fillConfig records the effective configuration.
func (f *udpFlags) fillConfig(p *udpPlan, args []string) {
	e := &p.engine
	_, unpaced := e.Schedule.(pace.Unpaced)
	payload := "stamp"
	switch {
	case p.template != nil:
		payload = "template"
	case f.payload < packet.CompactBytes:
		payload = "none"
	case engine.Compact(f.payload):
		payload = "compact stamp"
	}
	start := "planned send time (latency) and time just before the send call (service time)"
	p.config = stats.Config{
		Given: os.Args[1:], Targets: args, Mode: f.mode, Model: "open", Profile: e.Schedule.String(), Paced: !unpaced,
		DurationNS: int64(e.Schedule.Length()), WarmupNS: int64(f.warmup), TimeoutNS: int64(f.timeout), DrainNS: int64(f.drain), MaxLagNS: int64(f.maxLag),
		PayloadBytes: f.payload, Payload: payload, Flows: len(e.Flows), Workers: f.workers, CPUs: e.CPUs, Batch: f.batch,
		CatchUp: e.CatchUp.String(), Wait: f.wait, Seed: f.seed, SLOs: f.slos, Rounds: f.rounds, ClockStart: start,
	}
}

// source makes the payload source of one worker.
func (p *udpPlan) source(worker int, epoch uint8) engine.Source {
	if p.template != nil {
		return engine.NewTemplated(p.template)
	}
	s := &engine.Stamped{PayloadBytes: p.config.PayloadBytes, Worker: uint16(worker), Epoch: epoch}
	if rec, ok := p.engine.Schedule.(*pace.Recording); ok {
		workers, warm := uint64(p.engine.Workers), p.warmSlots(worker)
		s.Size = func(seq uint64) int {
			if seq < warm {
				return rec.Size(0)
			}
			return rec.Size((seq-warm)*workers + uint64(worker))
		}
	}
	return s
}

func (p *udpPlan) warmSlots(worker int) uint64 {
	if p.engine.Warmup == nil {
		return 0
	}
	c := pace.NewCursor(p.engine.Warmup, uint64(worker), uint64(p.engine.Workers), 1)
	return c.Slots()
}

func randomEpoch() uint8 {
	var b [1]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return b[0]
}

// withSent adds what left by the interface under the name that the verdict compares with the ledger. A train may count as one
// packet there, so with trains there is nothing to compare.
func (p *udpPlan) withSent(counters []stats.Counter) []stats.Counter {
	for _, c := range counters {
		if c.Name == p.iface+".tx_packets" && p.engine.Backend.GSO < 2 && !p.manyInterfaces {
			return append(counters, stats.Counter{Name: stats.CounterSent, Delta: c.Delta})
		}
	}
	return counters
}

// usedCPUs are those whose steal counts.
func (p *udpPlan) usedCPUs() []int {
	if p.engine.CPUs != nil {
		return p.engine.CPUs
	}
	cpus, _ := tuning.Reader{}.CPUs()
	return cpus
}

// prepareProcess gives the runtime room beside the sending threads and keeps the collector out of the measured part: the hot
// loops do not allocate, and the memory limit is the backstop for the rest.
func prepareProcess(workers int) {
	if procs := 2*workers + 2; runtime.GOMAXPROCS(0) < procs {
		runtime.GOMAXPROCS(procs)
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(int64(96<<20) * int64(workers))
}

// describe prints the plan of a dry run.
func (p *udpPlan) describe(w io.Writer) error {
	s, c := p.engine.Schedule, &p.config
	var b strings.Builder
	slots := "as many as the kernel accepts"
	if s.Slots() != math.MaxUint64 {
		slots = stats.FormatCount(s.Slots()) + " packets"
	}
	fmt.Fprintf(&b, "dry run: nothing was sent\ntargets   %s (%s)\nplan      %s: %s in %v, mean %s\n", strings.Join(c.Targets, ", "), c.Mode, s, slots,
		s.Length(), stats.FormatPPS(s.MeanPPS()))
	fmt.Fprintf(&b, "backend   %s, %d worker(s) on CPUs %v, replies received on CPUs %v\n", p.entry.Name, c.Workers, p.engine.CPUs, p.engine.ReceiveCPUs)
	for i, f := range p.engine.Flows[:min(len(p.engine.Flows), 5)] {
		fmt.Fprintf(&b, "flow %-4d %s -> %v\n", i, sourceText(f.Src), f.Dst)
	}
	if more := len(p.engine.Flows) - 5; more > 0 {
		fmt.Fprintf(&b, "          and %d more flows\n", more)
	}
	for i := range min(s.Slots(), 5) {
		fmt.Fprintf(&b, "slot %-4d planned at %v\n", i, s.At(i))
	}
	buf := make([]byte, c.PayloadBytes)
	n := p.source(0, 1).Fill(&packet.Stamp{Epoch: 1, Stride: 1, Planned: int64(s.At(0))}, 0, buf)
	fmt.Fprintf(&b, "first payload, %d bytes (%s):\n%s", n, c.Payload, hex.Dump(buf[:n]))
	_, err := io.WriteString(w, b.String())
	return err
}

func backendNames() string {
	var names []string
	for _, b := range backends() {
		names = append(names, b.Name)
	}
	return strings.Join(names, ", ")
}

// sourceText is the local end of a flow for people: what is not fixed is left to the kernel.
func sourceText(src netip.AddrPort) string {
	switch {
	case !src.Addr().IsValid():
		return "the kernel's choice"
	case src.Port() == 0:
		return src.Addr().String() + ", port of the kernel's choice"
	}
	return src.String()
}
