package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"blast/backend/afxdp"
	"blast/calib"
	"blast/stats"
	"blast/tuning"
)

// printFirst says what to type next on this machine.
func printFirst(w io.Writer) error {
	var b bytes.Buffer
	bold := func(s string) string { return s }
	if isTerminal(w) && os.Getenv("NO_COLOR") == "" {
		bold = func(s string) string { return "\x1b[1m" + s + "\x1b[0m" }
	}
	writeFirst(&b, storedProfiles(), time.Now(), bold)
	_, err := w.Write(b.Bytes())
	return err
}

// storedProfiles are the calibrations of this host, of loopback first, then of its other interfaces.
func storedProfiles() []*calib.Profile {
	names := []string{loopback}
	others, _ := net.Interfaces() // none is as good as an error here
	for _, i := range others {
		if i.Name != loopback {
			names = append(names, i.Name)
		}
	}
	store, err := calib.DefaultStore()
	if err != nil {
		return nil
	}
	var out []*calib.Profile
	for _, name := range names {
		if p, err := store.Load(tuning.Fingerprint(tuning.Reader{}.Host(name))); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// writeFirst is the page that blast without arguments shows: what to type next, by what is known of this machine.
func writeFirst(b *bytes.Buffer, profiles []*calib.Profile, now time.Time, bold func(string) string) {
	line := func(command, why string) {
		fmt.Fprintf(b, "    %s%s%s\n", bold(command), strings.Repeat(" ", max(44-len(command), 2)), why)
	}
	b.WriteString("blast sends UDP by a plan, and says of every figure whether it speaks about the target or about itself.\n\n")
	pps, news := 0.0, "This machine has not been measured yet."
	for _, p := range profiles {
		text := ceilingsLine(p)
		if text == "" {
			continue
		}
		news = "Plain sockets have not been measured yet." // what a first run goes by
		fmt.Fprintf(b, "This machine can send, at 64 bytes from one core over %s (%s):\n\n%s\n\n", p.Host.NIC, age(now.Sub(p.Created)), folded(text, "    "))
		if n := p.Disturbed(); n > 0 {
			fmt.Fprintf(b, "It was busy then: %d of %d figures are too low. When it is idle, once more: blast calibrate --quick\n\n", n, len(p.Rows)+len(p.Failed))
		}
		if r := bestSocket(p); pps == 0 && r != nil {
			pps = r.StayBelowPPS
		}
	}
	if pps == 0 {
		b.WriteString(news + " Begin here; it takes half a minute and changes no setting:\n\n")
		line("blast quickstart", "what this machine can send, a first run, how to read it")
		b.WriteString("\nLater, against a target of yours:\n\n")
		line("blast udp HOST:PORT --rate 1k", "latency, loss and a verdict")
	} else {
		b.WriteString("Up to a third of that a run is to be trusted. Next:\n\n")
		line("blast udp HOST:PORT --rate "+shortRate(pps), "latency, loss and a verdict, with that margin")
	}
	if pps > 0 {
		line("blast ladder HOST:PORT", "the rate at which the target, or this machine, gives out")
	}
	line("blast serve udp", "a target on 127.0.0.1:9000 to try it on")
	line("blast probe", "what works here, and the command for what does not")
	line("blast -h", "everything else")
}

// folded breaks text at spaces into lines of at most 100 columns, each behind indent. What stands between commas stays together.
func folded(text, indent string) string {
	var b strings.Builder
	n := 0
	for i, part := range strings.SplitAfter(text, ", ") {
		if k := len(strings.TrimSpace(part)); i == 0 {
			b.WriteString(indent)
			n = len(indent)
		} else if n+k > 100 {
			b.WriteString("\n" + indent)
			n = len(indent)
		}
		b.WriteString(part)
		n += len(part)
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

// ceilingsLine lists the ceilings of one flow from one worker, at the payload nearest to 64 bytes.
func ceilingsLine(p *calib.Profile) string {
	var parts []string
	for i := range p.Rows {
		r := &p.Rows[i]
		if c, ok := p.Ceiling(r.Backend, r.GSO, firstPayload, 1, 1); ok && c.CeilingPPS == r.CeilingPPS && c.PayloadBytes == r.PayloadBytes && r.Workers == 1 && r.Flows == 1 {
			name := r.Backend
			if r.GSO > 1 {
				name += fmt.Sprintf(" in trains of %d", r.GSO)
			}
			parts = append(parts, name+" "+stats.FormatPPS(r.CeilingPPS))
		}
	}
	return strings.Join(parts, ", ")
}

// firstPayload is the payload that first figures are of, bytes: the default of blast udp.
const firstPayload = 64

// bestSocket is the row of the backend that a first run takes: of those that reach any socket, AF_XDP being none on loopback, the one with the
// highest ceiling, and of near equals the first; nil without any.
func bestSocket(p *calib.Profile) *calib.Row {
	var best *calib.Row
	for _, e := range backends() {
		i := slices.IndexFunc(p.Rows, func(r calib.Row) bool {
			c, ok := p.Ceiling(e.Name, 1, firstPayload, 1, 1)
			return ok && r.Backend == e.Name && r.GSO == 1 && r.Workers == c.Workers && r.PayloadBytes == c.PayloadBytes && r.Flows == r.Workers
		})
		if i < 0 || e.Name == afxdp.Name {
			continue
		}
		if r := &p.Rows[i]; best == nil || r.CeilingPPS > 1.05*best.CeilingPPS {
			best = r
		}
	}
	return best
}

// shortRate writes a rate with two digits, rounded down, as --rate takes it: "48k".
func shortRate(pps float64) string {
	n := uint64(pps)
	for step := uint64(1); ; step *= 10 {
		if n/step < 100 {
			n = n / step * step
			break
		}
	}
	switch n = cmp.Or(n, 1); {
	case n%1e6 == 0 || n > 1e6:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n%1e3 == 0 || n > 1e3:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

// age says how old something is.
func age(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / unit.of); n == 1 {
			return "measured 1 " + unit.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("measured %d %ss ago", n, unit.name)
		}
	}
	return "measured just now"
}
