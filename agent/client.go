package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	neturl "net/url"
	"time"

	"blast/tuning"
)

const (
	askTimeout = 3 * time.Second
	pageMax    = 32 << 20 // bytes of an answer that are read
)

// Client asks one agent. It keeps its connection open between questions; Close ends that. For one goroutine at a time.
type Client struct {
	addr string
	http *http.Client
}

// NewClient makes a client of the agent at HOST:PORT. Nothing is sent yet.
func NewClient(addr string) (*Client, error) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return nil, fmt.Errorf("agent %q: want HOST:PORT, where blast serve --agent listens", addr)
	}
	return &Client{addr: addr, http: direct()}, nil
}

// direct is a client that uses no proxy: the point is this host's own way to the other.
func direct() *http.Client {
	return &http.Client{Timeout: askTimeout, Transport: &http.Transport{MaxIdleConns: 1, DialContext: (&net.Dialer{Timeout: askTimeout}).DialContext}}
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ask reads the host once. Errors say what to do on the other side.
func (c *Client) Ask(ctx context.Context) (Reading, error) {
	body, asked, answered, err := get(ctx, c.http, "http://"+c.addr+"/")
	if err != nil {
		return Reading{}, fmt.Errorf("agent %s: %w; start it on the target's host with: blast serve --agent %s (and --agent-allow this host, when that is outside its prefix)",
			c.addr, err, c.addr)
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil || a.Schema == "" {
		return Reading{}, fmt.Errorf("agent %s: what answers there is no blast agent; start one on another port with: blast serve --agent HOST:PORT", c.addr)
	}
	if a.Schema != Schema {
		return Reading{}, fmt.Errorf("agent %s: it speaks %s (blast %s), this blast speaks %s: put the same blast on both hosts, then: blast serve --agent %s", c.addr, a.Schema, a.Blast, Schema, c.addr)
	}
	r := Reading{Source: "agent " + c.addr, Sample: a.Sample, BootID: a.BootID, NetNS: a.NetNS, Hostname: a.Host.Hostname}
	r.setClock(asked, answered)
	r.Noop, err = c.noop(a.Noop)
	return r, err
}

// noop is the echo's address as this host has to send to it: the wildcard is the address that was asked.
func (c *Client) noop(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("agent %s: no-op echo at %q: %w", c.addr, text, err)
	}
	if !at.Addr().IsUnspecified() {
		return at, nil
	}
	host, _, _ := net.SplitHostPort(c.addr)
	addr, err := netip.ParseAddr(host)
	if err != nil { // a name; the agent's own port is reached by it, and so is the echo
		found, err := net.ResolveTCPAddr("tcp", c.addr)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("agent %s: %w", c.addr, err)
		}
		addr = found.AddrPort().Addr()
	}
	return netip.AddrPortFrom(addr.Unmap(), at.Port()), nil
}

// Best asks a few times and takes the answer with the shortest round trip, whose clock is known best.
func Best(ctx context.Context, ask func(context.Context) (Reading, error)) (Reading, error) {
	best, err := ask(ctx)
	for range 4 {
		if err != nil {
			return best, err
		}
		var next Reading
		if next, err = ask(ctx); err == nil && next.Within < best.Within {
			best = next
		}
	}
	return best, err
}

func get(ctx context.Context, c *http.Client, url string) (body []byte, asked, answered time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, asked, answered, err
	}
	asked = time.Now()
	resp, err := c.Do(req)
	if wrapped := (*neturl.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // it repeats the address
	}
	if err != nil {
		return nil, asked, answered, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, pageMax))
	answered = time.Now()
	if err != nil {
		return nil, asked, answered, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, asked, answered, fmt.Errorf("it answers %q", resp.Status)
	}
	return body, asked, answered, nil
}

// Here reads this host as an agent would, without a network.
func Here(r tuning.Reader, ifaces ...string) (Reading, error) {
	s, err := r.Sample(ifaces...)
	return Reading{Source: "this host", Sample: s, BootID: r.BootID(), NetNS: r.NetNS()}, err
}
