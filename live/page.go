// Package live shows a run in progress as a page that Prometheus scrapes: native histograms with classic buckets beside them, counters,
// and whether the run would be VALID as it stands.
//
// The page is fed once an interval by the goroutine that collects from the sending threads, which know nothing of it. Counters and
// histograms go on over the rounds of a run, so that after the last one they are the sums of the rounds' ledgers. It needs a free port and
// no privilege.
package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"blast/stats"
)

// Config is a page. All of it is fixed for the life of the page.
type Config struct {
	// Addr is HOST:PORT to listen on. An empty host means all addresses, port 0 a free one.
	Addr string
	// Labels of blast_info.
	RunID, Backend, Target, Mode, Model, Version string
	// Causes are all causes that a packet can be refused for, and Codes those that make a run INVALID: each has a series from the start.
	Causes, Codes []string
	// Confine, if set, is called by both goroutines that make a page, the one that collects the figures and the one that writes them, before
	// and, what it returns, after: it keeps that work off the CPUs of the sending threads.
	Confine func() (restore func())
}

// Page is served until Close. Its methods may be called from any goroutine.
type Page struct {
	cfg      Config
	listener net.Listener
	server   *http.Server
	served   chan error

	mu       sync.Mutex
	created  time.Time
	round    int
	finished bool
	past     figures // of the rounds that have ended
	now      figures // of the one in progress
	rate     float64 // the plan's, packets per second
	elapsed  time.Duration
	workers  []stats.Worker
	broken   map[string]bool
}

// figures are what only grows.
type figures struct {
	ledger                stats.Ledger
	lag, latency, service stats.Hist
}

// Open listens and serves. The error says what cannot be listened on.
func Open(cfg Config) (*Page, error) {
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	p := &Page{cfg: cfg, listener: listener, served: make(chan error, 1), created: time.Now(), broken: map[string]bool{}}
	registry := prometheus.NewRegistry()
	if err := registry.Register(newCollector(p)); err != nil {
		listener.Close()
		return nil, fmt.Errorf("metrics: %w", err)
	}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		defer p.confine()()
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "blast run", cfg.RunID, "- its figures for Prometheus are at /metrics")
	})
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

// confine calls Config.Confine for the calling goroutine.
func (p *Page) confine() (restore func()) {
	if p.cfg.Confine == nil {
		return func() {}
	}
	return p.cfg.Confine()
}

// Addr is where the page is, with the port that was granted.
func (p *Page) Addr() string { return p.listener.Addr().String() }

// Rounds is the number of rounds whose results the page has.
func (p *Page) Rounds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round
}

// Update shows the run as far as l knows it; broken are the codes that make it INVALID as it stands. Nothing of l is kept.
func (p *Page) Update(l *stats.Live, broken []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.ledger = stats.Ledger{}
	p.now.ledger.Add(&l.Result.Ledger)
	for _, h := range []struct{ to, from *stats.Hist }{{&p.now.lag, l.Lag}, {&p.now.latency, l.Latency}, {&p.now.service, l.Service}} {
		h.to.Reset()
		h.to.Add(h.from)
	}
	p.rate = 0
	if l.Result.Rate.TargetPPS > 0 && l.LastNS > 0 {
		p.rate = float64(l.Last.Planned) / time.Duration(l.LastNS).Seconds()
	}
	p.finished, p.elapsed = false, time.Duration(l.Result.Rate.ElapsedNS)
	p.workers = append(p.workers[:0], l.Result.Workers...)
	p.judge(broken)
}

// Done shows the result of a round: what the counters and histograms say from now on is its ledger and its histograms, added to those
// of the rounds before. It refuses a result whose histograms cannot be read.
func (p *Page) Done(res *stats.Result) error {
	var of [3]*stats.Hist
	for i, h := range []*stats.Histogram{&res.Lag, &res.Latency, &res.Service} {
		var err error
		if of[i], err = h.Hist(); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.past.ledger.Add(&res.Ledger)
	p.past.lag.Add(of[0])
	p.past.latency.Add(of[1])
	p.past.service.Add(of[2])
	p.now.ledger = stats.Ledger{}
	for _, h := range []*stats.Hist{&p.now.lag, &p.now.latency, &p.now.service} {
		h.Reset()
	}
	p.round++
	p.finished, p.rate, p.elapsed = true, res.Rate.TargetPPS, time.Duration(res.Rate.ElapsedNS)
	p.workers = append(p.workers[:0], res.Workers...)
	p.judge(stats.Codes(res.Verdict.Reasons))
	return nil
}

func (p *Page) judge(broken []string) {
	clear(p.broken)
	for _, code := range broken {
		p.broken[code] = true
	}
}

// Close stops serving: pages that are being written are finished, for at most a second.
func (p *Page) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if err != nil {
		err = p.server.Close()
	}
	if served := <-p.served; err == nil && !errors.Is(served, http.ErrServerClosed) {
		err = served
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
