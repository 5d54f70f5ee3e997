package xdplive

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"blast/backend"
	"blast/internal/testnet"
	"blast/packet"
	"blast/stats"
)

// arrival is one reply as the capture saw it: when it came to the receive program and when that was done with it, ns of CLOCK_MONOTONIC, and
// the stamp that it carried.
type arrival struct {
	Came, Done, Count int64
	Stamp             [packet.StampBytes]byte
}

// capture watches the receive program from outside, where AF_PACKET cannot see what XDP takes. A program of its own stands before it on the
// interface, reads the clock, copies the stamp and hands the packet on by a tail call, which only the end of the poll comes back from; so a
// packet is done with when the next one comes, or when the tracepoint at the end of the poll is passed. It shares nothing with what it
// watches but the clock.
type capture struct{ slots, last *ebpf.Map }

// captureSlots bounds the sequence numbers that are kept.
const captureSlots = 1 << 16

// openCapture puts itself before the XDP program of an interface, until the program's owner takes it off. attach is the attach type that it was loaded
// with: a tail call needs the same on both sides.
func openCapture(t *testing.T, h *testnet.Host, attach ebpf.AttachType) *capture {
	t.Helper()
	l, err := h.Netlink.LinkByName(h.Interface)
	if err != nil {
		t.Fatal(err)
	}
	id := ebpf.ProgramID(l.Attrs().Xdp.ProgId)
	watched, err := ebpf.NewProgramFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	c := &capture{}
	c.slots = newMap(t, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(arrival{})), MaxEntries: captureSlots})
	c.last = newMap(t, &ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	next := newMap(t, &ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err := next.Put(uint32(0), watched); err != nil {
		t.Fatal(err)
	}
	front := newProgram(t, &ebpf.ProgramSpec{Name: "test_capture", Type: ebpf.XDP, AttachType: attach, License: "GPL", Instructions: c.front(next.FD())})
	polled := newProgram(t, &ebpf.ProgramSpec{Name: "test_polled", Type: ebpf.RawTracepoint, License: "GPL", Instructions: slices.Concat(
		asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R7, asm.R0)}, c.finish(), asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})})
	traced, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "napi_poll", Program: polled})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = traced.Close() })
	replaceXDP(t, id, front)
	return c
}

func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func newProgram(t *testing.T, spec *ebpf.ProgramSpec) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// replaceXDP puts another program in the place of the one with that id, wherever it is attached.
func replaceXDP(t *testing.T, id ebpf.ProgramID, by *ebpf.Program) {
	t.Helper()
	var links link.Iterator
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil || info.Type != link.XDPType || info.Program != id {
			continue
		}
		if err := links.Link.Update(by); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no link with program %d: %v", id, links.Err())
}

// Offsets in the stack of the programs below.
const (
	captureKey  = -4
	captureZero = -8
)

// find leaves in R0 the value of the key in the stack at at, and goes on at out when there is none.
func find(m *ebpf.Map, at int32, out string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, at),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, out),
	}
}

// finish is: the last packet of this CPU is done with at R7, if there is one (1 + its number, 0 = none). R9 is the place of that afterwards. It ends at
// the label "finished".
func (c *capture) finish() asm.Instructions {
	return slices.Concat(
		asm.Instructions{asm.StoreImm(asm.RFP, captureZero, 0, asm.Word)},
		find(c.last, captureZero, "finished"),
		asm.Instructions{
			asm.Mov.Reg(asm.R9, asm.R0),
			asm.LoadMem(asm.R1, asm.R9, 0, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "finished"),
			asm.Sub.Imm(asm.R1, 1),
			asm.StoreMem(asm.RFP, captureKey, asm.R1, asm.Word),
			asm.StoreImm(asm.R9, 0, 0, asm.Word),
		},
		find(c.slots, captureKey, "finished"),
		asm.Instructions{
			asm.StoreMem(asm.R0, 8, asm.R7, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("finished"),
		})
}

// front is: of an untagged packet to an IPv4 address without options that has a full stamp, keep the time and the stamp; then go on to the program that
// was here. R6 = context, R7 = time, R8 = data.
func (c *capture) front(next int) asm.Instructions {
	const payload = 42
	insns := slices.Concat(
		asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R7, asm.R0)},
		c.finish(),
		asm.Instructions{
			asm.LoadMem(asm.R8, asm.R6, 0, asm.Word), // xdp_md.data
			asm.LoadMem(asm.R2, asm.R6, 4, asm.Word), // xdp_md.data_end
			asm.Mov.Reg(asm.R1, asm.R8),
			asm.Add.Imm(asm.R1, payload+packet.StampBytes),
			asm.JGT.Reg(asm.R1, asm.R2, "on"),
			asm.LoadMem(asm.R1, asm.R8, payload, asm.Half),
			asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.JNE.Imm(asm.R1, 0xb1a5, "on"),
			asm.LoadMem(asm.R1, asm.R8, payload+8, asm.DWord),
			asm.HostTo(asm.BE, asm.R1, asm.DWord),
			asm.JGE.Imm(asm.R1, captureSlots, "on"),
			asm.StoreMem(asm.RFP, captureKey, asm.R1, asm.Word),
		},
		find(c.slots, captureKey, "on"),
		asm.Instructions{
			asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
			asm.LoadMem(asm.R1, asm.R0, 16, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, 16, asm.R1, asm.DWord),
		})
	for at := int16(0); at < packet.StampBytes; at += 8 {
		insns = append(insns, asm.LoadMem(asm.R1, asm.R8, payload+at, asm.DWord), asm.StoreMem(asm.R0, 24+at, asm.R1, asm.DWord))
	}
	return slices.Concat(insns,
		find(c.last, captureZero, "on"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, captureKey, asm.Word),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("on"),
			asm.LoadMapPtr(asm.R2, next),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, int32(testnet.Pass)),
			asm.Return(),
		})
}

