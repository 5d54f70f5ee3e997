// Package report shows a Result, a ladder or a proof: as text and as an HTML page for people, as JSON, as CSV, as HdrHistogram log and
// percentile distribution for other tools, and two results side by side.
//
// Everything here is a pure function of what is shown and a writer; time and host are those of the run. Nothing is judged here:
// package verdict does that before. It needs no privilege and no kernel.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Options shape a text report. The zero value is 100 columns without colour.
type Options struct {
	// Width is the number of columns that sentences are wrapped to, at least 60; 0 means 100. Tables take up to 100, the steps of a ladder
	// up to 120.
	Width int
	// Color marks the verdict with ANSI colours.
	Color bool
}

const (
	widthDefault = 100
	widthMin     = 60
	labelWidth   = 10

	red, green, plain = "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"
)

// page collects a text report: labelled, wrapped sentences and tables.
type page struct {
	b     strings.Builder
	width int
	color bool
}

func newPage(o Options) *page {
	if o.Width == 0 {
		o.Width = widthDefault
	}
	return &page{width: max(o.Width, widthMin), color: o.Color}
}

// flush writes the page in one call, so that a writer's error cannot be lost on the way.
func (p *page) flush(w io.Writer) error {
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (p *page) blank() { p.b.WriteByte('\n') }

// line writes a label and a sentence, wrapped with the label's column left free.
func (p *page) line(label, format string, args ...any) {
	p.wrapped(label, labelWidth, fmt.Sprintf(format, args...))
}

// first writes the word and the sentence that a page begins with.
func (p *page) first(word, color, sentence string) {
	p.line(word, "%s", sentence)
	text := p.b.String() // colour goes in after wrapping, which counts columns
	p.b.Reset()
	p.b.WriteString(p.paint(color, word) + text[len(word):])
}

// wrapped writes text behind a label; a hard line break in text stays one.
func (p *page) wrapped(label string, indent int, text string) {
	head := pad(label, indent)
	if utf8.RuneCountInString(label) >= indent {
		head = label + " "
	}
	for hard := range strings.SplitSeq(text, "\n") {
		for _, l := range wrap(hard, p.width-indent) {
			p.b.WriteString(strings.TrimRight(head+l, " "))
			p.b.WriteByte('\n')
			head = strings.Repeat(" ", indent)
		}
	}
}

// paint colours a word that stands alone on the page.
func (p *page) paint(color, s string) string {
	if !p.color {
		return s
	}
	return color + s + plain
}

// units stay on the line of their number.
var units = []string{"B", "%", "ns", "us", "ms", "s", "pps", "kpps", "Mpps", "Gpps", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}

// wrap breaks s at spaces into lines of at most width runes; a longer word stays whole.
func wrap(s string, width int) []string {
	var words []string
	for word := range strings.SplitSeq(s, " ") {
		if i := len(words) - 1; i >= 0 && slices.Contains(units, strings.TrimRight(word, ".,;:)")) {
			words[i] += " " + word
			continue
		}
		words = append(words, word)
	}
	var lines []string
	line, n := "", 0
	for _, word := range words {
		k := utf8.RuneCountInString(word)
		if n > 0 && n+1+k > width {
			lines, line, n = append(lines, line), "", 0
		}
		if n > 0 {
			line, n = line+" ", n+1
		}
		line, n = line+word, n+k
	}
	return append(lines, line)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

// table writes rows with the first column to the left and the others to the right, two spaces apart.
func (p *page) table(rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if i == 0 {
				line = pad(cell, widths[0])
				continue
			}
			line += "  " + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + cell
		}
		p.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
