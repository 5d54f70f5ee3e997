package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Answers of an XDP program (enum xdp_action in include/uapi/linux/bpf.h).
const (
	xdpPass     = 2
	xdpRedirect = 4
)

// Places in the counter map.
const (
	countRedirected = iota
	countUnclaimed
	counters
)

// Values of the port map: whose a port is.
const (
	portPassed    = 0 // the kernel's
	portAnyQueue  = 1 // the socket's of the queue that a packet comes to
	portFirstHome = 2 // and from here on: the socket's of queue value - portFirstHome alone
)

// program is the one XDP program of a device: it passes everything but UDP packets to ports of a set, which it redirects to
// the socket of the queue they arrived on. With an empty set it is the pass-all program that some drivers need for sending.
type program struct {
	prog   *ebpf.Program
	xsks   *ebpf.Map // XSKMAP: queue -> socket
	ports  *ebpf.Map // array of all ports
	counts *ebpf.Map // per-CPU counters
}

// loadProgram creates the maps and loads the program; with stamp it notes the time of arrival.
func loadProgram(queues int, stamp bool) (*program, error) {
	p := &program{}
	for _, m := range []struct {
		at   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&p.xsks, ebpf.MapSpec{Name: "blast_xsks", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(queues)}},
		{&p.ports, ebpf.MapSpec{Name: "blast_ports", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1 << 16}},
		{&p.counts, ebpf.MapSpec{Name: "blast_counts", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: counters}},
	} {
		var err error
		if *m.at, err = ebpf.NewMap(&m.spec); err != nil {
			return nil, errors.Join(fmt.Errorf("create map %s: %w", m.spec.Name, err), p.close())
		}
	}
	var err error
	p.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "blast_redirect", Type: ebpf.XDP, License: "GPL",
		Instructions: redirectProgram(p.xsks.FD(), p.ports.FD(), p.counts.FD(), stamp),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load XDP program: %w", err), p.close())
	}
	return p, nil
}

// redirectProgram, step by step:
//
//  1. Ethernet, then at most one 802.1Q tag.
//  2. IPv4 that is no fragment, or IPv6 without extension headers, carrying UDP; else pass.
//  3. Is the destination port in the set? else pass.
//  4. Does it belong to one queue, and this is another? pass.
//  5. With stamp: put the time in front of it, where the driver has room for metadata; see arrival.
//  6. bpf_redirect_map(xsks, rx_queue_index, XDP_PASS): passes when no socket holds that queue (kernel 5.3).
//  7. Count which of the two it was.
//
// Registers: R6 context, R7 data, R8 data_end, R9 first the header in hand, then the answer.
func redirectProgram(xsks, ports, counts int, stamp bool) asm.Instructions {
	insns := findPort()
	insns = append(insns, lookup(ports, "pass")...)
	insns = append(insns,
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, portPassed, "pass"),
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // xdp_md.rx_queue_index
		asm.JEq.Imm(asm.R1, portAnyQueue, "redirect"),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Add.Imm(asm.R3, portFirstHome),
		asm.Mov.Imm(asm.R9, xdpPass),
		asm.JNE.Reg(asm.R1, asm.R3, "unclaimed"),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("redirect"),
	)
	if stamp {
		insns = append(insns, putArrival()...)
	}
	insns = append(insns,
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word).WithSymbol("unstamped"),
		asm.LoadMapPtr(asm.R1, xsks),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.Mov.Imm(asm.R1, countRedirected),
		asm.JEq.Imm(asm.R9, xdpRedirect, "count"),
		asm.Mov.Imm(asm.R1, countUnclaimed).WithSymbol("unclaimed"),
		asm.Mov.Reg(asm.R1, asm.R1).WithSymbol("count"),
	)
	insns = append(insns, lookup(counts, "answer")...)
	return append(insns,
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R9).WithSymbol("answer"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	)
}

