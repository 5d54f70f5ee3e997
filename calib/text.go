package calib

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"blast/stats"
)

// width is what every line of Text keeps within, in characters.
const width = 100

// Text writes p for people: the table, what the walls mean, the recommended backend and the rates to stay below.
func (p *Profile) Text(w io.Writer) error {
	var b bytes.Buffer
	p.head(&b)
	p.table(&b)
	p.legend(&b)
	p.advice(&b)
	p.failures(&b)
	if n := p.Disturbed(); n > 0 {
		b.WriteByte('\n')
		para(&b, "disturbed  ", fmt.Sprintf("%d of %d rows were stopped by interruptions from outside, not by their own work: the machine was busy, and their ceilings "+
			"are too low or missing. Calibrate again when it is idle", n, len(p.Rows)+len(p.Failed)))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (p *Profile) head(b *bytes.Buffer) {
	h := &p.Host
	para(b, "host       ", fmt.Sprintf("%s, kernel %s, %s, %d cores, virtualisation %s, governor %s, leaving by %s (fingerprint %s)", h.Hostname, h.Kernel, h.CPU, h.Cores,
		h.Virt, h.Governor, h.NIC, p.Fingerprint))
	switch p.Against {
	case Loopback:
		para(b, "against    ", "an own sink on loopback: this is the software path of sending, not the NIC. There is no wire and no queue of a device, "+
			"and the sender's core also carries each packet to the sink's socket. For the NIC: blast calibrate --against ADDR:PORT of a blast serve udp --mode sink elsewhere")
	case Veth:
		para(b, "against    ", "an XDP program that counts and drops, at the far end of a veth pair in namespaces of its own: the nearest thing to a wire here. "+
			"It is not a NIC: the far end's work is done by the sender's core. For the NIC: blast calibrate --against ADDR:PORT of a blast serve udp --mode sink elsewhere")
	default:
		para(b, "against    ", p.Against+": what it received is not known here, only what was sent")
	}
	took := "took"
	if p.Quick {
		took = "quick,"
	}
	para(b, "id         ", fmt.Sprintf("%s (%s %.0f s)", p.ID, took, float64(p.ElapsedNS)/1e9))
	b.WriteByte('\n')
}

const rowFormat = "%-15s %5s %7s %9s %9s %6s %7s %4s %8s  %s\n"

func (p *Profile) table(b *bytes.Buffer) {
	if len(p.Rows) == 0 {
		b.WriteString("no row was measured\n")
		return
	}
	fmt.Fprintf(b, rowFormat, "backend", "bytes", "workers", "flat out", "ceiling", "ns/pkt", "Mbit/s", "duty", "lag p99", "the wall above")
	last := 0
	for i := range p.Rows {
		r := &p.Rows[i]
		if last != 0 && last != r.Workers {
			b.WriteByte('\n')
		}
		last = r.Workers
		stop, _, _ := strings.Cut(r.Wall, ":")
		fmt.Fprintf(b, rowFormat, pathName(r.Backend, r.GSO, r.Flows/r.Workers), fmt.Sprint(r.PayloadBytes), fmt.Sprint(r.Workers), stats.FormatPPS(r.FlatPPS), stats.FormatPPS(r.CeilingPPS),
			fmt.Sprint(r.PacketNS), fmt.Sprintf("%.0f", r.L1BPS/1e6), fmt.Sprintf("%.2f", r.Duty), stats.FormatNS(r.LagP99NS), stop)
	}
	b.WriteByte('\n')
}

// pathName is a backend with its trains, or with its flows a worker where they are many.
func pathName(backend string, gso, flows int) string {
	if flows > 1 {
		return fmt.Sprintf("%s x%d", backend, flows)
	}
	if gso > 1 {
		return fmt.Sprintf("%s gso %d", backend, gso)
	}
	return backend
}

// threads is a number of workers in words.
func threads(workers int) string {
	if workers == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", workers)
}

// legend explains the columns and the walls that were met.
func (p *Profile) legend(b *bytes.Buffer) {
	if len(p.Rows) == 0 {
		return
	}
	para(b, "flat out   ", "without a plan, as fast as the kernel accepts; ns/pkt is what a packet then takes of one worker's time")
	para(b, "ceiling    ", "the highest rate that ends VALID, most of its rounds; a run above it is INVALID (ceiling). One flow a worker, one way")
	if slices.ContainsFunc(p.Rows, func(r Row) bool { return r.manyFlows() }) {
		para(b, "x1000      ", "many flows, a socket each on socket backends, as of so many clients: what runs of 64 flows a worker and more are held against")
	}
	para(b, "Mbit/s     ", "at the ceiling, layer 1: payload + 28 bytes of UDP and IPv4 + 18 of Ethernet and FCS, at least 64, + 20 of preamble and gap")
	for _, c := range causes {
		for i := range p.Rows {
			if p.Rows[i].WallCode == c.code {
				para(b, fmt.Sprintf("%-10s ", c.code), c.because)
				break
			}
		}
	}
	p.sinks(b)
}

// sinks tells what the own sink lost, and whether it had to share CPUs.
func (p *Profile) sinks(b *bytes.Buffer) {
	var all Sink
	shared := false
	for i := range p.Rows {
		if s := p.Rows[i].Sink; s != nil {
			all.Sent, all.Received, all.Dropped = all.Sent+s.Sent, all.Received+s.Received, all.Dropped+s.Dropped
			shared = shared || !s.OwnCPU
		}
	}
	if all.Sent == 0 {
		return
	}
	text := fmt.Sprintf("received %s of %s packets sent", stats.FormatPercent(float64(all.Received)/float64(all.Sent)), stats.FormatCount(all.Sent))
	if all.Dropped > 0 {
		text += fmt.Sprintf(" and dropped %s when its buffer was full: the sink's loss, not the sender's", stats.FormatPercent(float64(all.Dropped)/float64(all.Sent)))
	}
	if n := all.Missing(); n > 0 {
		text += fmt.Sprintf("; %s were lost between the two", stats.FormatCount(n))
	}
	if shared {
		text += "; where workers take every CPU, the sink takes its time from theirs"
	}
	para(b, "sink       ", text)
}

// advice is the recommendation and, for each payload and number of workers, the rate that leaves the margin.
func (p *Profile) advice(b *bytes.Buffer) {
	name := p.Recommended.Backend
	if name == "" {
		return
	}
	b.WriteByte('\n')
	para(b, "use        ", name+": "+p.Recommended.Because)
	workers := 0
	var rates []string
	flush := func() {
		if rates != nil {
			para(b, "stay below ", fmt.Sprintf("%s, with %s: a margin of %d to the ceiling of %s", strings.Join(rates, ", "), threads(workers), Margin, name))
		}
		rates = nil
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Backend != name || r.GSO > 1 || r.manyFlows() {
			continue
		}
		if r.Workers != workers {
			flush()
			workers = r.Workers
		}
		rates = append(rates, fmt.Sprintf("%s at %d bytes", stats.FormatPPS(r.StayBelowPPS), r.PayloadBytes))
	}
	flush()
}

func (p *Profile) failures(b *bytes.Buffer) {
	if len(p.Failed) > 0 {
		b.WriteByte('\n')
	}
	for _, f := range p.Failed {
		what := pathName(f.Backend, f.GSO, f.Flows/max(f.Workers, 1))
		if f.Workers > 0 {
			what += fmt.Sprintf(", %d bytes, %s", f.PayloadBytes, threads(f.Workers))
		}
		para(b, "missing    ", what+": "+strings.TrimPrefix(f.Reason, f.Backend+": "))
	}
}

// para writes text after label, broken at spaces so that no line is wider than width unless one word is.
func para(b *bytes.Buffer, label, text string) {
	at := len(label)
	b.WriteString(label)
	for i, word := range strings.Fields(text) {
		if i > 0 && at+1+len(word) > width {
			b.WriteString("\n" + strings.Repeat(" ", len(label)))
			at = len(label)
		} else if i > 0 {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	b.WriteByte('\n')
}
