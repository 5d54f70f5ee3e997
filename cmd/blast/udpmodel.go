package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"blast/engine"
	"blast/pace"
	"blast/stats"
)

// modelFlags are the flags of blast udp that choose what, beside the plan, decides when a packet leaves.
type modelFlags struct {
	model            string
	clients, senders int
	think, correct   time.Duration
	maxInFlight      int
	names            string
}

func (f *modelFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.model, "model", stats.ModelOpen, "open (the plan alone decides), closed (--clients that wait for their replies; no plan) or blocking (a plan, "+
		"but --senders that wait for their replies)")
	fl.IntVar(&f.clients, "clients", 0, "with --model closed: clients, each a flow with one request at a time")
	fl.DurationVar(&f.think, "think", 0, "with --model closed: time between a reply and its client's next request")
	fl.IntVar(&f.senders, "senders", 0, "with --model blocking: senders, each a flow with every n-th slot of the plan")
	fl.IntVar(&f.maxInFlight, "max-in-flight", 0, "with --model open: hold due packets back while this many are in flight; they count from planned. 0 = no cap")
	fl.DurationVar(&f.correct, "co-correct", 0, "with --model closed: add an ESTIMATE of what clients that send at this interval would have seen")
	fl.StringVar(&f.names, "names", "", "write the worker and sequence number of each lost, late, duplicate and reordered packet to this file as JSON")
}

// waits reports whether sending depends on replies.
func (f *modelFlags) waits() bool { return f.model != stats.ModelOpen || f.maxInFlight > 0 }

// planModel checks the model against everything else that was asked for, and sets what follows from it: flows are clients or senders.
func (f *udpFlags) planModel(p *udpPlan, targets []netip.AddrPort) error {
	m := &f.modelFlags
	if err := m.check(); err != nil {
		return err
	}
	if m.names != "" && (f.mode != stats.ModeEcho || f.rounds > 1) {
		return errors.New("--names: wants replies and one round; leave --mode oneway or --rounds out")
	}
	if !m.waits() {
		return nil
	}
	what := "--model " + m.model
	if m.model == stats.ModelOpen {
		what = "--max-in-flight"
	}
	switch {
	case f.mode != stats.ModeEcho:
		return fmt.Errorf("%s: sending depends on replies, and --mode %s has none", what, f.mode)
	case f.workers != 1:
		return fmt.Errorf("%s: one thread has to see every reply: leave --workers out", what)
	case f.gso > 1:
		return fmt.Errorf("%s: a train leaves as one, whatever its packets wait for: leave --gso out", what)
	case f.warmup > 0:
		return fmt.Errorf("%s: a warm-up would hand its waiting packets over to the measured part: leave --warmup out", what)
	}
	users := m.clients + m.senders
	if users > 0 && f.flows != 0 && f.flows != users {
		return fmt.Errorf("flows %d for %d %ss: each is a flow of its own; leave --flows out", f.flows, users, m.user())
	}
	if users > 0 && users < len(targets) {
		return fmt.Errorf("%d %ss for %d targets: each target needs one at least", users, m.user(), len(targets))
	}
	if users > 0 {
		f.flows = users
	}
	if m.model == stats.ModelClosed {
		return f.planClosed(p)
	}
	return nil
}

func (m *modelFlags) user() string {
	if m.model == stats.ModelClosed {
		return "client"
	}
	return "sender"
}

// check refuses flags that belong to another model, and values that cannot be.
func (m *modelFlags) check() error {
	closed, blocking := m.model == stats.ModelClosed, m.model == stats.ModelBlocking
	switch {
	case m.model != stats.ModelOpen && !closed && !blocking:
		return fmt.Errorf("model %q: want open, closed or blocking", m.model)
	case m.clients < 0 || m.senders < 0 || m.think < 0 || m.maxInFlight < 0 || m.correct < 0:
		return errors.New("--clients, --senders, --think, --max-in-flight and --co-correct want 0 or more")
	case m.clients > 0 && !closed:
		return fmt.Errorf("--clients: the %s model has none; say --model closed", m.model)
	case m.think > 0 && !closed:
		return fmt.Errorf("--think: in the %s model nobody thinks; say --model closed", m.model)
	case m.senders > 0 && !blocking:
		return fmt.Errorf("--senders: the %s model has none; say --model blocking", m.model)
	case m.maxInFlight > 0 && m.model != stats.ModelOpen:
		return fmt.Errorf("--max-in-flight: the %s model has as many in flight as %ss; leave it out", m.model, m.user())
	case m.correct > 0 && !closed:
		return fmt.Errorf("--co-correct: latencies of the %s model count from planned times and hold every wait already; correcting them would count it twice", m.model)
	case closed && m.clients == 0:
		return errors.New("--model closed: how many? want --clients, such as --clients 10")
	case blocking && m.senders == 0:
		return errors.New("--model blocking: how many? want --senders, such as --senders 1")
	}
	return nil
}

