package testnet

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"blast/internal/testskip"
)

// Action is what an XDP program answers (enum xdp_action in include/uapi/linux/bpf.h).
type Action int32

// The two answers a counting program can give.
const (
	Drop Action = 1
	Pass Action = 2
)

// countedQueues bounds the per-queue counters; frames of higher queues share the last one.
const countedQueues = 64

// CountConfig says what a counting XDP program counts. The zero value is not valid: Action is needed.
type CountConfig struct {
	Action Action
	// Port limits counting and dropping to IPv4 (without options) and IPv6 (without extension headers) UDP packets to
	// this destination port, untagged or with one 802.1Q tag; everything else passes uncounted, so ARP and neighbour
	// discovery keep working. Zero means every frame.
	Port uint16
	// Generic attaches in generic (skb) mode; the default is the driver's own mode.
	Generic bool
}

// Counter is an XDP program attached to one end of a pair, and what it counted.
type Counter struct {
	host   *Host
	counts *ebpf.Map
	link   link.Link
}

// Count is a number of frames and their bytes, Ethernet header included.
type Count struct {
	Frames, Bytes uint64
}

// Count attaches a counting program to the veth end; the test's cleanup detaches it. It skips the test (feature "xdp")
// when this process may not load BPF programs.
func (h *Host) Count(cfg CountConfig) *Counter {
	h.t.Helper()
	c, err := h.count(cfg)
	if errors.Is(err, unix.EPERM) {
		testskip.Skip(h.t, "xdp", err.Error(), "run as root, or grant CAP_BPF and CAP_NET_ADMIN")
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.close)
	return c
}

func (h *Host) count(cfg CountConfig) (*Counter, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "testnet_counts", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: countedQueues,
	})
	if err != nil {
		return nil, fmt.Errorf("counter map: %w", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "testnet_count", Type: ebpf.XDP, License: "GPL", Instructions: countProgram(counts.FD(), cfg),
	})
	if err != nil {
		_ = counts.Close()
		return nil, fmt.Errorf("counter program: %w", err)
	}
	defer prog.Close()
	flags := link.XDPDriverMode
	if cfg.Generic {
		flags = link.XDPGenericMode
	}
	c := &Counter{host: h, counts: counts}
	h.Do(func() {
		c.link, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: h.Index, Flags: flags})
	})
	if err != nil {
		_ = counts.Close()
		return nil, fmt.Errorf("attach counter to %s: %w", h.Interface, err)
	}
	return c, nil
}

// countProgram is: find the UDP destination port when one is asked for; on a match add the frame to its queue's counter.
//
// Registers: R6 context, R7 data, R8 data_end, R9 start of the network header.
func countProgram(counts int, cfg CountConfig) asm.Instructions {
	const ethernet, tag = 14, 4
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R8, asm.R6, 4, asm.Word), // xdp_md.data_end
	}
	if cfg.Port != 0 {
		port := int32(cfg.Port)
		insns = append(insns,
			asm.Mov.Reg(asm.R9, asm.R7),
			asm.Add.Imm(asm.R9, ethernet),
			asm.JGT.Reg(asm.R9, asm.R8, "pass"),
			asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
			asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.JNE.Imm(asm.R1, unix.ETH_P_8021Q, "network"),
			asm.Add.Imm(asm.R9, tag),
			asm.JGT.Reg(asm.R9, asm.R8, "pass"),
			asm.LoadMem(asm.R1, asm.R9, -2, asm.Half),
			asm.HostTo(asm.BE, asm.R1, asm.Half),

			// Both headers with UDP's first four bytes fit into 20+4 or 40+4 bytes.
			asm.Mov.Reg(asm.R2, asm.R9).WithSymbol("network"),
			asm.JEq.Imm(asm.R1, unix.ETH_P_IPV6, "v6"),
			asm.JNE.Imm(asm.R1, unix.ETH_P_IP, "pass"),
			asm.Add.Imm(asm.R2, 24),
			asm.JGT.Reg(asm.R2, asm.R8, "pass"),
			asm.LoadMem(asm.R3, asm.R9, 9, asm.Byte),
			asm.JNE.Imm(asm.R3, unix.IPPROTO_UDP, "pass"),
			asm.LoadMem(asm.R3, asm.R9, 22, asm.Half),
			asm.Ja.Label("port"),
			asm.Add.Imm(asm.R2, 44).WithSymbol("v6"),
			asm.JGT.Reg(asm.R2, asm.R8, "pass"),
			asm.LoadMem(asm.R3, asm.R9, 6, asm.Byte),
			asm.JNE.Imm(asm.R3, unix.IPPROTO_UDP, "pass"),
			asm.LoadMem(asm.R3, asm.R9, 42, asm.Half),
			asm.HostTo(asm.BE, asm.R3, asm.Half).WithSymbol("port"),
			asm.JNE.Imm(asm.R3, port, "pass"),
		)
	}
	return append(insns,
		asm.LoadMem(asm.R1, asm.R6, 16, asm.Word), // xdp_md.rx_queue_index
		asm.JLT.Imm(asm.R1, countedQueues, "key"),
		asm.Mov.Imm(asm.R1, countedQueues-1),
		asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word).WithSymbol("key"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counts),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Sub.Reg(asm.R8, asm.R7),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R8),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, int32(cfg.Action)),
		asm.Return(),
		asm.Mov.Imm(asm.R0, int32(Pass)).WithSymbol("pass"),
		asm.Return(),
	)
}

// Queue reads what arrived on one receive queue.
func (c *Counter) Queue(queue int) Count {
	c.host.t.Helper()
	var perCPU []Count
	if err := c.counts.Lookup(uint32(queue), &perCPU); err != nil {
		c.host.t.Fatalf("read counters of queue %d: %v", queue, err)
	}
	var sum Count
	for _, n := range perCPU {
		sum.Frames += n.Frames
		sum.Bytes += n.Bytes
	}
	return sum
}

// Total reads what arrived on all queues.
func (c *Counter) Total() Count {
	c.host.t.Helper()
	var sum Count
	for q := range countedQueues {
		n := c.Queue(q)
		sum.Frames += n.Frames
		sum.Bytes += n.Bytes
	}
	return sum
}

// Detach takes the program off before the test ends.
func (c *Counter) Detach() {
	c.host.t.Helper()
	if err := c.link.Close(); err != nil {
		c.host.t.Fatalf("detach counter: %v", err)
	}
}

func (c *Counter) close() {
	_ = c.link.Close()
	_ = c.counts.Close()
}
