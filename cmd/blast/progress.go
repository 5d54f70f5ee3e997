package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"blast/stats"
	"blast/verdict"
)

// watch returns what shows round n while it runs, on the terminal and on the page of --metrics, and what is to be called with the
// round's result, nil where there is none. Both are of no use to anybody where neither is there: the first is nil then.
func (p *udpPlan) watch(n int) (func(*stats.Live), func(*stats.Result)) {
	var line *progressLine
	if isTerminal(os.Stderr) {
		line = &progressLine{w: os.Stderr, width: func() int { return terminalWidth(os.Stderr) }, length: p.engine.Schedule.Length().String(), echo: p.engine.Echo || p.engine.Replies != nil}
		if p.rounds > 1 {
			line.prefix = fmt.Sprintf("round %d/%d  ", n+1, p.rounds)
		}
	}
	if line == nil && p.page == nil {
		return nil, func(*stats.Result) {}
	}
	live := func(l *stats.Live) {
		codes := p.brokenSoFar(l)
		if line != nil {
			line.show(l, p.config.Paced, codes)
		}
		if p.page != nil {
			p.page.Update(l, codes)
		}
	}
	return live, func(res *stats.Result) {
		if line != nil {
			line.clear()
		}
		if p.page == nil || res == nil {
			return
		}
		if err := p.page.Done(res); err != nil {
			fmt.Fprintf(os.Stderr, "blast: %v\n", err)
		}
	}
}

// brokenSoFar are the codes of what makes the run INVALID as it stands.
func (p *udpPlan) brokenSoFar(l *stats.Live) []string {
	res := l.Result
	res.Config, res.Backend.Name, res.Backend.GSO = p.config, p.entry.Name, max(p.engine.Backend.GSO, 1)
	p.calibrated(&res)
	return stats.Codes(verdict.SoFar(&res, verdict.Limits{}))
}

// terminalWidth is the width of a terminal, 80 where it does not tell.
func terminalWidth(f *os.File) int {
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// progressLine is one line on a terminal that is written over once an interval.
type progressLine struct {
	w              io.Writer
	width          func() int
	prefix, length string
	echo           bool
}

// show writes what the run came to. What does not fit the width is left out from the end on, so that the line stays one; the verdict
// comes first.
func (p *progressLine) show(l *stats.Live, paced bool, codes []string) {
	invalid := ""
	if len(codes) > 0 {
		invalid = "INVALID so far: " + strings.Join(codes, ", ")
	}
	width := max(p.width()-1, 1) // a line that fills the last column wraps on some terminals
	shown, room := "", width
	if invalid != "" {
		shown, room = "\x1b[31m"+shorten(invalid, width)+"\x1b[0m", max(width-utf8.RuneCountInString(invalid), 0)
	}
	for i, part := range p.parts(l, paced) {
		if i > 0 || invalid != "" {
			part = "  " + part
		}
		n := utf8.RuneCountInString(part)
		if n > room {
			break
		}
		shown, room = shown+part, room-n
	}
	fmt.Fprint(p.w, "\r\x1b[K", shown)
}

// parts are the figures, the most wanted first.
func (p *progressLine) parts(l *stats.Live, paced bool) []string {
	span := float64(l.LastNS) / 1e9
	per := func(n uint64) string {
		if span <= 0 {
			return stats.FormatPPS(0)
		}
		return stats.FormatPPS(float64(n) / span)
	}
	last := &l.Last
	sent := "sent " + per(last.Sent)
	if off := math.Abs(float64(last.Sent) - float64(last.Planned)); paced && off > 0.01*float64(last.Planned) {
		sent += " of " + per(last.Planned)
	}
	parts := []string{fmt.Sprintf("%s%.0f s of %s", p.prefix, last.T, p.length), sent}
	if paced {
		parts = append(parts, "lag p99 "+stats.FormatNS(last.LagP99NS))
	}
	if !p.echo {
		return parts
	}
	if paced {
		parts = append(parts, lossSoFar(&l.Result.Ledger))
	}
	return append(parts, "p99 "+stats.FormatNS(last.LatencyP99NS), "replied "+per(last.Replied))
}

// lossSoFar is of the packets whose fate is known.
func lossSoFar(l *stats.Ledger) string {
	share, _ := l.Loss()
	if l.Lost > 0 && share < 0.0001 {
		return "lost " + stats.FormatCount(l.Lost)
	}
	return "loss " + stats.FormatPercent(share)
}

// clear takes the line away.
func (p *progressLine) clear() { fmt.Fprint(p.w, "\r\x1b[K") }

// shorten cuts text to at most n characters.
func shorten(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n])
	}
	return text
}