// arrivals are the slots below n.
func (c *capture) arrivals(t *testing.T, n uint64) []arrival {
	t.Helper()
	list := make([]arrival, n)
	for i := range list {
		if err := c.slots.Lookup(uint32(i), &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestKernelReceiveCaptured: what the receive program says of its replies is what an observer sees. The capture's readings of the clock enclose the
// program's own, so its histogram must lie between theirs, rank by rank; and the times that the program tells one by one, each within its
// bracket, with the stamps of the capture, give its histograms bucket for bucket.
func TestKernelReceiveCaptured(t *testing.T) {
	pair := testnet.NewPair(t, testnet.Config{})
	echoServer(t, pair)
	for _, c := range []struct {
		name string // what the case is for
		plan plan
	}{
		{"a steady rate", plan{schedule: constant(t, 20_000, time.Second), length: time.Second}},
		{"a rate at which replies come in trains", plan{schedule: constant(t, 300_000, 200*time.Millisecond), length: 200 * time.Millisecond}},
		{"several flows", plan{schedule: constant(t, 50_000, 400*time.Millisecond), length: 400 * time.Millisecond, flows: 7, payload: 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen *capture
			c.plan.echo, c.plan.tell = true, backend.ReplyFresh
			c.plan.opened = func() { seen = openCapture(t, pair.Left, ebpf.AttachXDP) }
			o := execute(t, pair, c.plan)
			if o.err != nil {
				t.Fatal(o.err)
			}
			n := c.plan.schedule.Slots()
			if o.sent != n || uint64(len(o.told)) != n || o.missed != 0 || o.replies[0].Unique != n {
				t.Fatalf("planned %d, sent %d, told %d and missed %d, books %+v", n, o.sent, len(o.told), o.missed, o.replies)
			}
			checkCapture(t, o, seen.arrivals(t, n))
		})
	}
}

func checkCapture(t *testing.T, o *outcome, seen []arrival) {
	t.Helper()
	var told, service, server, lag, early, late stats.Hist
	var before, after []int64
	for i := range o.told {
		r := &o.told[i]
		a := &seen[r.Seq]
		var st packet.Stamp
		if a.Count != 1 || !packet.ParseStamp(a.Stamp[:], a.Came, &st) || st.Seq != r.Seq || st.Planned != r.Planned || st.Sent != r.Sent {
			t.Fatalf("slot %d: told %+v, captured %d times with %+v", r.Seq, r, a.Count, st)
		}
		if r.Received < a.Came || r.Received > a.Done {
			t.Fatalf("slot %d: received at %d, outside of its time there, %d to %d", r.Seq, r.Received, a.Came, a.Done)
		}
		told.Record(r.Received - r.Planned)
		service.Record(r.Received - r.Sent)
		server.Record(st.ServerSent - st.ServerReceived)
		lag.Record(st.Sent - st.Planned)
		early.Record(a.Came - st.Planned)
		late.Record(a.Done - st.Planned)
		before, after = append(before, r.Received-a.Came), append(after, a.Done-r.Received)
	}
	for _, h := range []struct {
		name      string
		want, got *stats.Hist
	}{{"latency", &told, &o.latency}, {"service time", &service, &o.service}, {"server time", &server, &o.server},
		{"lag", &lag, &o.lag}} {
		if want, got := h.want.Summary(), h.got.Summary(); want != got {
			t.Errorf("%s of the capture\n%+v, of the kernel\n%+v", h.name, want, got)
		}
	}
	for _, q := range []float64{0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
		if v := o.latency.Quantile(q); v < early.Quantile(q) || v > late.Quantile(q) {
			t.Errorf("latency at %g is %d ns, before the program it was %d and behind it %d", q, v, early.Quantile(q), late.Quantile(q))
		}
	}
	slices.Sort(before)
	slices.Sort(after)
	p := func(l []int64, q float64) int64 { return l[int(q*float64(len(l)-1))] }
	t.Logf("%d replies: the program read the clock %d ns (p50) and %d ns (p99) after the capture, %d and %d ns before it was done", len(before), p(before, 0.5), p(before, 0.99),
		p(after, 0.5), p(after, 0.99))
	// A virtual CPU may be stopped anywhere, but not mostly here: half of all brackets are narrow.
	if p(before, 0.5) > 5000 || p(after, 0.5) > 5000 {
		t.Errorf("brackets of %d and %d ns say little", p(before, 0.5), p(after, 0.5))
	}
}