// findPort is steps 1 and 2: it leaves the UDP destination port in R1, or jumps to "pass".
func findPort() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R8, asm.R6, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R9, asm.R7),
		asm.Add.Imm(asm.R9, 14),
		asm.JGT.Reg(asm.R9, asm.R8, "pass"),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, unix.ETH_P_8021Q, "network"),
		asm.Add.Imm(asm.R9, 4),
		asm.JGT.Reg(asm.R9, asm.R8, "pass"),
		asm.LoadMem(asm.R1, asm.R9, -2, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),

		asm.Mov.Reg(asm.R2, asm.R9).WithSymbol("network"),
		asm.JEq.Imm(asm.R1, unix.ETH_P_IPV6, "v6"),
		asm.JNE.Imm(asm.R1, unix.ETH_P_IP, "pass"),
		asm.Add.Imm(asm.R2, 20),
		asm.JGT.Reg(asm.R2, asm.R8, "pass"),
		asm.LoadMem(asm.R3, asm.R9, 9, asm.Byte), // protocol
		asm.JNE.Imm(asm.R3, unix.IPPROTO_UDP, "pass"),
		asm.LoadMem(asm.R3, asm.R9, 6, asm.Half), // fragment offset, more fragments
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.And.Imm(asm.R3, 0x3fff),
		asm.JNE.Imm(asm.R3, 0, "pass"),
		asm.LoadMem(asm.R3, asm.R9, 0, asm.Byte), // header length in words
		asm.And.Imm(asm.R3, 15),
		asm.LSh.Imm(asm.R3, 2),
		asm.JLT.Imm(asm.R3, 20, "pass"),
		asm.Add.Reg(asm.R9, asm.R3),
		asm.Ja.Label("udp"),

		asm.Add.Imm(asm.R2, 40).WithSymbol("v6"),
		asm.JGT.Reg(asm.R2, asm.R8, "pass"),
		asm.LoadMem(asm.R3, asm.R9, 6, asm.Byte), // next header
		asm.JNE.Imm(asm.R3, unix.IPPROTO_UDP, "pass"),
		asm.Add.Imm(asm.R9, 40),

		asm.Mov.Reg(asm.R2, asm.R9).WithSymbol("udp"),
		asm.Add.Imm(asm.R2, 8),
		asm.JGT.Reg(asm.R2, asm.R8, "pass"),
		asm.LoadMem(asm.R1, asm.R9, 2, asm.Half), // destination port
		asm.HostTo(asm.BE, asm.R1, asm.Half),
	}
}

// What the program writes in front of a packet: a word that nothing else there is likely to be, and ns of CLOCK_MONOTONIC
// (bpf_ktime_get_ns), both in the machine's order.
const (
	arrivalMagic = 0x626c_6173_7441_7272
	arrivalBytes = 16
)

// putArrival is step 5, with the context in R1; it goes on to "unstamped" where there is no room.
func putArrival() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, -arrivalBytes),
		asm.FnXdpAdjustMeta.Call(),
		asm.JNE.Imm(asm.R0, 0, "unstamped"),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // xdp_md.data, which moved for all that the verifier knows
		asm.LoadMem(asm.R8, asm.R6, 8, asm.Word), // xdp_md.data_meta
		asm.Mov.Reg(asm.R9, asm.R8),
		asm.Add.Imm(asm.R9, arrivalBytes),
		asm.JGT.Reg(asm.R9, asm.R7, "unstamped"),
		asm.LoadImm(asm.R1, arrivalMagic, asm.DWord),
		asm.StoreMem(asm.R8, 0, asm.R1, asm.DWord),
		asm.StoreMem(asm.R8, 8, asm.R0, asm.DWord),
	}
}

// lookup finds the value of key R1 in an array map and leaves its address in R0, or jumps away.
func lookup(fd int, missing string) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, fd),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, missing),
	}
}

// setPorts adds ports to the set or takes them out.
func (p *program) setPorts(ports []uint16, in bool) error {
	if in {
		return p.give(ports, portAnyQueue)
	}
	return p.give(ports, portPassed)
}

// give says whose the ports are from now on.
func (p *program) give(ports []uint16, whose uint32) error {
	for _, port := range ports {
		if err := p.ports.Put(uint32(port), whose); err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
	}
	return nil
}

// count sums one per-CPU counter.
func (p *program) count(key uint32) (uint64, error) {
	var perCPU []uint64
	if err := p.counts.Lookup(key, &perCPU); err != nil {
		return 0, fmt.Errorf("read counters of the XDP program: %w", err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

func (p *program) close() error {
	var errs []error
	if p.prog != nil {
		errs = append(errs, p.prog.Close())
	}
	for _, m := range []*ebpf.Map{p.xsks, p.ports, p.counts} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
