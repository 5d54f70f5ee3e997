package main

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"blast/internal/testskip"
	"blast/stats"
)

// query asks for the IPv4 address of blast.test: id 0, recursion desired, one question.
const query = "0000 0100 0001 0000 0000 0000 05 626c617374 04 74657374 00 0001 0001"

// locally finds dnsmasq's own count in what it says on SIGUSR1.
var locally = regexp.MustCompile(`queries answered locally (\d+)`)

// TestKernelDNS loads a server that nobody here wrote: dnsmasq from Debian, with its own configuration on a free port of loopback. Replies
// are known by the id of the query, and dnsmasq's count agrees.
func TestKernelDNS(t *testing.T) {
	path, err := exec.LookPath("dnsmasq")
	if err != nil {
		testskip.Skip(t, "dns", err.Error(), "apt-get install dnsmasq-base")
	}
	untilValid(t, func() *stats.Result {
		server := startDNS(t, path)
		defer server.kill()
		before := server.answered(t)
		res, o := measure(t, server.addr, "--rate", "2k", "--duration", "3s", "--payload-hex", query, "--vary", "0:2:seq", "--match", "0:2")
		l := &res.Ledger
		if l.Planned != 6000 || l.Replied+l.Late+l.Lost != l.Sent || l.Stray+l.Duplicate != 0 || res.Config.Payload != "template" {
			t.Errorf("want 6000 queries, each answered once: %+v, payload %q, %s", *l, res.Config.Payload, o.stderr)
		}
		if n := server.answered(t) - before; n != l.Replied+l.Late {
			t.Errorf("dnsmasq answered %d, blast counted %d replies", n, l.Replied+l.Late)
		}
		if res.Verdict.Valid && l.Replied != 6000 {
			t.Errorf("VALID, but only %d of 6000 answered in time", l.Replied)
		}
		return res
	})
}

type dnsServer struct {
	cmd  *exec.Cmd
	addr string

	mu  sync.Mutex
	log bytes.Buffer
}

// Write collects the server's log.
func (s *dnsServer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func (s *dnsServer) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *dnsServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startDNS starts dnsmasq, which then knows one name and asks nobody else, and waits until it answers.
func startDNS(t *testing.T, path string) *dnsServer {
	t.Helper()
	port := freePort(t)
	s := &dnsServer{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	s.cmd = exec.Command(path, "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-poll", "--pid-file=", "--user=",
		"--log-facility=-", "--listen-address=127.0.0.1", "--bind-interfaces", "--address=/blast.test/192.0.2.1", "--port="+strconv.Itoa(int(port)))
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	conn, err := net.Dial("udp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply := make([]byte, 512)
	ask := fromHex(t, query)
	if !eventually(t.Context(), 5*time.Second, func() bool {
		if _, err := conn.Write(ask); err != nil {
			return false
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := conn.Read(reply)
		return err == nil && bytes.HasSuffix(reply[:n], []byte{192, 0, 2, 1})
	}) {
		t.Fatalf("dnsmasq does not answer on %s: %s", s.addr, s.text())
	}
	return s
}

// answered asks dnsmasq for its count.
func (s *dnsServer) answered(t *testing.T) uint64 {
	t.Helper()
	seen := len(locally.FindAllString(s.text(), -1))
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var all [][]string
	if !eventually(t.Context(), 5*time.Second, func() bool {
		all = locally.FindAllStringSubmatch(s.text(), -1)
		return len(all) > seen
	}) {
		t.Fatalf("dnsmasq says nothing about its queries: %s", s.text())
	}
	n, err := strconv.ParseUint(all[len(all)-1][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func fromHex(t *testing.T, text string) []byte {
	t.Helper()
	var b []byte
	digits := strings.ReplaceAll(text, " ", "")
	for i := 0; i+1 < len(digits); i += 2 {
		n, err := strconv.ParseUint(digits[i:i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, byte(n))
	}
	return b
}
