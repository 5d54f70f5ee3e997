package tuning

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"blast/stats"
)

// tableColumns is the widest line that WriteFindings writes.
const tableColumns = 100

// WriteFindings prints findings for people, within 100 columns: the walls in the order they are met, what stands out, the commands that
// mend it, and what is fine. all prints the fine ones as a table too.
func WriteFindings(w io.Writer, findings []Finding, load Workload, iface string, all bool) error {
	load = load.withDefaults()
	var b strings.Builder
	writeHeading(&b, load, iface)
	writeWalls(&b, findings, load)
	var shown, fine []Finding
	for _, f := range findings {
		if f.Level == Fine && !all {
			fine = append(fine, f)
			continue
		}
		shown = append(shown, f)
	}
	if len(shown) > 0 {
		b.WriteString("\n")
		writeRow(&b, "LEVEL", "WHAT", "FOUND", "WANTED", "WHY")
		for _, f := range shown {
			why := f.Why
			if f.At > 0 && f.Level != Fine {
				why += fmt.Sprintf("; met at %s %s", stats.FormatCount(uint64(f.At)), f.Unit)
			}
			writeRow(&b, string(f.Level), f.Name, f.Found, f.Wanted, why)
		}
	}
	writeCommands(&b, shown)
	if len(fine) > 0 {
		var parts []string
		for _, f := range fine {
			parts = append(parts, f.Name+" "+f.Found)
		}
		b.WriteString("\nfine as it is:\n")
		for _, line := range wrap(strings.Join(parts, ", "), tableColumns-2) {
			b.WriteString("  " + line + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeHeading(b *strings.Builder, load Workload, iface string) {
	fmt.Fprintf(b, "this host for %s with %s", load.Protocol, plural(load.Workers, "worker"))
	if load.Connections > 0 {
		fmt.Fprintf(b, ", %s %s", stats.FormatCount(uint64(load.Connections)), load.thing())
	}
	if load.Rate > 0 {
		fmt.Fprintf(b, ", %s/s", stats.FormatCount(uint64(load.Rate)))
	}
	if iface != "" {
		fmt.Fprintf(b, ", over %s", iface)
	}
	b.WriteString("\n")
}

// writeWalls lists the walls that stand at a number, nearest first, marking those that the workload meets.
func writeWalls(b *strings.Builder, findings []Finding, load Workload) {
	var walls []Finding
	for _, f := range findings {
		if f.At > 0 {
			walls = append(walls, f)
		}
	}
	slices.SortStableFunc(walls, compareAt)
	if len(walls) == 0 {
		return
	}
	b.WriteString("\nwalls, in the order they are met:\n")
	for _, f := range walls {
		number, mark := stats.FormatCount(uint64(f.At)), ""
		if f.At >= 1<<62 {
			number = "beyond counting"
		}
		if f.Level == Wall {
			mark = "  <- this workload is beyond it"
		}
		fmt.Fprintf(b, "  %15s %-14s %s%s\n", number, f.Unit, f.Name, mark)
	}
	if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Wall }) && (load.Connections > 0 || load.Rate > 0) {
		b.WriteString("this workload meets none of them\n")
	}
}

func writeCommands(b *strings.Builder, shown []Finding) {
	heading := false
	for _, f := range shown {
		if f.Command == "" || f.Level == Fine || f.Level == Unread {
			continue
		}
		if !heading {
			b.WriteString("\nto mend it (* = blast tune apply does it, and blast tune restore undoes it):\n")
			heading = true
		}
		mark := " "
		if f.Apply {
			mark = "*"
		}
		for i, line := range wrap(f.Command, tableColumns-23) {
			name := f.Name
			if i > 0 {
				mark, name = " ", ""
			}
			fmt.Fprintf(b, "%s %-20s %s\n", mark, name, line)
		}
	}
}

// writeRow writes a row of the table; cells that are too long go on below.
func writeRow(b *strings.Builder, cells ...string) {
	widths := []int{7, 19, 17, 17, 36}
	lines, height := make([][]string, len(cells)), 1
	for i, cell := range cells {
		lines[i] = wrap(cell, widths[i])
		height = max(height, len(lines[i]))
	}
	for row := range height {
		var line strings.Builder
		for i := range cells {
			text := ""
			if row < len(lines[i]) {
				text = lines[i][row]
			}
			fmt.Fprintf(&line, "%-*s ", widths[i], text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// wrap breaks a text at spaces into lines of at most width; a word that is longer is cut.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for len(word) > width {
			if line != "" {
				out, line = append(out, line), ""
			}
			out, word = append(out, word[:width]), word[width:]
		}
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// WriteAudit prints where workers are, and whether that is right, within 100 columns.
func WriteAudit(w io.Writer, audit []Audit) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s %5s %5s %6s %10s %-9s %-8s %s\n", "WORKER", "CORE", "NODE", "QUEUE", "INTERRUPT", "ON CORE", "VERDICT", "WHY")
	for _, a := range audit {
		irq := "-"
		if a.IRQ >= 0 {
			irq = fmt.Sprint(a.IRQ)
		}
		for i, line := range append(wrap(a.Why, tableColumns-58), "")[:max(1, len(wrap(a.Why, tableColumns-58)))] {
			if i > 0 {
				fmt.Fprintf(&b, "%57s %s\n", "", line)
				continue
			}
			fmt.Fprintf(&b, "%-7d %5s %5s %6s %10s %-9s %-8s %s\n", a.Worker, dash(a.CPU), dash(a.Node), dash(a.Queue), irq, cmp.Or(FormatCPUs(a.IRQCPUs), "-"), a.Verdict, line)
		}
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func dash(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
