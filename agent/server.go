package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"blast/serve"
	"blast/stats"
	"blast/tuning"
)

// Schema names the shape of Answer in JSON. A client refuses any other.
const Schema = "blast.agent/1"

// slowest is how long a peer may take for its question, body included, and for taking the answer; its connection is closed then.
const slowest = 5 * time.Second

// Answer is what the agent says, as one JSON object.
type Answer struct {
	Schema string `json:"schema"`
	// Blast is the version of the program that answers.
	Blast string     `json:"blast"`
	Host  stats.Host `json:"host"`
	// BootID and NetNS name the running kernel and the network namespace, so that a client notices when it asks its own host.
	BootID string `json:"boot_id"`
	NetNS  string `json:"netns"`
	// Noop is the UDP address of the no-op echo.
	Noop   string        `json:"noop"`
	Sample tuning.Sample `json:"sample"`
}

// Config is what an agent needs. Listen must be given; the rest has a use when zero.
type Config struct {
	// Listen is the TCP address; port 0 lets the kernel choose. The no-op echo takes the UDP port of the same number.
	Listen netip.AddrPort
	// Allow are the peers that are answered; nil means serve.DefaultAllow: loopback and the prefix of the interface.
	Allow []netip.Prefix
	// Reader reads the host; the zero value this one.
	Reader tuning.Reader
}

// Server is a listening agent. Its methods may be called from any goroutine.
type Server struct {
	cfg    Config
	tcp    *gate
	noop   *serve.Server
	http   *http.Server
	host   stats.Host
	ifaces []string
	netns  string
	ended  chan error
}

// Start listens and answers in the background until Close. It reads the network namespace of the calling thread.
func Start(cfg Config) (*Server, error) {
	if !cfg.Listen.IsValid() {
		return nil, errors.New("agent: no address to listen on")
	}
	if cfg.Allow == nil {
		allow, err := serve.DefaultAllow([]netip.AddrPort{cfg.Listen})
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		cfg.Allow = allow
	}
	l, err := net.Listen("tcp", cfg.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	s := &Server{cfg: cfg, tcp: &gate{Listener: l, allow: cfg.Allow}, netns: cfg.Reader.NetNS(), ended: make(chan error, 1)}
	s.noop, err = serve.Start(serve.Config{Mode: serve.Echo, Listen: []netip.AddrPort{s.Addr()}, Allow: cfg.Allow})
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("agent: no-op echo on the UDP port of the same number: %w", err)
	}
	own, err := net.Interfaces()
	if err != nil {
		s.noop.Close()
		l.Close()
		return nil, fmt.Errorf("agent: %w", err)
	}
	for _, i := range own {
		s.ifaces = append(s.ifaces, i.Name)
	}
	s.host = cfg.Reader.Host("")
	s.http = &http.Server{Handler: s, ReadTimeout: slowest, WriteTimeout: slowest, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 1 << 14}
	go func() { s.ended <- s.http.Serve(s.tcp) }()
	return s, nil
}

// Addr is where it listens, with the port as bound.
func (s *Server) Addr() netip.AddrPort {
	a, _ := netip.ParseAddrPort(s.tcp.Addr().String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Allow is who is answered.
func (s *Server) Allow() []netip.Prefix { return append([]netip.Prefix(nil), s.cfg.Allow...) }

// Denied is the number of connections from others, closed without a word.
func (s *Server) Denied() uint64 { return s.tcp.denied.Load() }

// Close stops answering and echoing, and waits for both. It returns what ended the server before, if anything did.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	err := <-s.ended
	s.ended <- err
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, s.noop.Close())
}

// ServeHTTP answers GET / and nothing else.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "agent: only reading", http.StatusMethodNotAllowed)
		return
	case r.URL.Path != "/":
		http.NotFound(w, r)
		return
	}
	sample, err := s.cfg.Reader.Sample(s.ifaces...)
	if err != nil {
		http.Error(w, "agent: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(Answer{Schema: Schema, Blast: s.host.Blast, Host: s.host, BootID: s.cfg.Reader.BootID(), NetNS: s.netns, Noop: s.Addr().String(), Sample: sample})
}

// gate lets only allowed peers through; others are closed before a byte is read.
type gate struct {
	net.Listener
	allow  []netip.Prefix
	denied atomic.Uint64
}

// Accept waits for the next allowed peer.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			from := peer.Addr().Unmap().WithZone("")
			if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(from) }) {
				return c, nil
			}
		}
		g.denied.Add(1)
		c.Close()
	}
}
