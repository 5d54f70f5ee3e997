package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"blast/stats"
)

// terminal is a pseudo-terminal: what is written to its user's end is collected.
type terminal struct {
	user *os.File

	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{}
}

// newTerminal makes one of a width. It is closed when the test ends.
func newTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	user, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{user: user, done: make(chan struct{})}
	go func() {
		defer close(term.done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.text.Write(buf[:n])
			term.mu.Unlock()
			if err != nil { // EIO once the last user's end is closed
				return
			}
		}
	}()
	t.Cleanup(func() {
		user.Close()
		<-term.done
		master.Close()
	})
	return term
}

// end closes the user's end and returns all that was written.
func (term *terminal) end() string {
	term.user.Close()
	<-term.done
	return term.text.String()
}

// colour finds what switches colours.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestProgressTerminal: what somebody at a terminal sees of a run. One line that is written over, never longer than the terminal is wide, gone at
// the end; in red what already makes the run INVALID; loss only of packets whose timeout has passed.
func TestProgressTerminal(t *testing.T) {
	server := serveUDP(t, "--servers", "4", "--service", "10us", "--drop", "50%")
	for _, c := range []struct {
		why     string
		columns uint16
		says    []string
		not     string
	}{
		{"a wide one", 200, []string{"s of 3s", "sent ", "lag p99 ", "loss ", " %", "p99 ", "replied ", "\x1b[31mINVALID so far: ", "lag"}, "\n"},
		{"a narrow one keeps the verdict", 40, []string{"\x1b[31mINVALID so far: "}, "replied"},
	} {
		term := newTerminal(t, c.columns)
		o := start(t, func(cmd *exec.Cmd) { cmd.Stderr = term.user }, "udp", server.addr, "--rate", "1k", "--duration", "3s", "--timeout", "200ms", "--max-lag", "1ns",
			"--backend", "net").end()
		text := term.end()
		if o.code != exitInvalid {
			t.Fatalf("%s: exit %d: %s", c.why, o.code, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %q", c.why, want, text)
			}
		}
		lines := strings.Split(text, "\r\x1b[K")
		for _, line := range lines {
			if n := utf8.RuneCountInString(colour.ReplaceAllString(line, "")); n >= int(c.columns) || strings.Contains(line, c.not) {
				t.Errorf("%s: %d columns of %d: %q", c.why, n, c.columns, line)
			}
		}
		if len(lines) < 3 || lines[0] != "" || lines[len(lines)-1] != "" {
			t.Errorf("%s: %q: want two lines at least, and the last one taken away", c.why, lines)
		}
	}
	if o := blast(t, "udp", server.addr, "--rate", "1k", "--duration", "1500ms", "--backend", "net"); strings.Contains(o.stderr, "\x1b") || strings.Contains(o.stderr, "sent") {
		t.Errorf("progress without a terminal: %q", o.stderr)
	}
}

// The line by hand, for every width: the figures are those of the last interval, the loss is that of the run, and what does not fit is left
// out whole.
func TestProgressLine(t *testing.T) {
	l := &stats.Live{Last: stats.Second{T: 2, Planned: 600, Sent: 500, Replied: 250, LagP99NS: 12_000, LatencyP99NS: 340_000}, LastNS: int64(500 * time.Millisecond)}
	l.Result.Ledger = stats.Ledger{Sent: 110, Replied: 70, Late: 5, Lost: 25, InFlight: 10}
	show := func(width int, paced, echo bool, codes ...string) string {
		var buf bytes.Buffer
		p := &progressLine{w: &buf, width: func() int { return width }, length: "10s", echo: echo}
		p.show(l, paced, codes)
		return strings.TrimPrefix(buf.String(), "\r\x1b[K")
	}
	behind := *l
	l.Last.Planned, l.Result.Ledger.Sent, l.Result.Ledger.Replied = 500, 7_000_040, 7_000_000
	on := show(80, true, true)
	*l = behind
	for _, c := range []struct {
		why, got, want string
	}{
		{"echo", show(200, true, true), "2 s of 10s  sent 1.00 kpps of 1.20 kpps  lag p99 12.0 us  loss 25.00 %  p99 340 us  replied 500 pps"},
		{"one way", show(200, true, false), "2 s of 10s  sent 1.00 kpps of 1.20 kpps  lag p99 12.0 us"},
		{"no plan: nothing tells what is lost already", show(200, false, true), "2 s of 10s  sent 1.00 kpps  p99 340 us  replied 500 pps"},
		{"80 columns", show(80, true, true), "2 s of 10s  sent 1.00 kpps of 1.20 kpps  lag p99 12.0 us  loss 25.00 %"},
		{"80 columns with the plan kept", on, "2 s of 10s  sent 1.00 kpps  lag p99 12.0 us  lost 25  p99 340 us"},
		{"INVALID", show(60, true, true, "lag", "duty"), "\x1b[31mINVALID so far: lag, duty\x1b[0m  2 s of 10s"},
		{"hardly a terminal", show(10, true, true, "lag"), "\x1b[31mINVALID s\x1b[0m"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.why, c.got, c.want)
		}
	}
	for width := range 120 {
		if n := utf8.RuneCountInString(colour.ReplaceAllString(show(width, true, true, "lag"), "")); n > max(width-1, 1) {
			t.Errorf("width %d: %d characters", width, n)
		}
	}
}
