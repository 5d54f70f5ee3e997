package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"blast/stats"
)

// Pages are one file each: markup, style and pictures inside, no script, nothing fetched.
//
//go:embed page.html page.css
var pageFiles embed.FS

// HTML writes r as a page for a browser: the verdict, the figures that are quoted, the distributions, the course of the run, the
// ledger, and then all that is needed to believe or repeat it. Errors are the writer's, or histograms that cannot be read.
func HTML(w io.Writer, r *stats.Result) error {
	d, err := runDocument(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return d.write(w)
}

// document is a page before it is markup.
type document struct {
	// Kind is "run", "comparison", "ladder" or "proof"; Subject is what it is about.
	Kind, Subject string
	// Circumstance is the line under the subject.
	Circumstance string
	Verdicts     []banner
	Headlines    []headlineFigure
	Sections     []section
	// Foot says what made the page.
	Foot string
}

// banner is a verdict: the first thing on a page.
type banner struct {
	// Of names the run where there are several.
	Of string
	// Word is the verdict in capitals; Bad paints it red, which only INVALID is.
	Word     string
	Bad      bool
	Sentence string
	Reasons  []stats.Reason
	Warnings []stats.Reason
	SLOs     []objective
}

// objective is an SLO and what became of it.
type objective struct {
	Text, Detail string
	// Word is "met", "not met", or "INVALID" where the run says nothing about it.
	Word string
	Bad  bool
}

// headlineFigure is one of the large figures.
type headlineFigure struct {
	Label, Number, Unit string
	// Notes are lines below it.
	Notes   []string
	Invalid bool
}

// section is a part of a page under a heading.
type section struct {
	ID, Title, Lead string
	Parts           []part
}

// part is one of its fields.
type part struct {
	Text    string
	Facts   []fact
	Ledger  []equation
	Table   *table
	Picture *drawn
	Command string
}

// fact is a name and what there is to say about it, in one or more lines.
type fact struct {
	Name  string
	Lines []string
}

// equation is a conservation line: one sum that adds up, or does not.
type equation struct {
	Whole term
	Terms []term
	Note  string
}

type term struct{ Name, Count string }

// table has its first Left columns aligned to the left and the rest, numbers, to the right.
type table struct {
	Caption string
	Left    int
	Head    []string
	Rows    []row
	Note    string
}

type row struct {
	Cells []string
	// Invalid marks the row; Sub indents its name; Ink is the colour of its key, if it has one.
	Invalid, Sub bool
	Ink          ink
}

// drawn is a picture in both layouts.
type drawn struct {
	Title, Note  string
	Keys         []key
	Wide, Narrow template.HTML
}

// drawing lays p out, or is nil where there is nothing to draw.
func drawing(p *picture) *drawn {
	if p == nil || p.empty() {
		return nil
	}
	d := &drawn{Title: p.title, Note: p.note, Keys: p.keys, Wide: template.HTML(p.wide()), Narrow: template.HTML(p.narrow())}
	if p.untitled {
		d.Title = ""
	}
	return d
}

// pictures are the parts for those of ps that have something to show.
func pictures(ps ...*picture) []part {
	var parts []part
	for _, p := range ps {
		if d := drawing(p); d != nil {
			parts = append(parts, part{Picture: d})
		}
	}
	return parts
}

// add puts a section on the page unless it is empty.
func (d *document) add(s section) {
	if len(s.Parts) > 0 {
		d.Sections = append(d.Sections, s)
	}
}

// write fills the template. The page is made whole before any of it is written.
func (d *document) write(w io.Writer) error {
	style, err := pageFiles.ReadFile("page.css")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	page, err := template.New("page.html").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) },
		"prose": prose, "flags": flags,
		"left": func(i, left int) bool { return i < max(left, 1) },
	}).ParseFS(pageFiles, "page.html")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b strings.Builder
	if err := page.Execute(&b, d); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// prose is text whose numbers keep their units, and in which a flag such as --cpus is not broken behind its dashes.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case slices.Contains(units, strings.TrimRight(word, ".,;:)")):
			b.WriteString("\u00a0")
		default:
			b.WriteByte(' ')
		}
		b.WriteString(unbroken(word))
	}
	return template.HTML(b.String())
}

// flags is a command, in which only flags are kept whole: it is there to be copied, so that its blanks stay as they are.
func flags(command string) template.HTML {
	words := strings.Split(command, " ")
	for i := range words {
		words[i] = unbroken(words[i])
	}
	return template.HTML(strings.Join(words, " "))
}

// unbroken is a word as markup; a browser would break a flag behind its dashes.
func unbroken(word string) string {
	escaped := template.HTMLEscapeString(word)
	if strings.HasPrefix(strings.TrimLeft(word, "("), "--") && len(word) < 40 {
		return `<span class="flag">` + escaped + `</span>`
	}
	return escaped
}

// verdictBanner is what a result says about itself.
func verdictBanner(of string, r *stats.Result) banner {
	v := &r.Verdict
	b := banner{Of: of, Word: "VALID", Sentence: headline(r), Reasons: v.Reasons, Warnings: v.Warnings}
	if !v.Valid {
		b.Word, b.Bad = "INVALID", true
	}
	for _, s := range v.SLOs {
		o := objective{Text: s.Text, Detail: strings.TrimPrefix(strings.TrimPrefix(s.Detail, "not met: "), "met: "), Word: "not met"}
		if s.Met {
			o.Word = "met"
		}
		if !v.Valid {
			o.Word, o.Bad = "INVALID", true
		}
		b.SLOs = append(b.SLOs, o)
	}
	return b
}

// of splits "1.19 ms" for a headline.
func (h headlineFigure) of(text string) headlineFigure {
	h.Number, h.Unit, _ = strings.Cut(text, " ")
	return h
}

func day(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04:05 UTC") }

// foot names the program.
func foot(h *stats.Host) string {
	name := "blast"
	if stats.Known(h.Blast) {
		name += " " + h.Blast
	}
	return "Written by " + name + ". All in this file: no script, nothing is fetched."
}
