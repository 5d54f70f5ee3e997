package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/stats"
)

// TestMain lets scripts run blast, and builds the real binary for the tests of signals and times.
func TestMain(m *testing.M) {
	testscript.Main(withBinary{m}, map[string]func(){"blast": main, "twosleepers": twoSleepers})
}

// binaryVariable names the environment variable with the path of the built binary.
const binaryVariable = "BLAST_TEST_BINARY"

type withBinary struct{ m *testing.M }

// Run builds the binary, static as make build does, and removes it afterwards.
func (w withBinary) Run() int {
	dir, err := os.MkdirTemp("", "blast-test")
	if err == nil {
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "blast")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err = build.Run(); err == nil {
			err = os.Setenv(binaryVariable, path)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build blast:", err)
		return 1
	}
	return w.m.Run()
}

// process is a running blast. It is killed when the test ends.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	begun          time.Time
	t              *testing.T
}

// start runs the binary with its output collected. change, if not nil, alters the command before it starts.
func start(t *testing.T, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Getenv(binaryVariable), args...), t: t}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_STATE_HOME=", "XDG_CACHE_HOME=")
	if change != nil {
		change(p.Cmd)
	}
	p.begun = time.Now()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// outcome is a finished blast.
type outcome struct {
	code           int
	stdout, stderr string
	took           time.Duration
	cmd            string
}

// end waits for the process.
func (p *process) end() outcome {
	p.t.Helper()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%v: %v", p.Args[1:], err)
	}
	return outcome{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String(), time.Since(p.begun), strings.Join(p.Args[1:], " ")}
}

func blast(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, nil, args...).end()
}

// measure runs blast udp and reads its JSON result, whatever the verdict: the machine is shared.
func measure(t *testing.T, args ...string) (*stats.Result, outcome) {
	t.Helper()
	o := blast(t, append([]string{"udp", "--format", "json"}, args...)...)
	return o.result(t), o
}

// result reads the JSON on standard output and checks what holds for every result: its ledger adds up and the exit code is that of
// its verdict.
func (o outcome) result(t *testing.T) *stats.Result {
	t.Helper()
	if o.code != exitOK && o.code != exitInvalid && o.code != exitSLO {
		t.Fatalf("blast %s: exit %d\n%s", o.cmd, o.code, o.stderr)
	}
	res, err := stats.ReadResult(strings.NewReader(o.stdout))
	if err != nil {
		t.Fatalf("blast %s: %v\n%s", o.cmd, err, o.stdout)
	}
	if err := res.Ledger.Check(res.Config.Mode); err != nil {
		t.Errorf("blast %s: %v", o.cmd, err)
	}
	if (o.code == exitInvalid) == res.Verdict.Valid {
		t.Errorf("blast %s: exit %d, but valid is %v", o.cmd, o.code, res.Verdict.Valid)
	}
	return res
}

// untilValid repeats a run, at most six times and with pauses, until it is VALID: on a shared machine a neighbour may spoil some, and stays
// for a while. What VALID means stays as it is, and whatever run itself checks must hold in every attempt.
func untilValid(t *testing.T, run func() *stats.Result) *stats.Result {
	t.Helper()
	for attempt := 1; attempt <= 6; attempt++ {
		res := run()
		if res.Verdict.Valid {
			return res
		}
		t.Logf("attempt %d is INVALID:%s", attempt, reasons(res))
		if t.Failed() {
			break
		}
		time.Sleep(time.Duration(attempt) * time.Second)
	}
	t.Fatal("no attempt was VALID")
	return nil
}

func reasons(res *stats.Result) string {
	text := ""
	for _, r := range res.Verdict.Reasons {
		text += "\n  " + r.Code + ": " + r.Detail
	}
	return text
}

func hasCode(list []stats.Reason, code string) bool {
	return slices.ContainsFunc(list, func(r stats.Reason) bool { return r.Code == code })
}

// allowedCPUs are the CPUs that this process may use. The tests keep the target on the first and blast's worker on the last, as
// blast does by default.
func allowedCPUs(t *testing.T) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var list []int
	for c := range 1024 {
		if set.IsSet(c) {
			list = append(list, c)
		}
	}
	return list
}

// target is a running blast serve udp.
type target struct {
	cmd   *exec.Cmd
	addr  string
	lines *bufio.Scanner
}

// newTarget starts a server and waits for its address.
func newTarget(binary string, args ...string) (*target, error) {
	s := &target{cmd: exec.Command(binary, append([]string{"serve", "udp"}, args...)...)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.lines = bufio.NewScanner(out)
	line, err := s.line()
	addr, ok := strings.CutPrefix(line, "listening ")
	if err == nil && !ok {
		err = fmt.Errorf("the first line is %q", line)
	}
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("blast serve: %w", err)
	}
	s.addr = addr
	return s, nil
}

// serveUDP starts the built server on a free port of 127.0.0.1, or where args say, on the first CPU. It is killed when the test ends.
func serveUDP(t *testing.T, args ...string) *target {
	t.Helper()
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	s, err := newTarget(os.Getenv(binaryVariable), append(args, "--cpus", strconv.Itoa(allowedCPUs(t)[0]))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

// serveOn starts the built server on a host of a pair. It is killed when the test ends.
func serveOn(t *testing.T, h *testnet.Host, args ...string) *target {
	t.Helper()
	var s *target
	h.Do(func() {
		var err error
		if s, err = newTarget(os.Getenv(binaryVariable), args...); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(s.kill)
	return s
}

func (s *target) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *target) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (s *target) line() (string, error) {
	if s.lines.Scan() {
		return s.lines.Text(), nil
	}
	if err := s.lines.Err(); err != nil {
		return "", err
	}
	return "", io.ErrUnexpectedEOF
}

// countsLine finds the pairs of name and number in the server's counts.
var countsLine = regexp.MustCompile(`(?:^|, )([a-z ]+) (\d+)`)

// counts asks the server for its counts, once they have stopped moving.
func (s *target) counts() (map[string]uint64, error) {
	var last map[string]uint64
	for {
		if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			return nil, err
		}
		counts, err := s.nextCounts()
		if err != nil || last != nil && counts["received"] == last["received"] && counts["denied"] == last["denied"] {
			return counts, err
		}
		last = counts
		time.Sleep(50 * time.Millisecond)
	}
}

// nextCounts reads the next line of counts.
func (s *target) nextCounts() (map[string]uint64, error) {
	for {
		line, err := s.line()
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(line, "received ") {
			continue
		}
		counts := map[string]uint64{}
		for _, m := range countsLine.FindAllStringSubmatch(line, -1) {
			n, err := strconv.ParseUint(m[2], 10, 64)
			if err != nil {
				return nil, err
			}
			counts[m[1]] = n
		}
		return counts, nil
	}
}

// counted is counts for a test.
func (s *target) counted(t *testing.T) map[string]uint64 {
	t.Helper()
	counts, err := s.counts()
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// freePort is a port of 127.0.0.1 that was free a moment ago.
func freePort(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(sa.(*unix.SockaddrInet4).Port)
}

// eventually waits, at most limit, until ok.
func eventually(ctx context.Context, limit time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}
