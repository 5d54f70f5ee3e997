package main

import (
	"net"
	"strings"
	"testing"

	"blast/internal/testnet"
	"blast/stats"
)

// Over a veth pair sockets have every stamp. AF_XDP has none on the way out, which the result says, and arrivals by its XDP program: the
// parts add up all the same.
func TestKernelSegments(t *testing.T) {
	needAFXDP(t)
	pair := testnet.NewPair(t, testnet.Config{})
	server := serveOn(t, pair.Right, "--listen", net.JoinHostPort(pair.Right.IPv4.Addr().String(), "0"))
	for _, c := range []struct {
		backend, stamps string
		parts           []string
		notes           string
	}{
		{"sendmmsg", "software", allParts, ""},
		{"af_xdp", "xdp", []string{stats.SegmentLag, stats.SegmentUp, stats.SegmentServer, stats.SegmentDown, stats.SegmentQueue, stats.SegmentUser},
			"no stamps of its own"},
	} {
		t.Run(c.backend, func(t *testing.T) {
			res := in(t, pair, nil, "udp", server.addr, "--backend", c.backend, "--rate", "2k", "--duration", "2s", "--stamps", "1/2", "--format", "json").end().result(t)
			parts := segmentsOf(t, res)
			for _, name := range c.parts {
				if parts[name] == nil {
					t.Errorf("%s is missing", name)
				}
			}
			s := res.Segments
			if asked := s.Complete + s.Incomplete; s.Stamps != c.stamps || len(parts) != len(c.parts) || asked < 1900 || asked > 2000 || s.Incomplete > asked/10 {
				t.Errorf("%s: stamps %q, %d parts, %d complete, %d incomplete: want %q, %d, about 2000, few", c.backend, s.Stamps, len(parts), s.Complete, s.Incomplete,
					c.stamps, len(c.parts))
			}
			if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, c.notes) {
				t.Errorf("notes %q: want %q", notes, c.notes)
			}
			if out := res.Departures != nil; out != (c.stamps == "software") {
				t.Errorf("departures %v with stamps of %s", res.Departures, c.stamps)
			}
		})
	}
}