// planClosed replaces the plan by the length of the run.
func (f *udpFlags) planClosed(p *udpPlan) error {
	switch {
	case f.rate != "" || f.bitrate != "" || f.profile != "const":
		return errors.New("--model closed: its rate is a result, clients / (latency + think time): leave --rate, --bitrate and --profile out, or say --model open")
	case f.think >= f.duration:
		return fmt.Errorf("think %v: no client would send twice within %v", f.think, f.duration)
	case f.correct > 0 && f.timeout/f.correct > 1<<20:
		return fmt.Errorf("co-correct %v: a reply within the timeout of %v could add more than a million samples; want at least %v", f.correct, f.timeout, f.timeout>>20)
	}
	f.rate = "max"
	return nil
}

// fillModel sets the engine's part and the effective configuration, once the rest is planned.
func (f *udpFlags) fillModel(p *udpPlan) error {
	e, c := &p.engine, &p.config
	if _, unpaced := e.Schedule.(pace.Unpaced); unpaced && f.waits() && f.model != stats.ModelClosed {
		return fmt.Errorf("--rate max: nothing can be held back from no plan: give a rate, or say --model closed")
	}
	if f.maxInFlight > 0 && uint64(f.maxInFlight) >= e.Schedule.Slots() {
		return fmt.Errorf("max in flight %d: the plan has %d packets in all, so the cap would never hold one back", f.maxInFlight, e.Schedule.Slots())
	}
	e.Model = map[string]engine.Model{stats.ModelOpen: engine.ModelOpen, stats.ModelClosed: engine.ModelClosed, stats.ModelBlocking: engine.ModelBlocking}[f.model]
	e.Think, e.MaxInFlight, e.Correct = f.think, f.maxInFlight, f.correct
	c.Model, c.Clients, c.Senders, c.ThinkNS, c.MaxInFlight, c.CorrectNS = f.model, f.clients, f.senders, int64(f.think), f.maxInFlight, int64(f.correct)
	if f.model == stats.ModelClosed {
		c.Profile = fmt.Sprintf("closed, %d clients, think %v", f.clients, f.think)
		c.ClockStart = "reply to the client's last request and its think time (latency) and time just before the send call (service time)"
	}
	if f.names != "" {
		e.Names = &engine.Names{}
	}
	return nil
}

// openNames makes the file of --names before anything is sent; nil without one.
func (f *modelFlags) openNames() (io.WriteCloser, error) {
	if f.names == "" {
		return nil, nil
	}
	file, err := os.Create(f.names)
	if err != nil {
		return nil, fmt.Errorf("--names: %w", err)
	}
	return file, nil
}

// writeNames writes the fates by name. A nil file asks for nothing.
func writeNames(file io.WriteCloser, n *engine.Names) error {
	if file == nil {
		return nil
	}
	all := func(list []engine.Name) []engine.Name { return append([]engine.Name{}, list...) }
	e := json.NewEncoder(file)
	err := errors.Join(e.Encode(struct {
		Schema    string        `json:"schema"`
		Lost      []engine.Name `json:"lost"`
		Late      []engine.Name `json:"late"`
		Duplicate []engine.Name `json:"duplicate"`
		Reordered []engine.Name `json:"reordered"`
		InFlight  []engine.Name `json:"in_flight"`
		Unnamed   uint64        `json:"unnamed"`
	}{"blast.names/1", all(n.Lost), all(n.Late), all(n.Duplicate), all(n.Reordered), all(n.InFlight), n.Unnamed}), file.Close())
	if err != nil {
		return fmt.Errorf("--names: %w", err)
	}
	return nil
}
