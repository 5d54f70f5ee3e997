package vm

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blast/internal/testnet"
	"blast/stats"
)

// testHardwareStamps: where a card has been told to stamp what it sends, blast's departures are by the card's clock, and the parts of a packet still
// follow one another; where it has not, blast leaves it so and names the command. The emulated card stamps nothing that arrives but frames
// of the precision time protocol, so arrivals are by software. Emulated processors promise no times, so only counts and order are looked at.
func testHardwareStamps(t *testing.T, pair *testnet.Pair) {
	target := serveUDP(t, pair.Right, pair.Right.IPv4.Addr().String()+":0")
	udp := func(t *testing.T, backend string) (*stats.Result, string) {
		t.Helper()
		var out []byte
		cmd := exec.Command("/bin/blast", "udp", target, "--backend", backend, "--rate", "100", "--duration", "4s", "--stamps", "1/1", "--format", "json", "--max-lag", "1s")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		pair.Left.Do(func() { out, _ = cmd.Output() }) // INVALID is no failure here
		var res stats.Result
		if err := json.Unmarshal(out, &res); err != nil {
			t.Fatalf("%v\n%s%s", err, out, complaints.String())
		}
		return &res, string(out)
	}
	for _, backend := range []string{"sendmmsg", "io_uring", "net"} {
		t.Run(backend, func(t *testing.T) {
			pair.Left.Do(func() { takeTimes(t, pair.Left.Interface) })
			carrier(t, pair.Left)
			res, text := udp(t, backend)
			// A guest that stands still for seconds sends in bursts, of which the card, which keeps one stamp at a time, stamps too few.
			for tries := 1; tries < 3 && (res.Segments == nil || res.Segments.Complete < res.Segments.Incomplete); tries++ {
				res, text = udp(t, backend)
			}
			s := res.Segments
			if s == nil || res.Departures == nil {
				t.Fatalf("no segments or departures: %s", text)
			}
			t.Logf("%s departures, %s arrivals: %d complete, %d incomplete, clock within %d ns, residual %d ns, %d gaps, off the plan by %d ns (p50); %q",
				s.Stamps, s.Arrivals, s.Complete, s.Incomplete, s.ClockErrorNS, s.ResidualNS, res.Gap.Count, res.Departures.Error.P50, s.Notes)
			for _, p := range s.Parts {
				t.Logf("%s: n %d, min %d, p50 %d, max %d ns", p.Name, p.NS.Count, p.NS.Min, p.NS.P50, p.NS.Max)
			}
			if s.Stamps != "hardware" || s.Arrivals != "software" || res.Departures.Source != "tx_hardware" || s.ClockErrorNS <= 0 {
				t.Errorf("stamps %q, arrivals %q, departures by %q, clock error %d ns", s.Stamps, s.Arrivals, res.Departures.Source, s.ClockErrorNS)
			}
			// 400 are planned, of which a guest that stands still does not send all.
			if s.Complete < 100 || s.Complete < s.Incomplete || res.Gap.Count < 50 {
				t.Errorf("%d complete, %d incomplete, %d gaps", s.Complete, s.Incomplete, res.Gap.Count)
			}
			if p := s.Parts[2]; p.Name != stats.SegmentKernel || p.NS.Min <= 0 {
				t.Errorf("%s of %d ns: a packet was on the wire before the packet scheduler had it", p.Name, p.NS.Min)
			}
			if s.ResidualNS > s.ClockErrorNS+1000 {
				t.Errorf("parts are off by %d ns, more than the clock's %d", s.ResidualNS, s.ClockErrorNS)
			}
			if notes := strings.Join(s.Notes, "\n"); strings.Contains(notes, "before its driver") {
				t.Errorf("out of order: %s", notes)
			}
			if !strings.Contains(text, "arrivals by software") {
				t.Errorf("does not say that arrivals are by software: %s", text)
			}
		})
	}
	t.Run("off", func(t *testing.T) {
		pair.Left.Do(func() { stampConfig(t, pair.Left.Interface, unix.HWTSTAMP_TX_OFF, unix.HWTSTAMP_FILTER_NONE) })
		carrier(t, pair.Left)
		res, text := udp(t, "sendmmsg")
		if res.Segments == nil || res.Segments.Stamps != "software" || !strings.Contains(text, "hwstamp_ctl -i "+pair.Left.Interface+" -t 1") {
			t.Errorf("segments %+v; want stamps by software, and the command: %s", res.Segments, text)
		}
		pair.Left.Do(func() {
			if got := stampState(t, pair.Left.Interface); got.Tx_type != unix.HWTSTAMP_TX_OFF {
				t.Errorf("blast has told the card to stamp: %+v", got)
			}
			fd := dgram(t)
			defer unix.Close(fd)
			all := &unix.HwTstampConfig{Tx_type: unix.HWTSTAMP_TX_OFF, Rx_filter: unix.HWTSTAMP_FILTER_ALL}
			t.Logf("stamps of all that arrives: %v, %+v", unix.IoctlSetHwTstamp(fd, pair.Left.Interface, all), all) // what the emulated card can, for docs/truth-lab.md
		})
	})
}

// serveUDP runs blast serve udp on a host until the test ends, and returns where it listens.
func serveUDP(t *testing.T, h *testnet.Host, listen string) string {
	t.Helper()
	cmd := exec.Command("/bin/blast", "serve", "udp", "--listen", listen)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if !ok {
		t.Fatalf("the target said %q, %v", line, err)
	}
	return strings.Fields(addr)[0]
}
